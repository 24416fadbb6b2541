"""What an idle node asks of the server, with many schedules that are due in January: statements a second, as the driver
sends them (each is one; `begin` and `commit` count), and how much of a core the node takes. Alone, and while another
database of the same server commits 20 times a second. Aims: under 1, under 1 %. A scan of the ledger comes every
minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import asyncpg

import measure
import postgres_rig
import rota

FILL = """
insert into rota.schedule (id, tenant, key, description, status, timing, target, kind, next_run_at, due_at, run_count,
  missed_run_policy, overlap_policy, zone_data, timezone, search, created_at, updated_at, version, body)
select id || n, tenant, key || n, description, status, timing, target, kind, next_run_at, due_at, run_count,
  missed_run_policy, overlap_policy, zone_data, timezone, search, created_at, updated_at, version,
  replace(replace(body::text, '"' || id || '"', '"' || id || n || '"'), '"' || key || '"', '"' || key || n || '"')::json
from rota.schedule, generate_series(1, $1) n
"""


class Costs(NamedTuple):
    """What idling costs."""

    statements_per_second: float
    cpu_percent: float


async def neighbour(url: str, sent: list[None]) -> None:
    """Commits in another database."""
    connection = await asyncpg.connect(url)
    try:
        while True:
            sent.append(None)
            await connection.execute("select pg_current_xact_id()")
            await asyncio.sleep(0.05)
    finally:
        connection.terminate()


async def idle(url: str, schedules: int, seconds: int, neighbour_url: str | None = None) -> Costs:
    sent = 0
    sent_beside: list[None] = []

    def count() -> None:
        nonlocal sent
        sent += 1

    async with rota.connect(url) as queue:
        await queue.create_schedule("s", task_type="noop", cron="0 0 1 1 *")
        connection = await asyncpg.connect(queue.store.address.dsn)  # type: ignore[attr-defined]  # of PostgresStore
        await connection.execute(FILL, schedules - 1)
        await connection.close()
        worker = rota.Worker(queue, rota.App())
        worker.task("noop")(lambda: None)
        running = asyncio.create_task(worker.run(handle_signals=False))
        await asyncio.sleep(3)
        with counting(count):
            beside = asyncio.create_task(neighbour(neighbour_url, sent_beside)) if neighbour_url else None
            used = time.process_time()
            await asyncio.sleep(seconds)
            used = time.process_time() - used
            if beside is not None:
                beside.cancel()
                await asyncio.gather(beside, return_exceptions=True)
        worker.stop()
        await running
    return Costs(round((sent - len(sent_beside)) / seconds, 2), round(100 * used / seconds, 2))


class counting:  # noqa: N801  reads as what it does
    """Every statement that asyncpg sends in this process."""

    NAMES = ("fetch", "fetchval", "fetchrow", "execute", "executemany")

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count

    def __enter__(self) -> None:
        self._kept = {name: getattr(asyncpg.Connection, name) for name in self.NAMES}
        for name, method in self._kept.items():
            setattr(asyncpg.Connection, name, self._counted(method))

    def _counted(self, method: Any) -> Any:
        async def counted(connection: Any, *args: Any, **options: Any) -> Any:
            self._count()
            return await method(connection, *args, **options)

        return counted

    def __exit__(self, *about: object) -> None:
        for name, method in self._kept.items():
            setattr(asyncpg.Connection, name, method)


def main() -> None:
    options = measure.arguments(__doc__, schedules=100_000, seconds=60)

    async def run(neighbour_url: str | None) -> Costs:
        url = await postgres_rig.database(server, "bench")
        return await idle(url, options.schedules, options.seconds, neighbour_url)

    with postgres_rig.server(options.folder) as server:
        alone = asyncio.run(run(None))
        beside = asyncio.run(run(server.url("postgres")))
    results = {
        "schedules": options.schedules,
        "alone": alone._asdict(),
        "beside_a_busy_database": beside._asdict(),
    }
    aims = {
        "< 1/s": alone.statements_per_second < 1,
        "< 1/s beside a busy database": beside.statements_per_second < 1,
        "< 1 % of a core": alone.cpu_percent < 1,
    }
    postgres_rig.report("postgres idle", results, aims, options.folder)


if __name__ == "__main__":
    main()
