"""Claim time with many pending and many more finished tasks, against that with 1,000: milliseconds, median, of a
transaction that claims 50 and is undone. Aim: within 2x.

The two tables are in databases of their own, and asked in turn, so that whatever else the machine does meets both. The
rows are made by the server: 6 million take some minutes and 6 GB. `--parked` adds workflows that wait, half of them
for a time.
"""

from __future__ import annotations

import asyncio
import statistics
import time

import asyncpg

import measure
import postgres_rig
import rota
from postgres_server import Server
from rota.stores.base import Tx
from rota.stores.queries import ReadyTasks

FEW = 1000
AT_ONCE = 500_000
FILL = """
insert into rota.task (id, tenant, status, kind, queue, priority, attempt, created_at, available_at, completed_at,
  updated_at, cancel_requested, changes, version, body)
select id, 'default', $2, 'noop', 'default', 128, 0, at, case when n % 10 = 5 then at + interval '1 day' else at end,
  case when $2 = 'completed' then at end, at, false, 0, 1, format('{"padding":"%s"}', repeat('x', 300))::json
from (select $1 || n as id, n, now() - n * interval '1 ms' as at from generate_series(1, $3::bigint) n) as numbered
"""
"""One in ten is for tomorrow, as it is where tasks are delayed."""

PARK = """
insert into rota.task (id, tenant, status, kind, queue, priority, attempt, created_at, available_at, updated_at,
  cancel_requested, changes, version, body)
select 'parked' || n, 'default', 'pending', 'noop', 'default', 128, 1, now(),
  case when n % 2 = 0 then '9999-12-31T00:00:00Z'::timestamptz else now() + n * interval '1 minute' end,
  now(), false, 0, 1, format('{"padding":"%s"}', repeat('x', 300))::json
from generate_series(1, $1::bigint) n
"""


class Undone(Exception):
    pass


async def claim(tx: Tx) -> None:
    found = await tx.find(ReadyTasks(at=tx.now, kinds=("noop",), tenant="default"), 50, lock=True)
    assert len(found) == 50
    raise Undone


async def milliseconds(queue: rota.Queue) -> float:
    began = time.perf_counter()
    try:
        await queue.store.transact(claim)
    except Undone:
        return 1000 * (time.perf_counter() - began)
    raise AssertionError("a claim is undone")


async def fill(server: Server, queue: rota.Queue, parked: int = 0, **numbers: int) -> None:
    connection = await asyncpg.connect(queue.store.address.dsn)  # type: ignore[attr-defined]  # of PostgresStore
    await connection.execute(PARK, parked, timeout=1800)
    for status, number in numbers.items():
        for first in range(0, number, AT_ONCE):
            rows = (f"{status}{first}-", status, min(AT_ONCE, number - first))
            await connection.execute(FILL, *rows, timeout=1800)
            await postgres_rig.command(server, "checkpoint")  # or the log would take as much as the rows
    await connection.execute("vacuum analyze rota.task", timeout=1800)
    await connection.close()


async def measured(server: Server, pending: int, finished: int, parked: int, rounds: int) -> dict[str, float]:
    small, large = [await postgres_rig.database(server, name) for name in ("few", "many")]
    async with rota.connect(small) as few, rota.connect(large) as many:
        began = time.perf_counter()
        await fill(server, few, pending=FEW)
        await fill(server, many, parked, completed=finished, pending=pending)
        filled = time.perf_counter() - began
        seen: dict[str, list[float]] = {"few_ms": [], "many_ms": []}
        for each in range(-20, rounds):
            for name, queue in zip(seen, (few, many), strict=True):
                took = await milliseconds(queue)
                if each >= 0:
                    seen[name].append(took)
    medians = {name: statistics.median(values) for name, values in seen.items()}
    return {
        **{name: round(value, 3) for name, value in medians.items()},
        "ratio": round(medians["many_ms"] / medians["few_ms"], 2),
        "filled_in_seconds": round(filled, 1),
    }


def main() -> None:
    options = measure.arguments(__doc__, pending=1_000_000, finished=5_000_000, parked=0, rounds=200)
    with postgres_rig.server(options.folder) as server:
        results = asyncio.run(
            measured(server, options.pending, options.finished, options.parked, options.rounds)
        )
    sizes = {"pending": options.pending, "finished": options.finished, "parked": options.parked}
    postgres_rig.report(
        "postgres claims", {**sizes, **results}, {"within 2x": results["ratio"] <= 2}, options.folder
    )


if __name__ == "__main__":
    main()
