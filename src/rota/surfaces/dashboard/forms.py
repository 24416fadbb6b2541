"""Times, durations and JSON as people type them into forms; and times on the clock of a zone."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, tzinfo
from typing import Any

from ...domain import recurrence
from ...domain.checks import MAX_DEPTH
from ...domain.errors import Invalid
from ...domain.model import Schedule

_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def clock_of(schedule: Schedule, now: datetime) -> tzinfo | None:
    """The zone whose clock the schedule is read on."""
    return recurrence.local(schedule.timing, now).tzinfo


def moment(field: str, text: str, zone: tzinfo | None, *, example: str = "2026-12-31T23:59") -> datetime:
    """A time as it was typed; on this clock, if it says no other."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        what = "time" if "T" in example else "day"
        raise Invalid(field, f"{text!r:.60} is not a {what}", f"give one such as {example}") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)


def typed(at: datetime) -> str:
    """A time as a browser fills it in."""
    return at.strftime("%Y-%m-%dT%H:%M")


def span_text(span: timedelta) -> str:
    """A duration as it is typed, exactly: `1h30m`."""
    rest, text = int(span.total_seconds()), ""
    for unit, size in _UNITS:
        number, rest = divmod(rest, size)
        text += f"{number}{unit}" if number else ""
    milliseconds = span.microseconds // 1000
    return text + (f"{milliseconds}ms" if milliseconds else "")


def json_of(text: str | None, field: str = "input") -> Any:
    """The value that was typed as JSON; None, if nothing was."""
    try:
        return None if text is None else json.loads(text)
    except RecursionError:
        raise Invalid(field, "it is nested too deeply", f"the most is {MAX_DEPTH} levels") from None
    except ValueError as problem:
        raise Invalid(field, f"it is not JSON: {problem}", "give a JSON value, such as {} or null") from None
