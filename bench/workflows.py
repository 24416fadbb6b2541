"""Workflows: how many with three no-op steps a second one process runs, each step durable; how long one step takes; and
how long a replay of many steps takes, without a store.

On a SQLite file, or on the store at `--store`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import measure
import rota
from rota.engine.workflows.checking import check_run

app = rota.App()


async def noop(number: int) -> int:
    return number


@app.workflow("three")
async def three(ctx: rota.Workflow) -> int:
    return sum([await ctx.step(noop, number) for number in range(3)])


@app.workflow("many")
async def many(ctx: rota.Workflow, steps: int) -> list[float]:
    """The time between the ends of two steps, for each."""

    async def now() -> float:
        return time.perf_counter()

    times = [await ctx.step(now) for _ in range(steps)]
    return [after - before for before, after in itertools.pairwise(times)]


async def run(store: str, workflows: int, steps: int) -> dict[str, Any]:
    async with rota.connect(store) as queue:
        worker = rota.Worker(queue, app, concurrency=100)
        running = asyncio.create_task(worker.run(handle_signals=False))
        began, used = time.perf_counter(), time.process_time()
        started = await asyncio.gather(*[queue.start_workflow("three") for _ in range(workflows)])
        ended = [await queue.wait(task.id) for task in started]
        took, cpu = time.perf_counter() - began, time.process_time() - used
        assert all(task.output == 3 for task in ended)
        long = await queue.wait((await queue.start_workflow("many", {"steps": steps})).id)
        recorded = await queue.steps(long.id)
        worker.stop()
        await running
    began = time.perf_counter()
    check_run(app, app.handlers["many"], long, recorded)
    replayed = time.perf_counter() - began
    return {
        "workflows_per_second": round(workflows / took),
        "processor_ms_per_workflow": round(1000 * cpu / workflows, 2),
        "step_p50_ms": round(1000 * statistics.median(long.output), 2),
        f"replay_of_{steps}_steps_ms": round(1000 * replayed, 1),
    }


def main() -> None:
    asked = measure.arguments(__doc__, store="", workflows=1000, steps=1000)
    with measure.folder(asked.folder) as place:
        store = asked.store or f"sqlite:///{Path(place) / 'rota.db'}"
        print(json.dumps(asyncio.run(run(store, asked.workflows, asked.steps))))


if __name__ == "__main__":
    main()
