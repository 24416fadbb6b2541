"""Watched: what metrics and traces cost a worker. Drains no-op tasks from a SQLite file, as bench/drain.py does: bare,
with metrics (signals counted, the store timed), and with a tracer that keeps nothing.

Stated in seconds of processor time per task, which other work on the machine moves less than the clock on the wall."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import measure
import rota
import rows
from rota.engine.observe.metrics import Metrics
from rota.engine.observe.telemetry import Observation, TaskMoved


async def drain(place: Path, tasks: int, metrics: Metrics | None) -> float:
    """Microseconds of processor time per task, from the start of a worker until the last result is durable."""
    async with rota.connect(f"sqlite:///{place / 'rota.db'}") as queue:
        await queue.submit_many([(rows.KIND, {"number": 1})] * tasks)
        done = asyncio.Event()
        left = tasks

        def count(seen: Observation) -> None:
            nonlocal left
            if isinstance(seen, TaskMoved):
                left -= 1
                if not left:
                    done.set()

        observers = [count]
        if metrics is not None:
            queue.store = metrics.observed(queue.store)
            observers.append(metrics.observe)
        worker = rota.Worker(queue, observers=observers)

        @worker.task(rows.KIND)
        async def noop(number: int) -> None:
            pass

        began = time.process_time()
        running = asyncio.create_task(worker.run(handle_signals=False))
        await done.wait()
        took = time.process_time() - began
        worker.stop()
        await running
        return took / tasks * 1_000_000


def cost(tasks: int, *, with_metrics: bool = False, with_traces: bool = False) -> Callable[[Path], float]:
    provider, stand_in = TracerProvider(), trace.get_tracer_provider

    def run(place: Path) -> float:
        trace.get_tracer_provider = (lambda: provider) if with_traces else stand_in
        try:
            return asyncio.run(drain(place, tasks, Metrics() if with_metrics else None))
        finally:
            trace.get_tracer_provider = stand_in

    return run


def main() -> None:
    asked = measure.arguments(__doc__, tasks=5_000, rounds=7)
    contestants = {
        "bare": cost(asked.tasks),
        "metrics": cost(asked.tasks, with_metrics=True),
        "traces": cost(asked.tasks, with_traces=True),
    }
    seen = measure.side_by_side(asked.rounds, contestants, asked.folder)
    per_task = measure.medians(seen)
    with_metrics = measure.ratio(per_task["metrics"], per_task["bare"])
    results = {
        "microseconds_per_task": per_task,
        "metrics_to_bare": with_metrics,
        "traces_to_bare": measure.ratio(per_task["traces"], per_task["bare"]),
        "rounds": {name: [round(value, 1) for value in values] for name, values in seen.items()},
        "sizes": {"tasks": asked.tasks, "rounds": asked.rounds},
    }
    measure.report("watched", results, {"metrics <= 1.1 x bare": with_metrics <= 1.1}, asked.folder)


if __name__ == "__main__":
    main()
