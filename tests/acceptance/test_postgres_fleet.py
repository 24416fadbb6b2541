"""One PostgreSQL, many nodes: locks, clocks, notifications, outages, roles, poolers."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from msgspec.structs import replace

import debian
import pgbouncer
import rota
from pooler import Pooler
from postgres_server import Server, new_database
from records import event, gate, run, schedule, task
from rota.domain.errors import Invalid, Unavailable
from rota.domain.model import Gate, Schedule, Task, TaskStatus
from rota.domain.task import Defaults
from rota.engine.clock import SystemClock
from rota.engine.commands import Claim, check_fleet, claim_tasks, look_for_alarms
from rota.engine.roles.leases import LEASE
from rota.stores.base import PendingTask, RecordTypes, Tx, Work
from rota.stores.postgres.address import Address
from rota.stores.postgres.queries import Statements
from rota.stores.postgres.store import PostgresStore
from rota.stores.queries import DueSchedules, LostLeases, PastExpiry, ReadyTasks
from stores import get, put

PATIENCE = 30.0
RARELY = "&poll=300"


@pytest.fixture
def url() -> str:
    return new_database()


@asynccontextmanager
async def opened(url: str, clock: Any = None) -> AsyncIterator[PostgresStore]:
    store = PostgresStore.from_url(url, clock or SystemClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(Address.parse(url).dsn)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def working(worker: rota.Worker) -> AsyncIterator[None]:
    running = asyncio.create_task(worker.run(handle_signals=False))
    try:
        yield
    except BaseException:
        running.cancel()
        raise
    finally:
        worker.stop()
        await asyncio.gather(running, return_exceptions=True)


async def until(met: Callable[[], Awaitable[Any]], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not await met():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


_BLOCKED = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
)


# Locks


async def test_a_work_waits_for_a_row_that_another_holds_and_then_decides_anew(url: str) -> None:
    async with opened(url) as store, connected(url) as other, connected(url) as watch:
        [stored] = await put(store, task("a"))

        async def rename(tx: Tx) -> Task:
            found = await tx.get(Task, "a")
            assert found is not None
            return tx.put(replace(found, kind=f"{found.kind}-renamed"))

        holding = other.transaction()
        await holding.start()
        await other.execute("update rota.task set version = 2, kind = 'theirs' where id = 'a'")
        waiting = asyncio.create_task(store.transact(rename))
        await until(lambda: watch.fetchval(_BLOCKED), "the work is blocked")
        await put(store, task("b"))  # others pass it
        assert not waiting.done()
        await holding.commit()
        renamed = await waiting
        assert (renamed.kind, renamed.version) == ("theirs-renamed", 3)
        assert await get(store, Task, "a") == renamed
        assert stored.version == 1


async def test_claims_leave_out_what_others_hold(url: str) -> None:
    async with opened(url) as store, connected(url) as other:
        await put(store, *(task(f"t{n}") for n in range(4)))

        async def claim(tx: Tx) -> list[str]:
            found = await tx.find(ReadyTasks(at=tx.now), 2, lock=True)
            return [each.id for each in found]

        async with other.transaction():
            await other.execute("select 1 from rota.task where id in ('t0', 't2') for update")
            assert await store.transact(claim) == ["t1", "t3"]
        assert await store.transact(claim) == ["t0", "t1"]


PAST = datetime(2020, 1, 1, tzinfo=UTC)
DUE: dict[str, tuple[Any, Any]] = {
    "schedule": (DueSchedules(at=PAST), lambda id: schedule(id, due_at=PAST, next_run_at=PAST)),
    "lease": (LostLeases(at=PAST), lambda id: task(id, status="running", lease_id=id, lease_expires_at=PAST)),
    "expiry": (PastExpiry(at=PAST), lambda id: task(id, expires_at=PAST)),
}


@pytest.mark.parametrize("what", DUE)
async def test_what_others_hold_holds_up_nothing_else_that_is_due(url: str, what: str) -> None:
    query, make = DUE[what]
    async with opened(url + "&statement_timeout=20") as store, connected(url) as other:
        await put(store, *(make(f"x{n}") for n in range(4)))

        async def due(tx: Tx) -> list[str]:
            return [each.id for each in await tx.find(query, 2, lock=True)]

        async with other.transaction():
            table = "schedule" if what == "schedule" else "task"
            await other.execute(f"select 1 from rota.{table} where id in ('x0', 'x2') for update")
            assert await store.transact(due) == ["x1", "x3"]
        assert await store.transact(due) == ["x0", "x1"]


@pytest.mark.parametrize(
    ("limit", "found"), [(1, ["l0"]), (3, ["h4", "l0", "m0"]), (9, ["h4", "l0", "m0", "m1"])]
)
async def test_claims_find_what_lies_behind_all_that_others_hold(
    url: str, limit: int, found: list[str]
) -> None:
    """However many of the best are held, in whichever lane: what is free is found."""
    async with opened(url) as store, connected(url) as other:
        await put(
            store,
            *(task(f"h{n}", priority=200) for n in range(5)),
            *(task(f"m{n}", priority=100, kind="other") for n in range(2)),
            task("l0", priority=100),
        )

        async def claim(tx: Tx) -> list[str]:
            held = await tx.find(ReadyTasks(at=tx.now), limit, lock=True)
            return sorted(each.id for each in held)

        free = "h4" if limit > 1 else "none"
        async with other.transaction():
            await other.execute("select 1 from rota.task where priority = 200 and id <> $1 for update", free)
            assert await store.transact(claim) == found
        assert await store.transact(claim) == sorted(["h0", "h1", "h2", "h3", "h4", "l0", "m0", "m1"][:limit])


async def test_two_that_wait_for_each_other_are_sorted_out(url: str) -> None:
    """A deadlock ends one of the two; the store runs its work again."""
    async with opened(url) as store, connected(url) as other, connected(url) as watch:
        a, b = await put(store, task("a"), task("b"))

        async def both(tx: Tx) -> None:
            for each in (await tx.get_many(Task, ["a", "b"])).values():
                tx.put(each)

        await other.execute("set deadlock_timeout = '5s'")  # so that it is ours that is ended
        holding = other.transaction()
        await holding.start()
        await other.execute("update rota.task set kind = kind where id = 'b'")
        waiting = asyncio.create_task(store.transact(both))
        await until(lambda: watch.fetchval(_BLOCKED), "the work holds a and waits for b")
        await other.execute("update rota.task set kind = kind where id = 'a'")
        await holding.commit()
        await waiting
        kept = [await get(store, Task, each.id) for each in (a, b)]
        assert [each and each.version for each in kept] == [2, 2]


@pytest.mark.parametrize("first", ["task", "run"])
async def test_works_write_tables_in_one_order_whatever_they_put_first(url: str, first: str) -> None:
    """Else one that completes a task and one that ends it by force would wait for each other."""
    async with opened(url) as store, connected(url) as other, connected(url) as watch:
        records = await put(store, task("a"), run("r"))

        async def both(tx: Tx) -> None:
            for each in records if first == "task" else reversed(records):
                tx.put(each)

        holding = other.transaction()
        await holding.start()
        await other.execute("update rota.task set kind = kind where id = 'a'")
        waiting = asyncio.create_task(store.transact(both))
        await until(lambda: watch.fetchval(_BLOCKED), "the work waits for the task")
        assert await watch.fetch("select 1 from rota.schedule_run where id = 'r' for update skip locked")
        await holding.commit()
        await waiting


async def test_a_serialization_failure_is_tried_again(url: str) -> None:
    """The server ends the first commit of the work with one; `nextval` is not undone, so the second one passes."""
    async with opened(url) as store, connected(url) as other:
        await other.execute(
            """
            create sequence commits;
            create function fail_once() returns trigger language plpgsql as $$
            begin
              if nextval('commits') = 1 then raise exception 'crossed' using errcode = '40001'; end if;
              return null;
            end $$;
            create constraint trigger fail_once after insert on rota.task deferrable initially deferred
              for each row execute function fail_once()
            """
        )
        await put(store, task("a"))
        assert await get(store, Task, "a") is not None
        assert await other.fetchval("select last_value from commits") == 2


# Clocks


class Skewed(SystemClock):
    def __init__(self, skew: timedelta) -> None:
        self._skew = skew

    def now(self) -> datetime:
        return datetime.now(UTC) + self._skew


class ServerTime:
    """The server's clock, to compare with. A node is as sure of it as the answer to its own question was quick: on a
    slow machine that may be seconds, but never longer than the node is connected; and no test may take ten minutes."""

    def __init__(self, server: asyncpg.Connection[Any], connected_at: datetime) -> None:
        self._server, self._connected_at = server, connected_at

    @staticmethod
    async def read(server: asyncpg.Connection[Any]) -> datetime:
        now: datetime = await server.fetchval("select clock_timestamp()")
        return now

    @asynccontextmanager
    async def around(self) -> AsyncIterator[list[datetime]]:
        """The times that are put into the list were all read here, by the server's clock."""
        seen: list[datetime] = []
        before = await self.read(self._server)
        yield seen
        after = await self.read(self._server)
        unsure = after - self._connected_at
        assert before - unsure <= min(seen), (before, seen, unsure)
        assert max(seen) <= after + unsure, (after, seen, unsure)


