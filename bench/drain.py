"""Drain: how many no-op tasks a second one process runs from a SQLite file, each claim and each result durable.

Rota with its default worker (scheduler and janitor beside it), with an async and with a sync handler; beside the raw
limit of SQLite for the same rows, in batches as large as the worker's concurrency; and beside Huey.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import rota
import rows
from rivals import Rival
from rota.engine.observe.telemetry import Observation, TaskMoved


async def noop(number: int) -> None:
    pass


def noop_sync(number: int) -> None:
    pass


async def drain_rota(place: Path, handler: Callable[..., Any], tasks: int, concurrency: int) -> float:
    """Seconds from the start of a worker until the last result is durable."""
    async with rota.connect(f"sqlite:///{place / 'rota.db'}") as queue:
        await queue.submit_many([(rows.KIND, {"number": 1})] * tasks)
        done = asyncio.Event()
        left = tasks

        def count(signal: Observation) -> None:
            nonlocal left
            if isinstance(signal, TaskMoved):
                left -= 1
                if not left:
                    done.set()

        worker = rota.Worker(queue, concurrency=concurrency, observers=[count])
        worker.task(rows.KIND)(handler)
        began = time.perf_counter()
        running = asyncio.create_task(worker.run(handle_signals=False))
        await done.wait()
        took = time.perf_counter() - began
        worker.stop()
        await running
        assert await queue.count(status="completed") == tasks
        return took


def rota_rate(handler: Callable[..., Any], tasks: int, concurrency: int) -> Callable[[Path], float]:
    return lambda place: tasks / asyncio.run(drain_rota(place, handler, tasks, concurrency))


def raw_rate(tasks: int, batch: int) -> Callable[[Path], float]:
    prepared = rows.lives(tasks)

    def run(place: Path) -> float:
        file = rows.RawFile(place)
        file.insert(prepared, tasks)
        took = file.drain(prepared, batch)
        file.close()
        return tasks / took

    return run


def huey_rate(tasks: int, fsync: bool | None = None) -> Callable[[Path], float]:
    def run(place: Path) -> float:
        rival = Rival(place, fsync)
        rival.submit(tasks)
        took = rival.drain(tasks)
        rival.close()
        return tasks / took

    return run


def main() -> None:
    asked = measure.arguments(__doc__, tasks=10_000, huey_tasks=1_500, concurrency=50, rounds=3)
    contestants = {
        "rota": rota_rate(noop, asked.tasks, asked.concurrency),
        "rota_sync_handler": rota_rate(noop_sync, asked.tasks, asked.concurrency),
        "raw": raw_rate(asked.tasks, asked.concurrency),
        "huey": huey_rate(asked.huey_tasks),
        "huey_fsync": huey_rate(asked.huey_tasks, fsync=True),
    }
    seen = measure.side_by_side(asked.rounds, contestants, asked.folder)
    rates = measure.medians(seen)
    to_huey = measure.ratio(rates["rota"], rates["huey"])
    to_raw = measure.ratio(rates["rota"], rates["raw"])
    results = {
        "tasks_per_second": rates,
        "rota_to_huey": to_huey,
        "rota_to_raw": to_raw,
        "sync_to_huey": measure.ratio(rates["rota_sync_handler"], rates["huey"]),
        "sizes": {"tasks": asked.tasks, "huey_tasks": asked.huey_tasks, "concurrency": asked.concurrency},
        "rounds": asked.rounds,
    }
    aims = {"rota >= 3 x huey": to_huey >= 3, "rota >= 1/3 of raw": to_raw >= 0.33}
    measure.report("drain", results, aims, asked.folder)


if __name__ == "__main__":
    main()
