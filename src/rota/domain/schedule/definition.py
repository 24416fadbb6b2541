"""A schedule's definition: the fields, targets and timings that are accepted, and the changes that people make. Pure.

People create, edit, pause, resume, delete and restore a schedule. A new schedule first fires at its first time *after*
creation. An edit of its timing, a resume and a restore compute the next time from now: none of them runs anything by
itself, and none replays what was missed. A completed schedule becomes active again only with a new time or a higher
`max_runs`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from .. import recurrence
from ..checks import (
    changed_fields,
    check_choice,
    check_duration,
    check_fields,
    check_input,
    check_key,
    check_text,
    check_time,
    shown,
)
from ..errors import Invalid, Refused, naming_one
from ..model import (
    Limits,
    MissedRunPolicy,
    Run,
    Schedule,
    ScheduleStatus,
    Target,
    TaskTarget,
    TemplateTarget,
    WorkflowTarget,
    defaults_of,
    facts_of,
)
from ..options import ScheduleOptions, TaskOptions, check_option, options_of
from ..recurrence import (
    MICROSECOND,
    After,
    AfterOn,
    Covered,
    Cron,
    DayMatch,
    DstFold,
    DstGap,
    Interval,
    Once,
    RRule,
    Several,
    Simple,
    Timing,
    begun_after,
)
from ..task import check_function_kind
from .backfill import cancel as cancel_backfill
from .calendars import check_rolling
from .decision import brought_back, planned, put_off_anew, replanned, resumed
from .run import failures_in_a_row
from .watching import look_soon, watched

PAST_GRACE = timedelta(seconds=5)
SHORTEST = timedelta(seconds=1)
CHECKED_GAPS = 50
MOST_UPSTREAM = 20
CHECKED_AHEAD = timedelta(days=3660)
_GIVEN_AS: dict[type[Timing], str] = {
    Once: "run_at",
    Interval: "interval",
    Cron: "cron",
    RRule: "rrule",
    Several: "timings",
    After: "after",
}
_T = TypeVar("_T", TaskTarget, WorkflowTarget)


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The optional fields of a schedule, by name, in stored form."""
    check_fields("a schedule", fields, FIELDS)
    return {name: check_option(name, FIELDS[name], value) for name, value in fields.items()}


def check_target(target: object, limits: Limits) -> Target:
    match target:
        case TemplateTarget():
            if not isinstance(target.input, dict | None):
                problem = f"{shown(target.input)} cannot be laid over a template's parameters"
                raise Invalid("input", problem, "give a dict")
            checked_id = check_key(target.template_id, "template_id")
            return replace(target, template_id=checked_id, input=check_input(target.input, limits))
        case WorkflowTarget():
            return _checked_request(target, limits)
        case TaskTarget():
            return _checked_request(target, limits)
    accepted = "accepted are TaskTarget, WorkflowTarget and TemplateTarget"
    raise Invalid("target", f"{shown(target)} is not a target", accepted)


def check_timing(timing: object) -> Timing:
    """The timing in its stored form, its times in UTC; refused if it is malformed or can never fire."""
    checked = _typed(timing)
    recurrence.check(checked)
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
    if isinstance(timing, After) and (schedule.only or schedule.exclude):
        field = "only" if schedule.only else "exclude"
        raise Invalid(field, "a schedule that runs after others has no times of its own", "name no calendars")
    if "timing" in changed or "excluded_policy" in changed:
        check_rolling(schedule, now)
    if "timing" not in changed:
        return
    for number, part in enumerate(recurrence.parts_of(timing)):
        if isinstance(part, Once) and part.run_at < now - PAST_GRACE:
            with recurrence.naming_part(timing, number):
                raise Invalid("run_at", f"{part.run_at.isoformat()} has passed", "give a time in the future")
    _check_gaps(timing, now, limits.minimum_interval)


