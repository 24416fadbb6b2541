"""What callers write, turned into what the domain takes: one timing out of five ways to say it, a target, a
submission. Naive datetimes are the local time of the process; durations are timedeltas or seconds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from ..domain.definition import check_choice
from ..domain.errors import Invalid
from ..domain.limits import check_duration
from ..domain.model import (
    Schedule,
    ScheduleStatus,
    Target,
    TaskStatus,
    TaskTarget,
    TemplateTarget,
    WorkflowTarget,
)
from ..domain.recurrence import Cron, Interval, Once, RecurrenceRule, RRule, Timing
from ..domain.task import Submission, check_submission
from ..engine.clock import aware
from ..stores.base import Cursor

__all__ = [
    "cursor_text",
    "new_schedule",
    "parsed_cursor",
    "schedule_changes",
    "schedule_status",
    "submission",
    "task_status",
]

_SUBMIT = {
    "schedule_at",
    "expires_at",
    "ttl",
    "ttl_seconds",
    "queue",
    "priority",
    "max_retries",
    "max_reschedules",
}
_SUBMIT |= {"retry_policy", "timeout_seconds", "idempotency_key", "metadata", "tags"}
_TIMINGS = ("cron", "interval", "run_at", "rrule", "rule")
_TARGET = ("task_type", "target", "input", "queue", "max_retries", "ttl", "priority", "timeout", "tags")
_ONE_OF = "give exactly one of cron, interval, run_at, rrule and rule"
_KINDS = (TaskTarget, WorkflowTarget, TemplateTarget)


def submission(kind: str, input: Any, options: Mapping[str, Any]) -> Submission:
    """A checked submission from the options of `Queue.submit`."""
    chosen = {name: value for name, value in options.items() if value is not None}
    unknown = chosen.keys() - _SUBMIT
    if unknown:
        raise Invalid(min(unknown), "there is no such option", f"accepted are {', '.join(sorted(_SUBMIT))}")
    expiries = [name for name in ("ttl", "ttl_seconds", "expires_at") if name in chosen]
    if len(expiries) > 1:
        raise Invalid(expiries[1], f"it was given together with {expiries[0]}", "give one of them")
    if "ttl_seconds" in chosen:
        chosen["ttl"] = check_duration("ttl_seconds", chosen.pop("ttl_seconds"))
    elif "ttl" in chosen:
        chosen["ttl"] = check_duration("ttl", chosen["ttl"])
    if "timeout_seconds" in chosen:
        chosen["timeout"] = check_duration("timeout_seconds", chosen.pop("timeout_seconds"))
    for name in ("schedule_at", "expires_at"):
        if name in chosen:
            chosen[name] = given_time(name, chosen[name])
    if "idempotency_key" in chosen:
        _check_idempotency_key(chosen["idempotency_key"])
    asked = Submission(kind=kind, input=input, **chosen)
    check_submission(asked)
    return asked


def _check_idempotency_key(key: object) -> None:
    if not isinstance(key, str) or not 1 <= len(key) <= 255:
        raise Invalid("idempotency_key", f"{key!r:.60} is not accepted", "give a text of 1 to 255 characters")


def given_time(field: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise Invalid(field, f"{value!r:.60} is not a time", "give a datetime")
    try:
        return aware(value)
    except (OverflowError, OSError, ValueError):
        raise Invalid(field, f"{value} is out of range", "give a time between the years 1 and 9999") from None


def new_schedule(options: Mapping[str, Any], now: datetime) -> tuple[Timing, Target, dict[str, Any]]:
    """(timing, target, fields) from the options of `Queue.create_schedule`."""
    chosen = {name: value for name, value in options.items() if value is not None}
    timing, bounds = _timing(chosen, now)
    target = _target(chosen)
    fields = _fields(chosen)
    if isinstance(target, (TaskTarget, WorkflowTarget)) and "metadata" in fields and not target.metadata:
        target = replace(target, metadata=fields["metadata"])
    return timing, target, {**bounds, **fields}


def schedule_changes(old: Schedule, options: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The changes that `Queue.update_schedule` asks for. Only what is named changes."""
    chosen = dict(options)
    changes: dict[str, Any] = {}
    zone = chosen.get("timezone")
    if any(chosen.get(name) is not None for name in _TIMINGS):
        chosen.setdefault("timezone", old.timezone)
        begin = old.timing.dtstart if isinstance(old.timing, RRule) else old.start_at
        changes["timing"], bounds = _timing({"start_at": begin, **chosen}, now)
        changes |= bounds
    elif zone is not None:
        if not isinstance(old.timing, (Cron, RRule)):
            raise Invalid("timezone", "this schedule's timing has no zone", "give a cron or an rrule with it")
        changes["timing"] = replace(old.timing, timezone=zone)
    if any(name in chosen for name in _TARGET):
        changes["target"] = _changed_target(old.target, chosen)
    if (
        "metadata" in chosen
        and not isinstance(old.target, TemplateTarget)
        and old.target.metadata == old.metadata
    ):
        changes["target"] = replace(changes.get("target", old.target), metadata=chosen["metadata"])
    if "key" in chosen:
        changes["key"] = chosen["key"]
    return changes | _fields(chosen)


