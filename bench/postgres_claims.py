"""Claim time with many pending and many more finished tasks, against that with 1,000: milliseconds, median, of a
transaction that claims 50 and is undone. Aim: within 2x."""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import timedelta

import asyncpg

import measure
import postgres_rig
import rota
from rota.stores.base import Tx
from rota.stores.queries import ReadyTasks

FILL = """
insert into rota.task (id, tenant, status, kind, queue, priority, attempt, created_at, available_at, completed_at,
  cancel_requested, version, body)
select prefix || n, 'default', status, 'noop', 'default', 128, 0, at, at, case when status = 'completed' then at end,
  false, 1, json_build_object('record', 'task.1', 'id', prefix || n, 'version', 1, 'kind', 'noop', 'status', status,
    'created_at', rota.iso(at), 'available_at', rota.iso(at), 'updated_at', rota.iso(at), 'padding', repeat('x', 200))
from (select $1::text as prefix, $2::text as status, n, now() - n * interval '1 ms' as at
  from generate_series(1, $3) n) as rows
"""


class Undone(Exception):
    pass


async def claims(queue: rota.Queue, rounds: int) -> float:
    async def claim(tx: Tx) -> None:
        found = await tx.find(ReadyTasks(at=tx.now, kinds=("noop",), tenant="default"), 50, lock=True)
        assert len(found) == 50
        raise Undone

    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        try:
            await queue.store.transact(claim)
        except Undone:
            took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took)


async def measured(url: str, pending: int, finished: int, rounds: int) -> dict[str, float]:
    async with rota.connect(url) as queue:
        connection = await asyncpg.connect(queue.store.address.dsn)  # type: ignore[attr-defined]
        await connection.execute(FILL, "few", "pending", 1000)
        await connection.execute("vacuum analyze rota.task")
        await claims(queue, 20)
        few = await claims(queue, rounds)
        for first in range(0, finished, 500_000):
            await connection.execute(
                FILL, f"done{first}-", "completed", min(500_000, finished - first), timeout=600
            )
        for first in range(0, pending, 500_000):
            await connection.execute(
                FILL, f"many{first}-", "pending", min(500_000, pending - first), timeout=600
            )
        delayed = "update rota.task set available_at = now() + $1::interval where id like 'many%5'"
        await connection.execute(delayed, timedelta(days=1), timeout=600)
        await connection.execute("vacuum analyze rota.task", timeout=600)
        await claims(queue, 20)
        many = await claims(queue, rounds)
        await connection.close()
    return {"few_ms": round(few, 3), "many_ms": round(many, 3), "ratio": round(many / few, 2)}


def main() -> None:
    options = measure.arguments(__doc__, pending=1_000_000, finished=5_000_000, rounds=200)

    async def run() -> dict[str, float]:
        url = await postgres_rig.database(server, "bench")
        return await measured(url, options.pending, options.finished, options.rounds)

    with postgres_rig.server(options.folder) as server:
        results = asyncio.run(run())
    sizes = {"pending": options.pending, "finished": options.finished}
    postgres_rig.report(
        "postgres claims", {**sizes, **results}, {"within 2x": results["ratio"] <= 2}, options.folder
    )


if __name__ == "__main__":
    main()
