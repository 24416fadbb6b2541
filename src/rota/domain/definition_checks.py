"""What of a schedule's definition is accepted: its fields, its target, its timing and how quick it may be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import islice, pairwise
from typing import Any, TypeVar

from msgspec.structs import replace

from . import recurrence
from .errors import Invalid
from .limits import (
    check_choice,
    check_duration,
    check_flag,
    check_input,
    check_key,
    check_kind,
    check_metadata,
    check_number,
    check_priority,
    check_queue,
    check_tags,
    check_text,
    check_time,
    shown,
)
from .model import (
    Limits,
    MissedRunPolicy,
    OverlapPolicy,
    Schedule,
    ScheduleStatus,
    Target,
    TaskTarget,
    TemplateTarget,
    WorkflowTarget,
)
from .recurrence import Cron, Interval, Once, RRule, Timing
from .submission import MOST_RETRIES, SHORTEST_TIMEOUT

__all__ = [
    "FIELDS",
    "PAST_GRACE",
    "SCHEDULE_FIELDS",
    "check_fields",
    "check_target",
    "check_timing",
    "check_when",
    "timing_field",
]

PAST_GRACE = timedelta(seconds=5)
SHORTEST = timedelta(seconds=1)
CHECKED_GAPS = 50
CHECKED_AHEAD = timedelta(days=3660)
_T = TypeVar("_T", TaskTarget, WorkflowTarget)


def check_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The optional fields of a schedule, by name."""
    values = {}
    for name, value in fields.items():
        if name not in FIELDS:
            accepted = f"accepted are {', '.join(sorted(FIELDS))}"
            raise Invalid(name, "a schedule has no such field", accepted)
        cleared = value is None and name in _CLEARED_BY_NONE
        values[name] = None if cleared else FIELDS[name](value)
    return values


def check_target(target: object, limits: Limits) -> Target:
    match target:
        case TemplateTarget():
            if not isinstance(target.input, dict | None):
                problem = f"{shown(target.input)} cannot be laid over a template's parameters"
                raise Invalid("input", problem, "give a dict")
            checked_id = check_key(target.template_id, "template_id")
            return replace(target, template_id=checked_id, input=check_input(target.input, limits))
        case WorkflowTarget():
            return _common_checked(target, limits)
        case TaskTarget():
            most = partial(check_number, "max_retries", least=0, most=MOST_RETRIES)
            timeout = partial(check_duration, "timeout", least=SHORTEST_TIMEOUT)
            return replace(
                _common_checked(target, limits),
                priority=check_priority(target.priority),
                max_retries=_optional(most, target.max_retries),
                ttl=_optional(partial(check_duration, "ttl"), target.ttl),
                timeout=_optional(timeout, target.timeout),
            )
    accepted = "accepted are TaskTarget, WorkflowTarget and TemplateTarget"
    raise Invalid("target", f"{shown(target)} is not a target", accepted)


def check_timing(timing: object) -> Timing:
    """The timing in its stored form, its times in UTC; refused if it is malformed or can never fire."""
    checked = _typed(timing)
    try:
        recurrence.check(checked)
    except ValueError as problem:
        field, _, sentence = str(problem).partition(": ")
        raise Invalid(field, sentence) from None
    return checked


def check_when(schedule: Schedule, changed: Collection[str], now: datetime, limits: Limits) -> None:
    """The timing and its bounds together. What was not changed was accepted before, and stays."""
    timing, start, end = schedule.timing, schedule.start_at, schedule.end_at
    if start is not None and end is not None and start > end:
        raise Invalid("end_at", f"{end.isoformat()} is before start_at", "give a time after start_at")
    if end is not None and end <= now and not {"end_at", "timing"}.isdisjoint(changed):
        raise Invalid("end_at", f"{end.isoformat()} has passed", "give a time in the future")
    if "max_runs" in changed and schedule.has_reached_max_executions():
        problem = f"it has run {schedule.run_count} times already"
        raise Invalid("max_runs", problem, "give a higher number, or 0 for no limit")
    if "timing" not in changed:
        return
    if isinstance(timing, Once) and timing.run_at < now - PAST_GRACE:
        raise Invalid("run_at", f"{timing.run_at.isoformat()} has passed", "give a time in the future")
    _check_gaps(timing, now, limits.minimum_interval)


