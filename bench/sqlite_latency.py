"""Submit-to-start latency on SQLite: submitted by one process at 50 a second, run by another. Milliseconds from the
call of submit to the first line of the handler, by the clock that both share; and what the worker takes of a core while
idle. Aims: p50 <= 3, p99 <= 10, idle < 1 %."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from pathlib import Path

import measure
import rota


def submit(url: str, submits: int, rate: float) -> None:
    async def all_of_them() -> None:
        async with rota.connect(url) as queue:
            for _ in range(submits):
                await queue.submit("noop", time.monotonic())
                await asyncio.sleep(1 / rate)

    asyncio.run(all_of_them())


async def latency(place: Path, submits: int, rate: float, idle_seconds: int) -> tuple[list[float], float]:
    took: list[float] = []
    done = asyncio.Event()
    url = f"sqlite:///{place / 'rota.db'}"
    async with rota.connect(url) as queue:
        worker = rota.Worker(queue)

        @worker.task("noop")
        async def noop(asked_at: float) -> None:
            took.append(1000 * (time.monotonic() - asked_at))
            if len(took) == submits:
                done.set()

        running = asyncio.create_task(worker.run(handle_signals=False))
        process = multiprocessing.get_context("spawn").Process(target=submit, args=(url, submits, rate))
        process.start()
        await done.wait()
        await asyncio.to_thread(process.join)
        await asyncio.sleep(1)
        used = time.process_time()
        await asyncio.sleep(idle_seconds)
        idle = 100 * (time.process_time() - used) / idle_seconds
        worker.stop()
        await running
    return took, idle


def main() -> None:
    options = measure.arguments(__doc__, submits=1000, rate=50, idle_seconds=10)
    with measure.folder(options.folder) as place:
        took, idle = asyncio.run(latency(place, options.submits, options.rate, options.idle_seconds))
    p50, p99 = measure.percentile(took, 0.5), measure.percentile(took, 0.99)
    results = {"p50_ms": round(p50, 1), "p99_ms": round(p99, 1), "idle_percent": round(idle, 2)}
    aims = {"p50 <= 3 ms": p50 <= 3, "p99 <= 10 ms": p99 <= 10, "idle < 1 %": idle < 1}
    measure.report("sqlite latency", results, aims, options.folder)


if __name__ == "__main__":
    main()
