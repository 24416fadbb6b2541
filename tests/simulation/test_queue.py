"""The Python API: listings, idempotency, tenants, and one clear sentence for every wrong value."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rota
from rota import TaskStatus
from rota.engine.observe.metrics import read_gauges
from rota.engine.queries import tasks as task_queries
from rota.engine.queries.health import check_serving
from worlds import HOUR, MINUTE, START, World, on_any_store


async def test_paging_covers_everything_exactly_once(world: World) -> None:
    await world.queue.submit_many([("work", {"n": n}) for n in range(25)])
    seen: list[str] = []
    cursor = None
    while True:
        page = await world.queue.list(limit=10, cursor=cursor)
        seen += [task.id for task in page]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 25


async def test_list_and_count_filter_alike(world: World) -> None:
    await world.queue.submit("a", queue="q1", tags=["x"])
    await world.queue.submit("b", queue="q1")
    expired = await world.queue.submit("a", queue="q2", ttl=60)
    schedule = await world.schedule("s", cron="* * * * *", task_type="a")
    triggered = await world.queue.trigger_schedule("s")
    await world.at(2 * MINUTE)
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 4),
        ({"kind": "a"}, 3),
        ({"queue": "q1"}, 2),
        ({"tag": "x"}, 1),
        ({"status": "pending"}, 3),
        ({"status": TaskStatus.EXPIRED}, 1),
        ({"status": "completed"}, 0),
        ({"schedule": "s"}, 1),
        ({"schedule": schedule.id}, 1),
        ({"kind": "a", "queue": "q2"}, 1),
    ]
    for filters, number in cases:
        found = await world.queue.list(**filters)
        assert len(found) == await world.queue.count(**filters) == number, filters
    assert [task.id for task in await world.queue.list(status="expired")] == [expired.id]
    assert [task.id for task in await world.queue.list(schedule="s")] == [triggered.id]


async def test_a_pending_task_past_its_expiry_reads_as_expired_everywhere_at_once(world: World) -> None:
    task = await world.queue.submit("work", ttl=timedelta(minutes=1))
    assert task.is_expired_at(START + MINUTE)
    await world.at(MINUTE)
    assert (await world.queue.get(task.id)).status is TaskStatus.EXPIRED
    assert await world.queue.count(status="pending") == 0
    with pytest.raises(rota.Refused, match="already expired"):
        await world.queue.cancel(task.id)
    with pytest.raises(rota.Refused, match="only a failed or cancelled task can be replayed"):
        await world.queue.replay(task.id)


async def test_what_has_expired_unswept_counts_as_open_nowhere(world: World) -> None:
    node = rota.Worker(world.queue, rota.App(), janitor=False)
    await node.heartbeat.run_once()
    await world.queue.submit_many([("gone", None), ("gone", None)], ttl=60)
    await world.queue.submit("there", queue="q")
    await world.at(MINUTE)
    [queue] = [each for each in await world.queue.list_queues() if each.pending]
    assert (queue.name, queue.pending) == ("q", 1)
    assert [each.open_tasks for each in await world.queue.list_tenants()] == [1]
    gauges = await world.store.read(read_gauges(timedelta(0)))
    assert gauges.tasks == {("default", "q", "pending"): 1}
    assert gauges.unhandled == {("there",): 1}
    serving = await world.store.read(check_serving())
    assert sum(serving.unhandled.values()) == 1


async def test_the_same_idempotency_key_gives_the_same_task(world: World) -> None:
    first = await world.queue.submit("work", {"a": (1, 2)}, idempotency_key="k")
    again = await world.queue.submit("work", {"a": [1, 2]}, idempotency_key="k")
    assert again.id == first.id
    with pytest.raises(rota.Refused, match="idempotency_key 'k' was already used") as refused:
        await world.queue.submit("work", {"a": 3}, idempotency_key="k")
    assert refused.value.code == "idempotency_conflict"
    assert await world.queue.count() == 1


async def test_nothing_crosses_tenants(world: World) -> None:
    other = rota.Queue(world.store, tenant="other", clock=world.clock)
    task = await world.queue.submit("work", idempotency_key="k")
    await world.schedule("s", cron="* * * * *")
    assert (await other.list(), await other.list_schedules()) == ([], [])
    assert (await other.submit("work", idempotency_key="k")).id != task.id
    assert (await other.create_schedule("s", task_type="work", cron="* * * * *")).tenant == "other"
    for attempt in (
        other.get(task.id),
        other.cancel(task.id),
        other.replay(task.id),
        other.archive(task.id),
        other.mark_expired(task.id),
    ):
        with pytest.raises(rota.NotFound):
            await attempt
    assert await other.cancel_many([task.id]) == 0
    own = await world.queue.get_schedule("s")
    for asked in (other.get_schedule(own.id), other.pause_schedule(own.id), other.runs(own.id)):
        with pytest.raises(rota.NotFound):
            await asked


async def test_archive_and_cancel_many(world: World) -> None:
    tasks = await world.queue.submit_many([("work", None)] * 3, tags=["batch"])
    assert await world.queue.cancel_many([tasks[0].id, "nowhere"]) == 1
    assert await world.queue.cancel_many(tag="batch") == 2
    assert await world.queue.cancel_many(tag="batch") == 0
    archived = await world.queue.archive(tasks[0].id)
    assert archived.status is TaskStatus.ARCHIVED
    assert await world.queue.count(status="archived") == 1
    live = await world.queue.submit("work")
    with pytest.raises(rota.Refused, match="only a task that has ended can be archived"):
        await world.queue.archive(live.id)


async def test_schedules_answer_document_002(world: World) -> None:
    schedule = await world.schedule(
        "daily",
        rule=rota.RecurrenceRule(
            frequency=rota.Frequency.DAILY, starts_at=datetime(2025, 1, 1, 9, tzinfo=UTC)
        ),
        max_runs=30,
        end_at=START + 48 * HOUR,
    )
    assert schedule.next_occurrence(START) == START + 9 * HOUR
    assert (schedule.is_due(START + 8 * HOUR), schedule.is_due(START + 9 * HOUR)) == (False, True)
    assert not schedule.has_reached_end_date(START)
    assert schedule.has_reached_end_date(START + 49 * HOUR)
    assert not schedule.has_reached_max_executions()
    assert await world.queue.count_schedules(status="active") == 1
    draft = await world.schedule("draft", cron="* * * * *", status="draft")
    assert (draft.enabled, draft.next_run_at) == (False, None)
    assert [found.key for found in await world.queue.list_schedules(status="draft")] == ["draft"]
    inactive = await world.queue.update_schedule("daily", status="inactive")
    assert inactive.status == "paused"
    assert [found.key for found in await world.queue.list_schedules(text="DAI")] == ["daily"]


WRONG_SUBMITS: list[tuple[dict[str, Any], str]] = [
    ({"kind": ""}, "kind"),
    ({"kind": 5}, "kind"),
    ({"kind": "a b"}, "kind"),
    ({"input": {1, 2}}, "input"),
    ({"input": {"x": float("nan")}}, "input"),
    ({"input": {1: 2}}, "input"),
    ({"input": "x" * 1_100_000}, "input"),
    ({"priority": 256}, "priority"),
    ({"priority": -1}, "priority"),
    ({"priority": "high"}, "priority"),
    ({"queue": "no spaces"}, "queue"),
    ({"ttl": -1}, "ttl"),
    ({"ttl": "soon"}, "ttl"),
    ({"ttl": 5, "expires_at": START}, "expires_at"),
    ({"ttl": 5, "ttl_seconds": 5}, "ttl_seconds"),
    ({"expires_at": "tomorrow"}, "expires_at"),
    ({"schedule_at": "tomorrow"}, "schedule_at"),
    ({"schedule_at": 5}, "schedule_at"),
    ({"max_retries": -1}, "max_retries"),
    ({"max_retries": 1.5}, "max_retries"),
    ({"max_reschedules": -1}, "max_reschedules"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": "long"}, "timeout"),
    ({"unique_by": "kind"}, "unique_by"),
    ({"unique_by": ["colour"]}, "unique_by"),
    ({"unique_by": ["input.x"]}, "unique_by"),
    ({"unique_for": -1}, "unique_for"),
    ({"unique_for": 1, "idempotency_key": "a"}, "idempotency_key"),
    ({"retry_policy": "often"}, "retry_policy"),
    ({"retry_policy": rota.RetryPolicy(jitter=7)}, "retry_policy"),
    ({"idempotency_key": ""}, "idempotency_key"),
    ({"idempotency_key": 7}, "idempotency_key"),
    ({"metadata": [1]}, "metadata"),
    ({"metadata": {"a": {"b": {"c": {"d": 1}}}}}, "metadata"),
    ({"metadata": {str(n): n for n in range(101)}}, "metadata"),
    ({"tags": "x"}, "tags"),
    ({"tags": [1]}, "tags"),
]

WRONG_SCHEDULES: list[tuple[dict[str, Any], str]] = [
    ({"cron": "61 * * * *"}, "cron"),
    ({"cron": "* * *"}, "cron"),
    ({"cron": "0 0 30 2 *"}, "cron"),
    ({"cron": 5}, "cron"),
    ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "timezone"),
    ({"cron": "* * * * *", "timezone": 5}, "timezone"),
    ({"cron": "* * * * *", "interval": 5}, "interval"),
    ({}, "cron"),
    ({"interval": 0}, "interval"),
    ({"interval": 0.5}, "interval"),
    ({"interval": "often"}, "interval"),
    ({"run_at": START - HOUR}, "run_at"),
    ({"run_at": "now"}, "run_at"),
    ({"rrule": "FREQ=SOMETIMES"}, "rrule"),
    ({"rrule": "FREQ=DAILY;INTERVAL=0"}, "rrule"),
    ({"rule": "daily"}, "rule"),
    ({"cron": "* * * * *", "end_at": START - HOUR}, "end_at"),
    ({"cron": "* * * * *", "start_at": START + 2 * HOUR, "end_at": START + HOUR}, "end_at"),
    ({"cron": "* * * * *", "max_runs": -1}, "max_runs"),
    ({"cron": "* * * * *", "missed_run_policy": "ignore"}, "missed_run_policy"),
    ({"cron": "* * * * *", "overlap_policy": "queue"}, "overlap_policy"),
    ({"cron": "* * * * *", "misfire_grace": -5}, "misfire_grace"),
    ({"cron": "* * * * *", "jitter": "some"}, "jitter"),
    ({"cron": "* * * * *", "status": "sleeping"}, "status"),
    ({"cron": "* * * * *", "status": "completed"}, "status"),
    ({"cron": "* * * * *", "task_type": None}, "task_type"),
    ({"cron": "* * * * *", "target": rota.TaskTarget(kind="x")}, "task_type"),
    ({"cron": "* * * * *", "priority": 999}, "priority"),
    ({"cron": "* * * * *", "metadata": {"a": {"b": {"c": {"d": 1}}}}}, "metadata"),
    ({"cron": "* * * * *", "colour": "red"}, "colour"),
    ({"cron": "* * * * *", "schedule_id": ""}, "schedule_id"),
    ({"cron": "* * * * *", "schedule_id": "x" * 256}, "schedule_id"),
    ({"cron": "* * * * *", "input": object()}, "input"),
]


def check_sentence(problem: rota.Invalid, field: str) -> None:
    """One sentence that names the field, what was wrong, and (after a semicolon) what is accepted."""
    text = str(problem)
    assert problem.field.split(".")[0] == field, text
    assert re.match(rf"{re.escape(field)}[.\w]*: .+", text), text
    assert "\n" not in text
    assert len(text) < 800
    assert ";" in text, f"what is accepted? {text}"


@on_any_store
@pytest.mark.parametrize(("options", "field"), WRONG_SUBMITS, ids=lambda value: str(value)[:40])
async def test_a_wrong_submission_gets_one_clear_sentence(
    world: World, options: dict[str, Any], field: str
) -> None:
    before = await world.store.snapshot()
    given = {"kind": "work", "input": None, **options}
    with pytest.raises(rota.Invalid) as caught:
        await world.queue.submit(**given)
    check_sentence(caught.value, field)
    with pytest.raises(rota.Invalid):
        await world.queue.submit_many([("fine", None), (given.pop("kind"), given.pop("input"))], **given)
    assert await world.store.snapshot() == before


@on_any_store
@pytest.mark.parametrize(("options", "field"), WRONG_SCHEDULES, ids=lambda value: str(value)[:40])
async def test_a_wrong_schedule_gets_one_clear_sentence(
    world: World, options: dict[str, Any], field: str
) -> None:
    before = await world.store.snapshot()
    with pytest.raises(rota.Invalid) as caught:
        await world.queue.create_schedule(**{"schedule_id": "s", "task_type": "work", **options})
    check_sentence(caught.value, field)
    assert await world.store.snapshot() == before


async def test_other_wrong_values_get_a_sentence_too(world: World) -> None:
    await world.schedule("s", cron="* * * * *")
    untyped: Any = world.queue
    wrong: list[tuple[Any, str]] = [
        (untyped.get(None), "task_id"),
        (world.queue.list(status="lost"), "status"),
        (world.queue.list(limit=0), "limit"),
        (world.queue.list(cursor="!"), "cursor"),
        (untyped.list(kind=5), "kind"),
        (untyped.list_schedules(colour="red"), "colour"),
        (world.queue.runs("s", status="lost"), "status"),
        (world.queue.preview("s", 0), "n"),
        (untyped.why("s", "noon"), "at"),
        (untyped.submit_many([("a",)]), "tasks[0]"),
        (world.queue.update_schedule("s", cron="nope"), "cron"),
        (world.queue.update_schedule("s", timezone="Nowhere"), "timezone"),
        (untyped.update_schedule("s", colour="red"), "colour"),
    ]
    for call, field in wrong:
        with pytest.raises(rota.Invalid) as caught:
            await call
        assert caught.value.field == field, str(caught.value)
    for missing in (world.queue.get("nowhere"), world.queue.get_schedule("nowhere")):
        with pytest.raises(rota.NotFound, match="there is no"):
            await missing


@pytest.mark.parametrize(
    "address", ["mysql://x", "sqlite://host/x", "sqlite:///", "nonsense", "sqlite:///x?y=1"]
)
async def test_a_wrong_address_gets_one_clear_sentence(address: str) -> None:
    with pytest.raises(rota.Invalid, match=r"^store: .*;"):
        await rota.connect(address)


async def test_a_short_beginning_is_refused_only_among_very_many(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look for one costs as much as the tenant has tasks. A long one is looked for by its id, which costs little."""
    ids = [(await world.queue.submit("echo")).id for _ in range(2)]
    monkeypatch.setattr(task_queries, "LOOKED_AT", 2)
    with pytest.raises(rota.Refused, match="2 tasks have an id that begins with '0'"):
        await world.queue.task_id("0")
    monkeypatch.setattr(task_queries, "LOOKED_AT", 1)
    with pytest.raises(rota.Invalid, match="give at least 8 characters"):
        await world.queue.task_id("0")
    assert await world.queue.task_id(ids[0][:35]) == ids[0]
