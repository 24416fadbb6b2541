"""Nodes as processes of their own, on one store that they share; each says what it does in one file."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import rota
from forked import Forked
from rota.engine.clock import SystemClock

PROGRAM = Path(__file__).parent / "acceptance" / "programs" / "node.py"
PATIENCE = 60.0


class Processes:
    """Starts nodes, reads what their handlers logged, and leaves no process behind."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store = store
        self.log = folder / "log"
        self.log.touch()
        self._folder = folder
        self._started: list[Forked] = []

    def start(self, role: str, **options: object) -> Forked:
        words = [f"{name}={value}" for name, value in options.items()]
        arguments = [self.store, str(self.log), role, *words]
        with (self._folder / f"stderr-{len(self._started)}").open("wb") as stderr:
            process = Forked(arguments, program=PROGRAM, stderr=stderr.fileno())
        self._started.append(process)
        return process

    def lines(self, word: str) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines() if line.startswith(word + " ")]

    def stderr(self, process: Forked) -> str:
        return (self._folder / f"stderr-{self._started.index(process)}").read_text()

    async def until(self, met: Callable[[], object], what: str) -> None:
        """Wait for an event that another process brings about."""
        deadline = SystemClock().monotonic() + PATIENCE
        while not met():
            if SystemClock().monotonic() > deadline:
                errors = "\n".join(self.stderr(process) for process in self._started)
                raise AssertionError(f"never: {what}\n{self.log.read_text()}\n{errors}")
            await asyncio.sleep(0.03)

    async def until_ready(self, count: int = 1) -> None:
        await self.until(lambda: len(self.lines("ready")) == count, "all are up")

    def tasks_begun(self, *, beside: Sequence[Forked]) -> int:
        """How many tasks were begun; no task twice, beside those that one of these had begun, who died."""
        dead = {str(victim.pid) for victim in beside}
        begun = Counter(line[1] for line in self.lines("start"))
        again = {id for id, count in begun.items() if count > 1}
        by_the_dead = {line[1] for line in self.lines("start") if line[2] in dead}
        assert again <= by_the_dead, "a task ran twice although its worker lived"
        return len(begun)

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()


async def completed(queue: rota.Queue, key: str) -> list[rota.Run]:
    """The runs of a schedule, when it has fired as often as it may. Each expected time is there once."""
    async with asyncio.timeout(PATIENCE):
        while (await queue.get_schedule(key)).status != "completed":
            await queue.store.wait(await queue.now() + timedelta(seconds=1))
    rows = await queue.runs(key)
    assert len(rows) == len({row.scheduled_at for row in rows})
    return [row for row in rows if row.target_id is not None]