async def test_nodes_whose_clocks_differ_by_twenty_minutes_agree(url: str) -> None:
    fast, slow = Skewed(timedelta(minutes=10)), Skewed(timedelta(minutes=-10))
    async with connected(url) as server:
        connected_at = await ServerTime.read(server)
        async with rota.connect(url, clock=fast) as ahead, rota.connect(url, clock=slow) as behind:
            await _agree(ahead, behind, ServerTime(server, connected_at))


async def _agree(ahead: rota.Queue, behind: rota.Queue, time: ServerTime) -> None:
    for queue in (ahead, behind):
        async with time.around() as seen:
            seen.append(await queue.now())
    soon = await behind.now() + timedelta(minutes=5)
    await ahead.submit("work", schedule_at=soon)
    await behind.submit("work", schedule_at=soon, ttl=timedelta(minutes=5))
    done: list[str] = []
    app = rota.App()
    app.task("work")(lambda context: done.append(context.task.id))
    for queue in (ahead, behind):
        worker = rota.Worker(queue, app)
        await worker.run_once()
        worker.tasks.close()
    assert done == []
    assert await behind.count(status="pending") == 2
    async with time.around() as seen:
        now = await ahead.submit("work")
        worker = rota.Worker(behind, app)
        while not done:  # each knows the server's time but for a round trip to it
            await worker.run_once()
        worker.tasks.close()
        ended = await ahead.get(now.id)
        assert ended.completed_at is not None
        seen += [ended.created_at, ended.completed_at]
    assert done == [now.id]
    assert ended.created_at <= ended.completed_at


