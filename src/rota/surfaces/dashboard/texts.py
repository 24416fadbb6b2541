"""Times, durations and states as people read them, and the templates that use them.

A time is written in UTC; the script puts it on the reader's clock. Status is a sign and a word, never a colour
alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...domain.model import MissedRunPolicy, Schedule, Task, TemplateTarget
from ...domain.schedule.why import Why
from .. import redaction, words
from ..durations import relative, short
from ..http.access import LOCAL
from ..versions import differences
from ..words import counted

REASONS = {
    "missed": "nothing was running to fire it",
    "overlap": "the run before was still going",
    "changed": "the schedule was changed meanwhile",
    "limit": "a limit of the tenant was reached",
    "bad_target": "what it runs could not be started",
    "expired": "it expired before a worker took it",
    "suspended": "the tenant was suspended",
    "disabled": "its template was disabled",
    "excluded": "a calendar leaves it out",
}
"""Why a time did not simply run, in a list; the sentences of `why` say more."""

SIGNS = {
    "pending": "○",
    "running": "▸",
    "completed": "●",
    "failed": "✕",
    "failing": "✕",
    "cancelled": "–",
    "expired": "◌",
    "archived": "▪",
    "skipped": "◌",
    "buffered": "◔",
    "active": "●",
    "alive": "●",
    "paused": "❚❚",
    "draft": "○",
    "deleted": "–",
    "late": "!",
    "waiting": "!",
    "lost": "!",
    "expected": "□",
    "overdue": "!",
    "upcoming": "□",
}


def clock(at: datetime, *, year: bool = False) -> str:
    """`Tue 17 Nov 09:00 UTC`, with seconds where they matter."""
    at = at.astimezone(UTC)
    return at.strftime(f"%a {at.day} %b{' %Y' if year else ''} %H:%M{':%S' if at.second else ''} UTC")


def local(at: datetime) -> str:
    """A time on the clock that it carries: `Tue 17 Nov 09:00`."""
    return at.strftime(f"%a {at.day} %b %H:%M{':%S' if at.second else ''}")


def when(at: datetime | None, zone: str | None = None) -> Markup:
    """A time that the script shows in the reader's zone, and on hover in the schedule's and in UTC."""
    if at is None:
        return Markup("–")
    return _time(at, clock(at), Markup(' data-zone="{}"').format(zone) if zone and zone != "UTC" else "")


def second(at: datetime) -> Markup:
    """The time of day of a line among others."""
    return _time(at, at.astimezone(UTC).strftime("%H:%M:%S"), Markup(" data-second"))


def away(at: datetime | None, now: datetime) -> Markup:
    """How far off a time is; the script keeps it true."""
    return Markup("–") if at is None else _time(at, relative(at, now), Markup(" data-away"))


def _time(at: datetime, text: str, about: str) -> Markup:
    """`about` says what the script makes of it."""
    iso = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(iso, clock(at, year=True), about, text)


def chip(status: str, text: str | None = None) -> Markup:
    return Markup('<span class="chip is-{}"><span aria-hidden="true">{}</span> {}</span>').format(
        status, sign(status), text or status
    )


def sign(status: str) -> str:
    return SIGNS.get(status, "·")


def up_to(number: int, most: int) -> str:
    """A number that was counted no further than `most`."""
    return f"{most:,} or more" if number >= most else f"{number:,}"


def took(span: timedelta | None) -> str:
    return "–" if span is None else short(max(span, timedelta(0)))


def seconds(number: float) -> str:
    return took(timedelta(seconds=number))


def iso(at: datetime) -> str:
    """A time as part of an address."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


def size(number: int) -> str:
    """`1.2 MB`."""
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 1000)):
        if number >= least:
            return f"{number / least:.1f} {unit}".replace(".0 ", " ")
    return f"{number} B"


def meter(part: int, whole: int) -> Markup:
    """A thin bar below a number: how much of the whole it is."""
    if not whole:
        return Markup("")
    width = round(60 * min(part / whole, 1.0))
    return Markup(
        '<svg class="meter" width="60" height="4" aria-hidden="true"><rect class="whole" width="60" height="4"/>'
        '<rect width="{}" height="4"/></svg>'
    ).format(width)