def timing_field(timing: Timing) -> str:
    """What the person who gave this timing calls it."""
    match timing:
        case Once():
            return "run_at"
        case Interval():
            return "interval"
        case Cron():
            return "cron"
        case RRule():
            return "rrule"


def _check_gaps(timing: Timing, now: datetime, least: timedelta) -> None:
    """No two times may be closer than the tenant's minimum. Of calendar rules the first gaps are measured."""
    gaps: list[timedelta] = []
    if isinstance(timing, Interval):
        gaps = [timing.every]
    elif least > SHORTEST:  # cron and RRULE have whole seconds, so they cannot be quicker than that
        times = islice(recurrence.between(timing, now, now + CHECKED_AHEAD), CHECKED_GAPS)
        gaps = [later - earlier for earlier, later in pairwise(times)]
    shortest = min(gaps, default=least)
    if shortest < least:
        problem = f"it fires every {shortest.total_seconds():g} s"
        raise Invalid(timing_field(timing), problem, f"the least here is {least.total_seconds():g} s")


def _typed(timing: object) -> Timing:
    match timing:
        case Once(run_at):
            return Once(check_time("run_at", run_at))
        case Interval(every, anchor):
            anchored = None if anchor is None else check_time("anchor", anchor)
            return Interval(check_duration("interval", every, least=SHORTEST), anchored)
        case Cron(expression, timezone):
            return Cron(check_text("cron", expression), check_text("timezone", timezone))
        case RRule(rule, dtstart, timezone):
            checked_rule = check_text("rrule", rule, most=100_000)
            return RRule(checked_rule, check_time("dtstart", dtstart), check_text("timezone", timezone))
    accepted = "accepted are Once, Interval, Cron and RRule"
    raise Invalid("timing", f"{shown(timing)} is not a timing", accepted)


def _common_checked(target: _T, limits: Limits) -> _T:
    return replace(
        target,
        kind=check_kind(target.kind, "task_type"),
        queue=check_queue(target.queue),
        input=check_input(target.input, limits),
        metadata=check_metadata(target.metadata),
        tags=check_tags(target.tags),
    )


def _optional(check: Callable[[object], Any], value: object) -> Any:
    return None if value is None else check(value)


def _max_runs(value: object) -> int | None:
    return check_number("max_runs", value, 0, 2**53) or None


FIELDS: dict[str, Callable[[object], Any]] = {
    "catch_up_window": partial(check_duration, "catch_up_window"),
    "description": partial(check_text, "description"),
    "end_at": partial(check_time, "end_at"),
    "jitter": partial(check_duration, "jitter"),
    "max_runs": _max_runs,
    "metadata": check_metadata,
    "misfire_grace": partial(check_duration, "misfire_grace"),
    "missed_run_policy": partial(check_choice, "missed_run_policy", enum=MissedRunPolicy),
    "overlap_policy": partial(check_choice, "overlap_policy", enum=OverlapPolicy),
    "pause_note": partial(check_text, "pause_note"),
    "pause_on_failure": partial(check_flag, "pause_on_failure"),
    "start_at": partial(check_time, "start_at"),
    "status": partial(check_choice, "status", enum=ScheduleStatus),
}
SCHEDULE_FIELDS = tuple(FIELDS)
"""What can be given when a schedule is created, beside its key, its timing and its target."""
_CLEARED_BY_NONE = frozenset({"start_at", "end_at", "max_runs", "misfire_grace", "pause_note"})
