"""Real processes on a bucket of a real S3 server, killed and stopped: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from programs.hasty import hasty_queue
from test_processes import PATIENCE, Processes

import rota
import s3_server
from rota.stores.objects_address import requests_for
from rota.stores.objects_bucket import Bucket
from rota.stores.objects_snapshot import number_of


@pytest.fixture(params=["s3", "folder"])
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    running = Processes(tmp_path)
    running.store = s3_server.url() if request.param == "s3" else (tmp_path / "bucket").as_uri()
    yield running
    running.end()


async def completed(queue: rota.Queue, key: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await queue.get_schedule(key)).status != "completed":
            await queue.store.wait(await queue.now() + timedelta(seconds=1))


async def test_a_worker_killed_mid_task_loses_nothing(processes: Processes) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("hang")
        victim = processes.start("worker", lease=2)
        await processes.until(lambda: processes.lines("start"), "the task starts")
        victim.kill()
        victim.wait()
        processes.start("worker", lease=2)
        done = await queue.wait(task.id, PATIENCE)
    assert (done.status, done.output, done.attempt) == ("completed", "done", 2)
    assert len(processes.lines("end")) == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_scheduler_killed_mid_tick_fires_each_time_once(processes: Processes, when: str) -> None:
    async with rota.connect(processes.store) as queue:
        await queue.create_schedule("s", task_type="work", interval=2, max_runs=2, overlap_policy="allow")
        victim = processes.start("scheduler", die=when)
        await processes.until(lambda: victim.poll() is not None, "the scheduler dies")
        assert victim.returncode == -signal.SIGKILL
        assert bool(await queue.runs("s")) is (when == "after")  # a slow start finds two times due
        processes.start("scheduler")
        await completed(queue, "s")
        rows = await queue.runs("s")
        tasks = await queue.list(schedule="s")
    assert len(rows) == len({row.scheduled_at for row in rows}) == 2
    assert {row.target_id for row in rows} == {task.id for task in tasks}


async def test_two_schedulers_and_two_workers_share_one_bucket(processes: Processes) -> None:
    """One of the workers is killed on the way."""
    keys = [f"s{n}" for n in range(3)]
    async with rota.connect(processes.store) as queue:
        tasks = await queue.submit_many([("work", {"seconds": 0.02})] * 100)
        nodes = [processes.start("worker", lease=3) for _ in range(2)]
        for _ in range(2):
            processes.start("scheduler")
        await processes.until(lambda: len(processes.lines("ready")) == 4, "all are up")
        for key in keys:
            await queue.create_schedule(key, task_type="work", interval=1, max_runs=2, overlap_policy="allow")
        nodes[0].kill()
        for key in keys:
            await completed(queue, key)
        for task in tasks:
            assert (await queue.wait(task.id, PATIENCE)).status == "completed"
        for key in keys:
            rows = await queue.runs(key)
            fired = [row for row in rows if row.target_id is not None]
            assert len(rows) == len({row.scheduled_at for row in rows})
            assert len(fired) == 2
            for row in fired:
                assert (await queue.wait(row.target_id or "", PATIENCE)).status == "completed"
    victim = str(nodes[0].pid)
    starts = Counter(line[1] for line in processes.lines("start"))
    again = {id for id, count in starts.items() if count > 1}
    by_victim = {line[1] for line in processes.lines("start") if line[2] == victim}
    assert again <= by_victim, "a task ran twice although its worker lived"
    assert len(starts) == 100 + 3 * 2


async def test_a_stopped_node_that_wakes_is_fenced(processes: Processes) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("work", {"seconds": 0.5})
        node = processes.start("worker", lease=2)
        await processes.until(lambda: processes.lines("start"), "the task starts")
        os.kill(node.pid, signal.SIGSTOP)
        processes.start("worker", lease=2)
        done = await queue.wait(task.id, PATIENCE)
        os.kill(node.pid, signal.SIGCONT)
        await processes.until(
            lambda: "lost the lease" in processes.stderr(node), "the stale answer is refused"
        )
        assert await queue.get(task.id) == done
        assert done.attempt == 2


@pytest.mark.parametrize("processes", ["s3"], indirect=True)
async def test_nodes_that_slept_through_the_removal_of_the_log_lose_and_repeat_nothing(
    processes: Processes,
) -> None:
    """A worker and the only scheduler are stopped until the log that they knew is gone, and go on in the middle of
    what they did."""
    window = 1.5
    async with hasty_queue(processes.store, window) as queue:
        bucket = Bucket(requests_for(processes.store))
        tasks = [await queue.submit("work")]
        sleepers = [processes.start(role, lease=3, window=window) for role in ("worker", "scheduler")]
        processes.start("worker", lease=3, window=window)
        await processes.until(lambda: len(processes.lines("ready")) == 3, "all are up")
        await queue.create_schedule("s", task_type="work", interval=1, overlap_policy="allow")
        await processes.until(lambda: len(processes.lines("end")) > 1, "work is done")
        known = number_of(bucket.list("log/")[-1])
        for node in sleepers:
            os.kill(node.pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            while number_of(bucket.list("log/")[0]) <= known:
                tasks.append(await queue.submit("work"))
        slept = len(processes.lines("start"))
        for node in sleepers:
            os.kill(node.pid, signal.SIGCONT)
        awake = str(sleepers[0].pid)
        async with asyncio.timeout(PATIENCE):
            while awake not in {line[2] for line in processes.lines("start")[slept:]}:
                tasks.append(await queue.submit("work"))
        fired = (await queue.get_schedule("s")).run_count
        async with asyncio.timeout(PATIENCE):
            while (await queue.get_schedule("s")).run_count < fired + 2:
                await queue.store.wait(await queue.now() + timedelta(seconds=1))
        await queue.pause_schedule("s")
        rows = await queue.runs("s", limit=1000)
        targets = [row.target_id for row in rows if row.target_id is not None]
        ended = [await queue.wait(id, PATIENCE) for id in [*targets, *(task.id for task in tasks)]]
    times = sorted(row.scheduled_at for row in rows)
    assert {later - time for time, later in pairwise(times)} == {timedelta(seconds=1)}, "each time once"
    assert len(targets) == len(set(targets)) == len([row for row in rows if row.status != "skipped"])
    assert {task.status for task in ended} == {"completed"}
    starts, ends = (Counter(line[1] for line in processes.lines(word)) for word in ("start", "end"))
    assert starts.keys() == ends.keys() == {task.id for task in ended}
    assert [task.id for task in ended if starts[task.id] > task.attempt] == []


async def test_sigterm_finishes_what_runs_and_exits_0(processes: Processes) -> None:
    async with rota.connect(processes.store) as queue:
        task = await queue.submit("work", {"seconds": 1})
        node = processes.start("worker")
        await processes.until(lambda: processes.lines("start"), "the task starts")
        node.terminate()
        await processes.until(lambda: node.poll() is not None, "the worker ends")
        assert node.returncode == 0, processes.stderr(node)
        assert (await queue.get(task.id)).status == "completed"
