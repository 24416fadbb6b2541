"""What a task costs in requests, where it is submitted in the worker's process."""

from __future__ import annotations

import asyncio
from collections import Counter

import rota
from bucket.faulty import FaultyRequests
from rota.engine.clock import SystemClock
from rota.engine.observe.telemetry import Observation, TaskMoved
from rota.stores.bucket.service.bucket import MemoryRequests
from rota.stores.bucket.store import BucketStore

TASKS = 20


async def test_a_task_costs_three_log_entries_and_next_to_no_look_at_the_log() -> None:
    """It is submitted, claimed and settled. Nobody looks at the log for what he has written himself."""
    requests = FaultyRequests(MemoryRequests())
    store = BucketStore(requests, SystemClock())
    await store.open()
    queue = rota.Queue(store)
    settled: asyncio.Queue[Observation] = asyncio.Queue()
    worker = rota.Worker(
        queue,
        observers=[lambda signal: settled.put_nowait(signal) if isinstance(signal, TaskMoved) else None],
    )

    @worker.task("echo")
    async def echo(input: int) -> int:
        return input

    running = asyncio.create_task(worker.run(handle_signals=False))
    await queue.submit("echo", 0)
    await settled.get()
    begun = len(requests.made)
    for number in range(TASKS):
        await queue.submit("echo", number)
        await settled.get()
    made = Counter(kind for kind, key in requests.made[begun:] if key.startswith("log/"))
    worker.stop()
    await running
    await store.close()
    assert made["create"] == 3 * TASKS
    assert made["get"] < TASKS
    assert made["list"] == 0