def timing_field(timing: Timing) -> str:
    """The name by which people give such a timing."""
    return _GIVEN_AS[type(timing)]


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
        case Cron(expression, timezone, day_match, gap, fold):
            written = Cron(
                check_text("cron", expression),
                check_text("timezone", timezone),
                check_choice("day_match", day_match, DayMatch),
                *_checked_choices(gap, fold),
            )
            return recurrence.with_zone(written)
        case RRule(rule, dtstart, timezone, gap, fold):
            checked_rule = check_text("rrule", rule, most=100_000)
            at, zone = check_time("dtstart", dtstart), check_text("timezone", timezone)
            return RRule(checked_rule, at, zone, *_checked_choices(gap, fold))
        case Several(timings) if isinstance(timings, (tuple, list)):
            return Several(tuple(_typed_part(number, part) for number, part in enumerate(timings)))
        case After(schedules, on, delay):
            return After(
                _checked_keys(schedules),
                check_choice("after_on", on, AfterOn),
                check_duration("after_delay", delay),
            )
    accepted = "accepted are Once, Interval, Cron, RRule, Several and After"
    raise Invalid("timing", f"{shown(timing)} is not a timing", accepted)


def _typed_part(number: int, part: object) -> Simple:
    if isinstance(part, Several):
        raise Invalid("timings", "one of them is itself several timings", "give them all in one list")
    if isinstance(part, After):
        raise Invalid("timings", "one of them runs after others", "give after alone")
    with naming_one("timings", number):
        typed = _typed(part)
    assert not isinstance(typed, Several | After)
    return typed


def _checked_choices(gap: object, fold: object) -> tuple[DstGap | None, DstFold | None]:
    return (
        None if gap is None else check_choice("dst_gap", gap, DstGap),
        None if fold is None else check_choice("dst_fold", fold, DstFold),
    )


def _checked_keys(keys: object) -> tuple[str, ...]:
    """Of the schedules that it comes after."""
    accepted = f"give the schedule_id of one schedule, or of up to {MOST_UPSTREAM}"
    if not isinstance(keys, Sequence) or isinstance(keys, str):
        raise Invalid("after", f"{shown(keys)} is no list of schedules", accepted)
    checked = tuple(dict.fromkeys(check_key(key, "after") for key in keys))
    if not 1 <= len(checked) <= MOST_UPSTREAM:
        raise Invalid("after", f"it names {len(checked)} schedules", accepted)
    return checked


def _checked_request(target: _T, limits: Limits) -> _T:
    options = options_of(TaskOptions).items()
    return replace(
        target,
        kind=check_function_kind(target.kind, "task_type"),
        input=check_input(target.input, limits),
        **{name: check_option(name, option, getattr(target, name)) for name, option in options},
    )


FIELDS = {
    name: option for name, option in options_of(ScheduleOptions).items() if name in Schedule.__struct_fields__
}
SCHEDULE_FIELDS = tuple(sorted(FIELDS))
"""The fields that can be given when a schedule is created, beside its key, its timing and its target."""
DEFAULTS = {
    name: default
    for name, default in defaults_of(Schedule).items()
    if name in FIELDS and name not in ("status", "pause_note", "pause_until", "missed_run_policy")
}
"""The values of fields that are left out where a schedule is said whole. Its status stays, and what it does about
missed times follows from its timing."""
_WHEN = frozenset(
    {"timing", "start_at", "end_at", "max_runs", "exclude", "only", "excluded_policy", "calendars"}
)


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
    calendars: tuple[Covered, ...] = (),
    is_begun: bool = False,
) -> Schedule:
    """A checked schedule, its next time computed. `fields` are the optional fields of the record by name. `calendars`
    has the days and windows of the calendars that the fields name. With `is_begun` the timing counts from where it
    says, its COUNT, too."""
    values = _checked(fields)
    if values.get("status") is ScheduleStatus.COMPLETED:
        raise Invalid("status", "a new schedule cannot be completed", "accepted are draft, active and paused")
    checked = check_timing(timing)
    values.setdefault("missed_run_policy", default_policy(checked))
    schedule = Schedule(
        id=id,
        tenant=tenant,
        key=check_key(key),
        timing=checked if is_begun else _anchored(checked, values.get("start_at"), now),
        target=check_target(target, limits),
        calendars=calendars,
        created_by=actor,
        updated_by=actor,
        created_at=now,
        updated_at=now,
        **values,
    )
    check_when(schedule, _WHEN, now, limits)
    if schedule.status is ScheduleStatus.PAUSED:
        return replace(schedule, paused_by=actor, paused_at=now)
    return _first_planned(schedule, now) if schedule.status is ScheduleStatus.ACTIVE else schedule


