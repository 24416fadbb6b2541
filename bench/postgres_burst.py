"""Many schedules due at one instant: seconds until the last of their tasks has started. Aim: 10,000 in 3 s."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import measure
import postgres_rig
import rota


async def burst(url: str, schedules: int) -> float:
    started = 0
    done = asyncio.Event()
    app = rota.App()

    @app.task("noop")
    async def noop() -> None:
        nonlocal started
        started += 1
        if started == schedules:
            done.set()

    async with rota.connect(url) as queue:
        await queue.set_limits("default", schedules=max(schedules, 10_000))
        due = (await queue.now() + timedelta(seconds=10 + schedules / 250)).replace(microsecond=0)
        cron = f"{due.second} {due.minute} {due.hour} * * *"
        for first in range(0, schedules, 100):
            numbers = range(first, min(first + 100, schedules))
            await asyncio.gather(
                *(queue.create_schedule(f"s{number}", task_type="noop", cron=cron) for number in numbers)
            )
        left = (due - await queue.now()).total_seconds()
        assert left > 0, "they took too long to create"
        worker = rota.Worker(queue, app, concurrency=500)
        running = asyncio.create_task(worker.run(handle_signals=False))
        began = time.perf_counter() + left
        await done.wait()
        took = time.perf_counter() - began
        worker.stop()
        await running
    return took


def main() -> None:
    options = measure.arguments(__doc__, schedules=10_000)

    async def run() -> float:
        return await burst(await postgres_rig.database(server, "bench"), options.schedules)

    with postgres_rig.server(options.folder) as server:
        took = asyncio.run(run())
    results = {"schedules": options.schedules, "seconds": round(took, 2)}
    postgres_rig.report("postgres burst", results, {"<= 3 s": took <= 3}, options.folder)


if __name__ == "__main__":
    main()