async def test_groups_that_lock_the_same_records_crosswise_do_not_wait_for_each_other(url: str) -> None:
    """Works come in any order, so one group has a lock that the other wants, and the other way round."""
    async with opened(url) as one, opened(url) as other:
        await put(one, gate("a"), gate("b"))
        both_have_one = asyncio.Barrier(2)
        runs: Counter[str] = Counter()

        def locking(name: str, *, first: bool) -> Work[None]:
            async def work(tx: Tx) -> None:
                runs[f"{name} {'first' if first else 'second'}"] += 1
                found = await tx.get_many(Gate, [name], lock=True)
                if first:
                    await both_have_one.wait()
                tx.put(replace(found[name], inside=found[name].inside + 1))

            return work

        works = [
            (store, locking(name, first=first))
            for store, names in ((one, "ab"), (other, "ba"))
            for name, first in zip(names, (True, False), strict=True)
        ]
        await asyncio.wait_for(asyncio.gather(*(store.transact(work) for store, work in works)), PATIENCE)
        inside = [found.inside for id in "ab" if (found := await get(one, Gate, id)) is not None]
        assert inside == [2, 2]
        assert runs["a first"] == runs["b first"] == 1, "no group was given up"


# Notifications


async def listening(store: PostgresStore, of: RecordTypes | None = None) -> asyncio.Task[None]:
    """A wait that hears everything from now on."""
    store.opened.listener.start()
    await store.opened.listener.is_listening.wait()
    await asyncio.sleep(0)
    waiting = asyncio.create_task(store.wait(None, of=of))
    await asyncio.sleep(0)
    return waiting


