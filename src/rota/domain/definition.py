"""What people do to a schedule: create, edit, pause, resume, delete, restore. Pure.

A new schedule first fires at its first time *after* creation. An edit of its timing, a resume and a restore
compute the next time from now: none of them ever runs anything by itself, and none replays what was missed.
A completed schedule becomes active again only with a new time or a higher `max_runs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from .definition_checks import (
    FIELDS,
    PAST_GRACE,
    check_fields,
    check_target,
    check_timing,
    check_when,
    timing_field,
)
from .errors import Invalid, Refused
from .limits import check_choice, check_key, check_text
from .model import Limits, MissedRunPolicy, Schedule, ScheduleStatus, Target
from .recurrence import Interval, Once, RRule, Timing, begun_after
from .schedule import jittered, planned

__all__ = ["FIELDS", "as_facts", "check_choice", "create", "delete", "edit", "pause", "restore", "resume"]

_WHEN = frozenset({"timing", "start_at", "end_at", "max_runs"})


def create(
    id: str,
    key: str,
    timing: Timing,
    target: Target,
    fields: Mapping[str, Any],
    *,
    tenant: str,
    now: datetime,
    actor: str,
    limits: Limits,
) -> Schedule:
    """A checked schedule, its next time computed. `fields` are the optional fields of the record by name."""
    values = check_fields(fields)
    if values.get("status") is ScheduleStatus.COMPLETED:
        raise Invalid("status", "a new schedule cannot be completed", "accepted are draft, active and paused")
    checked = check_timing(timing)
    values.setdefault("missed_run_policy", _default_policy(checked))
    schedule = Schedule(
        id=id,
        tenant=tenant,
        key=check_key(key),
        timing=_anchored(checked, values.get("start_at"), now),
        target=check_target(target, limits),
        created_by=actor,
        updated_by=actor,
        created_at=now,
        updated_at=now,
        **values,
    )
    check_when(schedule, _WHEN, now, limits)
    return _first_planned(schedule, now) if schedule.status is ScheduleStatus.ACTIVE else schedule


def edit(
    schedule: Schedule, changes: Mapping[str, Any], now: datetime, actor: str, limits: Limits
) -> Schedule:
    """With the changes applied; what is given as it was is no change. A change of when it runs recomputes the
    next time from now; nothing else does."""
    _check_living(schedule)
    values = _changed(schedule, changes, now, limits)
    if not values:
        return schedule
    status = values.pop("status", None)
    edited = replace(schedule, **values, updated_at=now, updated_by=actor)
    when = _WHEN & values.keys()
    check_when(edited, when, now, limits)
    if edited.status is ScheduleStatus.ACTIVE:
        when -= {"max_runs"}
    if when and edited.status in (ScheduleStatus.ACTIVE, ScheduleStatus.COMPLETED):
        edited = _first_planned(edited, now)
    elif "jitter" in values and edited.next_run_at is not None:
        edited = replace(edited, due_at=jittered(edited, edited.next_run_at))
    return edited if status is None else _with_status(edited, status, now, actor)


def pause(schedule: Schedule, now: datetime, actor: str, note: str | None = None) -> Schedule:
    """Stop firing until it is resumed. Pausing what is paused changes only the note, if one is given."""
    _check_living(schedule)
    if schedule.status is ScheduleStatus.COMPLETED:
        raise Refused("completed_schedule", schedule=schedule.key)
    if schedule.status is ScheduleStatus.PAUSED and note in (None, schedule.pause_note):
        return schedule
    checked = None if note is None else check_text("note", note)
    return _stopped(schedule, ScheduleStatus.PAUSED, now, actor, checked)


def resume(schedule: Schedule, now: datetime, actor: str) -> Schedule:
    """Fire again, from the first time after now. What was due while it was paused is not made up for; if no
    time is left, it is completed."""
    _check_living(schedule)
    if schedule.status is ScheduleStatus.COMPLETED:
        raise Refused("completed_schedule", schedule=schedule.key)
    if schedule.status is ScheduleStatus.ACTIVE:
        return schedule
    return planned(replace(schedule, pause_note=None, updated_at=now, updated_by=actor), now)


def delete(schedule: Schedule, now: datetime, actor: str) -> Schedule:
    """Hide it and stop it; its history stays, and it can be restored."""
    _check_living(schedule)
    return replace(schedule, deleted_at=now, next_run_at=None, due_at=None, updated_at=now, updated_by=actor)


def restore(schedule: Schedule, now: datetime, actor: str) -> Schedule:
    """Undo a delete. An active schedule goes on from its first time after now."""
    if schedule.deleted_at is None:
        raise Refused("not_deleted", schedule=schedule.key)
    living = replace(schedule, deleted_at=None, updated_at=now, updated_by=actor)
    return planned(living, now) if living.status is ScheduleStatus.ACTIVE else living


def as_facts(schedule: Schedule) -> dict[str, Any]:
    """A schedule as the audit shows it: plain data, without what only the tick needs."""
    facts: dict[str, Any] = msgspec.to_builtins(schedule)
    for name in ("record", "due_at", "zone_data"):
        facts.pop(name, None)
    return facts


def _changed(schedule: Schedule, changes: Mapping[str, Any], now: datetime, limits: Limits) -> dict[str, Any]:
    """The changes in stored form, without those that change nothing."""
    values = check_fields({k: v for k, v in changes.items() if k not in ("timing", "target", "key")})
    if "timing" in changes:
        checked = check_timing(changes["timing"])
        start = values.get("start_at", schedule.start_at)
        values["timing"] = _anchored(checked, start, now, schedule.timing)
        if schedule.missed_run_policy is _default_policy(schedule.timing):
            values.setdefault("missed_run_policy", _default_policy(checked))
    if "target" in changes:
        values["target"] = check_target(changes["target"], limits)
    if "key" in changes:
        values["key"] = check_key(changes["key"])
    return {
        name: value for name, value in values.items() if _stored(value) != _stored(getattr(schedule, name))
    }


def _stored(value: object) -> bytes:
    """For comparing: to Python, True and 1 are equal."""
    return msgspec.json.encode(value)


def _with_status(schedule: Schedule, status: ScheduleStatus, now: datetime, actor: str) -> Schedule:
    match status:
        case ScheduleStatus.ACTIVE:
            return resume(schedule, now, actor)
        case ScheduleStatus.PAUSED:
            return pause(schedule, now, actor, schedule.pause_note)
        case ScheduleStatus.DRAFT:
            return _stopped(schedule, status, now, actor, schedule.pause_note)
        case ScheduleStatus.COMPLETED:
            stopped = _stopped(schedule, status, now, actor, None)
            return replace(stopped, completed_reason=f"set so by {actor}")


def _stopped(
    schedule: Schedule, status: ScheduleStatus, now: datetime, actor: str, note: str | None
) -> Schedule:
    return replace(
        schedule,
        status=status,
        next_run_at=None,
        due_at=None,
        pause_note=note,
        completed_reason=None,
        updated_at=now,
        updated_by=actor,
    )


def _first_planned(schedule: Schedule, now: datetime) -> Schedule:
    """Active, from its first time after now; refused if there is none."""
    after = now
    if isinstance(schedule.timing, Once) and now - PAST_GRACE <= schedule.timing.run_at <= now:
        after = schedule.timing.run_at - timedelta(microseconds=1)
    first = planned(schedule, after)
    if first.status is ScheduleStatus.COMPLETED:
        raise Invalid(
            timing_field(schedule.timing),
            f"this schedule would never fire, because {first.completed_reason}",
            "give a timing with a time after now, within start_at and end_at",
        )
    return first


def _check_living(schedule: Schedule) -> None:
    if schedule.deleted_at is not None:
        raise Refused("deleted_schedule", schedule=schedule.key)


def _anchored(timing: Timing, start: datetime | None, now: datetime, old: Timing | None = None) -> Timing:
    """Where it counts from: as before if it is the same interval or rule. Else an interval without an anchor counts
    from `start` or now, and the COUNT of a rule without a `start` from its first time after now."""
    match timing:
        case Interval(every, None):
            if isinstance(old, Interval) and old.every == every:
                return old
            return replace(timing, anchor=start or _begin(now, every))
        case RRule(rule) if start is None and not (isinstance(old, RRule) and old.rule == rule):
            return begun_after(timing, now)
    return timing


def _begin(now: datetime, every: timedelta) -> datetime:
    """On a whole second, and such that the first time comes no sooner than one interval after now."""
    whole = now.replace(microsecond=0)
    if whole == now:
        return whole
    try:
        return whole + timedelta(seconds=1) + every
    except OverflowError:  # beyond the year 9999: refused soon, since it never fires
        return whole


def _default_policy(timing: Timing) -> MissedRunPolicy:
    """A time that comes only once is better late than never."""
    return MissedRunPolicy.EXECUTE_ONCE if isinstance(timing, Once) else MissedRunPolicy.SKIP
