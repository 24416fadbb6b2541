"""Records and their JSON: there and back, readable later, clear when damaged."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from records import run, schedule, task
from rota.domain.errors import Corrupt, Invalid
from rota.domain.model import (
    Alarm,
    ApiKey,
    Artifact,
    Calendar,
    Change,
    Event,
    Failure,
    Gate,
    Limits,
    LogLine,
    NodeState,
    PausedQueue,
    Receipt,
    Record,
    RetryPolicy,
    Run,
    Schedule,
    Task,
    TaskTarget,
    Template,
    TemplateTarget,
    Tenant,
    WorkflowTarget,
)
from rota.domain.recurrence import Cron, Interval, Once, RRule
from rota.domain.runtimes import HttpRequest, ShellCommand
from rota.domain.workflow import Signal, Step
from rota.stores.base import RECORD_TYPES
from rota.stores.codec import TABLES, micros

RELEASED = Path(__file__).with_name("records_0_1_0.json")
RELEASED_TYPES = [
    kind
    for kind in RECORD_TYPES
    if kind not in (ApiKey, Receipt, Gate, NodeState, PausedQueue, Artifact, Step, Signal, Alarm, Calendar)
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
times = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # bounds are naive
durations = st.timedeltas(timedelta(0), timedelta(days=10_000))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)

st.register_type_strategy(datetime, times)
st.register_type_strategy(timedelta, durations)
st.register_type_strategy(str, texts)

json_objects = st.dictionaries(texts, json_values, max_size=3)


def built(kind: type, **given: Any) -> st.SearchStrategy[Any]:
    """Any value of a struct: each field as its type says, `Any` being JSON."""
    fields: dict[str, Any] = {
        field.name: json_values if field.type is Any else field.type for field in msgspec.structs.fields(kind)
    }
    return st.builds(
        kind,
        **{
            name: given[name] if name in given else each if each is json_values else st.from_type(each)
            for name, each in fields.items()
        },
    )


timings = st.one_of(
    built(Once), built(Interval, anchor=times | st.none()), built(Cron), built(RRule, dtstart=times)
)
policies = st.builds(RetryPolicy, initial=durations, maximum=durations)
requests = {"metadata": json_objects, "retry_policy": st.none() | policies}
targets = st.one_of(
    built(TaskTarget, **requests),
    built(WorkflowTarget, **requests),
    built(TemplateTarget),
)
lines = st.text("abc $;|", min_size=1)
codes = st.lists(st.integers(0, 255), min_size=1, max_size=3).map(tuple)
commands = st.builds(
    ShellCommand,
    run=lines | st.lists(lines, min_size=1, max_size=3).map(tuple),
    directory=st.none() | st.just("/srv"),
    environment=st.just(("HOME",)),
    success_codes=codes,
    retry_codes=st.none() | codes,
) | st.builds(
    HttpRequest,
    url=lines,
    method=st.sampled_from(["GET", "POST"]),
    headers=st.dictionaries(texts, texts, max_size=2),
    body=json_values,
    max_redirects=st.integers(0, 20),
)
RECORDS = {
    Task: built(
        Task,
        command=st.none() | commands,
        error=st.none() | built(Failure),
        retry_policy=st.none() | policies,
        logs=st.lists(built(LogLine), max_size=2).map(tuple),
        history=st.lists(built(Change), max_size=2).map(tuple),
        metadata=json_objects,
    ),
    Schedule: built(Schedule, timing=timings, target=targets, metadata=json_objects),
    Run: built(Run),
    Event: built(Event, before=st.none() | json_objects, after=st.none() | json_objects),
    Template: built(
        Template,
        parameters=json_objects,
        parameters_schema=st.none() | json_objects,
        metadata=json_objects,
        retry_policy=st.none() | policies,
        command=texts | commands,
    ),
    Tenant: built(Tenant, limits=built(Limits)),
    ApiKey: built(ApiKey),
    Artifact: built(Artifact),
    Receipt: built(Receipt),
    Gate: built(Gate),
    NodeState: built(NodeState),
    PausedQueue: built(PausedQueue),
    Step: built(Step, error=st.none() | built(Failure)),
    Signal: built(Signal),
    Alarm: built(Alarm),
    Calendar: built(Calendar),
}


@pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_there_and_back(kind: type[Record], data: st.DataObject) -> None:
    record = data.draw(RECORDS[kind])
    body = TABLES[kind].encode(record)
    assert TABLES[kind].decode(body) == record
    assert TABLES[kind].decode(body.decode()) == record


@pytest.mark.parametrize("kind", RELEASED_TYPES, ids=lambda kind: kind.__name__)
def test_what_release_0_1_0_wrote_still_decodes(kind: type[Record]) -> None:
    """The file is never edited. A new field needs a default; a changed meaning needs a new tag."""
    written = json.loads(RELEASED.read_text("utf-8"))[kind.__name__]
    record = TABLES[kind].decode(json.dumps(written))
    again = json.loads(TABLES[kind].encode(record))
    assert {name: again.get(name) for name in written} == written


def test_the_text_says_what_it_is() -> None:
    body = TABLES[Task].encode(task("a"))
    assert body.startswith(b'{"record":"task.1","id":"a"')


def test_unknown_fields_are_ignored() -> None:
    body = json.loads(TABLES[Task].encode(task("a"))) | {"from_the_future": 1}
    assert TABLES[Task].decode(json.dumps(body)) == task("a")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "task (no id"),
        ("not json", "task (no id, begins with b'not json'"),
        ('{"record":"task.1","id":"t-7"}', "task t-7 cannot be read"),
        ('{"record":"task.9","id":"t-8"}', "task t-8 cannot be read"),
        (TABLES[Run].encode(run("r-1")).decode(), "task r-1 cannot be read"),
        (b"\xff\xfe", "task (no id"),
        ("[" * 100_000, "task (no id"),
    ],
)
def test_what_cannot_be_read_is_named(body: str | bytes, words: str) -> None:
    with pytest.raises(Corrupt) as caught:
        TABLES[Task].decode(body)
    assert words in str(caught.value)


def test_what_cannot_be_written_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), {(1, 2): 3}, "\ud800", endless):
        with pytest.raises(Invalid, match="task a: cannot be written as JSON"):
            TABLES[Task].encode(task("a", input=value))


@given(times, times)
def test_micros_are_exact_and_in_order(a: datetime, b: datetime) -> None:
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros(a)) == a
    assert (micros(a) < micros(b)) == (a < b)


def test_nan_is_nothing() -> None:
    assert TABLES[Task].decode(TABLES[Task].encode(task("a", input=math.nan))).input is None


def test_columns_are_what_the_record_says() -> None:
    record = schedule("a", key="Straße", description="B", target=TemplateTarget(template_id="m1"))
    values = {column.name: column.get(record) for column in TABLES[Schedule].columns}
    assert values["search"] == "strasse\nb\n"
    known = schedule("b", key="B", target=TaskTarget(kind="Mail", tags=("x", "Y")))
    assert TABLES[Schedule].columns[-1].get(known) == "b\n\nmail\nx\ny"
    assert (values["kind"], values["template_id"]) == (None, "m1")
    fixed = [column.name for column in TABLES[Task].columns if column.is_fixed]
    assert fixed == ["tenant", "created_at", "schedule_id", "is_workflow"]


def test_the_columns_of_a_task_are_read_in_one_call() -> None:
    assert isinstance(TABLES[Task].values, attrgetter)
    assert isinstance(TABLES[Task].identity, attrgetter)