async def test_a_commit_elsewhere_ends_a_wait(url: str) -> None:
    async with opened(url + RARELY) as here, opened(url) as elsewhere:
        waiting = await listening(here)
        await put(elsewhere, task())
        await asyncio.wait_for(waiting, PATIENCE)


async def test_a_commit_of_two_tables_elsewhere_ends_a_wait(url: str) -> None:
    """It is several statements and a commit, not one statement that says so itself."""
    async with opened(url + RARELY) as here, opened(url) as elsewhere:
        waiting = await listening(here)
        await put(elsewhere, task(), event("e"))
        await asyncio.wait_for(waiting, PATIENCE)


async def test_a_commit_elsewhere_ends_only_waits_for_what_it_writes(url: str) -> None:
    """Else the scheduler of every node looked after every commit of a worker."""
    async with opened(url + RARELY) as here, opened(url) as elsewhere:
        waiting = await listening(here, {Schedule})
        for written in ([task("a")], [task("b"), event("e")]):  # one statement; several and a commit
            anything = asyncio.create_task(here.wait(None, of={Task}))
            await asyncio.sleep(0)
            await put(elsewhere, *written)
            await asyncio.wait_for(anything, PATIENCE)
            await asyncio.sleep(0)
            assert not waiting.done()
        await put(elsewhere, schedule("s"))
        await asyncio.wait_for(waiting, PATIENCE)


async def test_workers_elsewhere_are_told_of_tasks_that_are_still_pending(url: str) -> None:
    """A worker on limited tasks lets in the next with its results, and claims them in the same commit: the others would
    look for nothing after each of its commits. The end of a task is nothing to them either."""
    async with opened(url + RARELY) as here, opened(url) as elsewhere:
        ended, line = await put(elsewhere, task("ended"), task("line"))
        worker = await listening(here, {PendingTask})

        async def ends_one_and_lets_in_the_next(tx: Tx) -> None:
            tx.put(replace(ended, status=TaskStatus.COMPLETED))
            tx.put(replace(line, priority=200))

        async def claims_it(tx: Tx) -> None:
            [found] = await tx.find(ReadyTasks(at=line.available_at), 1, lock=True)
            tx.put(replace(found, status=TaskStatus.RUNNING))

        anything = asyncio.create_task(here.wait(None, of={Task}))
        await asyncio.sleep(0)
        await asyncio.gather(elsewhere.transact(ends_one_and_lets_in_the_next), elsewhere.transact(claims_it))
        await asyncio.wait_for(anything, PATIENCE)
        await asyncio.sleep(0)
        assert not worker.done()
        await put(elsewhere, task("new"))
        await asyncio.wait_for(worker, PATIENCE)


async def test_workers_elsewhere_are_not_told_of_what_one_update_claims(url: str) -> None:
    async with opened(url + RARELY) as here, opened(url) as elsewhere:
        worker = await listening(here, {PendingTask})
        claim = Claim(
            worker_id="w", lease_id="l", lease=timedelta(minutes=1), limit=1, kinds={"report": Defaults()}
        )

        async def submits(tx: Tx) -> None:
            tx.put(task("new"))

        anything = asyncio.create_task(here.wait(None, of={Task}))
        await asyncio.sleep(0)
        _, claimed = await asyncio.gather(elsewhere.transact(submits), elsewhere.transact(claim_tasks(claim)))
        assert [each.id for each in claimed.tasks] == ["new"]
        await asyncio.wait_for(anything, PATIENCE)
        await asyncio.sleep(0)
        assert not worker.done()
        await put(elsewhere, task("another"), task("third"))
        await asyncio.wait_for(worker, PATIENCE)


@pytest.mark.parametrize("payload", ["", "of-an-older-version", "of-a-newer-one task cartoon"])
async def test_a_notice_that_does_not_say_what_was_written_ends_every_wait(url: str, payload: str) -> None:
    async with opened(url + RARELY) as here, connected(url) as other:
        waiting = await listening(here, {Schedule})
        await other.execute("select pg_notify($1, $2)", here.address.channel, payload)
        await asyncio.wait_for(waiting, PATIENCE)


