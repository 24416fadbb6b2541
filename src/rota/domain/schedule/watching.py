"""When a schedule is looked at for its alarms. `domain/alarm.py` has the rules; this is how they stay cheap.

A schedule carries the next moment at which one of its rules could trip (`Watch.at`), and is left alone until then. Who
changes a schedule moves that moment: a person's change is looked at soon, a run that starts may take too long, a run
that fails may be one too many. Successes move nothing: they are found by the look.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from ..model import AlarmRules, Schedule, Watch
from ..recurrence import After, Once

FLOOR = timedelta(minutes=10)
"""Unless it was asked for, nobody is alarmed sooner than this about a schedule that does not succeed."""


def own_rules(schedule: Schedule) -> AlarmRules:
    return AlarmRules(**{name: getattr(schedule, name) for name in AlarmRules.__struct_fields__})


def tags_of(schedule: Schedule) -> tuple[str, ...]:
    return tuple(getattr(schedule.target, "tags", ()))


def watched(schedule: Schedule, now: datetime) -> Schedule:
    """Its times count from now on. The first look is when a rule could first trip; with tags it is at once, since the
    rules of tags are not known here."""
    rules = own_rules(schedule)
    at = now if tags_of(schedule) else _first_look(schedule, rules, now)
    return replace(schedule, watch=Watch(at=at, since=now, rules=rules))


def look_soon(schedule: Schedule, now: datetime) -> Schedule:
    """Someone changed it: its rules may be others, or its alarms over."""
    if schedule.watch is None:
        return watched(schedule, now)
    return replace(schedule, watch=replace(schedule.watch, at=now))


def started(schedule: Schedule, now: datetime) -> Schedule:
    """A run starts now: it may take too long."""
    watch = schedule.watch
    if watch is None or watch.rules.alarm_duration is None:
        return schedule
    at = now + watch.rules.alarm_duration
    return (
        schedule
        if watch.at is not None and watch.at <= at
        else replace(schedule, watch=replace(watch, at=at))
    )


def with_failure(schedule: Schedule, now: datetime) -> Schedule:
    """A run failed: it may be one too many."""
    watch = schedule.watch
    if watch is None or watch.rules.alarm_failures is None or (watch.at is not None and watch.at <= now):
        return schedule
    return replace(schedule, watch=replace(watch, at=now))


def _first_look(schedule: Schedule, rules: AlarmRules, now: datetime) -> datetime | None:
    first, due = schedule.next_run_at, schedule.due_at
    if not schedule.enabled or first is None or due is None:
        return None
    if rules.alarm_ending is not None:
        return now
    times = []
    if rules.alarm_late is not None:
        times.append(due + rules.alarm_late)
    if rules.alarm_no_success:
        times.append(now + rules.alarm_no_success)
    elif rules.alarm_no_success is None and not isinstance(schedule.timing, Once | After):
        times.append(max(first, now) + FLOOR)
    return min(times, default=None)
