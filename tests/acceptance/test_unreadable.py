"""A record that cannot be read harms nobody but itself. Something else has written it, past us, into the database."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import rota
from postgres_server import new_database
from rota.domain.errors import Corrupt
from rota.domain.model import Gate, Schedule, Task
from rota.engine.clock import SystemClock
from rota.engine.commands import fire_due
from rota.stores.base import Tx
from rota.stores.postgres.address import Address
from rota.stores.postgres.store import PostgresStore
from rota.stores.queries import ReadyTasks
from rota.stores.sqlite.store import SqliteStore
from rota.surfaces.cli.commands.store import examine
from stores import get

Damage = Callable[[str, str, str], Awaitable[None]]
"""Give the record of this table with this id another body."""

DEPTH = 12_000  # Python 3.13 reads 9,999, PostgreSQL 16,349
DEEP = '{"id" : "%s", "input" : ' + "[" * DEPTH + "]" * DEPTH + "}"
NO_TIME = '{"id": "%s", "created_at": "infinity", "history": "infinity"}'


@asynccontextmanager
async def by_sqlite(folder: Path) -> AsyncIterator[tuple[str, Damage]]:
    async def damage(table: str, id: str, body: str) -> None:
        connection = apsw.Connection(str(folder / "rota.db"))
        connection.execute(f"update {table} set body = ? where id = ?", (body, id))
        connection.close()

    yield f"sqlite:///{folder}/rota.db", damage


@asynccontextmanager
async def by_postgres(folder: Path) -> AsyncIterator[tuple[str, Damage]]:
    url = new_database()
    connection = await asyncpg.connect(Address.parse(url).dsn)

    async def damage(table: str, id: str, body: str) -> None:
        await connection.execute(f"update rota.{table} set body = $1::text::json where id = $2", body, id)

    yield url, damage
    await connection.close()


@pytest.fixture(params=[by_sqlite, by_postgres], ids=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


@pytest.fixture(autouse=True)
def usual_depth() -> Iterator[None]:
    """What is too deep to read depends on Python's limit, which other tests of the process may have moved."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


def found_by(query: Any, limit: int) -> Any:
    async def work(tx: Tx) -> list[str]:
        return [record.id for record in await tx.find(query, limit, lock=True)]

    return work


async def test_bad_tasks_do_not_hide_the_good_ones_behind_them(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with world as (url, damage), rota.connect(url) as queue:
        tasks = [await queue.submit("mail", {"n": n}) for n in range(10)]
        for number, task in enumerate(tasks[:7]):
            await damage("task", task.id, (DEEP if number % 2 else NO_TIME) % task.id)
        good = [task.id for task in tasks[7:]]
        ready = ReadyTasks(at=await queue.store.now(), kinds=("mail",), tenant="default")
        with caplog.at_level(logging.ERROR, "rota"):
            for limit in (1, 2, 5, 50):
                assert await queue.store.transact(found_by(ready, limit)) == good[:limit]
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 7, "each is named once"
        assert all(any(f"task {task.id} cannot be read" in line for line in said) for task in tasks[:7])
        assert [task.id for task in await queue.list(limit=2)] == good[:0:-1]
        page = await queue.list(limit=2, cursor=(await queue.list(limit=2)).next_cursor)
        assert [task.id for task in page] == good[:1]
        with pytest.raises(Corrupt, match=f"task {tasks[0].id} cannot be read"):
            await queue.get(tasks[0].id)


async def test_a_worker_runs_the_others(world: Any) -> None:
    async with world as (url, damage), rota.connect(url) as queue:
        bad, good = [await queue.submit("mail") for _ in range(2)]
        await damage("task", bad.id, NO_TIME % bad.id)
        app = rota.App()
        app.task("mail")(lambda: "sent")
        worker = rota.Worker(queue, app, concurrency=1)
        running = asyncio.create_task(worker.run(handle_signals=False))
        assert (await queue.wait(good.id, 60)).output == "sent"
        worker.stop()
        await running


async def test_bad_tasks_in_a_line_do_not_hold_up_those_behind_them(world: Any) -> None:
    async with world as (url, damage), rota.connect(url) as queue:
        app = rota.App()
        app.task("mail", limit=rota.Limit(concurrency=1))(lambda: "sent")
        await queue.declare_limits(app)
        first, *bad, good, last = [await queue.submit("mail") for _ in range(6)]
        for task in bad:
            await damage("task", task.id, NO_TIME % task.id)
        await queue.cancel(first.id)
        async with rota.Worker(queue, app):
            for task in (good, last):
                assert (await queue.wait(task.id, 60)).output == "sent"
        gate = await get(queue.store, Gate, good.gates[0])
        assert gate is not None
        assert (gate.inside, gate.has_line) == (0, True), "they wait there until they are mended"


async def test_a_bad_schedule_does_not_hold_up_another(world: Any) -> None:
    async with world as (url, damage), rota.connect(url) as queue:
        soon = datetime.now(UTC) + timedelta(seconds=2)
        bad, good = [
            await queue.create_schedule(key, task_type="mail", run_at=soon + timedelta(milliseconds=n))
            for n, key in enumerate(("bad", "good"))
        ]
        await damage("schedule", bad.id, NO_TIME % bad.id)
        with pytest.raises(Corrupt, match=f"schedule {bad.id} cannot be read"):
            await queue.get_schedule("bad")  # by its name: "not found" would be wrong
        while not (tick := await queue.store.transact(fire_due(1))).runs:
            await queue.store.wait(tick.next_at)
        assert [run.schedule_id for run in tick.runs] == [good.id]


async def test_the_doctor_names_them(world: Any) -> None:
    async with world as (url, damage):
        async with rota.connect(url) as queue:
            task = await queue.submit("mail", schedule_at=datetime(2040, 1, 1, tzinfo=UTC))
            done = await queue.submit("mail")
            await queue.cancel(done.id)
            schedule = await queue.create_schedule(
                "s", task_type="mail", run_at=datetime(2040, 1, 1, tzinfo=UTC)
            )
            for table, record in (("task", task), ("task", done), ("schedule", schedule)):
                await damage(table, record.id, NO_TIME % record.id)
        of_url = PostgresStore.from_url if url.startswith("postgresql") else SqliteStore.from_url
        findings = await examine(of_url(url, SystemClock()), "default")
        [found] = [finding for finding in findings if finding.check == "records"]
        assert not found.ok
        assert found.found.startswith("3 left out everywhere, since they cannot be read: ")
        for name, record in ((Task, task), (Task, done), (Schedule, schedule)):
            assert f"{name.__name__.lower()} {record.id} cannot be read" in found.found