async def test_a_write_that_is_sent_before_the_commit_ends_a_wait(url: str) -> None:
    """A work of the same group looks into the table: at the commit nothing is left to be sent."""

    async def write(tx: Tx) -> None:
        tx.put(task())

    async def look(tx: Tx) -> list[Task]:
        return await tx.find(ReadyTasks(at=tx.now), 9)

    async with opened(url + RARELY) as here, opened(url) as elsewhere:
        waiting = await listening(here)
        _, found = await asyncio.gather(elsewhere.transact(write), elsewhere.transact(look))
        assert found, "they share a commit"
        await asyncio.wait_for(waiting, PATIENCE)


async def test_a_wait_ends_when_listening_begins(url: str) -> None:
    """Something may have been committed elsewhere just before."""
    async with opened(url + RARELY) as here:
        await asyncio.wait_for(here.wait(None), PATIENCE)


async def test_a_cancel_that_is_asked_for_elsewhere_ends_a_wait(url: str) -> None:
    """Nobody waits for a running task to be renewed; its worker waits for this."""
    async with opened(url + RARELY) as here, opened(url) as elsewhere:
        [running] = await put(elsewhere, task("a", status=TaskStatus.RUNNING, lease_id="l", worker_id="w"))
        waiting = await listening(here)
        await put(elsewhere, replace(running, cancel_requested=True))
        await asyncio.wait_for(waiting, PATIENCE)


async def test_a_lost_notification_costs_at_most_the_poll_interval(url: str) -> None:
    async with opened(url + "&poll=0.2") as here, connected(url) as silent:
        waiting = await listening(here)
        await silent.execute("insert into rota.tenant (id, tenant, version, body) values ('t', 't', 1, '{}')")
        await asyncio.wait_for(waiting, PATIENCE)


async def test_heartbeats_are_not_taken_for_a_lost_notification(url: str) -> None:
    """Else each of them would wake every role of every node: nobody is told of them."""
    look = Statements("rota").plain["rows_written"].sql
    columns = "id, tenant, seen_at, host, pid, release, version, body"
    async with connected(url) as watching:
        seen: int = await watching.fetchval(look)
        async with connected(url) as writing:  # what it wrote is counted when it ends, at the latest
            for id in "abc":
                await writing.execute(
                    f"insert into rota.nodestate ({columns}) values ('{id}', '*', now(), '', 1, '', 1, '{{}}')"
                )
            await writing.execute(
                "insert into rota.tenant (id, tenant, version, body) values ('t', 't', 1, '{}')"
            )

        async def counted() -> int:
            number: int = await watching.fetchval(look)
            return number - seen

        await until(counted, "the server has counted")
        assert await counted() == 1


async def test_commits_of_others_on_the_same_server_wake_nobody(url: str) -> None:
    async with opened(url + "&poll=0.05") as here, connected(url) as other:
        waiting = await listening(here)
        await other.execute("create table public.neighbour (n integer)")
        for _ in range(3):
            await other.execute("insert into public.neighbour values (1)")
            before = await other.fetchval(_LOOKED_AT)

            async def has_looked(before: Any = before) -> bool:
                return bool(await other.fetchval(_LOOKED_AT) > before)

            await until(has_looked, "the listener looked again")
        assert not waiting.done()
        await put(here, task("a"))
        await asyncio.wait_for(waiting, PATIENCE)


_LOOKED_AT = """
select max(query_start) from pg_stat_activity
where query like '%pg_stat_get_tuples_inserted(oid)%' and datname = current_database() and pid <> pg_backend_pid()
"""


async def test_a_listener_that_lost_its_connection_comes_back(url: str) -> None:
    async with opened(url + RARELY) as here, opened(url) as elsewhere, connected(url) as admin:
        waiting = await listening(here)
        await admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where (query ilike 'listen%' or query like '%pg_stat_get_tuples_inserted(oid)%')"
            " and datname = current_database() and pid <> pg_backend_pid()"
        )
        await asyncio.wait_for(waiting, PATIENCE)  # something may have been missed
        waiting = await listening(here)
        await put(elsewhere, task())
        await asyncio.wait_for(waiting, PATIENCE)


# The database goes away


