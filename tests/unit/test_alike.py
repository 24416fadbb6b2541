"""Schedules that are alike: what is decided and started for one of them is what each would get by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rota.domain.model import (
    Limit,
    Limits,
    MissedRunPolicy,
    OverlapPolicy,
    RunTrigger,
    Schedule,
    TaskTarget,
    TemplateTarget,
    WorkflowTarget,
)
from rota.domain.recurrence import Cron, Interval, Once, RRule, Several
from rota.domain.schedule import Decision, decide, definition, run
from rota.domain.schedule.alike import decide_alike, start_alike

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