def edit(
    schedule: Schedule,
    changes: Mapping[str, Any],
    now: datetime,
    actor: str,
    limits: Limits,
    *,
    is_begun: bool = False,
) -> Schedule:
    """The schedule with the changes; what is given as it was is no change. A change of when it runs recomputes the
    next time from now; nothing else does. `is_begun` is as for `create`."""
    _check_living(schedule)
    values = _changed(schedule, changes, now, limits, is_begun=is_begun)
    if not values:
        return schedule
    schedule = brought_back(schedule, now)
    status = values.pop("status", None)
    edited = replace(schedule, **values, updated_at=now, updated_by=actor)
    when = _WHEN & values.keys()
    check_when(edited, when, now, limits)
    if edited.status is ScheduleStatus.ACTIVE:
        when -= {"max_runs"}
    if when and edited.status in (ScheduleStatus.ACTIVE, ScheduleStatus.COMPLETED):
        edited = _first_planned(_without_causes(edited) if "timing" in when else edited, now)
    elif values.keys() & {"offset", "jitter"}:
        edited = put_off_anew(edited, now, was=schedule)
    edited = look_soon(edited, now)
    return edited if status is None else _with_status(edited, status, now, actor)


def governed(schedule: Schedule, calendars: tuple[Covered, ...], now: datetime) -> Schedule:
    """The schedule with what its calendars cover now, planned anew if it is active. One that had completed because
    they left no time goes on if they leave one again."""
    if calendars == schedule.calendars:
        return schedule
    changed = replace(brought_back(schedule, now), calendars=calendars)
    can_fire = schedule.status is ScheduleStatus.ACTIVE or schedule.ended_by_calendars
    if schedule.deleted_at is not None or not can_fire:
        return changed
    again = planned(changed, now)
    return watched(replace(again, updated_at=now), now)


def pause(
    schedule: Schedule, now: datetime, actor: str, note: str | None = None, until: datetime | None = None
) -> Schedule:
    """Stop firing until it is resumed, or until a time. Pausing what is paused changes only the note and the end, if
    they are given."""
    _check_living(schedule)
    if schedule.status is ScheduleStatus.COMPLETED:
        raise Refused("completed_schedule", schedule=schedule.key)
    is_paused = schedule.status is ScheduleStatus.PAUSED
    if is_paused and note in (None, schedule.pause_note) and until in (None, schedule.pause_until):
        return schedule
    ends = None if until is None else check_time("until", until)
    if ends is not None and ends <= now:
        raise Invalid("until", f"{ends.isoformat()} has passed", "give a time in the future")
    note = None if note is None else check_text("note", note)
    if is_paused:
        note, ends = note or schedule.pause_note, ends or schedule.pause_until
    stopped = _stopped(schedule, ScheduleStatus.PAUSED, now, actor, note)
    return replace(stopped, pause_until=ends, due_at=ends)


def too_many_failures(schedule: Schedule, failed: Sequence[Run], rows: Iterable[Run]) -> str:
    """Why it is to be paused now that these runs have failed; empty: it is not. `rows` are its last ones."""
    most = int(schedule.pause_on_failure)
    if not most or not schedule.enabled or (most > 1 and failures_in_a_row(rows) < most):
        return ""
    run_of = f"the run of {failed[0].scheduled_at.isoformat()} failed"
    return f"paused because {run_of}{f', as {most} did in a row' * (most > 1)}: {failed[0].error}"


def resume(schedule: Schedule, now: datetime, actor: str) -> Schedule:
    """Fire again, from the first time after now. What was due while it was paused is not made up for; if no
    time is left, it is completed."""
    _check_living(schedule)
    if schedule.status is ScheduleStatus.COMPLETED:
        raise Refused("completed_schedule", schedule=schedule.key)
    if schedule.status is ScheduleStatus.ACTIVE:
        return schedule
    return watched(resumed(replace(schedule, updated_by=actor), now), now)