@pytest.fixture
def server() -> Iterator[Server]:
    """One that may be stopped and started."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        Path(folder).chmod(0o755)
        own = Server(Path(folder) / "server", {"synchronous_commit": "on"})  # else a crash forgets commits
        own.create()
        own.start()
        try:
            yield own
        finally:
            own.stop(signal.SIGQUIT)


async def test_the_server_is_restarted_under_load(server: Server) -> None:
    """Workers keep what they run, reconnect by themselves, and settle when it is back: each task runs once. Also
    those of a claim that was committed, and whose answer was lost: the next claim finds them."""
    runs: list[str] = []
    release = asyncio.Event()
    async with rota.connect(server.url("postgres")) as queue, rota.connect(server.url("postgres")) as other:
        app = rota.App()

        @app.task("work")
        async def work(context: rota.Context) -> str:
            runs.append(context.task.id)
            if context.task.input == "hold":
                await release.wait()
            return "done"

        first, second = (rota.Worker(each, app, concurrency=20, scheduler=False) for each in (queue, other))
        async with working(first), working(second):
            held = await queue.submit_many([("work", "hold")] * 5)
            tasks = await queue.submit_many([("work", n) for n in range(300)])
            await until(lambda: _is(len(runs) > 50), "they are at work")
            server.stop(signal.SIGQUIT)
            with pytest.raises(Unavailable, match="postgres on") as caught:
                await queue.store.read(lambda tx: tx.get(Task, held[0].id))
            assert str(server.folder) in str(caught.value)
            release.set()  # they end while there is nobody to tell
            server.start()
            for each in (*held, *tasks):
                assert (await queue.wait(each.id, LEASE + timedelta(seconds=2 * PATIENCE))).output == "done"
    assert sorted(runs) == sorted(each.id for each in (*held, *tasks)), "none lost, none twice"


async def _is(value: bool) -> bool:
    return value


async def test_a_server_that_is_read_only_for_a_while(url: str) -> None:
    """What a fail-over looks like from here: the same address answers, and takes no writes."""
    async with rota.connect(url) as queue, connected(url) as admin:
        app = rota.App()
        started, release = asyncio.Event(), asyncio.Event()

        @app.task("work")
        async def work() -> str:
            started.set()
            await release.wait()
            return "done"

        worker = rota.Worker(queue, app, scheduler=False, janitor=False)
        async with working(worker):
            submitted = await queue.submit("work")
            await started.wait()
            name = await admin.fetchval("select current_database()")
            others = (
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = $1 and pid <> pg_backend_pid()"
            )
            await admin.execute(f"alter database {name} set default_transaction_read_only = on")
            await admin.execute(others, name)
            with pytest.raises(Unavailable, match="read-only"):
                await _submitting(queue)
            release.set()
            await asyncio.sleep(0)
            assert (await queue.get(submitted.id)).status == "running"
            await admin.execute("set default_transaction_read_only = off")
            await admin.execute(f"alter database {name} reset default_transaction_read_only")
            await admin.execute(others, name)
            done = await queue.wait(submitted.id, PATIENCE)
            assert (done.output, done.attempt) == ("done", 1)


async def _submitting(queue: rota.Queue) -> None:
    """Until it is refused for another reason than that the connections are gone."""
    while True:
        try:
            await queue.submit("other")
        except Unavailable as error:
            if "read-only" in str(error):
                raise


async def test_nobody_there(tmp_path: Path) -> None:
    store = PostgresStore.from_url(f"postgresql://u:secret@/db?host={tmp_path}", SystemClock())
    with pytest.raises(Unavailable) as caught:
        await store.open()
    assert "secret" not in store.url + str(caught.value)
    assert f"db on {tmp_path}" in str(caught.value)


# Roles, limits, poolers


async def test_a_role_that_owns_nothing_but_the_schema(server: Server) -> None:
    url = server.url("postgres")
    async with connected(url) as admin:
        name = await admin.fetchval("select current_database()")
        role = f"{name}_limited"
        await admin.execute(
            f"create role {role} login; revoke all on database {name} from public; grant connect on database {name}"
            f" to {role}; revoke all on schema public from public; create schema work authorization {role}"
        )
    limited = url.replace("postgres@", f"{role}@") + "&schema=work"
    async with rota.connect(limited) as queue:
        submitted = await queue.submit("mail")
        assert await queue.list() == [submitted]
    async with connected(limited) as connection:
        assert await connection.fetchval("select count(*) from work.task") == 1
        assert await connection.fetchval("select work.submit('mail')") is not None


async def test_two_schemas_in_one_database_know_nothing_of_each_other(url: str) -> None:
    async with opened(url + "&schema=second" + RARELY) as second, opened(url) as first:
        waiting = await listening(second)
        await put(first, task("a"))
        assert await get(second, Task, "a") is None
        await put(second, task("b"))
        await waiting
        assert await get(first, Task, "b") is None


async def test_the_name_of_a_connection_says_which_node_and_role(url: str) -> None:
    async with opened(url + "&role=worker"), connected(url) as admin:
        names = await admin.fetch(
            "select application_name from pg_stat_activity where application_name like 'rota%'"
        )
        assert any(name.startswith("rota worker ") and ":" in name for (name,) in names)


@pytest.mark.parametrize(
    ("given", "parts", "shown"),
    [
        ("", {}, "rota scheduler-worker-janitor "),
        ("", {"scheduler": False, "janitor": False}, "rota worker "),
        ("&role=shop", {}, "rota shop "),
        ("&application_name=mine", {}, "mine"),
    ],
)
async def test_a_worker_says_what_it_is(url: str, given: str, parts: dict[str, Any], shown: str) -> None:
    """Although its queue was connected before anyone knew."""
    others = "datname = current_database() and pid <> pg_backend_pid()"
    async with rota.connect(url + given) as queue, connected(url) as admin:
        app = rota.App()

        @app.task("who")
        async def who() -> list[str]:
            return [
                row[0]
                for row in await admin.fetch(f"select application_name from pg_stat_activity where {others}")
            ]

        async with working(rota.Worker(queue, app, **parts)):
            submitted = await queue.submit("who")
            found = (await queue.wait(submitted.id, PATIENCE)).output
    assert found
    assert all(name.startswith(shown) for name in found)


async def test_the_pool_is_as_large_as_it_is_said_to_be(url: str) -> None:
    async with opened(url + "&pool=2&application_name=counted") as store, connected(url) as admin:
        await asyncio.gather(
            *(put(store, task()) for _ in range(50)), *(get(store, Task, "a") for _ in range(20))
        )
        here = "application_name = 'counted' and datname = current_database()"
        assert await admin.fetchval(f"select count(*) from pg_stat_activity where {here}") <= 2


async def test_a_statement_that_takes_too_long_is_ended(url: str) -> None:
    async with opened(url + "&statement_timeout=4") as store, connected(url) as other:
        [stored] = await put(store, task("a"))
        async with other.transaction():
            await other.execute("select 1 from rota.task for update")
            with pytest.raises(Unavailable, match="took too long"):
                await put(store, stored)
        await put(store, stored)


@pytest.mark.parametrize(
    "address",
    ["u:sec#ret@h/d", "u:sec/ret@h/d", "u:sec?ret@h/d", "u:secret@h:port/d", "u:secret@[h/d", "u@h:1x/d"],
)
def test_an_address_that_cannot_be_taken_apart_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(Invalid, match=r"write # / \? @ as %23") as caught:
        PostgresStore.from_url(f"postgresql://{address}", SystemClock())
    assert "sec" not in str(caught.value)
    assert "ret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["", "/d", "h", "h:1/d", "u:s%23%2F@h:1,h2:2/d", "u@[::1]:5432/d", "u:s@e@h/d", "/d?host=/tmp/a"],
)
def test_addresses_that_are_good(address: str) -> None:
    assert "s@" not in PostgresStore.from_url(f"postgresql://{address}", SystemClock()).url


@pytest.mark.parametrize(
    "option",
    [
        "schema=A B",
        "schema=user",
        "schema=pg_mine",
        "pool=0",
        "poll=never",
        "pgbouncer=maybe",
        "statement_timeout=-1",
        "statement_timeout=0.0001",
        "lock_timeout=nan",
        "pool=1.5",
        "color=red",
    ],
)
def test_wrong_options_are_refused(option: str) -> None:
    with pytest.raises(Invalid, match=option.partition("=")[0]):
        PostgresStore.from_url(f"postgresql://h/d?{option}", SystemClock())


async def test_behind_a_transaction_pooler(server: Server) -> None:
    with TemporaryDirectory(dir="/tmp") as folder:
        async with Pooler(Path(folder), server.folder) as pooler:
            await _everything_works_behind(folder)
        assert pooler.switches > 10, "it was not the same connection all the time"


async def test_a_pooler_of_which_the_address_says_nothing(server: Server) -> None:
    with TemporaryDirectory(dir="/tmp") as folder:
        async with Pooler(Path(folder), server.folder):
            with pytest.raises(
                Unavailable, match=r"add pgbouncer=1 to the options of the address \(prepared"
            ):
                await _used(f"postgresql://postgres@/postgres?host={quote(folder, safe='')}&schema=unsaid")


async def _used(url: str) -> None:
    """Calls in any order: two connections that prepare the same statements one after the other give them the same
    names, and then nobody would notice."""
    chance = Random(1)
    async with rota.connect(url) as queue:
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: queue.submit("a"),
            queue.list,
            queue.list_schedules,
            queue.count,
            queue.list_queues,
            queue.list_calendars,
            queue.list_templates,
            lambda: queue.list(queue="mail"),
            lambda: queue.count(status="pending"),
        ]
        for _ in range(100):
            await asyncio.gather(*(call() for call in chance.sample(calls, 4)))


async def test_behind_pgbouncer(server: Server) -> None:
    """The real one, with fewer server connections than clients."""
    if debian.program("pgbouncer") is None:
        pytest.skip("there is no pgbouncer on this machine (apt-get install pgbouncer)")
    with TemporaryDirectory(dir="/tmp") as folder:
        async with pgbouncer.running(Path(folder), server.folder):
            await _everything_works_behind(folder)


async def _everything_works_behind(folder: str) -> None:
    """Schema, tasks, schedules, waiting."""
    behind = (
        f"postgresql://postgres@/postgres?host={quote(folder, safe='')}&pgbouncer=1&schema=pooled&poll=0.1"
    )
    async with rota.connect(behind) as queue:
        app = rota.App()
        app.task("work")(lambda context: context.task.input)
        worker = rota.Worker(queue, app, lease=1)
        async with working(worker):
            tasks = await queue.submit_many([("work", n) for n in range(30)])
            tasks += await asyncio.gather(*(queue.submit("work", n) for n in range(30)))
            await queue.create_schedule("s", task_type="work", input="x", interval=1, max_runs=1)
            for each in tasks:
                assert (await queue.wait(each.id, PATIENCE)).output == each.input
            [id] = await _started_by(queue, "s")
            assert (await queue.wait(id, PATIENCE)).output == "x"


async def _started_by(queue: rota.Queue, key: str) -> list[str]:
    """The tasks of its runs. A slow machine misses some times before."""
    async with asyncio.timeout(PATIENCE):
        while not (ids := [row.target_id for row in await queue.runs(key) if row.target_id is not None]):
            await queue.store.wait(await queue.now() + timedelta(seconds=1))
    return ids


async def test_reads_that_wait_for_a_connection_are_answered_before_closing(url: str) -> None:
    store = PostgresStore.from_url(url + "&pool=1", SystemClock())
    await store.open()

    async def ask(tx: Tx) -> str:
        await tx.get(Task, "a")
        await tx.get(
            Task, "b"
        )  # the second question needs a transaction, so that it asks for a connection again
        return "answered"

    asked = [asyncio.create_task(use) for _ in range(5) for use in (store.read(ask), store.transact(ask))]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*asked, return_exceptions=True) == ["answered"] * 10


async def test_two_nodes_raise_an_alarm_once(url: str) -> None:
    async with opened(url) as one, opened(url) as other:
        queue = rota.Queue(one)
        names = [f"s{number}" for number in range(20)]
        for name in names:
            await queue.create_schedule(name, task_type="x", interval=3600, max_runs=2, alarm_ending="30d")
        looks = [store.transact(look_for_alarms(7, timedelta(days=1))) for store in (one, other) * 5]
        answers = await asyncio.gather(*looks)
        assert sorted(each.subject for each in await queue.alarms()) == sorted(names)
        assert sum(len(each.alarms) for each in answers) == len(names)
        scans = [store.transact(check_fleet()) for store in (one, other)]
        await asyncio.gather(*scans)
        assert await queue.alarms(fleet=True) == []
