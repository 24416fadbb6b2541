"""Tasks submitted inside the user's own transaction: they exist if and only if it commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row, namedtuple_row, scalar_row

import rota
from command_line import rota as command
from postgres_server import new_database
from records import tenant
from rota.domain.model import Limits, Task
from rota.domain.task import Defaults
from rota.domain.tenants import check_tenant
from rota.engine.commands import Claim, claim_tasks
from rota.stores.postgres.address import Address
from stores import get, put


@pytest.fixture
def url() -> str:
    return new_database()


def dsn(url: str) -> str:
    return Address.parse(url).dsn


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[tuple[Any, Any, Any]]:
    connection = await asyncpg.connect(dsn(url))
    transaction = connection.transaction()
    await transaction.start()
    yield connection, transaction.commit, transaction.rollback
    await connection.close()


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[tuple[Any, Any, Any]]:
    async with await psycopg.AsyncConnection.connect(dsn(url)) as connection:
        yield connection, connection.commit, connection.rollback


@asynccontextmanager
async def by_psycopg_sync(url: str) -> AsyncIterator[tuple[Any, Any, Any]]:
    with psycopg.connect(dsn(url)) as connection:

        async def commit() -> None:
            connection.commit()

        async def roll_back() -> None:
            connection.rollback()

        yield connection, commit, roll_back


DRIVERS = {"asyncpg": by_asyncpg, "psycopg": by_psycopg, "psycopg_sync": by_psycopg_sync}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> Any:
    return DRIVERS[request.param]


async def test_the_task_exists_once_the_transaction_commits(url: str, driver: Any) -> None:
    async with rota.connect(url) as queue, driver(url) as (connection, commit, _):
        task = await queue.submit("mail", {"to": "a\u0000b"}, tags=["x"], priority=7, connection=connection)
        assert await queue.list() == []
        await commit()
        assert await queue.get(task.id) == task
        [stored] = await queue.list(tag="x")
        assert stored == task


async def test_the_task_never_was_if_the_transaction_rolls_back(url: str, driver: Any) -> None:
    async with rota.connect(url) as queue, driver(url) as (connection, _, roll_back):
        await queue.submit("mail", connection=connection)
        await roll_back()
        assert await queue.list() == []


async def test_a_commit_wakes_those_who_wait(url: str, driver: Any) -> None:
    async with rota.connect(url + "&poll=300") as queue, driver(url) as (connection, commit, _):
        app = rota.App()
        app.task("mail")(lambda: "sent")
        worker = rota.Worker(queue, app, scheduler=False, janitor=False)
        running = asyncio.create_task(worker.run(handle_signals=False))
        store: Any = queue.store
        await store.opened.listener.is_listening.wait()
        task = await queue.submit("mail", connection=connection)
        await commit()
        assert (await queue.wait(task.id, 60)).output == "sent"
        worker.stop()
        await running


async def test_an_idempotency_key_works_inside_and_outside(url: str, driver: Any) -> None:
    async with rota.connect(url) as queue, driver(url) as (connection, commit, _):
        first = await queue.submit("mail", {"n": 1}, idempotency_key="k")
        again = await queue.submit("mail", {"n": 1}, idempotency_key="k", connection=connection)
        assert again == first
        with pytest.raises(rota.Refused, match="already used"):
            await queue.submit("mail", {"n": 2}, idempotency_key="k", connection=connection)
        other = await queue.submit("mail", {"n": 3}, connection=connection)  # the transaction is still good
        await commit()
        assert {task.id for task in await queue.list()} == {first.id, other.id}


async def test_an_open_transaction_holds_up_nobody_but_who_asks_for_its_key(url: str) -> None:
    """The works of a group share a commit. One that has to wait for a lock does so alone."""
    async with rota.connect(url + "&statement_timeout=60") as queue, by_asyncpg(url) as (connection, _, undo):
        await queue.submit("mail", connection=connection, idempotency_key="held")
        held = asyncio.create_task(queue.submit("mail", idempotency_key="held"))
        others = [asyncio.create_task(queue.submit("mail", {"n": n})) for n in range(50)]
        done = await asyncio.wait_for(asyncio.gather(*others), 45)
        assert len({task.id for task in done}) == 50
        assert not held.done()
        await asyncio.wait([held], timeout=2.5)  # it waits for longer than a group would
        assert not held.done()
        await undo()
        task = await asyncio.wait_for(held, 60)
        assert {found.id for found in await queue.list(limit=100)} == {task.id} | {each.id for each in done}


async def test_other_things_are_not_connections(url: str) -> None:
    async with rota.connect(url) as queue:
        with pytest.raises(rota.Invalid, match="asyncpg or psycopg"):
            await queue.submit("mail", connection=object())
    async with rota.connect("memory:") as memory:
        with pytest.raises(rota.Invalid, match="postgresql://"):
            await memory.submit("mail", connection=object())


@pytest.mark.parametrize("row_factory", [dict_row, namedtuple_row, scalar_row])
async def test_rows_may_look_as_their_owner_likes(url: str, row_factory: Any) -> None:
    async with rota.connect(url) as queue:
        with psycopg.connect(dsn(url), row_factory=row_factory) as connection:
            first = await queue.submit("mail", idempotency_key="k", connection=connection)
            again = await queue.submit("mail", idempotency_key="k", connection=connection)
        async with await psycopg.AsyncConnection.connect(dsn(url), row_factory=row_factory) as connection:
            assert await queue.submit("mail", idempotency_key="k", connection=connection) == first == again


async def test_connections_that_cannot_carry_a_submit_are_refused(url: str) -> None:
    async with rota.connect(url) as queue:
        async with await psycopg.AsyncConnection.connect(dsn(url)) as connection, connection.pipeline():
            with pytest.raises(
                rota.Invalid, match="connection: it is in pipeline mode; submit outside the pipeline"
            ):
                await queue.submit("mail", connection=connection)
        with (
            psycopg.connect(dsn(url), client_encoding="latin1") as latin,
            pytest.raises(
                rota.Invalid, match="connection: its client_encoding is iso8859-1; give one with UTF8"
            ),
        ):
            await queue.submit("mail", {"to": "€"}, connection=latin)
        assert await queue.list() == []


# From any language: select rota.submit(…)


async def test_sql_submits_what_python_would(url: str) -> None:
    async with rota.connect(url, actor="sql:postgres") as queue, by_asyncpg(url) as (connection, commit, _):
        later = datetime(2030, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
        id = await connection.fetchval(
            "select rota.submit('mail', '{\"to\": [1, null]}', priority => 9, tags => '{x,y}', queue => 'q',"
            " schedule_at => $1, expires_at => $1::timestamptz + interval '1 hour', max_retries => 2,"
            " timeout_seconds => 1.5, metadata => '{\"a\": 1}', max_reschedules => 3, limit_key => 'acme',"
            ' retry_policy => \'{"initial_seconds": 0.5, "jitter": 0}\')',
            later,
        )
        await commit()
        stored = await queue.get(str(id))
        wanted = await queue.submit(
            "mail", {"to": [1, None]}, priority=9, tags=["x", "y"], queue="q", schedule_at=later,
            expires_at=later + timedelta(hours=1), max_retries=2, timeout=1.5, metadata={"a": 1},
            max_reschedules=3, limit_key="acme", retry_policy=rota.RetryPolicy(initial=0.5, jitter=0),
        )  # fmt: skip
        assert _facts(stored) == _facts(wanted)
        assert [row.id for row in await queue.list(tag="y", queue="q")] == [wanted.id, stored.id]


def _facts(task: Task) -> dict[str, Any]:
    own = ("id", "created_at", "updated_at", "history")
    facts = {name: getattr(task, name) for name in task.__struct_fields__ if name not in own}
    assert task.created_at == task.updated_at == task.history[0].at
    return facts | {"actor": task.history[0].actor}


async def test_a_time_that_has_passed_means_now_in_sql_too(url: str) -> None:
    async with rota.connect(url) as queue, by_asyncpg(url) as (connection, commit, _):
        submit = "select rota.submit('mail', schedule_at => now() + $1::interval)::text"
        past = await connection.fetchval(submit, timedelta(days=-90))
        await commit()
        stored = await queue.get(past)
        assert stored.available_at == stored.created_at


async def test_sql_and_python_agree_on_idempotency_keys(url: str) -> None:
    async with rota.connect(url) as queue, by_asyncpg(url) as (connection, commit, _):
        submit = "select rota.submit('mail', $1::jsonb, idempotency_key => $2)::text"
        key = "bestellung-äöü-" + "x" * 100
        id = await connection.fetchval(submit, '{"n": 1}', key)
        assert await connection.fetchval(submit, '{"n": 1}', key) == id
        with pytest.raises(asyncpg.UniqueViolationError, match="another kind or input"):
            async with connection.transaction():
                await connection.fetchval(submit, '{"n": 2}', key)
        await commit()
        assert (await queue.submit("mail", {"n": 1}, idempotency_key=key)).id == id


async def test_sql_keeps_to_the_limit_of_pending_tasks(url: str) -> None:
    async with rota.connect(url, tenant="acme") as queue:
        await put(queue.store, tenant("acme", limits=Limits(pending_tasks=1_000)))
        connection = await asyncpg.connect(dsn(url))
        fill = "select count(rota.submit('mail', tenant => 'acme')) from generate_series(1, $1)"
        await connection.fetchval(fill, 998)
        keyed = "select rota.submit('mail', tenant => 'acme', idempotency_key => 'k')::text"
        gone = (
            "select rota.submit('mail', tenant => 'acme', expires_at => clock_timestamp() - interval '1 s')"
        )
        await connection.fetchval(gone)  # reads as expired, so it does not count
        id = await connection.fetchval(keyed)
        await connection.fetchval(fill, 1)
        with pytest.raises(asyncpg.ProgramLimitExceededError) as caught:
            await connection.fetchval(fill, 1)
        assert caught.value.detail == "limit_reached"
        assert caught.value.message == (
            "tenant acme may have 1,000 pending tasks and has that many; wait until some have run, or raise the limit"
        )
        assert await connection.fetchval(keyed) == id  # what was accepted stays accepted
        assert await connection.fetchval("select rota.submit('mail') is not null")  # others have their own
        await queue.cancel(id)
        await connection.fetchval(fill, 1)
        await connection.close()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("submit('no blanks')", "kind"),
        ("submit(null)", "kind"),
        ("submit('a', priority => 256)", "priority"),
        ("submit('a', retry_policy => '[1]')", "retry_policy: give a JSON object"),
        (
            "submit('a', retry_policy => '{\"initial\": 1}')",
            "retry_policy: there is no 'initial'; accepted are initial_seconds, maximum_seconds, multiplier, jitter",
        ),
        ("submit('a', retry_policy => '{\"jitter\": \"1\"}')", "retry_policy: jitter is not a number"),
        ("submit('a', retry_policy => '{\"jitter\": 2}')", "retry_policy: jitter is not accepted"),
        ("submit('a', retry_policy => '{\"maximum_seconds\": 1e400}')", "retry_policy.maximum_seconds"),
        ("submit('a', ttl_seconds => 1, expires_at => now())", "ttl_seconds: expires_at is given, too"),
        ("submit('a', queue => '')", "queue"),
        ("submit('a', tags => '{a b}')", "tags"),
        ("submit('a', metadata => '[1]')", "metadata"),
        ("submit('a', to_jsonb(repeat('x', 2000000)))", "bytes are too many"),
        ("submit('a', queue => null)", "queue: null is not a valid name"),
        ("submit('a', priority => null)", "priority: null is not accepted"),
        (
            "submit('a', schedule_at => 'infinity')",
            "schedule_at: infinity is out of range; give a time in the years",
        ),
        ("submit('a', schedule_at => '-infinity')", "schedule_at: -infinity is out of range"),
        ("submit('a', schedule_at => '10000-01-01 00:00+00')", "schedule_at: 10000.* is out of range"),
        ("submit('a', schedule_at => '0044-03-15 BC')", "schedule_at: .*BC is out of range"),
        ("submit('a', expires_at => 'infinity')", "expires_at: infinity is out of range"),
        ("submit('a', expires_at => '12000-01-01')", "expires_at: 12000.* is out of range"),
        ("submit('a', tags => array[['a', 'b'], ['c', 'd']])", "tags: they are not a list"),
        (
            "submit('a', tags => array(select 't' || n from generate_series(1, 33) n))",
            "tags: .*the most is 32",
        ),
        (
            "submit('a', (repeat('[', 65) || repeat(']', 65))::jsonb)",
            "input: it is nested too deeply; the most is 64",
        ),
        ("submit('a', (repeat('[', 3000) || repeat(']', 3000))::jsonb)", "input: it is nested too deeply"),
        ("submit('a', '{\"a\": [18446744073709551616]}')", "input: the number 1844.*16 does not fit 64 bits"),
        ("submit('a', '-9223372036854775809')", "input: the number -92.* does not fit 64 bits"),
        ("submit('a', '{\"a\": 1e400}')", "input: the number 1000.* does not fit 64 bits; give it as a text"),
        ("submit('a', metadata => '{\"a\": {\"b\": [[]]}}')", "metadata: it is more than 3 levels deep"),
        ("submit('a', metadata => '{\"a\": 1e30}')", "metadata: the number 1000.* does not fit 64 bits"),
        (
            "submit('a', metadata => (select jsonb_object_agg('k' || n, '{\"a\": 1}'::jsonb)"
            " from generate_series(1, 51) n))",
            "metadata: it has 102 keys; the most is 100 keys",
        ),
        ("submit('a', actor => repeat('x', 256))", "actor: 256 characters are too many; the most is 255"),
        ("submit('a', tenant => '')", "tenant: '' is not a valid name"),
        ("submit('a', tenant => null)", "tenant: null is not a valid name"),
        ("submit('a', tenant => ' a')", "tenant: ' a' is not a valid name"),
        ("submit('a', tenant => 'a' || chr(7))", "tenant: .* is not a valid name"),
        ("submit('a', tenant => '*')", "tenant: .* stands for every tenant"),
        ("submit('a', timeout_seconds => 'nan')", "timeout_seconds"),
        ("submit('a', '{\"a\": \"\\u0000\"}')", "input: it cannot be read as JSON .*without the character 0"),
        ("submit('a', '{', metadata => null)", "input: it cannot be read as JSON"),
        ("submit('a', '1e999999')", "input: it cannot be read as JSON"),
        ("submit('a', null, metadata => '{\"\\u0000\": 1}')", "metadata: it cannot be read as JSON"),
        ("submit('a', repeat('[', 1000000))", "input: it is nested too deeply; the most is 64"),
        (
            "submit('a', (repeat('[', 6000) || repeat(']', 6000))::jsonb)",
            "input: it is nested too deeply; the most is 64",
        ),
    ],
)
async def test_sql_refuses_what_python_would(url: str, call: str, words: str) -> None:
    connection = await asyncpg.connect(dsn(url))
    with pytest.raises(asyncpg.InvalidParameterValueError, match=words) as caught:
        await connection.fetchval(f"select rota.{call}")
    assert len(caught.value.message) < 200
    assert await connection.fetchval("select count(*) from rota.task") == 0
    await connection.close()


async def test_sql_accepts_all_that_python_can_read(url: str) -> None:
    """At the edges: what is stored reads well, and sizes are those of compact JSON."""
    deep = "[" * 64 + "]" * 64
    edges = [
        f"submit('a', '{deep}')",
        "submit('a', '[18446744073709551615, -9223372036854775808, 0.1234567890123456789012345678901234567890]')",
        "submit('a', to_jsonb(array(select 1 from generate_series(1, 524287))))",  # 1,048,575 bytes without blanks
        "submit('a', jsonb_build_object('\"a: \\', repeat(', ', 500000)))",
        "submit('a', schedule_at => '0001-01-01 00:00+00', expires_at => '9999-12-31 23:59:59.999999+00')",
        "submit('a', metadata => '{\"a\": {\"b\": [1]}}', tags => null)",
        "submit('a', metadata => null, actor => repeat('x', 255))",
        "submit('a', tags => array['x', 'x', 'y'])",
    ]
    async with rota.connect(url) as queue:
        connection = await asyncpg.connect(dsn(url))
        for call in edges:
            task = await queue.get(await connection.fetchval(f"select rota.{call}::text"))
            assert task.kind == "a"
            assert task.metadata in ({}, {"a": {"b": [1]}})
            assert task.tags in ((), ("x", "y"))
        too_large = "select rota.submit('a', to_jsonb(array(select 1 from generate_series(1, 524289))))"
        with pytest.raises(asyncpg.InvalidParameterValueError, match="1,048,579 bytes are too many"):
            await connection.fetchval(too_large)
        await connection.close()


async def test_sql_takes_no_parameter_that_there_is_not(url: str) -> None:
    connection = await asyncpg.connect(dsn(url))
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await connection.fetchval("select rota.submit('mail', unique_for => '5m')")
    await connection.close()


async def test_the_id_that_sql_returns_joins_with_the_table(url: str) -> None:
    connection = await asyncpg.connect(dsn(url))
    await connection.execute("create table orders as select rota.submit('mail', '{}') as task_id")
    assert await connection.fetchval("select kind from orders join rota.task on task.id = task_id") == "mail"
    for call in ("'mail'", "'mail', '{}'", "'mail', '{}'::jsonb", "'mail', metadata => '{}'::jsonb"):
        id = await connection.fetchval(f"select rota.submit({call})")
        assert await connection.fetchval("select kind from rota.task where id = $1", id) == "mail"
    await connection.close()


def _random_call(random: Random) -> tuple[str, list[Any]]:
    """A call of rota.submit, all of it parameters; each of them may be good, odd or bad."""
    texts = [
        "a",
        "",
        " ",
        "a b",
        "a\n",
        "\n",
        "é",
        "💥",
        "\x7f",
        "\u200b",
        "'",
        "%",
        "\\",
        "*",
        "x" * 300,
        None,
    ]
    json = [
        "{}", "null", "[1, 2]", '"\\u0000"', '"\\ud800"', '{"\\u0000": 1}', "{", "", "nan", "1e400", "1e999999", "-0",
        "1e-400", "[" * 70 + "]" * 70, "[" * 20_000, "[" * 5_000 + "]" * 5_000, '{"a": {"b": {"c": {}}}}', None,
        "123456789012345678901234567890", '"' + "x" * 1_100_000 + '"', '{"a": 1, "a": 2}', "\u00a0{}",
    ]  # fmt: skip
    numbers = [0, 1, -1, 255, 256, 2**31 - 1, -(2**31), None]
    seconds = [0.0, 0.001, 0.0009, -1.0, 1e300, float("inf"), float("nan"), 3153600000.0, 1e-300, None]
    times = [
        datetime(2030, 1, 1, tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        None,
    ]
    accepted: dict[str, tuple[str, list[Any]]] = {
        "input": ("text", json),
        "queue": ("text", texts),
        "priority": ("integer", numbers),
        "schedule_at": ("timestamptz", times),
        "expires_at": ("timestamptz", times),
        "max_retries": ("integer", numbers),
        "timeout_seconds": ("double precision", seconds),
        "ttl_seconds": ("double precision", seconds),
        "max_reschedules": ("integer", numbers),
        "retry_policy": (
            "text",
            [*json, '{"initial_seconds": 1e-400}', '{"jitter": 1e-400, "multiplier": 1e400}'],
        ),
        "limit_key": ("text", texts),
        "idempotency_key": ("text", texts),
        "metadata": ("text", json),
        "tags": ("text[]", [[], None, ["a"], ["a", None], ["a b"], ["a", "a"], ["x"] * 40]),
        "tenant": ("text", texts),
        "actor": ("text", texts),
    }
    named = random.sample(list(accepted), random.randint(0, 3))
    if {"metadata", "retry_policy"} & {
        *named
    } and "input" not in named:  # then PostgreSQL itself reads the text
        named.append("input")
    values = [random.choice([*["a"] * 16, *texts]), *(random.choice(accepted[name][1]) for name in named)]
    words = [f"{name} => ${place}::{accepted[name][0]}" for place, name in enumerate(named, start=2)]
    return f"select rota.submit({', '.join(['$1', *words])})", values


@pytest.mark.parametrize("seed", range(3))
async def test_sql_takes_any_input_or_refuses_it_as_documented(url: str, seed: int) -> None:
    random = Random(seed)
    refused: list[tuple[str, str, list[Any]]] = []
    async with rota.connect(url) as queue:
        connection = await asyncpg.connect(dsn(url))
        for _ in range(100):
            call, values = _random_call(random)
            try:
                id = await connection.fetchval(call, *values)
            except asyncpg.PostgresError as error:
                refused.append((str(error.sqlstate), call, values))
            else:
                stored = await get(queue.store, Task, id)
                assert stored is not None
                assert check_tenant(stored.tenant)
        await connection.close()
    assert [each for each in refused if each[0] not in ("22023", "23505")] == []
    assert 20 < len(refused) < 95


@asynccontextmanager
async def role_that_submits(url: str, blocks: int = 1) -> AsyncIterator[str]:
    """The address for a role that has what the documentation says that it needs, in one block of SQL or two."""
    page = (Path(__file__).parents[2] / "docs" / "postgresql.md").read_text("utf-8")
    parts = page.split("A role that only submits tasks needs this:")[1].split("```")[1 : 2 * blocks : 2]
    grants = "".join(part.removeprefix("sql") for part in parts)
    role = f"web_{uuid4().hex}"
    connection = await asyncpg.connect(dsn(url))
    await connection.execute(f"create role {role} login; " + grants.replace("to web", f"to {role}"))
    try:
        yield url.replace("//postgres@", f"//{role}@")
    finally:
        await connection.execute(f"drop owned by {role}; drop role {role}")
        await connection.close()


async def test_a_role_that_only_submits_can_submit(url: str) -> None:
    async with role_that_submits(url) as web:
        async with rota.connect(web) as queue:
            first = await queue.submit("mail", {"n": 1}, idempotency_key="k")
            assert await queue.submit("mail", {"n": 1}, idempotency_key="k") == first
            assert len(await queue.submit_many([("mail", {"n": n}) for n in range(3)])) == 3
            with pytest.raises(rota.Unavailable, match=r"our role may not do that .*permission denied"):
                await queue.cancel(first.id)
        connection = await asyncpg.connect(dsn(web))
        assert await connection.fetchval("select rota.submit('mail')")
        await connection.close()
        await asyncio.to_thread(command, ["submit", "--type", "mail", "--store", web])
        async with rota.connect(url) as queue:
            assert await queue.count() == 6


async def test_a_role_that_only_submits_can_submit_what_is_limited_or_unique(url: str) -> None:
    async with rota.connect(url) as queue, role_that_submits(url, 2) as web:
        await queue.limit_queue("slow", concurrency=1, rate="1/h")
        async with rota.connect(web) as submitter:
            for _ in range(2):
                await submitter.submit("mail", {"n": 1}, queue="slow")
                await submitter.submit("mail", {"n": 1}, unique_for="1h")
        await asyncio.to_thread(command, ["submit", "--type", "mail", "--queue", "slow", "--store", web])
        assert await queue.count() == 4


@pytest.mark.parametrize("is_of_queue", [True, False])
async def test_what_sql_submits_asks_at_its_limit(url: str, is_of_queue: bool) -> None:
    """The worker knows of no limit: it is the tenant that has it."""
    async with rota.connect(url) as queue, by_asyncpg(url) as (connection, commit, _):
        await queue.limit_queue("mail" if is_of_queue else "unlimited", concurrency=1)
        if not is_of_queue:
            limited = rota.App()
            limited.task("send", limit=rota.Limit(concurrency=1, key="to"))(lambda to: None)
            await queue.declare_limits(limited)
        ids = []
        for to in (1, 1) if is_of_queue else (1, 1, 2):
            ids.append(
                await connection.fetchval(
                    "select rota.submit('send', $1::jsonb, queue => 'mail')", f'{{"to": {to}}}'
                )
            )
        await commit()
        ask = Claim(
            kinds={"send": Defaults()}, worker_id="w", lease_id="l", lease=timedelta(seconds=30), limit=10
        )
        expected = {ids[0]} if is_of_queue else {ids[0], ids[2]}
        claimed: set[str] = set()
        async with asyncio.timeout(60):
            while claimed != expected or "at most 1 at once" not in str(await queue.waiting(ids[1])):
                again = await queue.store.transact(
                    claim_tasks(ask)
                )  # the server's clock may be a little ahead
                claimed |= {task.id for task in again.tasks}
        later = await queue.submit("send", {"to": 1}, queue="mail")
        assert "at most 1 at once" in str(await queue.waiting(later.id))
