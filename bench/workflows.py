"""Workflows: how many with three no-op steps a second one process runs, each step durable, and in how much processor
time; how long one step takes; and how much processor time a replay of many steps takes, without a store.

On a SQLite file; with `--postgres 1` on a PostgreSQL server of its own with `fsync` on, and DBOS beside it, which is
installed into an environment of its own. There as many starters as `--starters` says each start a workflow and wait for
its end; 0: all are started at once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import subprocess
import time
import venv
from pathlib import Path
from typing import Any

import measure
import postgres_rig
import rota
from rota.engine.workflows.context import check_run

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


async def started_and_waited_for(queue: rota.Queue, workflows: int, starters: int) -> None:
    if not starters:
        for task in await queue.start_workflows([("three", None)] * workflows):
            assert (await queue.wait(task.id)).output == 3
        return
    left = iter(range(workflows))

    async def starter() -> None:
        for _ in left:
            assert (await queue.wait((await queue.start_workflow("three")).id)).output == 3

    await asyncio.gather(*[starter() for _ in range(starters)])


async def run(store: str, workflows: int, steps: int, starters: int) -> dict[str, Any]:
    async with rota.connect(store) as queue:
        worker = rota.Worker(queue, app, concurrency=100)
        running = asyncio.create_task(worker.run(handle_signals=False))
        began, used = time.perf_counter(), time.process_time()
        await started_and_waited_for(queue, workflows, starters)
        took, cpu = time.perf_counter() - began, time.process_time() - used
        long = await queue.wait((await queue.start_workflow("many", {"steps": steps})).id)
        recorded = await queue.steps(long.id)
        worker.stop()
        await running
    used = time.process_time()
    check_run(app, app.handlers["many"], long, recorded)
    replayed = time.process_time() - used
    return {
        "workflows_per_second": round(workflows / took),
        "processor_ms_per_workflow": round(1000 * cpu / workflows, 2),
        "step_p50_ms": round(1000 * statistics.median(long.output), 2),
        f"replay_of_{steps}_steps_processor_ms": round(1000 * replayed, 1),
    }


def run_dbos(place: Path, store: str, workflows: int, steps: int, starters: int) -> Any:
    venv.create(place / "dbos", with_pip=True)
    python = str(place / "dbos" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "dbos"], check=True, stderr=subprocess.DEVNULL)
    words = [
        str(Path(__file__).with_name("workflows_dbos.py")),
        store,
        str(workflows),
        str(steps),
        str(starters),
    ]
    return json.loads(subprocess.run([python, *words], check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    asked = measure.arguments(__doc__, postgres=0, workflows=1000, steps=1000, starters=0, dbos=100)
    sizes = (asked.workflows, asked.steps, asked.starters)
    with measure.folder(asked.folder) as place:
        if not asked.postgres:
            print(json.dumps(asyncio.run(run(f"sqlite:///{place / 'rota.db'}", *sizes))))
            return
        with postgres_rig.server(asked.folder) as server:
            ours = asyncio.run(postgres_rig.database(server, "rota"))
            theirs = asyncio.run(postgres_rig.database(server, "dbos"))
            found = {"rota": asyncio.run(run(ours, *sizes))}
            if asked.dbos:
                found["dbos"] = run_dbos(place, theirs, asked.dbos, asked.dbos, asked.starters or 16)
            print(json.dumps(found))


if __name__ == "__main__":
    main()
