"""No-op tasks, one worker process, everything durable: submit_many, single submits from 16 clients, drain. Rota beside
PgQueuer, Procrastinate, graphile-worker and the raw limit, on the same server, round after round. A second, and what a
job takes of the processors. Who is not installed is left out (`make peers` installs them)."""

from __future__ import annotations

import asyncio
import shutil
import statistics
from importlib.util import find_spec
from typing import Any

import measure
import postgres_rig
import rota
from postgres_rivals import BATCH, Graphile, PgQueuer, Procrastinate, Raw, times
from rota.engine.observe.telemetry import Observation, TaskMoved


class Rota:
    name = "rota"

    async def prepare(self, url: str) -> None:
        self.queue = await rota.connect(url)

    async def submit_many(self, number: int) -> None:
        for _ in range(0, number, BATCH):
            await self.queue.submit_many([("noop", 1)] * BATCH)

    async def submit_one(self) -> None:
        await self.queue.submit("noop", 1)

    async def drain(self, number: int, concurrency: int) -> None:
        done = asyncio.Event()
        left = number

        def count(signal: Observation) -> None:
            nonlocal left
            if isinstance(signal, TaskMoved):
                left -= 1
                if not left:
                    done.set()

        async def noop(n: int) -> None:
            pass

        worker = rota.Worker(self.queue, concurrency=concurrency, observers=[count])
        worker.task("noop")(noop)
        running = asyncio.create_task(worker.run(handle_signals=False))
        await done.wait()
        worker.stop()
        await running

    async def close(self) -> None:
        await self.queue.close()


def is_installed(name: str) -> bool:
    if name == Graphile.name:
        return shutil.which("node") is not None and (Graphile.folder / "node_modules" / name).exists()
    return name in (Rota.name, Raw.name) or find_spec(name) is not None


CONTESTANTS = {each.name: each for each in (Rota, Raw, PgQueuer, Procrastinate, Graphile)}


AIMS = {
    ("drain", "graphile-worker"): 1.0,
    ("drain", "pgqueuer"): 2.5,
    ("submit_many", "graphile-worker"): 1.5,
    ("submit_many", "pgqueuer"): 1.5,
    ("submit_16_clients", "graphile-worker"): 2.0,
    ("submit_16_clients", "pgqueuer"): 2.0,
}


def main() -> None:
    options = measure.arguments(
        __doc__, tasks=20_000, singles=3_200, rounds=3, concurrency=500, only=",".join(CONTESTANTS)
    )
    seen: dict[str, list[dict[str, float]]] = {
        name: [] for name in options.only.split(",") if is_installed(name)
    }
    with postgres_rig.server(options.folder) as server:
        for _ in range(options.rounds):
            for name, rounds in seen.items():
                rounds.append(asyncio.run(_round(server, name, options)))
    figures = {
        name: {what: statistics.median(each[what] for each in rounds) for what in rounds[0]}
        for name, rounds in seen.items()
    }
    aims = {
        f"{what} >= {factor}x {rival}": figures["rota"][what] >= factor * figures[rival][what]
        for (what, rival), factor in AIMS.items()
        if rival in figures
    }
    postgres_rig.report("postgres throughput, per second", figures, aims, options.folder)


async def _round(server: Any, name: str, options: Any) -> dict[str, float]:
    url = await postgres_rig.database(server, "bench")
    return await times(
        CONTESTANTS[name](),
        url,
        options.tasks,
        options.singles,
        options.concurrency,
        lambda: postgres_rig.cpu_seconds(server),
    )


if __name__ == "__main__":
    main()
