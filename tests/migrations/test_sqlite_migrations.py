"""Migrations of the SQLite store: together, once, and only forward."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from records import api_key, receipt, task
from rota.domain.errors import Refused, Unavailable
from rota.stores import sql_files as statements
from rota.stores.codec import micros
from rota.stores.queries import OpenTasks, ReturnedTasks, TaskList
from rota.stores.sql_files import Applied, Migration, migrations, pending
from rota.stores.sqlite.store import SqliteStore
from stores import START, TestClock, find, put

DUMP = Path(__file__).with_name("sqlite_schema.sql")

MIGRATE_TOGETHER = """
import asyncio, os, sys, traceback
from datetime import UTC, datetime
from rota.stores.sqlite.store import SqliteStore

class Clock:
    def now(self):
        return datetime.now(UTC)

async def migrate():
    store = SqliteStore(sys.argv[1], Clock())
    await store.open()
    await store.close()

def child():
    os.close(starter)
    os.read(start, 1)  # until everyone is there
    try:
        asyncio.run(migrate())
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)

start, starter = os.pipe()
children = [os.fork() or child() for _ in range(20)]
os.close(starter)
sys.exit(sum(os.waitpid(each, 0)[1] != 0 for each in children))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rota.db"


@pytest.fixture
def store(path: Path, runner: asyncio.Runner) -> SqliteStore:
    return SqliteStore(path, TestClock(runner.get_loop()))


def execute(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    db = apsw.Connection(str(path))
    try:
        return db.execute(statement, values).fetchall()
    finally:
        db.close()


def schema(path: Path) -> str:
    rows = execute(
        path, "select sql from sqlite_schema where sql is not null order by type desc, tbl_name, name"
    )
    return "".join(f"{row[0]};\n\n" for row in rows)


async def test_opening_a_new_file_makes_the_schema_in_the_dump(store: SqliteStore, path: Path) -> None:
    """After a new migration: write what this test found into the dump, and read the difference."""
    await store.open()
    await store.close()
    assert schema(path) == DUMP.read_text("utf-8")


async def test_what_was_applied_is_recorded(store: SqliteStore, path: Path) -> None:
    await store.open()
    assert list(await store.migrate()) == []
    await store.close()
    found = execute(path, "select number, name, checksum from rota_migration")
    assert found == [(step.number, step.name, step.checksum) for step in migrations("sqlite")]


async def test_opening_without_migrating_says_that_there_is_none_and_makes_none(
    store: SqliteStore, path: Path
) -> None:
    with pytest.raises(Unavailable, match=f"there is no store at sqlite:///{path}"):
        await store.open(migrate=False)
    assert await store.plan()
    assert not path.exists()
    await store.open()
    await put(store, task())
    await store.close()
    await store.open(migrate=False)
    await store.close()


async def test_a_newer_schema_is_refused(store: SqliteStore, path: Path) -> None:
    await store.open()
    await store.close()
    execute(path, "insert into rota_migration values (9999, '9999_later', 'x', 'now')")
    for migrate in (True, False):
        with pytest.raises(Refused) as caught:
            await store.open(migrate=migrate)
        assert caught.value.code == "newer_schema"
        assert "9999" in str(caught.value)
        assert str(path) in str(caught.value)


async def test_a_changed_migration_is_refused(store: SqliteStore, path: Path) -> None:
    await store.open()
    await store.close()
    execute(path, "update rota_migration set checksum = 'edited' where number = 1")
    with pytest.raises(Refused) as caught:
        await store.open()
    assert caught.value.code == "other_schema"
    assert "0001_core" in str(caught.value)


async def test_a_migration_that_fails_leaves_the_file_as_it_was(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (
        *migrations("sqlite"),
        Migration(99, "0099_bad", "create table extra (id); create table task (id);", "x"),
    )
    monkeypatch.setattr("rota.stores.sqlite.schema.migrations", lambda dialect: steps)
    with pytest.raises(Unavailable, match="already exists"):
        await store.open()
    assert schema(path) == ""
    monkeypatch.undo()
    await store.open()
    await store.close()


OLD = {
    "new": {"status": "pending", "updated_at": "2026-03-01T12:00:00Z"},
    "again": {"status": "pending", "updated_at": "2026-03-01T12:01:00.000250Z", "input": "\u0000"},
    "whole": {"status": "pending", "updated_at": "2026-03-01T12:02:00Z"},
    "running": {"status": "running", "updated_at": "2026-03-01T12:03:00Z"},
    "done": {"status": "completed", "updated_at": "2026-03-01T12:04:00Z"},
}
"""Tasks as release 0.1.0 wrote them, all created at 12:00."""


def fill_with_0001(path: Path) -> None:
    """A file as it was before 0002, with tasks in it and one that cannot be read."""
    first = migrations("sqlite")[0]
    db = apsw.Connection(str(path))
    db.execute(statements.load("sqlite")["create_migration_table"])
    db.execute(first.sql)
    db.execute("insert into rota_migration values (?, ?, ?, 'then')", first[:2] + first[3:])
    for id, values in OLD.items():
        times = {"created_at": "2026-03-01T12:00:00Z", "available_at": "2026-03-01T12:00:00Z"}
        body = {"record": "task.1", "id": id, "version": 1, "kind": "report", **times, **values}
        db.execute(INSERT_0001, (id, micros(START), values["status"], micros(START), json.dumps(body)))
    db.execute(INSERT_0001, ("damaged", micros(START), "pending", micros(START), "not json"))
    db.close()


INSERT_0001 = """
insert into task (id, version, tenant, created_at, kind, queue, priority, status, available_at, cancel_requested, body)
values (?, 1, 'default', ?, 'report', 'default', 128, ?, ?, 0, ?)
"""


async def test_tasks_of_0001_are_found_by_the_queries_of_0002(store: SqliteStore, path: Path) -> None:
    fill_with_0001(path)
    names = [step.name for step in migrations("sqlite")[1:]]
    with pytest.raises(Unavailable, match=f"lacks {names[0]}"):
        await store.open(migrate=False)
    assert list(await store.migrate()) == names
    execute(path, "delete from task where id = 'damaged'")
    assert schema(path) == DUMP.read_text("utf-8")
    await store.open()
    returned = await find(store, ReturnedTasks(tenant="default", since=START))
    assert [task.id for task in returned] == ["again", "whole"]
    assert [
        row[0] for row in execute(path, "select returned_at from task where returned_at is not null")
    ] == [micros(task.returned_at) for task in returned]
    assert [task.id for task in await find(store, OpenTasks())] == ["again", "new", "running", "whole"]
    assert await find(store, TaskList(tenant="default", at=START, is_workflow=True)) == []
    [stored] = await put(store, returned[0])
    assert stored.version == 2
    await put(store, api_key(), receipt())
    await store.close()


def test_twenty_processes_migrate_at_once(path: Path) -> None:
    command = [sys.executable, "-c", MIGRATE_TOGETHER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(execute(path, "select * from rota_migration")) == len(migrations("sqlite"))


ONE, TWO = Migration(1, "0001_a", "", "aa"), Migration(2, "0002_b", "", "bb")


def test_pending_is_what_is_left() -> None:
    assert pending("s", [ONE, TWO], []) == [ONE, TWO]
    assert pending("s", [TWO, ONE], [Applied(1, "0001_a", "aa")]) == [TWO]
    assert pending("s", [ONE, TWO], [Applied(1, "0001_a", "aa"), Applied(2, "0002_b", "bb")]) == []


def test_numbers_are_consecutive() -> None:
    steps = migrations("sqlite")
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
