"""What a task costs on PostgreSQL, counted and not timed: microseconds of the processors (ours and the server's), bytes
of log and statements for each task that is submitted in batches and for each that is run; the bytes of table and
indexes afterwards, and which share of the updates found room on their page (HOT). On a busy machine such figures say
more than seconds do."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

import asyncpg

import measure
import postgres_rig
from postgres_idle import counting
from postgres_server import Server
from postgres_throughput import Rota

SIZES = """
select n_tup_hot_upd::float / n_tup_upd as hot, pg_table_size(relid) as table_bytes,
  pg_indexes_size(relid) as index_bytes
from pg_stat_user_tables where schemaname = 'rota' and relname = 'task'
"""


async def costs(server: Server, tasks: int, concurrency: int) -> dict[str, float]:
    url = await postgres_rig.database(server, "bench")
    rota = Rota()
    await rota.prepare(url)
    beside = await asyncpg.connect(url)
    found: dict[str, float] = {}
    try:
        found |= await _counted("submit", server, beside, tasks, lambda: rota.submit_many(tasks))
        found |= await _counted("run", server, beside, tasks, lambda: rota.drain(tasks, concurrency))
    finally:
        await rota.close()
    await beside.execute("select pg_stat_force_next_flush()")
    [sizes] = await beside.fetch(SIZES)
    await beside.close()
    return found | {
        "table_bytes": sizes["table_bytes"] / tasks,
        "index_bytes": sizes["index_bytes"] / tasks,
        "hot": sizes["hot"],
    }


async def _counted(
    name: str, server: Server, beside: Any, tasks: int, run: Callable[[], Any]
) -> dict[str, float]:
    sent = 0

    def count() -> None:
        nonlocal sent
        sent += 1

    ours, theirs, log = time.process_time(), postgres_rig.cpu_seconds(server), await _log(beside)
    with counting(count):
        await run()
    return {
        f"{name}_rota_us": 1e6 * (time.process_time() - ours) / tasks,
        f"{name}_server_us": 1e6 * (postgres_rig.cpu_seconds(server) - theirs) / tasks,
        f"{name}_log_bytes": (await _log(beside) - log) / tasks,
        f"{name}_statements": sent / tasks,
    }


async def _log(connection: Any) -> float:
    return float(await connection.fetchval("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))


def main() -> None:
    options = measure.arguments(__doc__, tasks=20_000, concurrency=500, rounds=3)
    with postgres_rig.server(options.folder) as server:
        rounds = [
            asyncio.run(costs(server, options.tasks, options.concurrency)) for _ in range(options.rounds)
        ]
    figures = {name: round(statistics.median(each[name] for each in rounds), 4) for name in rounds[0]}
    aims = {"<= 32 us ours": figures["run_rota_us"] <= 32, "<= 25 us server": figures["run_server_us"] <= 25}
    postgres_rig.report("postgres costs, per task", figures, aims, options.folder)


if __name__ == "__main__":
    main()
