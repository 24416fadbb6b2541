"""Requests per task, by kind, and dollars per million tasks, at 1, 10 and 100 tasks a second; and what idling costs.

A client submits, a node (worker, scheduler, janitor) runs; each has its own store on one bucket. Beside it, the design
of one object per task: at least 10 requests for each (submit, index, list, get, claim, index, get, finish, …).

    python bench/bucket_requests.py [seconds]
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import rota
from bucket_nodes import dollars, queue_on, running

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0


async def at_rate(rate: int, *, one_process: bool) -> tuple[int, Counter[str]]:
    made: Counter[str] = Counter()
    name = f"rate {rate} {one_process}"
    async with queue_on(name, made) as near, queue_on(name, made) as far:
        worker = rota.Worker(near)
        client = near if one_process else far

        @worker.task("work")
        async def work(input: object) -> None:
            pass

        async with running(worker):
            await asyncio.sleep(1)
            made.clear()
            number = int(rate * SECONDS)
            submits = []
            for _ in range(number):
                submits.append(asyncio.create_task(client.submit("work")))
                await asyncio.sleep(1 / rate)
            await asyncio.gather(*submits)
            await asyncio.sleep(0.5)
            counted = Counter(made)
        left = await near.count(status="pending")
        assert left == 0, f"{left} tasks were not run"
    return number, counted


async def idle() -> Counter[str]:
    made: Counter[str] = Counter()
    async with queue_on("idle", made) as queue:
        await queue.create_schedule("rare", task_type="work", cron="0 0 1 1 *")
        async with running(rota.Worker(queue)):
            await asyncio.sleep(15)
            made.clear()
            await asyncio.sleep(60)
            return Counter(made)


async def main() -> None:
    for one_process in (True, False):
        where = "the same process" if one_process else "another process"
        for rate in (1, 10, 100):
            tasks, made = await at_rate(rate, one_process=one_process)
            each = ", ".join(f"{kind} {count / tasks:.2f}" for kind, count in sorted(made.items()))
            total = sum(made[kind] for kind in made if kind != "delete") / tasks
            print(
                f"{rate:>3}/s, submitted in {where}: {total:.2f} requests per task ({each}),"
                f" ${dollars(made) / tasks * 1e6:.2f} per million tasks"
            )
    print("one object per task: at least 10 requests per task (5 writes, 5 reads), $27 per million tasks")
    made = await idle()
    print(f"idle: {dict(made)} in a minute, ${dollars(made) * 60 * 24 * 30:.2f} per node and month")


asyncio.run(main())
