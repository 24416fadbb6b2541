"""A steady load for a while: does anything grow? For each part of the run: tasks done per second, what a task took of
the processors (ours and the server's, microseconds), and the size of the task table. Ended tasks are kept for one part,
and forgotten as the janitor does it, only more often than every ten minutes.
`--seconds 1800 --rate 3000 --parts 30` is half an hour.
Aim: the last part does at least 0.8 of the third, at no more than 1.2 of its cost, and the table has stopped growing
by the middle (the last part's is at most 1.3 of that)."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import asyncpg

import measure
import postgres_rig
import rota
from postgres_rig import cpu_seconds as cpu
from postgres_server import Server
from rota.engine.commands import forget_old


async def soak(server: Server, seconds: int, rate: int, parts: int) -> dict[str, Any]:
    done = 0
    app = rota.App()
    url = await postgres_rig.database(server, "bench")

    @app.task("noop")
    async def noop() -> None:
        nonlocal done
        done += 1

    async with rota.connect(url) as queue, rota.connect(url) as submitter:
        connection = await asyncpg.connect(queue.store.address.dsn)  # type: ignore[attr-defined]  # of PostgresStore
        retention = rota.Retention(tasks=timedelta(seconds=seconds / parts))
        worker = rota.Worker(queue, app, concurrency=200)
        running = asyncio.create_task(worker.run(handle_signals=False))
        forgetting = asyncio.create_task(_forget(submitter, retention))
        seen: dict[str, list[float]] = {"per_second": [], "rota_us": [], "server_us": [], "table_mb": []}
        waits: list[float] = []
        for _ in range(parts):
            began, before, ours, theirs = time.perf_counter(), done, time.process_time(), cpu(server)
            waits += await _submit(submitter, rate, seconds / parts)
            number = max(done - before, 1)
            seen["per_second"].append(round(number / (time.perf_counter() - began), 1))
            seen["rota_us"].append(round(1e6 * (time.process_time() - ours) / number))
            seen["server_us"].append(round(1e6 * (cpu(server) - theirs) / number))
            size = await connection.fetchval("select pg_total_relation_size('rota.task')")
            seen["table_mb"].append(round(size / 1e6, 1))
        forgetting.cancel()
        worker.stop()
        await running
        await connection.close()
    return {"by_part": seen, "submit_p99_ms": round(1000 * measure.percentile(waits, 0.99), 2)}


async def _forget(queue: rota.Queue, retention: rota.Retention) -> None:
    while True:
        while await queue.store.transact(forget_old(retention, 500)):
            pass
        await asyncio.sleep((retention.tasks or timedelta(hours=1)).total_seconds() / 10)


async def _submit(queue: rota.Queue, rate: int, seconds: float) -> list[float]:
    """So many a second; how long each batch took."""
    waits: list[float] = []
    began, submitted = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        batch = min(int(passed * rate) - submitted, 1000)
        if batch > 0:
            asked = time.perf_counter()
            await queue.submit_many([("noop", None)] * batch)
            waits.append(time.perf_counter() - asked)
            submitted += batch
        await asyncio.sleep(0.02)
    return waits


def main() -> None:
    options = measure.arguments(__doc__, seconds=600, rate=2000, parts=10)
    with postgres_rig.server(options.folder) as server:
        results = asyncio.run(soak(server, options.seconds, options.rate, options.parts))
    done, costs, sizes = (results["by_part"][name] for name in ("per_second", "server_us", "table_mb"))
    steady = min(2, options.parts - 1)  # from the third part on what ended is forgotten, too
    aims = {
        "no slower at the end": done[-1] >= 0.8 * done[steady],
        "no dearer at the end": costs[-1] <= 1.2 * costs[steady],
        "no larger at the end": sizes[-1] <= 1.3 * sizes[len(sizes) // 2],
    }
    postgres_rig.report("postgres soak", {**results, "rate": options.rate}, aims, options.folder)


if __name__ == "__main__":
    main()