def _fields(chosen: Mapping[str, Any]) -> dict[str, Any]:
    other = {*_TIMINGS, *_TARGET, "timezone", "key"}
    fields = {name: value for name, value in chosen.items() if name not in other}
    for name in ("start_at", "end_at"):
        if fields.get(name) is not None:
            fields[name] = given_time(name, fields[name])
    return fields


def _timing(chosen: Mapping[str, Any], now: datetime) -> tuple[Timing, dict[str, Any]]:
    """The one timing that was given, and the bounds that a RecurrenceRule may bring along."""
    given = [name for name in _TIMINGS if chosen.get(name) is not None]
    if len(given) != 1:
        problem = f"it was given together with {given[0]}" if given else "no timing was given"
        raise Invalid(given[1] if given else "cron", problem, _ONE_OF)
    name = given[0]
    value = chosen[name]
    zone = _zone(chosen.get("timezone", "UTC"))
    start = chosen.get("start_at")
    begin = (given_time("start_at", start) if start is not None else now).replace(microsecond=0)
    match name:
        case "cron":
            return Cron(_text(name, value), zone), {}
        case "interval":
            return Interval(check_duration(name, value, least=timedelta(seconds=1))), {}
        case "run_at":
            return Once(given_time(name, value)), {}
        case "rrule":
            return RRule(_text(name, value), begin, zone), {}
        case _:
            return _from_rule(value, now, zone)


def _from_rule(value: object, now: datetime, zone: str) -> tuple[Timing, dict[str, Any]]:
    if not isinstance(value, RecurrenceRule):
        raise Invalid("rule", f"{value!r:.60} is not a rule", "give a rota.RecurrenceRule")
    try:
        timing, start_at, end_at = value.timing(now, zone)
    except ValueError as problem:
        raise Invalid("rule", str(problem).removeprefix("rule: ")) from None
    bounds = {"start_at": start_at, "end_at": end_at}
    return timing, {name: at for name, at in bounds.items() if at is not None}


def _target(chosen: Mapping[str, Any]) -> Target:
    target, kind = chosen.get("target"), chosen.get("task_type")
    if (target is None) == (kind is None):
        problem = "it was given together with target" if kind else "no task was given"
        raise Invalid("task_type", problem, "give exactly one of task_type and target")
    if target is None:
        options = {name: chosen[name] for name in _TARGET[2:] if name in chosen}
        return TaskTarget(kind=_text("task_type", kind), **_durations(options))
    if not isinstance(target, _KINDS):
        accepted = "give a rota.TaskTarget, WorkflowTarget or TemplateTarget"
        raise Invalid("target", f"{target!r:.60} is not a target", accepted)
    return replace(target, input=chosen["input"]) if "input" in chosen else target


def _changed_target(old: Target, chosen: Mapping[str, Any]) -> Target:
    if chosen.get("target") is not None or not isinstance(old, TaskTarget):
        return _target({"target": old, **chosen})
    options = {name: chosen[name] for name in _TARGET[2:] if name in chosen}
    if chosen.get("task_type") is not None:
        options["kind"] = _text("task_type", chosen["task_type"])
    return replace(old, **_durations(options))


def _durations(options: dict[str, Any]) -> dict[str, Any]:
    for name in ("ttl", "timeout"):
        if options.get(name) is not None:
            options[name] = check_duration(name, options[name])
    if "tags" in options and not isinstance(options["tags"], str):
        options["tags"] = tuple(options["tags"])
    return options


def _zone(value: object) -> str:
    name = getattr(value, "key", value)  # a ZoneInfo is as good as its name
    return _text("timezone", name)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise Invalid(field, f"{value!r:.60} is not a text", "give a text")
    return value


def task_status(value: object) -> TaskStatus | None:
    return None if value is None else check_choice("status", value, TaskStatus)


def schedule_status(value: object) -> ScheduleStatus | None:
    return None if value is None else check_choice("status", value, ScheduleStatus)


def cursor_text(at: datetime, id: str) -> str:
    """Where a page ended, as a text to hand back."""
    return f"{at.isoformat()}~{id}"


def parsed_cursor(value: object) -> Cursor | None:
    if value is None:
        return None
    try:
        at, id = str(value).split("~", 1)
        return Cursor(aware(datetime.fromisoformat(at)), id)
    except ValueError:
        raise Invalid("cursor", f"{value!r:.60} is not a cursor", "give the next_cursor of a page") from None
