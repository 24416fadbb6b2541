"""The editor of schedules: a form, and beside it what the form means: a sentence, the next times, what an edit changes.

What it means is asked of the queue, and is shown by the page's own address (`?type=cron&when=…`), with or without a
script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

from fastapi import Response

from ....domain import recurrence
from ....domain.errors import Invalid, Refused
from ....domain.model import (
    ExcludedPolicy,
    MissedRunPolicy,
    OverlapPolicy,
    Schedule,
    TaskTarget,
    TemplateTarget,
)
from ....domain.plan import Difference
from ....domain.recurrence import After, AfterOn, Cron, Interval, Once, RRule, Several, Timing
from ....domain.schedule.expected import TimeChanges
from ....engine.queries import Occurrence, next_times
from ... import words
from ...durations import parsed
from ...words import counted
from ..forms import json_of, span_text
from ..texts import person, pretty
from ..visit import Visit
from . import builder

COMING = 10
TRIES = 5
LISTED = 4
TYPES = {
    "cron": "Cron line",
    "every": "Every so often",
    "once": "Once",
    "rrule": "Calendar rule",
    "after": "After others",
}
HINTS = {
    "cron": "five fields (minute, hour, day, month, weekday), or six with seconds first",
    "every": "such as 30s, 5m, 1h30m or 7d",
    "once": "such as 2026-12-31T18:00, on the clock of the zone",
    "rrule": "such as FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17;BYMINUTE=0;BYSECOND=0",
    "after": "the name of a schedule, or several with commas between: it runs when a run of each has ended",
}
STARTS = (
    ("every 5 minutes", "every", "5m"),
    ("every hour", "cron", "0 * * * *"),
    ("every day at 09:00", "cron", "0 9 * * *"),
    ("weekdays at 09:00", "cron", "0 9 * * 1-5"),
    ("Mondays at 07:30", "cron", "30 7 * * 1"),
    ("the 1st of the month", "cron", "0 6 1 * *"),
    ("the last Friday of the month", "rrule", HINTS["rrule"].removeprefix("such as ")),
)
POLICIES: tuple[tuple[str, str, str, dict[str, tuple[str, str]]], ...] = (
    (
        "missed",
        "A time was missed, because nothing was running",
        "Say it runs every hour, and nothing ran from 08:50 to 11:20:",
        {
            MissedRunPolicy.SKIP: ("Skip it, and record that", "09:00, 10:00 and 11:00 do not run"),
            MissedRunPolicy.EXECUTE_ONCE: ("Run once for all that were missed", "11:00 runs at 11:20"),
            MissedRunPolicy.CATCH_UP: (
                "Run each one that was missed",
                "all three run at 11:20, oldest first",
            ),
        },
    ),
    (
        "overlap",
        "The run before is still going",
        "Say the run of 09:00 takes until 11:30:",
        {
            OverlapPolicy.SKIP: ("Skip the new time", "10:00 and 11:00 do not run"),
            OverlapPolicy.ALLOW: ("Run beside it", "10:00 and 11:00 run on time, three at once"),
            OverlapPolicy.BUFFER_ONE: ("Let one wait", "10:00 runs at 11:30, 11:00 does not"),
            OverlapPolicy.BUFFER_ALL: ("Let them wait their turn", "10:00 runs at 11:30, then 11:00"),
            OverlapPolicy.CANCEL_PREVIOUS: ("Cancel the one that runs", "09:00 is asked to stop, 10:00 runs"),
            OverlapPolicy.TERMINATE_PREVIOUS: ("End the one that runs", "09:00 is ended at once, 10:00 runs"),
        },
    ),
)
"""Field, question, an example, and for each answer what becomes of the example."""
EXCLUDED = {
    ExcludedPolicy.SKIP: "is skipped, and that is recorded",
    ExcludedPolicy.NEXT: "moves to the next day that is allowed",
    ExcludedPolicy.PREVIOUS: "moves to the previous day that is allowed",
}
ENDS = {"success": "has succeeded", "failure": "has failed", "end": "has ended, however"}
COMMON_ZONES = (
    "UTC",
    "Europe/London",
    "Europe/Berlin",
    "America/New_York",
    "America/Los_Angeles",
    "Asia/Tokyo",
)
_OF_TIMING = ("type", "when", "timezone")
_OF_AFTER = ("after_on", "after_delay")
PREVIEWED = (*_OF_TIMING, *_OF_AFTER, "exclude", "only", "excluded", "offset")
"""The fields whose change asks for the meaning again."""
_FIELDS = ("key", *PREVIEWED, "task_type", "input", "description", "missed", "overlap")
_YEAR = 366


class Meaning(NamedTuple):
    """The meaning of the form: in words, its next times, what is odd; and for an edit the times that it changes."""

    sentence: str
    times: list[Occurrence]
    warnings: tuple[str, ...]
    runs_now: bool
    changes: TimeChanges | None
    skips: tuple[datetime, ...]
    schedule: Schedule
    is_written: bool

    @property
    def told(self) -> str:
        """`10 times vanish, 2 times appear`."""
        if self.changes is None:
            return ""
        verbs = {"vanish": "vanishes", "appear": "appears", "move": "moves"}
        numbers = {verb: len(getattr(self.changes, verb)) for verb in verbs}
        return ", ".join(
            counted(number, f"time {verbs[verb]}", f"times {verb}")
            for verb, number in numbers.items()
            if number
        )

    def local(self, at: datetime) -> datetime:
        return recurrence.local(self.schedule.timing, at)


async def new(visit: Visit) -> Response:
    values = {
        "type": "cron",
        "when": "0 9 * * 1-5",
        "timezone": "UTC",
        "input": "null",
        **_asked(visit.query),
        **_built(visit),
    }
    return await _form(visit, None, values)


async def create(visit: Visit) -> Response:
    values = _asked(dict(visit.form))
    try:
        made = await visit.queue.create_schedule(values.get("key", ""), **_options(values))
    except Refused as refused:
        return await _form(visit, None, values, str(refused))
    return visit.go(visit.schedule_url(made))


async def edit(visit: Visit) -> Response:
    schedule = await visit.queue.get_schedule(visit.part("key"))
    asked = {name: visit.query[name].strip() for name in _FIELDS if name in visit.query}
    return await _form(visit, schedule, {**_stored(schedule), **asked, **_built(visit)})


def _built(visit: Visit) -> dict[str, str]:
    """The line that the builder makes, if it was asked for one."""
    if visit.asked("build") is None:
        return {}
    return {
        "type": "cron",
        "when": builder.line_of(visit.query, visit.request.query_params.getlist("build_on")),
    }


async def save(visit: Visit) -> Response:
    """Save, unless someone else has changed what the form shows. What the scheduler writes meanwhile does not count."""
    values, seen = _asked(dict(visit.form)), visit.given("seen")
    for left in reversed(range(TRIES)):
        schedule = await visit.queue.get_schedule(visit.part("key"))
        if seen is not None and seen != _seen(schedule):
            return await _both(visit, values)
        try:
            changes = _changes(schedule, values)
            await visit.queue.update_schedule(schedule.key, version=schedule.version, **changes)
            break
        except Refused as refused:
            if refused.code != "stale_version" or not left:
                return await _form(visit, schedule, values, str(refused))
    return visit.go(visit.schedule_url(schedule, said="edit"))


def _seen(schedule: Schedule) -> str:
    """A digest of what the form shows of a schedule."""
    return sha256(repr(_stored(schedule)).encode()).hexdigest()[:32]


async def _both(visit: Visit, values: Mapping[str, str]) -> Response:
    """The form after someone else saved meanwhile: what they saved beside what was to be saved."""
    theirs = await visit.queue.get_schedule(visit.part("key"))
    plan = await visit.queue.plan_update(theirs.key, **_changes(theirs, values))
    who = person(theirs.updated_by) or "someone"
    problem = f"{who} saved version {theirs.version} meanwhile, so nothing was changed. Save again to put yours on top."
    return await _form(visit, theirs, values, problem, plan.schedules[0].differences)


def _changes(schedule: Schedule, values: Mapping[str, str]) -> dict[str, Any]:
    """The options that the form changes. A timing that reads as before is left alone: an interval keeps its beat."""
    before = _stored(schedule)
    told = _OF_TIMING if values.get("type") != "after" else (*_OF_TIMING, *_OF_AFTER)
    changed = any(values.get(name, "") != before[name] for name in told)
    given: dict[str, Any] = {
        name: _names(values.get(name)) for name in ("exclude", "only") if values.get(name, "") != before[name]
    }
    if (offset := values.get("offset", "")) != before["offset"]:
        given["offset"] = parsed("offset", offset or "0s")
    given["input"] = json_of(values.get("input"))
    if isinstance(schedule.target, TaskTarget):
        given["task_type"] = values.get("task_type", "")
    return {**(_timing(values) if changed else {}), **_policies(values), **given}


def _options(values: Mapping[str, str]) -> dict[str, Any]:
    calendars = {name: _names(values[name]) for name in ("exclude", "only") if values.get(name)}
    offset = {"offset": parsed("offset", values["offset"])} if values.get("offset") else {}
    target = {"task_type": values.get("task_type", ""), "input": json_of(values.get("input"))}
    return {**_timing(values), **_policies(values), **calendars, **offset, **target}


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _asked(given: Mapping[str, str]) -> dict[str, str]:
    return {name: given[name].strip() for name in _FIELDS if given.get(name)}


def _policies(values: Mapping[str, str]) -> dict[str, Any]:
    found = {
        "missed_run_policy": values.get("missed"),
        "overlap_policy": values.get("overlap"),
        "excluded_policy": values.get("excluded"),
    }
    return {
        "description": values.get("description", ""),
        **{name: each for name, each in found.items() if each},
    }


def _timing(values: Mapping[str, str]) -> dict[str, Any]:
    """The options of the queue that say when."""
    text, zone = values.get("when", ""), values.get("timezone") or "UTC"
    match values.get("type"):
        case "cron":
            return {"cron": text, "timezone": zone}
        case "every":
            return {"interval": parsed("when", text)}
        case "once":
            return {"run_at": _moment(text), "timezone": zone}
        case "rrule":
            return {"rrule": text, "timezone": zone}
        case "after":
            delay = values.get("after_delay")
            given = {"after_delay": parsed("after_delay", delay)} if delay else {}
            return {"after": _names(text), "after_on": values.get("after_on") or AfterOn.SUCCESS, **given}
    raise Invalid("type", "it is not known", f"accepted are {', '.join(TYPES)}")


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Invalid("when", f"{text!r:.60} is not a time", f"give one {HINTS['once']}") from None


def _stored(schedule: Schedule) -> dict[str, str]:
    type, when = _written(schedule.timing)
    target, timing = schedule.target, schedule.timing
    return {
        "key": schedule.key,
        "type": type,
        "when": when,
        "timezone": schedule.timezone,
        "after_on": str(timing.on) if isinstance(timing, After) else "",
        "after_delay": span_text(timing.delay) if isinstance(timing, After) else "",
        "exclude": ", ".join(schedule.exclude),
        "only": ", ".join(schedule.only),
        "excluded": str(schedule.excluded_policy),
        "offset": span_text(schedule.offset),
        "task_type": target.template_id if isinstance(target, TemplateTarget) else target.kind,
        "input": pretty(target.input),
        "description": schedule.description,
        "missed": str(schedule.missed_run_policy),
        "overlap": str(schedule.overlap_policy),
    }


def _written(timing: Timing) -> tuple[str, str]:
    match timing:
        case Cron(expression):
            return "cron", expression
        case Interval(every):
            return "every", span_text(every)
        case Once(run_at):
            return "once", run_at.isoformat()
        case RRule(rule):
            return "rrule", rule
        case Several():
            return "cron", ""
        case After(schedules):
            return "after", ", ".join(schedules)


async def _form(
    visit: Visit,
    schedule: Schedule | None,
    values: Mapping[str, str],
    problem: str | None = None,
    differences: Sequence[Difference] = (),
) -> Response:
    meaning, wrong = None, None
    try:
        meaning = await _meaning(visit, schedule, values)
    except Refused as refused:
        wrong = str(refused).removeprefix(f"schedule {values.get('key')!r}: ")
    zone = values.get("timezone") or "UTC"
    now = await visit.queue.now()
    return visit.show(
        "editor.html",
        200 if problem is None else 422,
        schedule=schedule,
        seen=None if schedule is None else _seen(schedule),
        values={name: values.get(name, "") for name in _FIELDS},
        problem=problem,
        differences=differences,
        wrong=wrong,
        meaning=meaning,
        listed=LISTED,
        previewed=PREVIEWED,
        ends=ENDS,
        excluded=EXCLUDED,
        calendars=[each.name for each in await visit.queue.list_calendars()],
        about_zone=_about_zone(zone, now),
        now=now,
        zone=zone,
        types=TYPES,
        hint=HINTS.get(values.get("type", ""), ""),
        starts=STARTS,
        zones=_zones(),
        policies=POLICIES,
        builder=builder.read(values.get("when", "")) if values.get("type") == "cron" else None,
        is_built=visit.asked("build") is not None,
        paces=builder.PACES,
        weekdays=builder.WEEKDAYS,
        usual=builder.Built(),
        is_task=schedule is None or isinstance(schedule.target, TaskTarget),
    )


async def _meaning(visit: Visit, schedule: Schedule | None, values: Mapping[str, str]) -> Meaning:
    if schedule is None:
        known = {**values, "task_type": values.get("task_type") or "unsaved"}
        plan = await visit.queue.plan_create(values.get("key") or "unsaved", **_options(known))
    else:
        plan = await visit.queue.plan_update(schedule.key, **_changes(schedule, values))
    item = plan.schedules[0]
    new = item.new
    assert new is not None, "it is created or changed"
    return Meaning(
        sentence=words.sentence(new),
        times=next_times(new, plan.at, COMING),
        warnings=recurrence.warnings(new.timing, plan.at, new.clock_changes(plan.at)),
        runs_now=plan.runs_now(item),
        changes=None if schedule is None else plan.times(item),
        skips=plan.skipped_today(item),
        schedule=new,
        is_written=not isinstance(new.timing, Several),
    )


@cache
def _zones() -> list[tuple[str, str]]:
    """Every zone with its country, common ones first."""
    countries = recurrence.zone_countries()
    others = (name for name in recurrence.zone_names() if name not in COMMON_ZONES)
    return [(name, countries.get(name, "")) for name in (*COMMON_ZONES, *others)]


def _about_zone(zone: str, now: datetime) -> str | None:
    """The time in the zone now, and when its clocks change next; None, if there is no such zone."""
    try:
        here = recurrence.local(Cron("@daily", zone), now)
    except ValueError:
        return None
    text = f"There it is {here:%H:%M} now."
    minute = here.replace(second=0, microsecond=0).astimezone(UTC)
    before = here.utcoffset() or timedelta(0)

    def has_changed(at: datetime) -> bool:
        return at.astimezone(here.tzinfo).utcoffset() != before

    later = next((day for day in range(1, _YEAR) if has_changed(minute + timedelta(days=day))), None)
    if later is None:
        return text
    since, at = minute + timedelta(days=later - 1), minute + timedelta(days=later)
    while at - since > timedelta(minutes=1):
        middle = since + timedelta(minutes=(at - since) // timedelta(minutes=2))
        since, at = (since, middle) if has_changed(middle) else (middle, at)
    way = "forward" if (at.astimezone(here.tzinfo).utcoffset() or before) > before else "back"
    reading = at + before
    return f"{text} Clocks go {way} on {reading:%A} {reading.day} {reading:%B}, at {reading:%H:%M}."