def pretty(value: Any) -> str:
    return json.dumps(redaction.shown(value), ensure_ascii=False, indent=2, default=str)


def field(name: str) -> str:
    """The name of a schedule's field for people: `target.max_retries` is its max retries."""
    part, _, rest = name.partition(".")
    return (part if rest in ("", "type") else rest).replace("_", " ")


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_SPAN = re.compile(r"P(?:\d+D)?(?:T[\d.]+S)?")


def brief(value: Any) -> str:
    """A value in a line: cut short, a text without quotes, times and durations as elsewhere."""
    value = redaction.shown(value)
    with suppress(ValueError, OverflowError):  # a text that only looks like one
        if isinstance(value, str) and _TIME.fullmatch(value):
            return when(datetime.fromisoformat(value))
        if isinstance(value, str) and len(value) > 1 and _SPAN.fullmatch(value):
            return took(msgspec.convert(value, timedelta, strict=False))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return "none" if value is None else text if len(text) <= 120 else f"{text[:119]}…"


def told(name: str, value: Any) -> str:
    """The value of a field in a line. A field that says who did something has a person."""
    return person(value) if name.endswith("_by") and isinstance(value, str) else brief(value)


_KEY = "key:"
_POLICIES = {
    ("overlap_policy", "skip"): "(its policy is one at a time)",
    ("overlap_policy", "buffer_one"): "(its policy is one at a time, while one more waits)",
    ("overlap_policy", "buffer_all"): "(its policy is one at a time, while the others wait)",
    ("excluded_policy", "next"): "(its policy is the next day that is open)",
    ("excluded_policy", "previous"): "(its policy is the last day before that is open)",
    **{("missed_run_policy", str(each)): "its policy" for each in MissedRunPolicy},
}
"""Settings as pages call them; `why` calls them by their names in the API."""


def reason(why: Why) -> str:
    """The sentences of `why`, without the schedule and the time, which the page shows beside them."""
    text = why.reason
    for each in why.mentions:
        said = (
            person(each.value) if each.name == "actor" else _POLICIES.get((each.name, each.value), each.words)
        )
        text = text.replace(each.words, said)
    return text


_DEEDS = {
    "alarmed": "changed the alarms of",
    "limited": "changed the limits of",
    "backfilled": "began to backfill",
    "backfill cancelled": "cancelled the backfill of",
    "replanned": "planned anew",
}


def deed(action: str) -> str:
    """The verb for an action, before the thing that it was done to."""
    return _DEEDS.get(action, action)


def kind_of(schedule: Schedule) -> str:
    target = schedule.target
    return f"template {target.template_id}" if isinstance(target, TemplateTarget) else target.kind


def tags_of(schedule: Schedule) -> Sequence[str]:
    return () if isinstance(schedule.target, TemplateTarget) else schedule.target.tags


def person(actor: str | None) -> str:
    """The name of who did something, without what the API puts before their name."""
    return "this machine" if actor == LOCAL else (actor or "").removeprefix(_KEY)


def owner_of(schedule: Schedule) -> str:
    """The owner that its metadata names, or else the one who made it."""
    named = schedule.metadata.get("owner")
    return named if isinstance(named, str) and named else person(schedule.created_by)


def duration_of(task: Task) -> timedelta | None:
    return (
        None if task.started_at is None or task.completed_at is None else task.completed_at - task.started_at
    )


TEMPLATES = Environment(
    loader=PackageLoader(__package__, "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
TEMPLATES.filters.update(kind_of=kind_of, tags_of=tags_of)
_FUNCTIONS = (
    *(when, second, away, clock, local, iso, took, seconds, duration_of),
    *(chip, sign, meter, counted, up_to, size, pretty, brief, told, field, deed, person, reason),
    *(kind_of, tags_of, owner_of, words.sentence, words.policies, differences),
)
TEMPLATES.globals.update({each.__name__: each for each in _FUNCTIONS}, reasons=REASONS)
