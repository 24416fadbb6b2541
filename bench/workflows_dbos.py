"""The DBOS side of `workflows.py`, in an environment of its own: how many workflows of three no-op steps a second some
starters get, and how long one step takes."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import time
from typing import Any

from dbos import DBOS


async def noop(number: int) -> int:
    return number


async def now() -> float:
    return time.perf_counter()


async def three() -> int:
    return sum([await noop_step(number) for number in range(3)])


async def many(steps: int) -> list[float]:
    times = [await now_step() for _ in range(steps)]
    return [after - before for before, after in itertools.pairwise(times)]


noop_step: Any = DBOS.step()(noop)
now_step: Any = DBOS.step()(now)
run_three: Any = DBOS.workflow()(three)
run_many: Any = DBOS.workflow()(many)


async def run(workflows: int, steps: int, starters: int) -> dict[str, float]:
    waiting = iter(range(workflows))

    async def starter() -> None:
        for _ in waiting:
            assert await run_three() == 3

    await run_three()
    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*[starter() for _ in range(starters)])
    took, cpu = time.perf_counter() - began, time.process_time() - used
    between = await run_many(steps)
    return {
        "workflows_per_second": round(workflows / took),
        "processor_ms_per_workflow": round(1000 * cpu / workflows, 2),
        "step_p50_ms": round(1000 * statistics.median(between), 2),
    }


def main() -> None:
    url, *sizes = sys.argv[1:]
    config = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    try:
        print(json.dumps(asyncio.run(run(*map(int, sizes)))))
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main()
