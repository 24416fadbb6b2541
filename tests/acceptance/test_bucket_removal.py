"""A bucket whose log is cut every few moments, on a real S3 server, under nodes that are stopped and go on."""

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

import s3_server
from acceptance.programs.hasty import hasty_queue
from processes import PATIENCE, Processes
from rota.stores.bucket.formats import number_of
from rota.stores.bucket.service.address import BucketAddress
from rota.stores.bucket.service.bucket import Bucket


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    running = Processes(s3_server.url(), tmp_path)
    yield running
    running.end()


@pytest.mark.long
async def test_nodes_that_slept_through_the_removal_of_the_log_lose_and_repeat_nothing(
    processes: Processes,
) -> None:
    """A worker and the only scheduler are stopped until the log that they knew is gone, and go on in the middle of
    what they did."""
    window = 1.5
    async with hasty_queue(processes.store, window) as queue:
        bucket = Bucket(BucketAddress.parse(processes.store).requests())
        tasks = [await queue.submit("work")]
        sleepers = [processes.start(role, lease=3, window=window) for role in ("worker", "scheduler")]
        processes.start("worker", lease=3, window=window)
        await processes.until_ready(3)
        await queue.create_schedule(
            "s",
            task_type="work",
            interval=1,
            overlap_policy="allow",
            misfire_grace=timedelta(hours=1),  # on a slow machine they sleep for long
        )
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
