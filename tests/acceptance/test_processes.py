"""Real processes on one SQLite file, PostgreSQL or bucket, killed and stopped: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

import rota
from forked import Forked
from processes import PATIENCE, Processes, completed
from rota.engine.roles import worker as worker_role
from stores import ADDRESSES
from worlds import THOROUGH

SHARED = [name for name in ADDRESSES if THOROUGH or name != "folder"]
"""A folder is a bucket, as S3 is: its own part, the files, has its tests in `tests/bucket` and in conformance."""


@pytest.fixture(params=SHARED)
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    running = Processes(ADDRESSES[request.param](tmp_path), tmp_path)
    yield running
    running.end()


@pytest.fixture
def lease(processes: Processes) -> int:
    """Seconds. A living worker keeps its lease, also where it has to wait for others' commits or for a processor."""
    return 3


async def test_a_worker_killed_mid_task_loses_nothing(processes: Processes, lease: int) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("hang")
        victim = processes.start("worker", lease=lease)
        await processes.until(lambda: processes.lines("start"), "the task starts")
        victim.kill()
        victim.wait()
        processes.start("worker", lease=lease)
        done = await queue.wait(task.id, PATIENCE)
    assert (done.status, done.output, done.attempt) == ("completed", "done", 2)
    assert len(processes.lines("end")) == 1


@pytest.mark.parametrize(
    ("processes", "when"),
    [
        *((name, "after") for name in SHARED),
        *((name, "before") for name in SHARED if THOROUGH or name == "sqlite"),
    ],
    indirect=["processes"],
)
async def test_a_scheduler_killed_mid_tick_fires_each_time_once(processes: Processes, when: str) -> None:
    async with rota.connect(processes.store) as queue:
        victim = processes.start("scheduler", die=when)
        await processes.until_ready()
        await queue.create_schedule("s", task_type="work", interval=1, max_runs=2, overlap_policy="allow")
        await processes.until(lambda: victim.poll() is not None, "the scheduler dies")
        assert victim.returncode == -signal.SIGKILL
        assert bool(await queue.runs("s")) == (when == "after")
        processes.start("scheduler")
        fired = await completed(queue, "s")
        tasks = await queue.list(schedule="s")
    assert len(fired) == 2
    assert {row.target_id for row in fired} == {task.id for task in tasks}


@dataclass(frozen=True)
class Fleet:
    """How many there are, and how many of them die."""

    workers: int
    killed_workers: int
    killed_schedulers: int
    tasks: int
    schedules: int
    lease: int
    schedulers: int = 2
    take_part: int | None = None  # so many workers surely get some of the work, the dead among them


FLEETS = {
    "sqlite": Fleet(4, 1, 0, tasks=200, schedules=5, lease=5),
    "postgres": Fleet(6, 2, 1, tasks=300, schedules=5, lease=5, take_part=3),
    "s3": Fleet(2, 1, 0, tasks=100, schedules=3, lease=5),
    "folder": Fleet(2, 1, 0, tasks=100, schedules=3, lease=5),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("processes", "fleet"), [(name, FLEETS[name]) for name in SHARED], ids=SHARED, indirect=["processes"]
)
async def test_a_fleet_of_which_some_are_killed(processes: Processes, fleet: Fleet) -> None:
    keys = [f"s{n}" for n in range(fleet.schedules)]
    async with rota.connect(processes.store) as queue:
        tasks = await queue.submit_many([("work", {"seconds": 0.02})] * fleet.tasks)
        workers = [processes.start("worker", lease=fleet.lease) for _ in range(fleet.workers)]
        schedulers = [processes.start("scheduler") for _ in range(fleet.schedulers)]
        await processes.until_ready(fleet.workers + fleet.schedulers)
        for key in keys:
            await queue.create_schedule(key, task_type="work", interval=1, max_runs=2, overlap_policy="allow")
        victims = workers[: fleet.killed_workers] + schedulers[: fleet.killed_schedulers]
        for victim in victims:
            victim.kill()
        fired = [await completed(queue, key) for key in keys]
        for id in [task.id for task in tasks] + [row.target_id or "" for rows in fired for row in rows]:
            assert (await queue.wait(id, PATIENCE)).status == "completed"
    assert [len(rows) for rows in fired] == [2] * fleet.schedules
    assert processes.tasks_begun(beside=victims) == fleet.tasks + 2 * fleet.schedules
    if fleet.take_part is not None:
        assert len({line[2] for line in processes.lines("start")}) >= fleet.take_part, "the work was shared"


async def test_sigterm_finishes_what_runs_and_exits_0(processes: Processes) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("work", {"seconds": 0.5})
        node = processes.start("worker")
        await processes.until(lambda: processes.lines("start"), "the task starts")
        node.terminate()
        await processes.until(lambda: node.poll() is not None, "the worker ends")
        assert node.returncode == 0, processes.stderr(node)
        assert (await queue.get(task.id)).status == "completed"


