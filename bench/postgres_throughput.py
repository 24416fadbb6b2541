"""No-op tasks, one worker process, everything durable: submit_many, single submits from 16 clients, drain. Rota beside
PgQueuer, Procrastinate, graphile-worker and the raw limit, on the same server, round after round."""

from __future__ import annotations

import asyncio
import statistics
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


CONTESTANTS = {each.name: each for each in (Rota, Raw, PgQueuer, Procrastinate, Graphile)}


def main() -> None:
    options = measure.arguments(
        __doc__, tasks=20_000, singles=3_200, rounds=3, concurrency=500, only=",".join(CONTESTANTS)
    )
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in options.only.split(",")}
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
        for rival, factor in (("pgqueuer", 2), ("graphile-worker", 1))
        for what in figures["rota"]
        if rival in figures
    }
    postgres_rig.report("postgres throughput, per second", figures, aims, options.folder)


async def _round(server: Any, name: str, options: Any) -> dict[str, float]:
    url = await postgres_rig.database(server, "bench")
    return await times(CONTESTANTS[name](), url, options.tasks, options.singles, options.concurrency)


if __name__ == "__main__":
    main()
