"""A steady load for a while: does anything grow? The throughput and the claim time of each part of the run, and the
size of the task table at its end. Aim: the last part is no slower than 0.8 of the first."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import asyncpg

import measure
import postgres_rig
import rota


async def soak(url: str, seconds: int, rate: int, parts: int) -> dict[str, Any]:
    done = 0
    app = rota.App()

    @app.task("noop")
    async def noop() -> None:
        nonlocal done
        done += 1

    async with rota.connect(url) as queue, rota.connect(url) as submitter:
        retention = rota.Retention(tasks=timedelta(seconds=seconds / parts))
        worker = rota.Worker(queue, app, concurrency=200, retention=retention)
        running = asyncio.create_task(worker.run(handle_signals=False))
        seen, waits = [], []
        for _ in range(parts):
            began, before, submitted = time.perf_counter(), done, 0
            while (passed := time.perf_counter() - began) < seconds / parts:
                batch = int(passed * rate) - submitted
                if batch > 0:
                    asked = time.perf_counter()
                    await submitter.submit_many([("noop", None)] * min(batch, 1000))
                    waits.append(time.perf_counter() - asked)
                    submitted += min(batch, 1000)
                await asyncio.sleep(0.02)
            seen.append(round((done - before) / (time.perf_counter() - began), 1))
        worker.stop()
        await running
        connection = await asyncpg.connect(queue.store.address.dsn)  # type: ignore[attr-defined]
        size = await connection.fetchval("select pg_total_relation_size('rota.task')")
        await connection.close()
    return {
        "per_second_by_part": seen,
        "submit_p99_ms": round(1000 * measure.percentile(waits, 0.99), 2),
        "task_table_mb": round(size / 1e6, 1),
    }


def main() -> None:
    options = measure.arguments(__doc__, seconds=600, rate=2000, parts=10)

    async def run() -> dict[str, Any]:
        url = await postgres_rig.database(server, "bench")
        return await soak(url, options.seconds, options.rate, options.parts)

    with postgres_rig.server(options.folder) as server:
        results = asyncio.run(run())
    first, last = results["per_second_by_part"][1], results["per_second_by_part"][-1]
    postgres_rig.report(
        "postgres soak", results, {"no slower at the end": last >= 0.8 * first}, options.folder
    )


if __name__ == "__main__":
    main()
