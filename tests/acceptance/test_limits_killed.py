"""Limits of tasks across real processes, some of which are killed: judged by what the handlers themselves marked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import rota
from processes import PATIENCE, Processes
from stores import ADDRESSES
from worlds import THOROUGH

CUSTOMERS = ("a", "b")
AT_ONCE = 2
RATE, PERIOD = 12, 2.0
EACH = 30 if THOROUGH else 10


@pytest.fixture(params=[name for name in ADDRESSES if THOROUGH or name == "sqlite"])
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    running = Processes(ADDRESSES[request.param](tmp_path), tmp_path)
    yield running
    running.end()


def most_at_once(spans: list[tuple[float, float]]) -> int:
    return max(sum(1 for begun, ended in spans if begun <= at < ended) for at, _ in spans)


def have_begun(processes: Processes, least: int) -> bool:
    return len(processes.lines("begins")) >= least


async def test_four_processes_of_which_two_are_killed_keep_the_limits(processes: Processes) -> None:
    async with rota.connect(processes.store) as queue:
        killed: dict[str, float] = {}
        nodes = [processes.start("worker", lease=2) for _ in range(4)]
        await processes.until_ready(4)
        tasks = await queue.submit_many([("limited", {"customer": name}) for name in CUSTOMERS * EACH])
        for number, victim in enumerate(nodes[:2], 1):
            await processes.until(partial(have_begun, processes, EACH // 2 * number), "some begin")
            killed[str(victim.pid)] = time.monotonic()
            victim.kill()
            victim.wait()
            processes.start("worker", lease=2)
        for task in tasks:
            assert (await queue.wait(task.id, PATIENCE)).status == "completed"
        lines = [task.line for task in await queue.list(limit=100)]
    assert lines == [None] * len(tasks)
    ends = {(line[2], line[3]): float(line[4]) for line in processes.lines("ends")}
    for name in CUSTOMERS:
        marks = [line for line in processes.lines("begins") if line[1] == name]
        spans = [(float(at), ends.get((id, pid), killed.get(pid, 0.0))) for _, _, id, pid, at in marks]
        assert most_at_once(spans) <= AT_ONCE
        begun = sorted(at for at, _ in spans)
        apart = [later - sooner for sooner, later in zip(begun, begun[RATE:], strict=False)]
        assert min(apart, default=PERIOD) > PERIOD / 2, (
            "a worker is slow to begin what it claimed, but not by that much"
        )
