"""Migrations of the SQLite store: together, once, and only forward."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from records import task
from rota.domain.errors import Refused, Unavailable
from rota.stores.queries import OpenTasks
from rota.stores.sql_files import Applied, Migration, migrations, pending
from rota.stores.sqlite.store import SqliteStore
from stores import TestClock, find, put

DUMP = Path(__file__).with_name("sqlite_schema.sql")

MIGRATE_TOGETHER = """
import asyncio, os, sys, traceback
from rota.engine.clock import SystemClock
from rota.stores.sqlite.store import SqliteStore

async def migrate():
    store = SqliteStore(sys.argv[1], SystemClock())
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


async def test_a_second_step_is_missed_then_applied(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.open()
    [before] = await put(store, task())
    await store.close()
    second = Migration(2, "0002_note", "alter table task add column note text;", "x")
    steps = (*migrations("sqlite"), second)
    monkeypatch.setattr("rota.stores.sqlite.schema.migrations", lambda dialect: steps)
    with pytest.raises(Unavailable, match="lacks 0002_note") as lacking:
        await store.open(migrate=False)
    assert lacking.value.details["lacks"] == "0002_note"
    assert "add column note" in await store.plan()
    assert list(await store.migrate()) == ["0002_note"]
    assert await store.plan() == ""
    await store.open(migrate=False)
    assert await find(store, OpenTasks()) == [before]
    await store.close()
    assert execute(path, "select id, note from task") == [(before.id, None)]


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
