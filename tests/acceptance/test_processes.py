"""Real processes on one SQLite file or one PostgreSQL, killed and stopped: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

import rota
from command_line import STORES
from postgres_server import new_database
from rota.engine.clock import SystemClock

PROGRAM = Path(__file__).parent / "programs" / "node.py"
PATIENCE = 60.0


class Processes:
    """Starts nodes, reads what their handlers logged, and leaves no process behind."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder / 'rota.db'}"
        self.log = folder / "log"
        self.log.touch()
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, role: str, **options: object) -> subprocess.Popen[bytes]:
        words = [f"{name}={value}" for name, value in options.items()]
        command = [sys.executable, str(PROGRAM), self.store, str(self.log), role, *words]
        with (self._folder / f"stderr-{len(self._started)}").open("wb") as stderr:
            process = subprocess.Popen(command, stderr=stderr)
        self._started.append(process)
        return process

    def lines(self, word: str) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines() if line.startswith(word + " ")]

    def stderr(self, process: subprocess.Popen[bytes]) -> str:
        return (self._folder / f"stderr-{self._started.index(process)}").read_text()

    async def until(self, met: Callable[[], object], what: str) -> None:
        """Wait for an event that another process brings about."""
        deadline = SystemClock().monotonic() + PATIENCE
        while not met():
            if SystemClock().monotonic() > deadline:
                errors = "\n".join(self.stderr(process) for process in self._started)
                raise AssertionError(f"never: {what}\n{self.log.read_text()}\n{errors}")
            await asyncio.sleep(0.01)

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture(params=STORES)
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    running = Processes(tmp_path)
    if request.param == "postgres":
        running.store = new_database()
    yield running
    running.end()


async def test_a_worker_killed_mid_task_loses_nothing(processes: Processes) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("hang")
        victim = processes.start("worker", lease=1)
        await processes.until(lambda: processes.lines("start"), "the task starts")
        victim.kill()
        victim.wait()
        processes.start("worker", lease=1)
        done = await queue.wait(task.id, PATIENCE)
    assert (done.status, done.output, done.attempt) == ("completed", "done", 2)
    assert len(processes.lines("end")) == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_scheduler_killed_mid_tick_fires_each_time_once(processes: Processes, when: str) -> None:
    async with rota.connect(processes.store) as queue:
        await queue.create_schedule("s", task_type="work", interval=1, max_runs=3, overlap_policy="allow")
        victim = processes.start("scheduler", die=when)
        await processes.until(lambda: victim.poll() is not None, "the scheduler dies")
        assert victim.returncode == -signal.SIGKILL
        assert bool(await queue.runs("s")) == (when == "after")
        processes.start("scheduler")
        await _completed(queue, "s")
        rows = await queue.runs("s")
        tasks = await queue.list(schedule="s")
    assert len(rows) == len({row.scheduled_at for row in rows}) == 3
    assert {row.target_id for row in rows} == {task.id for task in tasks}


async def test_two_schedulers_and_four_workers_share_one_store(processes: Processes) -> None:
    """One of the workers is killed on the way."""
    keys = [f"s{n}" for n in range(5)]
    async with rota.connect(processes.store) as queue:
        tasks = await queue.submit_many([("work", {"seconds": 0.02})] * 200)
        nodes = [processes.start("worker", lease=1) for _ in range(4)]
        for _ in range(2):
            processes.start("scheduler")
        await processes.until(lambda: len(processes.lines("ready")) == 6, "all are up")
        for key in keys:
            await queue.create_schedule(key, task_type="work", interval=1, max_runs=3, overlap_policy="allow")
        nodes[0].kill()
        for key in keys:
            await _completed(queue, key)
        for task in tasks:
            assert (await queue.wait(task.id, PATIENCE)).status == "completed"
        for key in keys:
            rows = await queue.runs(key)
            fired = [row for row in rows if row.target_id is not None]
            assert len(rows) == len({row.scheduled_at for row in rows})
            assert len(fired) == 3
            for row in fired:
                assert (await queue.wait(row.target_id or "", PATIENCE)).status == "completed"
    victim = str(nodes[0].pid)
    starts = Counter(line[1] for line in processes.lines("start"))
    again = {id for id, count in starts.items() if count > 1}
    by_victim = {line[1] for line in processes.lines("start") if line[2] == victim}
    assert again <= by_victim, "a task ran twice although its worker lived"
    assert len(starts) == 200 + 5 * 3


async def _completed(queue: rota.Queue, key: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await queue.get_schedule(key)).status != "completed":
            await queue.store.wait(await queue.now() + timedelta(seconds=1))


async def test_sigterm_finishes_what_runs_and_exits_0(processes: Processes) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("work", {"seconds": 1})
        node = processes.start("worker")
        await processes.until(lambda: processes.lines("start"), "the task starts")
        node.terminate()
        await processes.until(lambda: node.poll() is not None, "the worker ends")
        assert node.returncode == 0
        assert (await queue.get(task.id)).status == "completed"


async def test_asked_twice_it_hands_back_what_runs_and_exits_0(processes: Processes) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("hang")
        node = processes.start("worker", patience=3600)
        await processes.until(lambda: processes.lines("start"), "the task starts")
        node.send_signal(signal.SIGINT)
        node.send_signal(signal.SIGTERM)  # another signal, since two of one kind may become one
        await processes.until(lambda: node.poll() is not None, "the worker ends")
        assert node.returncode == 0, processes.stderr(node)
        back = await queue.get(task.id)
    assert (back.status, back.attempt, back.lease_id) == ("pending", 0, None)


async def test_a_handler_that_blocks_the_loop_does_not_lose_its_lease_unnoticed(
    processes: Processes,
) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("block", {"seconds": 4})
        node = processes.start("worker", lease=3)
        await processes.until(lambda: "has blocked the event loop" in processes.stderr(node), "it is noticed")
        assert "block has blocked the event loop" in processes.stderr(node)
        assert "time.sleep" in processes.stderr(node)
        await queue.wait(task.id, PATIENCE)


async def test_a_stopped_node_that_wakes_is_fenced(processes: Processes) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("hang")
        node = processes.start("worker", lease=1)
        await processes.until(lambda: processes.lines("start"), "the task starts")
        await _stop_outside_a_commit(processes, node)
        processes.start("worker", lease=1)
        done = await queue.wait(task.id, PATIENCE)
        os.kill(node.pid, signal.SIGCONT)
        await processes.until(lambda: "lost the lease" in processes.stderr(node), "it learns that it lost it")
        assert await queue.get(task.id) == done
        assert done.attempt == 2


async def _stop_outside_a_commit(processes: Processes, node: subprocess.Popen[bytes]) -> None:
    """A process that is stopped while it holds a lock holds up everyone, so it is let go again."""
    while True:
        os.kill(node.pid, signal.SIGSTOP)
        if not await _is_locked(processes.store):
            return
        os.kill(node.pid, signal.SIGCONT)
        await asyncio.sleep(0.02)


async def _is_locked(store: str) -> bool:
    """Whether a stopped process keeps others from writing."""
    if store.startswith("postgresql:"):
        connection = await asyncpg.connect(store)
        try:
            await connection.execute("select 1 from rota.task for update nowait")
            return False
        except asyncpg.LockNotAvailableError:
            return True
        finally:
            await connection.close()
    async with rota.connect(f"{store}?busy_timeout=1") as probe:
        try:
            await probe.submit("nobody-runs-this")
            return False
        except rota.Unavailable:
            return True
