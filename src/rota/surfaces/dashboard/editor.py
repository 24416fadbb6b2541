"""The editor of schedules: a form, and beside it what the form means: a sentence, the next times, what an edit changes.

What it means is asked of the queue, and is shown by the page's own address (`?type=cron&when=…`), with or without a
script."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fastapi import Response

from ...domain import recurrence
from ...domain.errors import Invalid, Refused
from ...domain.model import MissedRunPolicy, OverlapPolicy, Schedule, TaskTarget, TemplateTarget
from ...domain.recurrence import After, Cron, Interval, Once, RRule, Several, Timing
from ...engine.queries import Occurrence
from .. import words
from ..durations import parsed
from .schedule import json_of
from .texts import pretty
from .visit import Visit

__all__ = ["create", "edit", "new", "save"]

COMING = 10
COMPARED = 50
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
    "after": "the name of a schedule, or several with commas between: it runs when each has succeeded",
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
COMMON_ZONES = (
    "UTC",
    "Europe/London",
    "Europe/Berlin",
    "America/New_York",
    "America/Los_Angeles",
    "Asia/Tokyo",
)
_FIELDS = (
    "key",
    "type",
    "when",
    "timezone",
    "task_type",
    "input",
    "description",
    "missed",
    "overlap",
    "version",
)
_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_YEAR = 366


class Meaning(NamedTuple):
    """What a timing means: in words, its next times, what is odd; and for an edit what appears and vanishes."""

    sentence: str
    times: list[Occurrence]
    warnings: tuple[str, ...]
    appear: list[Occurrence]
    vanish: list[Occurrence]
    until: datetime | None


async def new(visit: Visit) -> Response:
    values = {
        "type": "cron",
        "when": "0 9 * * 1-5",
        "timezone": "UTC",
        "input": "null",
        **_asked(visit.query),
    }
    return await _form(visit, None, values)


async def create(visit: Visit) -> Response:
    values = _asked(dict(visit.form))
    try:
        made = await visit.queue.create_schedule(
            values.get("key", ""), **_timing(values), **_policies(values), task_type=values.get("task_type", ""),
            input=json_of(values.get("input")),
        )  # fmt: skip
    except Refused as refused:
        return await _form(visit, None, values, str(refused))
    return visit.go(visit.schedule_url(made))


async def edit(visit: Visit) -> Response:
    schedule = await visit.queue.get_schedule(visit.part("key"))
    return await _form(visit, schedule, {**_stored(schedule), **_asked(visit.query)})


async def save(visit: Visit) -> Response:
    schedule = await visit.queue.get_schedule(visit.part("key"))
    values = _asked(dict(visit.form))
    known = values.get("version", "")
    try:
        changes = _changes(schedule, values)
        version = int(known) if known.isdecimal() else None
        saved = await visit.queue.update_schedule(schedule.key, version=version, **changes)
    except Refused as refused:
        problem = str(refused)
        if refused.code == "stale_version":
            problem = (
                "Someone saved another version meanwhile, so nothing was changed. The versions of this schedule show"
                " theirs; save again to put yours over it."
            )
            values["version"] = str(schedule.version)
        return await _form(visit, schedule, values, problem)
    return visit.go(visit.schedule_url(saved, said="edit"))


def _changes(schedule: Schedule, values: Mapping[str, str]) -> dict[str, Any]:
    """What the form changes. A timing that reads as before is left alone: an interval keeps its beat."""
    before = _stored(schedule)
    timing = {"type", "when", "timezone"}
    changed = any(values.get(name, "") != before[name] for name in timing)
    target: dict[str, Any] = {"input": json_of(values.get("input"))}
    if isinstance(schedule.target, TaskTarget):
        target["task_type"] = values.get("task_type", "")
    return {**(_timing(values) if changed else {}), **_policies(values), **target}


def _asked(given: Mapping[str, str]) -> dict[str, str]:
    return {name: given[name].strip() for name in _FIELDS if given.get(name)}


def _policies(values: Mapping[str, str]) -> dict[str, Any]:
    found = {"missed_run_policy": values.get("missed"), "overlap_policy": values.get("overlap")}
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
            return {"after": [name.strip() for name in text.split(",")]}
    raise Invalid("type", "it is not known", f"accepted are {', '.join(TYPES)}")


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Invalid("when", f"{text!r:.60} is not a time", f"give one {HINTS['once']}") from None


def _stored(schedule: Schedule) -> dict[str, str]:
    """A schedule as the form shows it."""
    type, when = _written(schedule.timing)
    target = schedule.target
    return {
        "key": schedule.key,
        "type": type,
        "when": when,
        "timezone": schedule.timezone,
        "task_type": target.template_id if isinstance(target, TemplateTarget) else target.kind,
        "input": pretty(target.input),
        "description": schedule.description,
        "missed": str(schedule.missed_run_policy),
        "overlap": str(schedule.overlap_policy),
        "version": str(schedule.version),
    }


def _written(timing: Timing) -> tuple[str, str]:
    match timing:
        case Cron(expression):
            return "cron", expression
        case Interval(every):
            return "every", _span(every)
        case Once(run_at):
            return "once", run_at.isoformat()
        case RRule(rule):
            return "rrule", rule
        case Several():
            return "cron", ""
        case After(schedules):
            return "after", ", ".join(schedules)


def _span(every: timedelta) -> str:
    """A duration as it is typed, exactly: `1h30m`."""
    rest, text = int(every.total_seconds()), ""
    for unit, size in _UNITS:
        number, rest = divmod(rest, size)
        text += f"{number}{unit}" if number else ""
    milliseconds = every.microseconds // 1000
    return text + (f"{milliseconds}ms" if milliseconds else "")


async def _form(
    visit: Visit, schedule: Schedule | None, values: Mapping[str, str], problem: str | None = None
) -> Response:
    meaning, wrong = None, None
    try:
        meaning = await _meaning(visit, schedule, values)
    except Refused as refused:
        wrong = str(refused)
    zone = values.get("timezone") or "UTC"
    now = await visit.queue.now()
    return visit.show(
        "editor.html",
        200 if problem is None else 422,
        schedule=schedule,
        values={name: values.get(name, "") for name in _FIELDS},
        problem=problem,
        wrong=wrong,
        meaning=meaning,
        about_zone=_about_zone(zone, now),
        now=now,
        zone=zone,
        types=TYPES,
        hint=HINTS.get(values.get("type", ""), ""),
        starts=STARTS,
        zones=(*COMMON_ZONES, *(name for name in recurrence.zone_names() if name not in COMMON_ZONES)),
        missed={
            MissedRunPolicy.SKIP: "skip it, and record that",
            MissedRunPolicy.EXECUTE_ONCE: "run once for all that were missed",
            MissedRunPolicy.CATCH_UP: "run each one that was missed",
        },
        overlap={
            OverlapPolicy.SKIP: "skip the new time",
            OverlapPolicy.ALLOW: "run beside it",
            OverlapPolicy.BUFFER_ONE: "let the new time wait, one at most",
            OverlapPolicy.BUFFER_ALL: "let the new times wait their turn",
            OverlapPolicy.CANCEL_PREVIOUS: "cancel the one that runs",
            OverlapPolicy.TERMINATE_PREVIOUS: "end the one that runs at once",
        },
        is_task=schedule is None or isinstance(schedule.target, TaskTarget),
    )


async def _meaning(visit: Visit, schedule: Schedule | None, values: Mapping[str, str]) -> Meaning:
    timing, times, warnings = await visit.queue.preview_timing(n=COMPARED, **_timing(values))
    before = await visit.queue.preview(schedule.key, COMPARED) if schedule is not None else []
    appear: list[Occurrence] = []
    vanish: list[Occurrence] = []
    until = None
    if before and times and _timing_changes(schedule, values):
        until = min(before[-1].at, times[-1].at)
        old, now = {each.at for each in before}, {each.at for each in times}
        appear = [each for each in times if each.at <= until and each.at not in old]
        vanish = [each for each in before if each.at <= until and each.at not in now]
    return Meaning(words.timing_words(timing), times[:COMING], warnings, appear, vanish, until)


def _timing_changes(schedule: Schedule | None, values: Mapping[str, str]) -> bool:
    before = {} if schedule is None else _stored(schedule)
    return any(values.get(name, "") != before.get(name) for name in ("type", "when", "timezone"))


def _about_zone(zone: str, now: datetime) -> str | None:
    """What time it is there, and when its clocks change next; None, if there is no such zone."""
    try:
        here = recurrence.local(Cron("@daily", zone), now)
    except ValueError:
        return None
    text = f"There it is {here:%H:%M} now."
    for day in range(1, _YEAR):
        then = (now + timedelta(days=day)).astimezone(here.tzinfo)
        before, after = here.utcoffset(), then.utcoffset()
        if before is not None and after is not None and before != after:
            way = "forward" if after > before else "back"
            return f"{text} Clocks go {way} by {then.day} {then:%B}."
    return text
