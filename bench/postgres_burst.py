"""Many schedules due at one instant: seconds until the last of them is a task, and until the last has started; and what
that takes of the processors, ours and the server's. `--schedules` may be 1000, 10000 or 100000.

One process: scheduler, worker and janitor. The schedules are daily ones, made while nothing runs; the node starts
before they are due and waits for them.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import measure
import postgres_rig
import rota
import seed
from postgres_server import Server
from rota.domain.recurrence import Cron
from rota.engine.observe.telemetry import Observation, TimesHandled

READY = timedelta(seconds=3)
"""Before they are due: for the node to start, and for the server to have written what it was given."""


class Marks:
    """When the last of some has happened, in seconds since they were due, and the processor time used until then."""

    def __init__(self, number: int, server: Server) -> None:
        self.left = number
        self.all = asyncio.Event()
        self._server = server

    def begin(self, due: float) -> None:
        self._due, self._used = due, self._cpu()

    def one(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.seconds = time.perf_counter() - self._due
            self.used = [after - before for after, before in zip(self._cpu(), self._used, strict=True)]
            self.all.set()

    def _cpu(self) -> tuple[float, float]:
        return time.process_time(), postgres_rig.cpu_seconds(self._server)


async def burst(server: Server, number: int, lead: int) -> tuple[Marks, Marks]:
    tasks, starts = Marks(number, server), Marks(number, server)
    app = rota.App()

    @app.task(seed.KIND)
    async def noop() -> None:
        starts.one()

    def count(signal: Observation) -> None:
        if isinstance(signal, TimesHandled):
            tasks.one()

    async with rota.connect(await postgres_rig.database(server, "bench")) as queue:
        due = (await queue.now() + timedelta(seconds=lead)).replace(microsecond=0)
        daily = Cron(f"{due.second} {due.minute} {due.hour} * * *", "UTC")
        await seed.make_burst(queue, daily, number)
        await postgres_rig.command(server, "checkpoint")
        left = due - await queue.now()
        assert left > READY, "making the schedules took too long: give a longer lead"
        worker = rota.Worker(queue, app, concurrency=500, observers=[count])
        running = asyncio.create_task(worker.run(handle_signals=False))
        at = time.perf_counter() + left.total_seconds()
        await asyncio.sleep(at - time.perf_counter() - 0.5)
        tasks.begin(at)
        starts.begin(at)
        await tasks.all.wait()
        await starts.all.wait()
        worker.stop()
        await running
    return tasks, starts


def main() -> None:
    options = measure.arguments(__doc__, schedules=10_000, lead=0)
    lead = seed.burst_lead(options.schedules, options.lead)
    with postgres_rig.server(options.folder) as server:
        tasks, starts = asyncio.run(burst(server, options.schedules, lead))
    ours, theirs = (round(1e6 * used / options.schedules) for used in starts.used)
    results = {
        "seconds": {"last_task": round(tasks.seconds, 3), "last_start": round(starts.seconds, 3)},
        "cpu_microseconds_each": {"rota": ours, "server": theirs},
        "sizes": {"schedules": options.schedules},
    }
    aims = seed.burst_aims(options.schedules, starts.seconds)
    postgres_rig.report("postgres burst", results, aims, options.folder)


if __name__ == "__main__":
    main()
