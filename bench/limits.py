"""Drain of limited tasks, beside that of tasks without a limit: what it costs to pass a gate.

One process runs no-op tasks from a SQLite file, as in `drain.py`, or with `--store postgres` from a server of its own.
The limits are of 50 keys: one that is never reached, and one of 10 at once, so that most tasks wait in a line and are
let in by those that end. Beside other work, the processor time of a task says more than the time of the clock (that of
the server is not in it).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import measure
import postgres_rig
import rota
from postgres_server import Server
from rota.engine.observe.telemetry import Observation, TaskMoved

KEYS = 50


async def noop(customer: int) -> None:
    pass


async def drain(
    place: Path, server: Server | None, limit: rota.Limit | None, tasks: int, concurrency: int
) -> tuple[float, float]:
    """Seconds from the start of a worker until the last result is durable; and of the processor."""
    app = rota.App()
    app.task("noop", limit=limit)(noop)
    file = f"sqlite:///{place / 'rota.db'}"
    async with rota.connect(
        file if server is None else await postgres_rig.database(server, "bench")
    ) as queue:
        await queue.declare_limits(app)
        await queue.submit_many([("noop", {"customer": n % KEYS}) for n in range(tasks)])
        done = asyncio.Event()
        left = tasks

        def count(observed: Observation) -> None:
            nonlocal left
            if isinstance(observed, TaskMoved):
                left -= 1
                if not left:
                    done.set()

        worker = rota.Worker(queue, app, concurrency=concurrency, observers=[count])
        began, began_at = time.process_time(), time.perf_counter()
        running = asyncio.create_task(worker.run(handle_signals=False))
        await done.wait()
        took, spent = time.perf_counter() - began_at, time.process_time() - began
        worker.stop()
        await running
        assert await queue.count(status="completed") == tasks
        return took, spent


def rate(
    server: Server | None, limit: rota.Limit | None, tasks: int, concurrency: int, micros: list[float]
) -> Callable[[Path], float]:
    """Tasks in a second. The processor time of a task goes to `micros`."""

    def run(place: Path) -> float:
        took, spent = asyncio.run(drain(place, server, limit, tasks, concurrency))
        micros.append(spent / tasks * 1e6)
        return tasks / took

    return run


def main() -> None:
    asked = measure.arguments(__doc__, tasks=10_000, concurrency=50, rounds=3, store="sqlite")
    limits = {
        "unlimited": None,
        "never_reached": rota.Limit(concurrency=1_000_000, key="customer"),
        "mostly_in_line": rota.Limit(concurrency=10, key="customer"),
    }
    micros: dict[str, list[float]] = {name: [] for name in limits}
    with ExitStack() as stack:
        has_server = asked.store == "postgres"
        server = stack.enter_context(postgres_rig.server(asked.folder)) if has_server else None
        contestants = {
            name: rate(server, limit, asked.tasks, asked.concurrency, micros[name])
            for name, limit in limits.items()
        }
        rates = measure.medians(measure.side_by_side(asked.rounds, contestants, asked.folder))
    passed = measure.ratio(rates["never_reached"], rates["unlimited"])
    in_line = measure.ratio(rates["mostly_in_line"], rates["unlimited"])
    results = {
        "tasks_per_second": rates,
        "never_reached_to_unlimited": passed,
        "mostly_in_line_to_unlimited": in_line,
        "processor_us_per_task": measure.medians(micros),
        "sizes": {"tasks": asked.tasks, "concurrency": asked.concurrency, "keys": KEYS, "store": asked.store},
        "rounds": asked.rounds,
    }
    aims = {"limited >= 0.6 x unlimited": min(passed, in_line) >= 0.6}
    measure.report("limits", results, aims, asked.folder)


if __name__ == "__main__":
    main()