@pytest.mark.parametrize(
    ("processes", "kind"),
    [
        *((name, "hang") for name in SHARED),
        *((name, "checks") for name in SHARED if THOROUGH or name == "sqlite"),
    ],
    indirect=["processes"],
)
async def test_asked_twice_it_hands_back_what_runs_and_exits_0(processes: Processes, kind: str) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit(kind)
        node = processes.start("worker", patience=3600)
        await processes.until(lambda: processes.lines("start"), "the task starts")
        node.send_signal(signal.SIGINT)
        node.send_signal(signal.SIGTERM)  # another signal, since two of one kind may become one
        await processes.until(lambda: node.poll() is not None, "the worker ends")
        assert node.returncode == 0, processes.stderr(node)
        back = await queue.get(task.id)
    assert (back.status, back.attempt, back.lease_id) == ("pending", 0, None)


@pytest.mark.parametrize("processes", ["sqlite"], indirect=True)  # who notices is a thread of the node
async def test_a_handler_that_blocks_the_loop_does_not_lose_its_lease_unnoticed(
    processes: Processes, tmp_path: Path
) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("block", {"path": str(tmp_path / "go on")})
        node = processes.start("worker", lease=3)
        await processes.until(lambda: "time.sleep" in processes.stderr(node), "it is noticed")
        assert "block has blocked the event loop" in processes.stderr(node)
        (tmp_path / "go on").touch()
        assert (await queue.wait(task.id, PATIENCE)).status == "completed"


async def test_a_stopped_node_that_wakes_is_fenced(processes: Processes, lease: int, tmp_path: Path) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("await-file", {"path": str(tmp_path / "go on")})
        node = processes.start("worker", lease=lease)
        await processes.until(lambda: processes.lines("start"), "the task starts")
        await _stop_outside_a_commit(processes, node)
        (tmp_path / "go on").touch()
        processes.start("worker", lease=lease)
        done = await queue.wait(task.id, PATIENCE)
        os.kill(node.pid, signal.SIGCONT)
        await processes.until(lambda: "lost the lease" in processes.stderr(node), "its answer is refused")
        assert await queue.get(task.id) == done
        assert done.attempt == 2


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_cancel_at_another_node_reaches_the_handler_long_before_a_look_or_a_renewal(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_role, "LOOK_AGAIN", timedelta(hours=1))
    address = ADDRESSES[kind](tmp_path)
    rarely = {"sqlite": "", "postgres": "&poll=300"}[kind]
    started, app = asyncio.Semaphore(0), rota.App()

    @app.task("endless")
    async def endless() -> None:
        started.release()
        await asyncio.Event().wait()

    async with rota.connect(address + rarely) as here, rota.connect(address) as elsewhere:
        tasks = [await here.submit("endless") for _ in range(3)]
        worker = rota.Worker(here, app, lease=300, scheduler=False, janitor=False)
        running = asyncio.create_task(worker.run(handle_signals=False))
        for _ in tasks:
            await started.acquire()
        for task in tasks:  # the first may be seen by a look that another event has caused
            await elsewhere.cancel(task.id)
            assert (await elsewhere.wait(task.id, PATIENCE)).status == "cancelled"
        worker.stop()
        await running


async def _stop_outside_a_commit(processes: Processes, node: Forked) -> None:
    """A process that is stopped while it holds a lock holds up everyone, so it is let go again."""
    while True:
        os.kill(node.pid, signal.SIGSTOP)
        if not await _is_locked(processes.store):
            return
        os.kill(node.pid, signal.SIGCONT)
        await asyncio.sleep(0.02)


async def _is_locked(store: str) -> bool:
    """Whether a stopped process keeps others from writing. In a bucket nobody has locks."""
    if store.startswith("postgresql:"):
        connection = await asyncpg.connect(store)
        try:
            await connection.execute("select 1 from rota.task for update nowait")
            return False
        except asyncpg.LockNotAvailableError:
            return True
        finally:
            await connection.close()
    if not store.startswith("sqlite:"):
        return False
    async with rota.connect(f"{store}?busy_timeout=1") as probe:
        try:
            await probe.submit("nobody-runs-this")
            return False
        except rota.Unavailable:
            return True


@pytest.mark.parametrize(
    "processes", [name for name in SHARED if THOROUGH or name != "sqlite"], indirect=True
)
async def test_signals_children_and_parks_of_two_processes_meet(processes: Processes, lease: int) -> None:
    """A parked run is woken by nothing else: a wake-up that is lost is a run that does not end."""
    async with rota.connect(processes.store) as queue:
        victim, _ = [processes.start("worker", lease=lease) for _ in range(2)]
        await processes.until_ready(2)
        runs = [await queue.start_workflow("races", {"n": n}) for n in range(12)]
        sending = [queue.signal(run.id, name, name) for run in runs for name in ("a", "b")]
        await asyncio.gather(*sending[:12])
        victim.kill()
        victim.wait()
        await asyncio.gather(*sending[12:])
        ended = [await queue.wait(run.id, PATIENCE) for run in runs]
    assert [run.output for run in ended] == [["a", "done", n, "b"] for n in range(12)]
    ran = Counter(line[1] for line in processes.lines("step"))
    by_the_victim = {line[1] for line in processes.lines("step") if line[2] == str(victim.pid)}
    assert {key for key, count in ran.items() if count > 1} <= by_the_victim
