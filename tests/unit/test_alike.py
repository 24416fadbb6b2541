"""Schedules that are alike: what is decided and started for one of them is what each would get by itself."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rota.domain.model import (
    Backfill,
    Cause,
    ExcludedPolicy,
    Limit,
    Limits,
    MissedRunPolicy,
    OverlapPolicy,
    RetryPolicy,
    RunTrigger,
    Schedule,
    ScheduleStatus,
    TaskTarget,
    TemplateTarget,
    Watch,
    WorkflowTarget,
)
from rota.domain.recurrence import After, Covered, Cron, Interval, Once, RRule, Several
from rota.domain.schedule import Decision, decide, definition, run
from rota.domain.schedule.alike import decide_alike, start_alike
from worlds import seeds

NOON = datetime(2026, 1, 28, 12, tzinfo=UTC)
HOURLY = Cron("0 * * * *", "Europe/Berlin")
LIMITS = Limits()


def created(id: str, at: datetime = NOON, **fields: Any) -> Schedule:
    timing, target = fields.pop("timing", HOURLY), fields.pop("target", TaskTarget(kind="send"))
    return definition.create(
        id, f"key of {id}", timing, target, fields, tenant="default", now=at, actor="ann", limits=LIMITS
    )


def pair(**fields: Any) -> tuple[Schedule, Schedule]:
    """Two that differ in all that no decision depends on."""
    other = created("b", description="of b", metadata={"b": 1}, **fields)
    has_run = {"version": 7, "run_count": 5, "last_run_at": NOON, "last_task_id": "t", "updated_at": NOON}
    return created("a", **fields), replace(other, created_by="bea", updated_by="bea", watch=None, **has_run)


@pytest.mark.parametrize("late", [timedelta(milliseconds=1), timedelta(seconds=59), timedelta(hours=30)])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"timing": Interval(timedelta(seconds=10), NOON)},
        {"timing": Once(NOON + timedelta(hours=1))},
        {"timing": RRule("FREQ=HOURLY;COUNT=3", NOON)},
        {"timing": Several((HOURLY, Cron("30 * * * *")))},
        *({"missed_run_policy": policy} for policy in MissedRunPolicy),
        *({"overlap_policy": policy} for policy in OverlapPolicy),
        {"misfire_grace": timedelta(minutes=5), "end_at": NOON + timedelta(hours=2)},
    ],
    ids=str,
)
def test_one_decision_holds_for_both(fields: dict[str, Any], late: timedelta) -> None:
    one, other = pair(**fields)
    assert one.due_at is not None
    now = one.due_at + late
    decided, expected = decide(one, now, []), decide(other, now, [])
    assert decide_alike(other, one, decided) == (expected if decided.fires else None)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_runs": 9},
        {"offset": timedelta(seconds=1)},
        {"jitter": timedelta(seconds=1)},
    ],
    ids=str,
)
def test_some_are_always_decided_by_themselves(fields: dict[str, Any]) -> None:
    one, other = pair(**fields)
    assert one.due_at is not None
    assert decide_alike(other, one, decide(one, one.due_at + timedelta(minutes=1), [])) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"timing": Cron("0 * * * *", "UTC")},
        {"overlap_policy": OverlapPolicy.ALLOW},
        {"misfire_grace": timedelta(minutes=1)},
        {"end_at": NOON + timedelta(days=9)},
    ],
    ids=str,
)
def test_those_that_differ_are_not_alike(fields: dict[str, Any]) -> None:
    one, other = created("a"), created("b", **fields)
    assert one.due_at is not None
    assert decide_alike(other, one, decide(one, one.due_at, [])) is None


def started(of: Schedule, decision: Decision, now: datetime, limits: Limits = LIMITS) -> Any:
    [fire] = decision.fires
    id = run.run_id(of, fire.scheduled_at)
    return run.start(
        id, decision.schedule, fire.scheduled_at, RunTrigger.SCHEDULED, None, now, limits, "scheduler"
    )


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "send"},
        {"kind": "send", "input": {"n": True}, "metadata": {"k": 1.0}},
        {"kind": "send", "priority": 7, "ttl": timedelta(minutes=1), "tags": ("x",), "max_retries": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("of_type", [TaskTarget, WorkflowTarget])
def test_one_start_holds_for_both_but_for_what_is_json(of_type: Any, target: dict[str, Any]) -> None:
    one = created("a", target=of_type(**target | {"input": {"n": 1}, "metadata": {"k": 1}}))
    other = created("b", target=of_type(**target))
    assert one.due_at is not None
    now = one.due_at
    decided, of_other = decide(one, now, []), decide(other, now, [])
    expected = started(other, of_other, now)
    answer = start_alike(expected[0].id, of_other.schedule, one, started(one, decided, now), LIMITS)
    assert answer == expected
    assert repr(answer) == repr(expected)  # 1 and True are equal


@pytest.mark.parametrize(
    ("target", "limits"),
    [
        (TaskTarget(kind="another"), LIMITS),
        (TaskTarget(kind="send", priority=9), LIMITS),
        (WorkflowTarget(kind="send"), LIMITS),
        (TemplateTarget(template_id="t"), LIMITS),
        (TaskTarget(kind="send"), Limits(tasks={"kind:send": Limit(concurrency=1)})),
        (TaskTarget(kind="send", input="x" * 99), Limits(input_bytes=50)),
    ],
    ids=str,
)
def test_some_are_started_by_themselves(target: Any, limits: Limits) -> None:
    one, other = created("a"), replace(created("b"), target=target)
    assert one.due_at is not None
    of_one = started(one, decide(one, one.due_at, []), one.due_at, limits)
    assert start_alike("r", decide(other, one.due_at, []).schedule, one, of_one, limits) is None


ONE = NOON + timedelta(hours=1)
OTHER = NOON + timedelta(minutes=30)
THURSDAY = date(2026, 1, 29)
VALUES: dict[str, tuple[Any, ...]] = {
    "id": ("b", "c"),
    "tenant": ("other",),
    "version": (7,),
    "key": ("another",),
    "description": ("of another",),
    "timing": (
        Cron("*/20 * * * *"),
        Interval(timedelta(minutes=20), NOON),
        Once(ONE),
        RRule("FREQ=MINUTELY;INTERVAL=20", NOON),
        Several((HOURLY, Cron("30 * * * *"))),
        After(("x",)),
    ),
    "target": (
        TaskTarget(kind="send", input={"n": True}),
        TaskTarget(kind="another", priority=7, ttl=timedelta(minutes=5), tags=("x",), limit_key="k"),
        TaskTarget(kind="send", metadata={"k": 1}, retry_policy=RetryPolicy(), timeout=timedelta(minutes=1)),
        WorkflowTarget(kind="send"),
        TemplateTarget(template_id="t"),
    ),
    "status": (ScheduleStatus.PAUSED, ScheduleStatus.DRAFT, ScheduleStatus.COMPLETED),
    "next_run_at": (None, OTHER, ONE - timedelta(days=1)),
    "due_at": (None, OTHER, ONE + timedelta(days=9)),
    "last_run_at": (NOON,),
    "last_task_id": ("t",),
    "buffered": ((NOON,), (NOON - timedelta(hours=1), NOON)),
    "backfill": (
        Backfill(
            id="f",
            start=NOON,
            end=NOON,
            overlap_policy=OverlapPolicy.ALLOW,
            total=1,
            after=NOON,
            created_by="ann",
            created_at=NOON,
        ),
    ),
    "followers": (("f",),),
    "causes": ((Cause(key="x", run_id="r"),),),
    "run_count": (5,),
    "max_runs": (1, 6, 9),
    "start_at": (NOON + timedelta(minutes=90),),
    "end_at": (ONE, ONE + timedelta(hours=1)),
    "missed_run_policy": tuple(MissedRunPolicy),
    "misfire_grace": (timedelta(0), timedelta(minutes=5)),
    "catch_up_window": (timedelta(minutes=50),),
    "overlap_policy": tuple(OverlapPolicy),
    "offset": (timedelta(seconds=30),),
    "jitter": (timedelta(minutes=2),),
    "exclude": (("holidays",),),
    "only": (("holidays",),),
    "excluded_policy": tuple(ExcludedPolicy),
    "calendars": ((Covered(name="holidays", days=tuple(THURSDAY + timedelta(weeks=n) for n in range(50))),),),
    "excluded_from": (NOON,),
    "pause_note": ("later",),
    "pause_until": (OTHER,),
    "paused_by": ("ann",),
    "paused_at": (NOON,),
    "pause_on_failure": (2,),
    "alarm_late": (timedelta(minutes=1),),
    "alarm_no_success": (timedelta(minutes=1),),
    "alarm_failures": (2,),
    "alarm_duration": (timedelta(minutes=1),),
    "alarm_ending": (timedelta(minutes=1),),
    "heartbeat_url": ("https://example.com",),
    "watch": (Watch(at=NOON, since=NOON),),
    "completed_reason": ("it is over",),
    "ended_by_calendars": (True,),
    "metadata": ({"of": "another"},),
    "zone_data": ("2020a",),
    "applied": ({"cron": "0 * * * *"},),
    "created_by": ("bea",),
    "updated_by": ("bea",),
    "created_at": (NOON - timedelta(days=1), ONE + timedelta(days=1)),
    "updated_at": (NOON - timedelta(hours=1), ONE + timedelta(days=1)),
    "deleted_at": (NOON,),
}
"""Of each field, what else it may be. A schedule with any of them may be due beside one without."""


def test_every_field_of_a_schedule_is_varied() -> None:
    assert VALUES.keys() == set(Schedule.__struct_fields__)


def changed(schedule: Schedule, **fields: Any) -> Schedule:
    """What has calendars names them."""
    new = replace(schedule, **fields)
    is_named = new.exclude or new.only or not new.calendars
    return new if is_named else replace(new, exclude=("holidays",))


def varied(chance: random.Random, schedule: Schedule, most: int) -> Schedule:
    names = chance.sample(sorted(VALUES), chance.randint(0, most))
    return changed(schedule, **{name: chance.choice(VALUES[name]) for name in names})


def by_itself(decision: Decision, fire: Any, now: datetime, limits: Limits) -> Any:
    id = run.run_id(decision.schedule, fire.scheduled_at)
    return run.start(id, decision.schedule, fire.scheduled_at, fire.trigger, None, now, limits, "scheduler")


LATE = [timedelta(0), timedelta(seconds=59), timedelta(minutes=4), timedelta(hours=30)]


def is_alike(chance: random.Random, one: Schedule, other: Schedule, late: timedelta) -> bool:
    """Whether one decision was taken to hold for both. If so, it must be what the other gets by itself."""
    now = ONE + late
    jumped, limits = chance.random() < 0.3, chance.choice([LIMITS, Limits(input_bytes=5)])
    decided = decide(one, now, [], jumped=jumped)
    answer = decide_alike(other, one, decided)
    if answer is None:
        return False
    assert repr(answer) == repr(decide(other, now, [], jumped=jumped))
    if len(decided.fires) == 1:
        [fire] = decided.fires
        expected = by_itself(answer, fire, now, limits)
        of_one = by_itself(decided, fire, now, limits)
        started = start_alike(expected[0].id, answer.schedule, one, of_one, limits)
        assert started is None or repr(started) == repr(expected)
    return True


@pytest.mark.parametrize("seed", seeds(few=2, every=100))
def test_schedules_that_differ_in_anything_get_what_each_gets_by_itself(seed: int) -> None:
    """They differ in what is random of all fields, also in those that nobody thought of."""
    chance = random.Random(seed)
    alike = 0
    for _ in range(200):
        one = varied(chance, created("a"), 6)
        alike += is_alike(chance, one, varied(chance, one, 2), chance.choice(LATE))
    assert alike > 10


TOGETHER: dict[str, dict[str, Any]] = {
    "catch_up_window": {"missed_run_policy": MissedRunPolicy.CATCH_UP, "timing": Cron("*/20 * * * *")},
    "calendars": {"exclude": ("holidays",)},
    "exclude": {"calendars": VALUES["calendars"][0], "only": ("holidays",)},
    "excluded_policy": {
        "calendars": VALUES["calendars"][0],
        "exclude": ("holidays",),
        "timing": Cron("0 14 * * wed,thu", "Europe/Berlin"),
    },
    "pause_until": {"status": ScheduleStatus.PAUSED, "due_at": OTHER},
    "start_at": {"timing": Cron("*/20 * * * *"), "missed_run_policy": MissedRunPolicy.CATCH_UP},
}
"""What makes a field matter."""


@pytest.mark.parametrize("name", sorted(VALUES))
def test_schedules_that_differ_in_one_field_get_what_each_gets_by_itself(name: str) -> None:
    chance = random.Random(name)
    base = changed(created("a"), **TOGETHER.get(name, {}))
    for value in VALUES[name]:
        for late in LATE:
            for one in (base, varied(chance, base, 4), varied(chance, base, 4)):
                other = changed(one, **{name: value})
                is_alike(chance, one, other, late)
                is_alike(chance, other, one, late)
