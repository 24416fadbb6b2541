"""With 30 ms added to every request: how long a submit takes, how fast four nodes drain 5,000 tasks, how late a
schedule fires.

    python bench/bucket_speed.py
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import datetime
from statistics import median, quantiles

import rota
from bucket_nodes import queue_on, running

TASKS = 5000


async def submit() -> None:
    made: Counter[str] = Counter()
    async with queue_on("submit", made) as queue:
        times = []
        for _ in range(100):
            began = time.perf_counter()
            await queue.submit("work")
            times.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)
        spaced = []
        for _ in range(10):  # so far apart that the node must look first whether it is current
            await asyncio.sleep(1.1)
            began = time.perf_counter()
            await queue.submit("work")
            spaced.append(time.perf_counter() - began)
    print(f"submit: p50 {median(times) * 1000:.0f} ms; after a pause p50 {median(spaced) * 1000:.0f} ms")


async def drain() -> None:
    made: Counter[str] = Counter()
    done: Counter[int] = Counter()
    finished = asyncio.Event()
    async with AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(queue_on("drain", made)) for _ in range(4)]
        for _ in range(TASKS // 1000):
            await queues[0].submit_many([("work", None)] * 1000)
        made.clear()
        began = time.perf_counter()
        for number, queue in enumerate(queues):
            worker = rota.Worker(queue, concurrency=200)

            @worker.task("work")
            async def work(input: object, number: int = number) -> None:
                done[number] += 1
                if sum(done.values()) >= TASKS:
                    finished.set()

            await stack.enter_async_context(running(worker))
        await finished.wait()
        while await queues[0].count(status="completed") < TASKS:  # noqa: ASYNC110  the store is asked, not an event
            await asyncio.sleep(0.01)
        took = time.perf_counter() - began
        counted = Counter(made)
    shares = ", ".join(str(done[number]) for number in range(4))
    print(f"drain: {TASKS} tasks in {took:.1f} s, {TASKS / took:.0f}/s; by node {shares}; {dict(counted)}")


async def lateness() -> None:
    made: Counter[str] = Counter()
    late: list[float] = []
    began: dict[str | None, datetime] = {}
    async with AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(queue_on("late", made)) for _ in range(2)]
        for queue in queues:
            worker = rota.Worker(queue)

            @worker.task("work")
            async def work(context: rota.Context, queue: rota.Queue = queue) -> None:
                began[context.task.id] = await queue.now()

            await stack.enter_async_context(running(worker))
        for number in range(5):
            await queues[0].create_schedule(
                f"s{number}", task_type="work", interval=1, overlap_policy="allow"
            )
        await asyncio.sleep(25)
        for number in range(5):
            for row in await queues[0].runs(f"s{number}", limit=100):
                if row.target_id in began:
                    late.append((began[row.target_id] - row.scheduled_at).total_seconds())
    cut = quantiles(late, n=100)
    p50, p99 = cut[49] * 1000, cut[98] * 1000
    print(f"lateness of {len(late)} runs, to the handler: p50 {p50:.0f} ms, p99 {p99:.0f} ms")


async def main() -> None:
    await submit()
    await drain()
    await lateness()


asyncio.run(main())
