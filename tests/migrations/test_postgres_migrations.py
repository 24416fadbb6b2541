"""The schema of PostgreSQL: made once however many make it, never changed behind our back, and good to look at."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import asyncpg
import pytest

import rota
from postgres_server import databases, new_database
from rota.domain.errors import Refused, Unavailable
from rota.engine.clock import SystemClock
from rota.stores import migrate as migrations
from rota.stores.migrate import Migration
from rota.stores.postgres import PostgresStore
from rota.stores.postgres_address import Address

NAMES = [step.name for step in migrations.migrations("postgres")]


def store(url: str) -> PostgresStore:
    return PostgresStore.from_url(url, SystemClock())


async def ask(url: str, sql: str, *args: Any) -> list[Any]:
    connection = await asyncpg.connect(Address.parse(url).dsn)
    try:
        return await connection.fetch(sql, *args)
    finally:
        await connection.close()


async def test_twenty_at_once() -> None:
    url = databases().empty()
    answers = await asyncio.gather(*(store(url).migrate() for _ in range(20)))
    assert sorted(map(list, answers)) == [*([[]] * 19), NAMES]


async def test_processes_at_once() -> None:
    url = databases().empty()
    program = f"import asyncio, rota\nasync def main():\n async with rota.connect({url!r}): pass\nasyncio.run(main())"
    started = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]
    assert [process.wait(60) for process in started] == [0] * 4
    assert [row["name"] for row in await ask(url, "select name from rota.migration order by number")] == NAMES


async def test_a_plan_run_by_hand_is_the_migration() -> None:
    url = databases().empty()
    plan = await store(url).plan()
    assert plan.startswith("begin;")
    assert "create table rota.task" in plan
    connection = await asyncpg.connect(Address.parse(url).dsn)
    await connection.execute(plan)
    await connection.close()
    assert await store(url).migrate() == []
    assert await store(url).plan() == ""
    async with rota.connect(url) as queue:
        await queue.submit("mail")


async def test_a_newer_schema_is_refused() -> None:
    url = new_database()
    await ask(url, "insert into rota.migration (number, name, checksum) values (999, '0999_later', 'x')")
    try:
        for opening in (store(url).open(), store(url).open(migrate=False), store(url).migrate()):
            with pytest.raises(Refused, match="newer version") as caught:
                await opening
            assert caught.value.code == "newer_schema"
    finally:
        await ask(url, "delete from rota.migration where number = 999")


async def test_a_schema_that_was_changed_is_refused() -> None:
    url = new_database()
    [row] = await ask(url, "select checksum from rota.migration where number = 1")
    await ask(url, "update rota.migration set checksum = 'other' where number = 1")
    try:
        with pytest.raises(Refused, match="differs"):
            await store(url).open()
    finally:
        await ask(url, "update rota.migration set checksum = $1 where number = 1", row["checksum"])


async def test_without_migrating_a_missing_schema_is_said_to_be_missing() -> None:
    url = databases().empty()
    with pytest.raises(Unavailable, match="rota migrate"):
        await store(url).open(migrate=False)
    assert (await ask(url, "select to_regnamespace('rota') is null as nothing"))[0]["nothing"]


async def test_a_migration_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    url = databases().empty()
    broken = Migration(99, "0099_broken", "create table {schema}.half (a int); select 1/0;", "x")
    known = (*migrations.migrations("postgres"), broken)
    monkeypatch.setattr("rota.stores.postgres_schema.migrations", lambda dialect: known)
    with pytest.raises(Unavailable, match="division by zero"):
        await store(url).migrate()
    assert (await ask(url, "select to_regnamespace('rota') is null as nothing"))[0]["nothing"]


# For people who look with psql


async def test_every_table_and_function_says_what_it_is() -> None:
    rows = await ask(
        new_database(),
        "select relname from pg_class where relnamespace = 'rota'::regnamespace and relkind = 'r'"
        " and obj_description(oid, 'pg_class') is null and relname <> 'migration'"
        " union all select proname from pg_proc where pronamespace = 'rota'::regnamespace"
        " and obj_description(oid, 'pg_proc') is null",
    )
    assert rows == []


async def test_failed_tasks_read_well() -> None:
    url = new_database()
    async with rota.connect(url) as queue:
        app = rota.App()

        @app.task("mail")
        def mail() -> None:
            raise rota.PermanentError("no such mailbox\0")

        await queue.submit("mail", {"to": "a@b.c"}, tags=["x"])
        worker = rota.Worker(queue, app)
        await worker.run_once()
        worker.tasks.close()
    [row] = await ask(url, "select * from rota.task where status = 'failed'")
    assert list(row.keys())[:8] == ["id", "tenant", "status", "kind", "queue", "priority", "attempt", "error"]
    assert (row["kind"], row["attempt"], row["tags"]) == ("mail", 1, ["x"])
    assert row["error"].startswith("PermanentError: no such mailbox")
    assert row["started_at"] <= row["completed_at"]


async def test_the_tables_of_document_001_are_there() -> None:
    """Their columns by name, where ours has another one that is given; the rules as indexes."""
    url = new_database()
    rows = await ask(
        url, "select table_name, column_name from information_schema.columns where table_schema = 'rota'"
    )
    columns = {(row["table_name"], row["column_name"]) for row in rows}
    schedule = (
        "id tenant key description timing target enabled next_run_at last_run_at run_count missed_run_policy"
    )
    schedule += " overlap_policy created_by created_at updated_at"
    run = "id schedule_id tenant scheduled_at started_at completed_at status target_type target_id error created_at"
    assert {("schedule", name) for name in schedule.split()} <= columns
    assert {("schedule_run", name) for name in run.split()} <= columns
    indexes = [
        row["indexdef"] for row in await ask(url, "select indexdef from pg_indexes where schemaname = 'rota'")
    ]
    assert any("UNIQUE" in each and "(tenant, key) WHERE (deleted_at IS NULL)" in each for each in indexes)
    assert any("(next_run_at) WHERE (enabled AND (next_run_at IS NOT NULL))" in each for each in indexes)
