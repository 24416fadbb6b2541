"""Burst: many schedules due at one instant. How long until the last is a task, and until the last has started; and
what that takes of the processor.

One process: scheduler, worker and janitor on one SQLite file. The schedules are daily ones, made while nothing runs,
with their next time about `lead` seconds ahead; the node starts before it and waits for it. `--schedules` may be 1000,
10000 or 100000.
"""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import measure
import rota
import seed
from rota.domain.recurrence import Cron
from rota.engine.observe.telemetry import Observation, TimesHandled


class Marks:
    """When the n-th of something happened."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.last = self.used = math.nan
        self.all = asyncio.Event()

    def one(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.last, self.used = time.time(), time.process_time()
            self.all.set()


async def burst(place: Path, number: int, lead: int) -> tuple[float, float, float]:
    """Seconds from the due instant until the last task exists, and until the last handler has begun; and those of the
    processor, from half a second before the due instant on."""
    async with rota.connect(f"sqlite:///{place / 'rota.db'}") as queue:
        due = (datetime.now(UTC) + timedelta(seconds=lead)).replace(microsecond=0)
        daily = Cron(f"{due.second} {due.minute} {due.hour} * * *", "UTC")
        await seed.make_burst(queue, daily, number)
        assert datetime.now(UTC) < due, "making the schedules took longer than the lead: give a longer one"
        tasks, starts = Marks(number), Marks(number)

        def count(signal: Observation) -> None:
            if isinstance(signal, TimesHandled):
                tasks.one()

        worker = rota.Worker(queue, observers=[count])

        @worker.task(seed.KIND)
        async def noop() -> None:
            starts.one()

        running = asyncio.create_task(worker.run(handle_signals=False))
        await asyncio.sleep((due - datetime.now(UTC)).total_seconds() - 0.5)
        used = time.process_time()
        await tasks.all.wait()
        await starts.all.wait()
        worker.stop()
        await running
        return tasks.last - due.timestamp(), starts.last - due.timestamp(), starts.used - used


def main() -> None:
    asked = measure.arguments(__doc__, schedules=10_000, lead=0, rounds=1)
    lead = seed.burst_lead(asked.schedules, asked.lead)
    seen = []
    for _ in range(asked.rounds):
        with measure.folder(asked.folder) as place:
            seen.append(asyncio.run(burst(place, asked.schedules, lead)))
    tasks, starts, used = (sorted(values)[len(values) // 2] for values in zip(*seen, strict=True))
    results = {
        "seconds": {"last_task": round(tasks, 3), "last_start": round(starts, 3)},
        "cpu_microseconds_each": round(1e6 * used / asked.schedules),
        "sizes": {"schedules": asked.schedules},
        "rounds": asked.rounds,
    }
    measure.report("burst", results, seed.burst_aims(asked.schedules, starts), asked.folder)


if __name__ == "__main__":
    main()
