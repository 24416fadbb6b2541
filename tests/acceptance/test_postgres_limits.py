"""A limit that is set while others submit: transactions overlap here, and none of their tasks gets past it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import rota
from postgres_server import new_database
from records import task
from rota.domain.model import Task, Tenant
from rota.domain.task import Defaults, letting_in
from rota.engine import limits
from rota.engine.commands import Claim, Retention, claim_tasks
from rota.engine.roles.janitor import Forgetter
from rota.stores.base import Tx
from rota.stores.postgres.address import Address
from rota.stores.queries import TaskList
from stores import get

Submit = Callable[[rota.Queue, Any], Awaitable[object]]
BLOCKED = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
)


@pytest.fixture
def url() -> str:
    return new_database()


async def claimed(queue: rota.Queue) -> list[Task]:
    """What a worker gets that has room for ten, and whose handler has no limit."""
    ask = Claim(
        kinds={"send": Defaults()}, worker_id="w", lease_id="l", lease=timedelta(seconds=30), limit=10
    )
    return (await queue.store.transact(claim_tasks(ask))).tasks


async def by_python(queue: rota.Queue, connection: Any) -> object:
    return await queue.submit("send", queue="mail", connection=connection)


async def by_sql(queue: rota.Queue, connection: Any) -> object:
    return await connection.fetchval("select rota.submit('send', queue => 'mail')")


@pytest.mark.parametrize("submit", [by_python, by_sql])
async def test_a_limit_binds_what_an_open_transaction_has_submitted(url: str, submit: Submit) -> None:
    async with rota.connect(url) as queue:
        connection = await asyncpg.connect(Address.parse(url).dsn)
        async with connection.transaction():
            for _ in range(3):
                await submit(queue, connection)
            setting = asyncio.create_task(queue.limit_queue("mail", concurrency=1))
            while not await queue.task_limits():
                assert not setting.done()
            assert not setting.done(), "it waits for the transaction"
            await queue.submit("send", queue="mail")  # nobody else waits
        await connection.close()
        await setting
        assert len(await claimed(queue)) == 1


@pytest.mark.parametrize("ended_by", ["call", "forgetter"])
async def test_a_transaction_that_stays_open_is_told_of(
    url: str, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    """The limit is set, and is as one whose change was interrupted: the next call ends it, or a node."""
    monkeypatch.setattr(limits, "FOR_WRITERS", timedelta(milliseconds=10))
    async with rota.connect(url) as queue:
        connection = await asyncpg.connect(Address.parse(url).dsn)
        async with connection.transaction():
            for _ in range(3):
                await by_python(queue, connection)
            with pytest.warns(RuntimeWarning, match=r"the limit is set, but .* still open"):
                await queue.limit_queue("mail", concurrency=1)
        await connection.close()
        if ended_by == "call":
            await queue.limit_queue("mail", concurrency=1)
        else:
            await Forgetter(queue.store, Retention(), queue.clock).run_once()
        assert len(await claimed(queue)) == 1
        tenant = await get(queue.store, Tenant, "default")
        assert tenant is not None
        assert tenant.unplanned == {}


async def read_one(tx: Tx) -> None:
    await tx.get(Tenant, "default")


async def read_many(tx: Tx) -> None:
    await tx.get_many(Tenant, ["default", "acme"])


@pytest.mark.parametrize("read", [read_one, read_many])
@pytest.mark.parametrize("options", ["", "&pgbouncer=1"])
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_work_that_read_a_tenant_is_run_again_if_that_has_changed(
    url: str, read: Callable[[Tx], Awaitable[None]], options: str, is_known: bool
) -> None:
    """A new task, a task that is written again, and both: the limit is there when they are written."""
    async with rota.connect(url + options) as queue, rota.connect(url) as other:
        if is_known:
            await other.limit_queue("other", concurrency=1)
        waiting = await queue.submit("send")
        for number, tables in enumerate((("new",), ("old",), ("new", "old")), start=2):
            runs = 0

            async def work(tx: Tx, tables: tuple[str, ...] = tables, number: int = number) -> None:
                nonlocal runs
                runs += 1
                await read(tx)
                old = await tx.get(Task, waiting.id)
                if runs == 1:
                    await other.limit_queue("mail", concurrency=number)
                if "new" in tables:
                    tx.put(task(f"new-{number}"))
                if "old" in tables:
                    assert old is not None
                    tx.put(old)

            await queue.store.transact(work)
            assert runs == 2, tables


async def test_a_tenant_holds_beyond_the_writes_of_other_works(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a work before it wrote is sent while this one reads: the tenant was read before that, and changes after."""
    monkeypatch.setattr(limits, "FOR_WRITERS", timedelta(milliseconds=10))
    async with rota.connect(url) as queue, rota.connect(url) as other:
        runs = 0

        async def before(tx: Tx) -> None:
            tx.put(task("before"))

        async def work(tx: Tx) -> None:
            nonlocal runs
            runs += 1
            await tx.get(Tenant, "default")
            assert len(await tx.find(TaskList(tenant="default", at=tx.now), 10)) == 1, "one group"
            if runs == 1:
                with pytest.warns(RuntimeWarning, match="still open"):
                    await other.limit_queue("mail", concurrency=1)
            tx.put(task("after"))

        await asyncio.gather(queue.store.transact(before), queue.store.transact(work))
        assert runs == 2


async def test_a_work_that_changes_a_tenant_is_no_conflict_with_its_own_group(url: str) -> None:
    async with rota.connect(url) as queue:
        await asyncio.gather(
            *(queue.limit_queue(f"q{number}", concurrency=1) for number in range(5)),
            *(queue.submit("send", queue=f"q{number}") for number in range(5)),
        )
        assert len(await claimed(queue)) == 5
        assert len(await queue.task_limits()) == 5


async def test_a_work_that_only_reads_a_tenant_is_not_run_again(url: str) -> None:
    async with rota.connect(url) as queue, rota.connect(url) as other:
        runs = 0

        async def work(tx: Tx) -> None:
            nonlocal runs
            runs += 1
            await tx.get(Tenant, "default")
            await other.limit_queue("mail", concurrency=1)

        await queue.store.transact(work)
        assert runs == 1


async def test_a_task_in_line_that_gets_another_gate_meanwhile_is_not_let_past_it(url: str) -> None:
    """Who ends the task before it finds it in line, and waits for the row, which whoever sets the other limit has."""
    async with rota.connect(url) as queue:
        await queue.limit_kind("send", concurrency=1)
        await queue.submit("send", queue="mail")
        waiting = await queue.submit("send", queue="mail")
        gate = waiting.gates[0]
        tries: list[list[Task] | None] = []

        async def let_in(tx: Tx) -> None:
            tries.append(await tx.update_lines({gate: 1}, letting_in()))

        connection = await asyncpg.connect(Address.parse(url).dsn)
        async with connection.transaction():
            await connection.execute(
                "update rota.task set version = version + 1, asks_at = lined_at where id = $1", waiting.id
            )
            letting = asyncio.create_task(queue.store.transact(let_in))
            while not await connection.fetchval(BLOCKED):
                assert not letting.done()
        await letting
        assert tries == [None], "it was run again"
        stored = await get(queue.store, Task, waiting.id)
        assert stored is not None
        assert (stored.line, stored.passed, stored.version) == (gate, 0, waiting.version + 1)
        await connection.close()
