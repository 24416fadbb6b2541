"""Lateness: how long after its nominal time the handler of a 1 Hz schedule begins, in a node that is otherwise idle."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import measure
import rota

KIND = "tick"


async def watch(place: Path, seconds: int) -> list[float]:
    """Seconds between the nominal time and the handler's first line, run by run."""
    async with rota.connect(f"sqlite:///{place / 'rota.db'}") as queue:
        worker = rota.Worker(queue)
        began: list[tuple[str, float]] = []
        enough = asyncio.Event()

        @worker.task(KIND)
        async def tick(context: rota.Context) -> None:
            now = time.time()
            began.append((context.task.id, now))
            if len(began) == seconds:
                enough.set()

        await queue.create_schedule("one-hertz", interval=timedelta(seconds=1), task_type=KIND)
        running = asyncio.create_task(worker.run(handle_signals=False))
        await enough.wait()
        worker.stop()
        await running
        nominal = {
            row.target_id: row.scheduled_at.timestamp() for row in await queue.runs("one-hertz", limit=1000)
        }
        return [at - nominal[task] for task, at in began]


def main() -> None:
    asked = measure.arguments(__doc__, seconds=30)
    with measure.folder(asked.folder) as place:
        late = asyncio.run(watch(place, asked.seconds))
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    seen = {name: round(measure.percentile(late, share) * 1000, 2) for name, share in shares.items()}
    aims = {"p50 <= 3 ms": seen["p50"] <= 3, "p99 <= 15 ms": seen["p99"] <= 15}
    results = {"milliseconds": seen, "sizes": {"seconds": asked.seconds, "runs": len(late)}}
    measure.report("lateness", results, aims, asked.folder)


if __name__ == "__main__":
    main()
