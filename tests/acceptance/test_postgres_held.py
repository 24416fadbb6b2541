"""Someone else's open transaction holds a row, on a real server."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from msgspec.structs import replace

import rota
from acceptance.test_postgres_fleet import connected, until, working
from postgres_server import new_database
from rota.domain.errors import Unavailable
from rota.domain.model import Schedule, Watch
from rota.engine.clock import SystemClock
from rota.engine.commands import look_for_alarms
from rota.engine.observe.telemetry import LeaseLost, Observation
from rota.engine.queries.health import check_health
from rota.stores.base import Tx
from rota.stores.postgres.store import PostgresStore
from rota.stores.queries import DueSchedules
from rota.surfaces.cli.commands.store import examine


@pytest.mark.parametrize(
    ("table", "failing"),
    [("task", "records"), ("schedule", "records"), ("receipt", "writable"), ("migration", "store")],
)
async def test_the_doctor_answers_although_someone_holds_a_table(table: str, failing: str) -> None:
    url = new_database(statement_timeout="4")
    async with connected(url) as holder, holder.transaction():
        await holder.execute(f"lock table rota.{table} in access exclusive mode")
        findings = await examine(PostgresStore.from_url(url, SystemClock()), "default")
    [found] = [finding for finding in findings if not finding.ok]
    assert found.check == failing
    assert "someone else holds it up" in found.advice


async def test_a_row_that_someone_holds_costs_no_lease_and_holds_up_no_other() -> None:
    url = new_database(lock_timeout="0.2")
    starts: Counter[str] = Counter()
    signals: list[Observation] = []
    release, stop = asyncio.Event(), asyncio.Event()
    async with rota.connect(url) as queue, rota.connect(url) as other, connected(url) as holder:
        app = rota.App()

        @app.task("work")
        async def work(context: rota.Context) -> None:
            starts[context.task.id] += 1
            await (release if context.task.input == "short" else stop).wait()

        first, second = (
            rota.Worker(each, app, lease=2, scheduler=False, observers=[signals.append])
            for each in (queue, other)
        )
        async with working(first), working(second):
            short = await queue.submit_many([("work", "short")] * 4)
            long = await queue.submit_many([("work", "long")] * 4)

            async def all_started() -> bool:
                return len(starts) == 8

            await until(all_started, "all have started")
            async with holder.transaction():
                await holder.execute("select 1 from rota.task where id = $1 for update", short[0].id)
                release.set()
                for each in short[1:]:
                    assert (await queue.wait(each.id, 60)).status == "completed"
                began = (await queue.get(long[0].id)).lease_expires_at

                async def outlived_two_leases() -> bool:
                    now = (await queue.get(long[0].id)).lease_expires_at
                    return now is not None and began is not None and now - began > timedelta(seconds=4)

                await until(outlived_two_leases, "the others have been renewed for more than two leases")
                assert (await queue.get(short[0].id)).status == "running"
            assert (await queue.wait(short[0].id, 60)).status == "completed"
            stop.set()
            for each in long:
                assert (await queue.wait(each.id, 60)).status == "completed"
    assert set(starts.values()) == {1}
    assert not [signal for signal in signals if isinstance(signal, LeaseLost)]


async def test_a_look_for_alarms_waits_while_another_node_looks() -> None:
    url = new_database()
    async with rota.connect(url) as queue, connected(url) as holder:
        made = await queue.create_schedule("nightly", cron="0 3 * * *", task_type="x")

        async def overdue(tx: Tx) -> None:
            tx.put(replace(made, watch=Watch(at=tx.now - timedelta(minutes=1), since=tx.now)))

        await queue.store.transact(overdue)
        async with holder.transaction():
            await holder.execute("select 1 from rota.schedule where id = $1 for update", made.id)
            looked = await queue.store.transact(look_for_alarms(10, timedelta(days=30)))
            assert (looked.number, looked.next_in) == (0, timedelta(seconds=1))
        looked = await queue.store.transact(look_for_alarms(10, timedelta(days=30)))
        assert looked.number == 1


async def test_a_node_that_freezes_in_a_transaction_lets_go() -> None:
    """And while it does not, the schedule that it holds is seen to be overdue."""
    url = new_database()
    frozen = PostgresStore.from_url(url + "&statement_timeout=2", SystemClock())
    await frozen.open()
    locked, go_on = asyncio.Event(), asyncio.Event()
    async with rota.connect(url) as queue, connected(url) as admin:
        made = await queue.create_schedule("s", task_type="work", interval=3600)

        async def let_it_be_due(tx: Tx) -> None:
            tx.put(replace(made, due_at=tx.now - timedelta(minutes=2)))

        await queue.store.transact(let_it_be_due)

        async def freeze(tx: Tx) -> list[Schedule]:
            found = await tx.find(DueSchedules(at=tx.now), 10, lock=True)
            locked.set()
            await go_on.wait()
            tx.put(found[0])
            return found

        freezing = asyncio.create_task(frozen.transact(freeze))
        await locked.wait()
        health = await queue.store.read(check_health("default"))
        assert [schedule.key for schedule in health.overdue] == ["s"]
        async with asyncio.timeout(60):  # the server ends it, and others go on
            await admin.fetch("select 1 from rota.schedule for update")
        go_on.set()
        try:
            await freezing
        except Unavailable:
            pass
        else:
            raise AssertionError("it was not ended")
        await frozen.transact(lambda tx: tx.find(DueSchedules(at=tx.now), 10))
    await frozen.close()
