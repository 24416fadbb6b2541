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
from records import api_key, receipt, task
from rota.domain.errors import Refused, Unavailable
from rota.engine.clock import SystemClock
from rota.stores import sql_files as migrations
from rota.stores.postgres.address import Address
from rota.stores.postgres.store import PostgresStore
from rota.stores.queries import OpenTasks
from rota.stores.sql_files import Migration
from stores import START, find, put

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
    with pytest.raises(Unavailable, match="there is no store at postgresql://"):
        await store(url).open(migrate=False)
    assert (await ask(url, "select to_regnamespace('rota') is null as nothing"))[0]["nothing"]


async def test_a_migration_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    url = databases().empty()
    broken = Migration(99, "0099_broken", "create table {schema}.half (a int); select 1/0;", "x")
    known = (*migrations.migrations("postgres"), broken)
    monkeypatch.setattr("rota.stores.postgres.schema.migrations", lambda dialect: known)
    with pytest.raises(Unavailable, match="division by zero"):
        await store(url).migrate()
    assert (await ask(url, "select to_regnamespace('rota') is null as nothing"))[0]["nothing"]


async def test_a_second_step_is_missed_then_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    url = databases().empty()
    opened = store(url)
    await opened.open()
    [before] = await put(opened, task())
    await opened.close()
    second = Migration(2, "0002_note", "alter table {schema}.task add column note text;", "x")
    known = (*migrations.migrations("postgres"), second)
    monkeypatch.setattr("rota.stores.postgres.schema.migrations", lambda dialect: known)
    with pytest.raises(Unavailable, match="lacks 0002_note") as lacking:
        await opened.open(migrate=False)
    assert lacking.value.details["lacks"] == "0002_note"
    assert "add column note" in await opened.plan()
    assert await opened.migrate() == ["0002_note"]
    assert await opened.plan() == ""
    await opened.open(migrate=False)
    assert await find(opened, OpenTasks()) == [before]
    await opened.close()
    [row] = await ask(url, "select id, note from rota.task")
    assert (row["id"], row["note"]) == (before.id, None)


# For people who look with psql


async def test_keys_read_well_and_show_no_digest() -> None:
    url = new_database()
    opened = store(url)
    await opened.open()
    await put(opened, api_key(name="ci\0", digest="d" * 64, tenant="*"), receipt(status=409))
    await opened.close()
    [row] = await ask(url, "select * from rota.apikey")
    assert list(row.keys())[:6] == ["id", "tenant", "name", "role", "created_at", "created_by"]
    assert (row["tenant"], row["name"], row["role"], row["revoked_at"]) == ("*", "ci\ufffd", "viewer", None)
    assert [name for name, value in row.items() if "dddd" in str(value)] == ["body"]
    [row] = await ask(url, "select at, status from rota.receipt")
    assert (row["at"], row["status"]) == (START, 409)


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


async def test_the_documented_columns_and_indexes_are_there() -> None:
    """Other programs read these columns by name."""
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


async def test_a_migration_may_take_longer_than_a_statement() -> None:
    """Here it waits for another one, for longer than the statements of a node may take."""
    url = databases().empty()
    long_blocked = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        " and clock_timestamp() - query_start > interval '0.6 s'"
    )
    other = await asyncpg.connect(url)
    holding = other.transaction()
    await holding.start()
    await other.execute("create schema rota")  # as a migration that is not done yet
    migrating = asyncio.create_task(store(f"{url}&statement_timeout=0.5").migrate())
    async with asyncio.timeout(60):
        while not (await ask(url, long_blocked))[0][0]:
            await asyncio.sleep(0.01)
            assert not migrating.done(), migrating.exception()
    await holding.rollback()
    await other.close()
    assert await migrating == NAMES


async def test_settings_of_the_database_do_not_matter() -> None:
    url = databases().empty()
    [[name]] = await ask(url, "select current_database()")
    for setting in (
        "timezone = 'America/New_York'",
        "datestyle = 'SQL, DMY'",
        "intervalstyle = 'sql_standard'",
        "standard_conforming_strings = off",
        "bytea_output = 'escape'",
        "default_transaction_isolation = 'serializable'",
        "search_path = ''",
    ):
        await ask(url, f"alter database {name} set {setting}")
    async with rota.connect(url) as queue:
        task = await queue.submit("mail", {"text": "a\0b \\ ' \U0001f600"}, idempotency_key="k")
        assert (await queue.get(task.id)).input == task.input
        submitted = (
            "select rota.submit('mail', '{\"n\": 1}', timeout_seconds => 1.5, idempotency_key => 'other')"
        )
        [[id]] = await ask(url, submitted)
        assert (await queue.submit("mail", {"n": 1}, idempotency_key="other")).id == str(id)
        [[at]] = await ask(url, "select created_at from rota.task where id = $1", task.id)
        assert at == task.created_at
