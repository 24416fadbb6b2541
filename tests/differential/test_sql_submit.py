"""`rota.submit` in SQL is held to `admit`: random submissions get the same task, or a refusal of the same field.

Some differences cannot be mended, and are left out here. PostgreSQL's texts and `jsonb` cannot hold U+0000.
`jsonb` writes 1e20 as digits, so every number beyond 64 bits is refused, not only whole ones. Which characters are
assigned, and so printable in a tenant's name, depends on the version of Unicode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unicodedata import category

import asyncpg
import pytest
from msgspec.structs import replace

from postgres_server import new_database
from records import tenant
from rota.domain.errors import Invalid
from rota.domain.ids import derived_id
from rota.domain.model import Limits, RetryPolicy, Task
from rota.domain.options import Duration, RetryPolicyOptions, SubmitOptions, options_of, value_type
from rota.domain.runtimes import COMMAND_KINDS
from rota.domain.task import Submission, admit
from rota.domain.tenants import check_tenant
from rota.engine.clock import SystemClock
from rota.stores.postgres.address import Address
from rota.stores.postgres.store import PostgresStore
from stores import put
from worlds import seeds

NUMBER, BATCH = 2_000, 250
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SMALL = Limits(input_bytes=60)
ACTOR = "someone"
OPTIONS = options_of(SubmitOptions)
LEFT_OUT = {
    "unique_by": "an input is told by its JSON as Python writes it, and jsonb writes numbers differently",
    "unique_for": "it is a unique_by for a while",
}
"""The options that SQL does not take, and why."""

TRY = """
create function pg_temp.try_submit(asked json) returns json language plpgsql as $$
declare
  id text;
begin
  select rota.submit(
    kind, input, queue, priority, schedule_at, expires_at, ttl_seconds, max_retries, max_reschedules, retry_policy,
    timeout_seconds, limit_key, idempotency_key, metadata, tags, tenant, actor
  ) into id
  from json_to_record(asked) as given (
    kind text, input text, queue text, priority integer, schedule_at timestamptz, expires_at timestamptz,
    ttl_seconds double precision, max_retries integer, max_reschedules integer, retry_policy text,
    timeout_seconds double precision, limit_key text, idempotency_key text, metadata text, tags text[], tenant text,
    actor text
  );
  return json_build_object('id', id);
exception when invalid_parameter_value then
  return json_build_object('refused', sqlerrm);
