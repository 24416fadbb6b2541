"""`schedules/{key}.json` is the whole definition: a schedule that is created with it is the same schedule."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

import rota
from records import schedule
from rota.domain.model import Schedule
from rota.domain.schedule.definition import SCHEDULE_FIELDS
from rota.engine.clock import SystemClock
from rota.stores.bucket.service.bucket import MemoryRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning
from rota.stores.bucket.views import views_of
from rota.stores.memory.store import MemoryStore
from rota.surfaces.files import read_text

TARGETS = {"task": rota.TaskTarget, "workflow": rota.WorkflowTarget, "template": rota.TemplateTarget}
TIMES = ("run_at", "start_at", "end_at")
BECAME = {"enabled", "next_run_at", "run_count", "created_at", "created_by", "updated_at", "updated_by"}
OWN = {"id", "version", *BECAME - {"enabled"}, "due_at", "zone_data", "paused_at", "watch"}

EVERYTHING: dict[str, Any] = {
    "description": "every morning",
    "max_runs": 17,
    "start_at": datetime.fromisoformat("2031-01-01T00:00:00Z"),
    "end_at": datetime.fromisoformat("2032-01-01T00:00:00.500000Z"),
    "missed_run_policy": "catch_up",
    "misfire_grace": timedelta(seconds=1.5),
    "catch_up_window": timedelta(hours=7),
    "overlap_policy": "cancel_previous",
    "jitter": timedelta(seconds=2.25),
    "offset": timedelta(minutes=3),
    "pause_on_failure": True,
    "pause_note": "until the move",
    "metadata": {"team": "blue"},
    "status": "paused",
    "alarm_late": timedelta(minutes=1),
    "alarm_no_success": timedelta(days=2),
    "alarm_failures": 3,
    "alarm_duration": timedelta(hours=1),
    "alarm_ending": timedelta(days=7),
    "heartbeat_url": "https://example.com/ping",
    "exclude": ("22:00-06:00",),
    "only": ("08:00-12:00", "13:00-18:00"),
    "excluded_policy": "next",
}
TASK = rota.TaskTarget(
    kind="report",
    queue="slow",
    input={"a": [1, None]},
    max_retries=9,
    metadata={"own": 1},
    tags=("x", "y"),
    ttl=timedelta(minutes=5),
    priority=7,
    timeout=timedelta(milliseconds=1500),
    max_reschedules=4,
    retry_policy=rota.RetryPolicy(initial=timedelta(seconds=5), multiplier=3, maximum=600, jitter=0),
    limit_key="acme",
)
START = EVERYTHING["start_at"]
DEFINITIONS: dict[str, dict[str, Any]] = {
    "everything": {"cron": "0 9 * * 1-5", "timezone": "Europe/Vienna", "target": TASK, **EVERYTHING},
    "nothing": {"cron": "@daily", "task_type": "report"},
    "interval": {"interval": 90.5, "start_at": START, "task_type": "report", "priority": 3},
    "rrule": {
        "rrule": "FREQ=WEEKLY;COUNT=5",
        "timezone": "Asia/Tokyo",
        "start_at": START,
        "task_type": "report",
    },
    "once": {"run_at": START, "task_type": "report", "missed_run_policy": "skip"},
    "rule": {
        "rule": rota.RecurrenceRule(rota.Frequency.DAILY, interval=2),
        "start_at": START,
        "task_type": "report",
    },
    "metadata": {"cron": "@daily", "task_type": "report", "metadata": {"for": "both"}},
    "workflow": {
        "cron": "@hourly",
        "target": rota.WorkflowTarget(kind="order", queue="q", input=[1], metadata={"m": 2}, tags=("z",)),
    },
    "draft": {"cron": "@daily", "task_type": "report", "status": "draft"},
}
COUNTED: dict[str, dict[str, Any]] = {
    "every other week": {
        "rrule": "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;BYHOUR=9;BYMINUTE=0",
        "task_type": "report",
    },
    "ten days": {"rrule": "FREQ=DAILY;COUNT=10", "timezone": "Asia/Tokyo", "task_type": "report"},
    "every six hours": {"interval": "6h", "task_type": "report"},
    "several": {
        "timings": [
            "0 9 * * *",
            {"interval": "7h"},
            {"rrule": "FREQ=DAILY;COUNT=20"},
            "TZ=Asia/Tokyo 0 9 * * *",
        ],
        "dst_gap": "before",
        "task_type": "report",
    },
}
"""They count from when they were created."""


def definition(record: Schedule) -> dict[str, Any]:
    [text] = [
        text for key, text in views_of(record, None, gone=False, tasks=False) if text and "/last" not in key
    ]
    view: dict[str, Any] = msgspec.json.decode(text)
    return view


def options(view: dict[str, Any]) -> dict[str, Any]:
    """The definition as `create_schedule` takes it."""
    given = {name: value for name, value in view.items() if value is not None and name not in BECAME}
    given |= {name: datetime.fromisoformat(given[name]) for name in TIMES if name in given}
    target = TARGETS[given.pop("target_type")]
    own = {"kind": "task_type", "template_id": "template_id", "metadata": "target_metadata"}
    fields = {name: given.pop(own[name]) for name in own if own[name] in given}
    if "retry_policy" in given:
        fields["retry_policy"] = rota.RetryPolicy(**given.pop("retry_policy"))
    for derived in ("anchor", "dtstart"):  # from start_at
        given.pop(derived, None)
    return {**given, "target": target(**fields)}


async def created(requests: MemoryRequests, **given: Any) -> tuple[Schedule, dict[str, Any]]:
    """A schedule, and what stands in the bucket about it."""
    store = BucketStore(requests, SystemClock(), Tuning(views_every=timedelta(0)))
    await store.open()
    queue = rota.Queue(store, clock=SystemClock())
    made = await queue.create_schedule("s", **given)
    async with asyncio.timeout(60):
        while not list(requests.list("schedules/", None)):
            await asyncio.sleep(0.005)
    await store.close()
    view: dict[str, Any] = msgspec.json.decode(requests.get("schedules/s.json").body)
    return made, view


def facts(record: Schedule) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__ if name not in OWN}


@pytest.mark.parametrize("given", DEFINITIONS.values(), ids=DEFINITIONS)
async def test_a_schedule_created_with_its_view_is_the_same(given: dict[str, Any]) -> None:
    made, view = await created(MemoryRequests(), **given)
    assert view == definition(made)
    store = MemoryStore(SystemClock())
    await store.open()
    again = await rota.Queue(store, clock=SystemClock()).create_schedule(**options(view))
    await store.close()
    assert facts(again) == facts(made)
    assert {**definition(again), **dict.fromkeys(BECAME)} == {**view, **dict.fromkeys(BECAME)}


@pytest.mark.parametrize("given", DEFINITIONS.values(), ids=DEFINITIONS)
async def test_a_view_is_a_file_that_is_applied(given: dict[str, Any]) -> None:
    await applied(given)


@pytest.mark.parametrize("given", COUNTED.values(), ids=COUNTED)
async def test_a_view_that_is_applied_later_gives_the_same_times(given: dict[str, Any]) -> None:
    await applied(given)


async def test_views_of_other_targets_and_timings_are_applied() -> None:
    await applied({"target": rota.WorkflowTarget(kind="order", queue="q"), "cron": "@daily"})
    await applied({"target": rota.TemplateTarget(template_id="rep"), "cron": "@daily"})
    await applied({"task_type": "report", "after": "first", "after_delay": 60})


class Later(SystemClock):
    def now(self) -> datetime:
        return super().now() + timedelta(days=8, hours=3, minutes=10)


async def applied(given: dict[str, Any]) -> None:
    """The view of a schedule changes nothing where it comes from, and makes the same one elsewhere, days later."""
    async with rota.connect("memory:") as queue, rota.connect("memory:", clock=Later()) as other:
        for each in (queue, other):
            await each.create_template(alias="rep", kind="report")
            await each.create_schedule("first", task_type="report", cron="@daily")
        made = await queue.create_schedule("s", **given)
        view = definition(made)
        if view["target_type"] == "template":
            view["template_id"] = "rep"  # ids of templates are those of their store
        document = read_text(msgspec.json.encode(view).decode(), "json")
        assert (await queue.plan(document)).changes == []
        await other.apply(document)
        again = await other.get_schedule("s")
    own = {"applied", "created_by", "followers", "paused_by"}
    own |= {"target"} if view["target_type"] == "template" else set()
    assert {n: v for n, v in facts(again).items() if n not in own} == {
        n: v for n, v in facts(made).items() if n not in own
    }
    ids = ("id", "template_id", *BECAME)
    assert {**definition(again), **dict.fromkeys(ids)} == {**definition(made), **dict.fromkeys(ids)}
    assert again.next_run_at == (made.next_occurrence(again.created_at) if made.enabled else None)


def test_the_view_of_a_schedule_that_runs_a_template() -> None:
    target = rota.TemplateTarget(template_id="t", input={"n": 1})
    view = definition(schedule("s", target=target))
    assert (view["target_type"], options(view)["target"], options(view)["input"]) == (
        "template",
        rota.TemplateTarget(template_id="t"),
        {"n": 1},
    )


def test_nothing_that_can_be_given_is_left_out() -> None:
    view = definition(schedule("s", target=TASK))
    assert set(SCHEDULE_FIELDS) <= view.keys()
    assert set(SCHEDULE_FIELDS) == EVERYTHING.keys(), "a new field needs a value here"
    usual = rota.TaskTarget(kind="")
    plain = [name for name in usual.__struct_fields__ if getattr(TASK, name) == getattr(usual, name)]
    assert plain == [], "a new field of a target needs a value here, and in the others"
    assert len(view) == 1 + 1 + len(usual.__struct_fields__) + 3 + len(SCHEDULE_FIELDS) + len(BECAME)
