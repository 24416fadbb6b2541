"""Submit-to-start latency at 50 a second, submitted by one process and run by another connection of it; and how late
1 Hz schedules start. Milliseconds, by one clock. Aims: latency p50 <= 3, p99 <= 15; lateness p99 <= 15."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import measure
import postgres_rig
import rota


async def latency(url: str, submits: int, rate: float) -> list[float]:
    """From the call of submit to the first line of the handler. Two queues: what is heard is a notification."""
    started: dict[str, float] = {}
    asked: dict[str, float] = {}
    done = asyncio.Event()
    app = rota.App()

    @app.task("noop")
    async def noop(context: rota.Context) -> None:
        started[context.task.input] = time.perf_counter()
        if len(started) == submits:
            done.set()

    async with rota.connect(url) as here, rota.connect(url) as there:
        worker = rota.Worker(there, app)
        running = asyncio.create_task(worker.run(handle_signals=False))
        await asyncio.sleep(1)
        for number in range(submits):
            asked[str(number)] = time.perf_counter()
            await here.submit("noop", str(number))
            await asyncio.sleep(max(0.0, 1 / rate - (time.perf_counter() - asked[str(number)])))
        await done.wait()
        worker.stop()
        await running
    return [1000 * (started[id] - asked[id]) for id in asked]


async def lateness(url: str, schedules: int, seconds: int) -> list[float]:
    late: list[float] = []
    app = rota.App()

    @app.task("tick")
    async def tick(context: rota.Context) -> None:
        now = datetime.now(UTC)
        late.append(1000 * (now - now.replace(microsecond=0)).total_seconds())

    async with rota.connect(url) as queue:
        for number in range(schedules):
            await queue.create_schedule(f"s{number}", task_type="tick", cron="* * * * * *")
        worker = rota.Worker(queue, app)
        running = asyncio.create_task(worker.run(handle_signals=False))
        await asyncio.sleep(seconds)
        worker.stop()
        await running
    return late[schedules:]  # the first ones may belong to a second that was half over


def main() -> None:
    options = measure.arguments(__doc__, submits=1000, rate=50, schedules=10, seconds=30)

    async def run(server: Any) -> tuple[list[float], list[float]]:
        first = await latency(await postgres_rig.database(server, "bench"), options.submits, options.rate)
        return first, await lateness(
            await postgres_rig.database(server, "bench"), options.schedules, options.seconds
        )

    with postgres_rig.server(options.folder) as server:
        waits, late = asyncio.run(run(server))
    results: dict[str, Any] = {
        "submit_to_start_ms": {
            f"p{share}": round(measure.percentile(waits, share / 100), 2) for share in (50, 99)
        },
        "lateness_ms": {f"p{share}": round(measure.percentile(late, share / 100), 2) for share in (50, 99)},
        "fired": len(late),
    }
    aims = {
        "p50 <= 3 ms": results["submit_to_start_ms"]["p50"] <= 3,
        "p99 <= 15 ms": results["submit_to_start_ms"]["p99"] <= 15,
        "lateness p99 <= 15 ms": results["lateness_ms"]["p99"] <= 15,
    }
    postgres_rig.report("postgres latency", results, aims, options.folder)


if __name__ == "__main__":
    main()
