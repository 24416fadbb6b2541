"""Processes: how many no-op tasks a second handlers with run_in="process" run, when the processes are warm.

The tasks are in a SQLite file, each claim and each result durable. The aim is 500 a second."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import measure
import rota
from rota.engine.observe.telemetry import Observation, TaskMoved

AIM = 500
app = rota.App()


@app.task("noop", run_in="process")
def noop() -> None:
    pass


async def rate(place: Path, tasks: int, processes: int) -> float:
    async with rota.connect(f"sqlite:///{place / 'rota.db'}") as queue:
        ended = asyncio.Semaphore(0)

        def count(observation: Observation) -> None:
            if isinstance(observation, TaskMoved):
                ended.release()

        worker = rota.Worker(queue, app, concurrency=processes, observers=[count])
        running = asyncio.create_task(worker.run(handle_signals=False))
        for number in (processes * 5, tasks):  # the first ones warm it up
            began = time.perf_counter()
            await queue.submit_many([("noop", None)] * number)
            for _ in range(number):
                await ended.acquire()
            took = time.perf_counter() - began
        worker.stop()
        await running
        assert await queue.count(status="completed") == tasks + processes * 5
        return tasks / took


def main() -> None:
    given = measure.arguments(__doc__, tasks=3000, processes=16, rounds=3)
    contestants = {"processes": lambda place: asyncio.run(rate(place, given.tasks, given.processes))}
    found = measure.medians(measure.side_by_side(given.rounds, contestants, given.folder))
    aims = {f"at least {AIM} a second": found["processes"] >= AIM}
    results = {"tasks_per_second": found, "tasks": given.tasks, "processes": given.processes}
    measure.report("process_handlers", results, aims, given.folder)


if __name__ == "__main__":
    main()
