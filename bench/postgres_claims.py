"""Claim time with many pending and many more finished tasks, against that with 1,000: milliseconds, median, of a
transaction that claims 50 and is undone. Aim: within 2x.

The two tables are in databases of their own, and asked in turn, so that whatever else the machine does meets both. The
rows are made by the server: 6 million take some minutes and 6 GB. `--parked` adds workflows that wait, each with the
step that says for what, half of them for a time; then an idle worker that runs this kind is watched on both tables for
`--idle` seconds: its statements, and the processor time of the server. A million take a minute and 2 GB.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import asyncpg

import measure
import postgres_rig
import rota
from postgres_idle import counting
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
insert into rota.task (id, tenant, status, kind, queue, priority, attempt, created_at, available_at, started_at,
  updated_at, cancel_requested, is_workflow, is_parked, changes, version, body)
select 'parked' || n, 'default', 'pending', 'sleeper', 'default', 128, 1, at,
  case when n % 2 = 0 then '9999-12-31T00:00:00Z'::timestamptz else at + interval '1 day' + n * interval '1 s' end,
  at, at + interval '1 ms', false, true, true, 1, 3, format('{"padding":"%s"}', repeat('x', 300))::json
from (select n, now() - n * interval '1 ms' as at from generate_series($1::bigint, $2::bigint) n) as numbered
"""
STEPS = """
insert into rota.step (id, tenant, task_id, key, kind, status, created_at, updated_at, due_at, version, body)
select 'step-of-' || id, tenant, id, 'sleep', 'sleep', 'waiting', created_at, updated_at, available_at, 1, '{}'
from rota.task where is_parked
"""


class Undone(Exception):
    pass


async def claim(tx: Tx) -> None:
    found = await tx.find(ReadyTasks(at=tx.now, kinds=("noop", "sleeper"), tenant="default"), 50, lock=True)
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
    for first in range(0, parked, AT_ONCE):
        await connection.execute(PARK, first + 1, min(first + AT_ONCE, parked), timeout=1800)
        await postgres_rig.command(server, "checkpoint")
    await connection.execute(STEPS, timeout=1800)
    for status, number in numbers.items():
        for first in range(0, number, AT_ONCE):
            rows = (f"{status}{first}-", status, min(AT_ONCE, number - first))
            await connection.execute(FILL, *rows, timeout=1800)
            await postgres_rig.command(server, "checkpoint")  # or the log would take as much as the rows
    await connection.execute("vacuum analyze rota.task", timeout=1800)
    await connection.execute("vacuum analyze rota.step", timeout=1800)
    await connection.close()


async def idle(server: Server, queue: rota.Queue, seconds: int) -> tuple[float, float]:
    """What a worker that runs the kind of those who wait costs: statements a second, and how many milliseconds of the
    processor the server takes a second."""
    sent: list[None] = []
    app = rota.App()

    @app.workflow("sleeper")
    async def sleeper(ctx: rota.Workflow) -> None:
        raise AssertionError("nothing is due")

    worker = rota.Worker(queue, app)
    running = asyncio.create_task(worker.run(handle_signals=False))
    await asyncio.sleep(3)
    before = postgres_rig.cpu_seconds(server)
    with counting(lambda: sent.append(None)):
        await asyncio.sleep(seconds)
    used = postgres_rig.cpu_seconds(server) - before
    worker.stop()
    await running
    return round(len(sent) / seconds, 2), round(1000 * used / seconds, 2)


async def measured(
    server: Server, pending: int, finished: int, parked: int, rounds: int, idle_seconds: int
) -> dict[str, Any]:
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
        costs = [await idle(server, queue, idle_seconds) for queue in (few, many)] if parked else []
    medians = {name: statistics.median(values) for name, values in seen.items()}
    return {
        **{name: round(value, 3) for name, value in medians.items()},
        "ratio": round(medians["many_ms"] / medians["few_ms"], 2),
        "filled_in_seconds": round(filled, 1),
        "idle_statements_per_second": [statements for statements, _ in costs],
        "idle_server_ms_per_second": [cpu for _, cpu in costs],
    }


def main() -> None:
    options = measure.arguments(__doc__, pending=1_000_000, finished=5_000_000, parked=0, rounds=200, idle=60)
    with postgres_rig.server(options.folder) as server:
        results = asyncio.run(
            measured(server, options.pending, options.finished, options.parked, options.rounds, options.idle)
        )
    sizes = {"pending": options.pending, "finished": options.finished, "parked": options.parked}
    postgres_rig.report(
        "postgres claims", {**sizes, **results}, {"within 2x": results["ratio"] <= 2}, options.folder
    )


if __name__ == "__main__":
    main()