def delete(schedule: Schedule, now: datetime, actor: str) -> Schedule:
    """Hide it and stop it; its history stays, and it can be restored."""
    _check_living(schedule)
    filling = schedule.backfill
    gone = replace(
        _without_line(_without_causes(brought_back(schedule, now)), now),
        backfill=filling and cancel_backfill(filling, now, "the schedule was deleted"),
        deleted_at=now,
        next_run_at=None,
        due_at=None,
        excluded_from=None,
        updated_at=now,
        updated_by=actor,
    )
    return look_soon(gone, now)


def restore(schedule: Schedule, now: datetime, actor: str) -> Schedule:
    """Undo a delete. An active schedule goes on from its first time after now."""
    if schedule.deleted_at is None:
        raise Refused("not_deleted", schedule=schedule.key)
    living = replace(schedule, deleted_at=None, updated_by=actor)
    if living.status is ScheduleStatus.ACTIVE:
        return watched(replanned(living, now), now)
    due_at = living.pause_until if living.status is ScheduleStatus.PAUSED else living.due_at
    return replace(brought_back(living, now), due_at=due_at, updated_at=now)


def uncounted(schedule: Schedule, number: int, now: datetime) -> Schedule:
    """The schedule after so many of the times that waited have started nothing: they use up none of its `max_runs`. If
    it had completed by these, it goes on from its first time after now."""
    fewer = replace(schedule, run_count=schedule.run_count - number)
    had_completed = schedule.status is ScheduleStatus.COMPLETED and schedule.has_reached_max_executions()
    if not had_completed or fewer.has_reached_max_executions():
        return fewer
    return watched(planned(fewer, now), now)


def as_facts(schedule: Schedule) -> dict[str, Any]:
    """A schedule as the audit shows it: plain data, without what only the tick needs."""
    of_calendars = ("calendars", "excluded_from", "ended_by_calendars")
    return facts_of(schedule, "due_at", "zone_data", "applied", "watch", "followers", "causes", *of_calendars)