end $$
"""
SUBMIT = """
select answer ->> 'refused' as refused, answer ->> 'id' as id
from unnest($1::json[]) with ordinality as given (asked, place)
cross join lateral pg_temp.try_submit(asked) as answer
order by place
"""


class Asked(NamedTuple):
    """A submission as both take it, and whose it is."""

    submission: Submission
    tenant: str

    @property
    def limits(self) -> Limits:
        return SMALL if self.tenant == "small" else Limits()

    def as_json(self) -> str:
        asked = self.submission
        values = {
            "kind": asked.kind,
            "input": json.dumps(asked.input),
            "queue": asked.queue,
            "priority": asked.priority,
            "schedule_at": asked.schedule_at and asked.schedule_at.isoformat(),
            "expires_at": asked.expires_at and asked.expires_at.isoformat(),
            "ttl_seconds": None if asked.ttl is None else str(asked.ttl),
            "max_retries": asked.max_retries,
            "max_reschedules": asked.max_reschedules,
            "retry_policy": _policy_as_json(asked.retry_policy),
            "timeout_seconds": None if asked.timeout is None else str(asked.timeout),
            "limit_key": asked.limit_key,
            "idempotency_key": asked.idempotency_key,
            "metadata": json.dumps(asked.metadata),
            "tags": list(asked.tags),
            "tenant": self.tenant,
            "actor": ACTOR,
        }
        return json.dumps(values)


def _policy_as_json(given: RetryPolicy | None) -> str | None:
    if given is None:
        return None
    usual, parts = RetryPolicy(), {}
    for name in given.__struct_fields__:
        part = getattr(given, name)
        if part != getattr(usual, name):
            parts[_in_sql(RetryPolicyOptions, name)] = (
                part.total_seconds() if isinstance(part, timedelta) else part
            )
    return json.dumps(parts)


def _in_sql(shape: type, name: str) -> str:
    """The name of an option in SQL. A duration says that its number is of seconds."""
    return f"{name}_seconds" if value_type(shape, name) == Duration else name


def admitted(asked: Asked, id: str, now: datetime) -> Task:
    return replace(
        admit(id, asked.submission, check_tenant(asked.tenant), now, asked.limits, ACTOR), version=1
    )


def refused_fields(asked: Asked) -> set[str]:
    """Each field that `admit` refuses, also if all others are good. (Surfaces look at the length of the key.)"""
    key = asked.submission.idempotency_key
    found = set() if key is None or 1 <= len(key) <= 255 else {"idempotency_key"}
    plain, owner = Submission(kind="a"), "small" if asked.limits is SMALL else "default"
    alone = [Asked(plain, asked.tenant)]
    if asked.submission.ttl is not None and asked.submission.expires_at is not None:
        found.add("ttl_seconds")
    for name in FIELDS:
        value = getattr(asked.submission, name)
        if value is not getattr(plain, name):
            alone.append(Asked(replace(plain, **{name: value}), owner))
    for each in alone:
        try:
            admitted(each, "id", NOW)
        except Invalid as error:
            field = error.field.partition(".")[0]
            found.add(field if field not in OPTIONS else _in_sql(SubmitOptions, field))
    return found


def text(random: Random, most: int = 12) -> str:
    """Mostly plain; sometimes any characters that are assigned, without U+0000 and surrogates."""
    if random.random() < 0.7:
        return "".join(random.choices("abcXYZ019_.:/@-", k=random.randint(1, most)))
    ends = random.choice([0x7F, 0x2FF, 0x3100, 0xD7FF, 0x10FFFF])
    points = (random.randint(1, ends) for _ in range(random.randint(0, most)))
    return "".join(chr(point) for point in points if category(chr(point)) not in ("Cn", "Cs"))


def data(random: Random, depth: int = 0) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: text(random),
        lambda: random.choice([None, True, False, 0, -1, 0.5, "", -0.0, 1e15, 1e-7, "\ud800", "😀", [], {}]),
        lambda: random.choice([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**40]),
        lambda: random.randint(-(10**6), 10**6),
        lambda: random.uniform(-1e6, 1e6),
    ]
    if depth < 5:
        kinds += [
            lambda: [data(random, depth + 1) for _ in range(random.randint(0, 3))],
            lambda: {text(random): data(random, depth + 1) for _ in range(random.randint(0, 3))},
        ]
    if depth == 0:
        kinds.append(lambda: nested(random.choice([3, 4, 63, 64, 65, 80])))
    return random.choice(kinds)()


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def metadata(random: Random) -> dict[str, Any]:
    if random.random() < 0.2:
        return {f"k{n}": n for n in range(random.choice([99, 100, 101]))}
    return {text(random): data(random, random.randint(2, 5)) for _ in range(random.randint(0, 3))}


def time(random: Random) -> datetime:
    edges = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    around = NOW + timedelta(seconds=random.randint(-(10**9), 10**9), microseconds=random.randint(0, 999_999))
    return random.choice([*edges, around, around, around])


def seconds(random: Random) -> float:
    edges = [0.0, 0.001, 0.0009, 0.0009996, -1.0, 0.0078125, 1e-300, 3153600000.0, 3153600000.5, float("inf")]
    return random.choice([*edges, float("nan"), random.uniform(0, 10), random.uniform(0, 4e9)])


def policy(random: Random) -> RetryPolicy:
    lengths = (timedelta(seconds=each) for each in iter(lambda: seconds(random), None) if isfinite(each))
    parts: dict[str, Any] = {
        "initial": next(lengths),
        "maximum": next(lengths),
        "multiplier": random.choice([1, 1.0, 0.999, 1000, 1000.5, random.uniform(1, 10)]),
        "jitter": random.choice([0, 1, 1.5, -0.1, 1e-300, random.random()]),
    }
    return RetryPolicy(
        **{name: parts[name] for name in random.sample(list(parts), random.choice([0, 1, 1, 4]))}
    )


FIELDS: dict[str, Callable[[Random], Any]] = {
    "kind": lambda random: random.choice([*COMMAND_KINDS, *(text(random) for _ in range(8))]),
    "input": data,
    "queue": text,
    "priority": lambda random: random.choice([0, 255, 256, -1, random.randint(0, 255)]),
    "schedule_at": time,
    "expires_at": time,
    "max_retries": lambda random: random.choice([0, 1, 10**6, 10**6 + 1, -1]),
    "max_reschedules": lambda random: random.choice([0, 1, 10**6, 10**6 + 1, -1]),
    "retry_policy": policy,
    "timeout": seconds,
    "ttl": seconds,
    "limit_key": lambda random: random.choice(["", "x" * 255, "x" * 256, text(random)]),
    "metadata": metadata,
    "tags": lambda random: tuple(text(random, 6) for _ in range(random.choice([0, 1, 2, 3, 32, 33]))),
}


def submission(random: Random, number: int) -> Asked:
    names = random.sample(list(FIELDS), random.choice([1, 1, 1, 2, 3]))
    values = {"kind": "a"} | {name: FIELDS[name](random) for name in names}
    if random.random() < 0.2:
        values["idempotency_key"] = random.choice(["", "x" * 256, f"{number}", f"{number} {text(random)}"])
    owner = random.choice(["default", "default", "small", "*", text(random), text(random, 300)])
    return Asked(Submission(**values), owner)


@pytest.mark.parametrize("seed", seeds(few=1, every=10))
async def test_sql_and_python_admit_the_same(seed: int) -> None:
    url = new_database()
    store = PostgresStore.from_url(url, SystemClock())
    await store.open()
    await put(store, tenant("small", limits=SMALL))
    random = Random(seed)
    connection = await asyncpg.connect(Address.parse(url).dsn)
    await connection.execute(TRY)
    taken = refused = 0
    for begin in range(0, NUMBER, BATCH):
        asked = [submission(random, number) for number in range(begin, begin + BATCH)]
        for each, (words, stored) in zip(asked, await answers(connection, store, asked), strict=True):
            fields = refused_fields(each)
            assert bool(words) == bool(fields), (each, words, fields)
            if words:
                refused += 1
                assert words.partition(":")[0].partition(".")[0] in fields, (each, words, fields)
            else:
                taken += 1
                assert stored is not None
                assert stored == admitted(each, id_of(each, stored), stored.created_at), each
    await connection.close()
    await store.close()
    assert min(taken, refused) > NUMBER / 5


async def answers(connection: Any, store: PostgresStore, asked: list[Asked]) -> list[tuple[str, Task | None]]:
    """For each the words of the refusal, or the task as the store reads it."""
    rows = await connection.fetch(SUBMIT, [each.as_json() for each in asked])
    ids = [row["id"] for row in rows if row["id"]]
    stored = await store.read(lambda tx: tx.get_many(Task, ids))
    return [(row["refused"] or "", stored.get(row["id"])) for row in rows]


def id_of(asked: Asked, stored: Task) -> str:
    key = asked.submission.idempotency_key
    return stored.id if key is None else derived_id("key", asked.tenant, key)


async def test_sql_takes_every_option_that_is_not_left_out_for_a_reason() -> None:
    url = new_database()
    store = PostgresStore.from_url(url, SystemClock())
    await store.open()
    connection = await asyncpg.connect(Address.parse(url).dsn)
    rows = await connection.fetch(
        "select proargnames from pg_proc where pronamespace = 'rota'::regnamespace and proname = 'submit'"
    )
    await connection.close()
    await store.close()
    wanted = {_in_sql(SubmitOptions, name) for name in OPTIONS.keys() - LEFT_OUT.keys()}
    assert [set(row["proargnames"]) for row in rows] == [wanted | {"kind", "input", "tenant", "actor"}] * 2
    assert OPTIONS.keys() - LEFT_OUT.keys() == FIELDS.keys() - {"kind", "input"} | {"idempotency_key"}


def test_the_page_names_what_sql_takes_and_what_it_leaves_out() -> None:
    page = (Path(__file__).parents[2] / "docs" / "postgresql.md").read_text("utf-8")
    about = page.partition("The function takes")[2].partition("| SQLSTATE |")[0]
    wanted = {*LEFT_OUT, *(_in_sql(SubmitOptions, name) for name in OPTIONS.keys() - LEFT_OUT.keys())}
    wanted |= {_in_sql(RetryPolicyOptions, name) for name in options_of(RetryPolicyOptions)}
    assert {name for name in wanted if not re.search(rf"\b{name}\b", about)} == set()