def changes_to(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The changes that bring a schedule back to an earlier version of it, as the audit shows that. Its name, its state
    and its past runs are no part of them."""
    earlier = msgspec.convert(facts, Schedule)
    put_back = [name for name in FIELDS if name in Schedule.__struct_fields__ and name != "status"]
    return {name: getattr(earlier, name) for name in (*put_back, "timing", "target")}


def _changed(
    schedule: Schedule, changes: Mapping[str, Any], now: datetime, limits: Limits, *, is_begun: bool
) -> dict[str, Any]:
    """The changes in stored form, without those that change nothing."""
    values = _checked({k: v for k, v in changes.items() if k not in ("timing", "target", "key", "calendars")})
    if "timing" in changes:
        checked = check_timing(changes["timing"])
        start = values.get("start_at", schedule.start_at)
        values["timing"] = checked if is_begun else _anchored(checked, start, now, schedule.timing)
        if schedule.missed_run_policy is default_policy(schedule.timing):
            values.setdefault("missed_run_policy", default_policy(checked))
    if "target" in changes:
        values["target"] = check_target(changes["target"], limits)
    if "calendars" in changes:
        values["calendars"] = changes["calendars"]
    if "key" in changes:
        values["key"] = check_key(changes["key"])
    return changed_fields(schedule, values)


def _with_status(schedule: Schedule, status: ScheduleStatus, now: datetime, actor: str) -> Schedule:
    match status:
        case ScheduleStatus.ACTIVE:
            return resume(schedule, now, actor)
        case ScheduleStatus.PAUSED:
            return pause(schedule, now, actor, schedule.pause_note)
        case ScheduleStatus.DRAFT:
            return _stopped(schedule, status, now, actor, schedule.pause_note)
        case ScheduleStatus.COMPLETED:
            stopped = _stopped(_without_line(schedule, now), status, now, actor, None)
            return replace(stopped, completed_reason=f"set so by {actor}")


def _stopped(
    schedule: Schedule, status: ScheduleStatus, now: datetime, actor: str, note: str | None
) -> Schedule:
    is_paused = status is ScheduleStatus.PAUSED
    stopped = replace(
        _without_causes(brought_back(schedule, now)),
        status=status,
        next_run_at=None,
        due_at=None,
        excluded_from=None,
        pause_note=note,
        pause_until=None,
        paused_by=actor if is_paused else None,
        paused_at=now if is_paused else None,
        completed_reason=None,
        ended_by_calendars=False,
        updated_at=now,
        updated_by=actor,
    )
    return look_soon(stopped, now)


def _without_causes(schedule: Schedule) -> Schedule:
    """The schedule without what it has heard of the ends of others."""
    if not isinstance(schedule.timing, After):
        return replace(schedule, causes=()) if schedule.causes else schedule
    return replace(schedule, causes=(), next_run_at=None, due_at=None)


def _without_line(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule without the times that wait: the command that writes this records them as skipped."""
    return replace(uncounted(schedule, len(schedule.buffered), now), buffered=())


def _first_planned(schedule: Schedule, now: datetime) -> Schedule:
    """Active, from its first time after now; refused if there is none."""
    after = now
    if isinstance(schedule.timing, Once) and now - PAST_GRACE <= schedule.timing.run_at <= now:
        after = schedule.timing.run_at - MICROSECOND
    first = planned(schedule, after)
    if first.status is ScheduleStatus.COMPLETED:
        problem = f"this schedule would never fire, because {first.completed_reason}"
        if first.ended_by_calendars:
            raise Invalid("only" if schedule.only else "exclude", problem, "name others")
        advice = "give a timing with a time after now, within start_at and end_at"
        raise Invalid(timing_field(schedule.timing), problem, advice)
    return watched(first, now)


def _check_living(schedule: Schedule) -> None:
    if schedule.deleted_at is not None:
        raise Refused("deleted_schedule", schedule=schedule.key)


def _anchored(timing: Timing, start: datetime | None, now: datetime, old: Timing | None = None) -> Timing:
    """Where it counts from: as before if it is the same interval or rule. Else an interval without an anchor counts
    from `start` or now, and the COUNT of a rule without a `start` from its first time after now."""
    match timing:
        case Several():
            if isinstance(old, Several) and _unanchored(timing) == _unanchored(old):
                return old
            return Several(tuple(_part_anchored(part, start, now) for part in timing.timings))
        case After():
            return timing
        case _:
            return _part_anchored(timing, start, now, old)


def _part_anchored(
    timing: Simple, start: datetime | None, now: datetime, old: Timing | None = None
) -> Simple:
    match timing:
        case Interval(every, None):
            if isinstance(old, Interval) and old.every == every:
                return old
            return replace(timing, anchor=start or _begin(now, every))
        case RRule(rule) if start is None and not (isinstance(old, RRule) and old.rule == rule):
            return begun_after(timing, now)
    return timing


def _unanchored(several: Several) -> list[object]:
    """The timings as they were given, without where they count from."""
    return [
        replace(part, anchor=None)
        if isinstance(part, Interval)
        else (part.rule, part.timezone, part.dst_gap, part.dst_fold)
        if isinstance(part, RRule)
        else part
        for part in several.timings
    ]


def _begin(now: datetime, every: timedelta) -> datetime:
    """On a whole second, and such that the first time comes no sooner than one interval after now."""
    whole = now.replace(microsecond=0)
    if whole == now:
        return whole
    try:
        return whole + timedelta(seconds=1) + every
    except OverflowError:  # beyond the year 9999: refused soon, since it never fires
        return whole


def default_policy(timing: Timing) -> MissedRunPolicy:
    """A time that comes only once, or because something has ended, is better late than never."""
    comes_once = all(isinstance(part, Once) for part in recurrence.parts_of(timing))
    return MissedRunPolicy.EXECUTE_ONCE if comes_once else MissedRunPolicy.SKIP
