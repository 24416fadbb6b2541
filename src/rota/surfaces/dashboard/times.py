"""Times and durations that people type into a form; times on the clock of a zone."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from ...domain import recurrence
from ...domain.errors import Invalid
from ...domain.model import Schedule

__all__ = ["clock_of", "moment", "span_text", "typed"]

_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def clock_of(schedule: Schedule, now: datetime) -> tzinfo | None:
    """The zone whose clock the schedule is read on."""
    return recurrence.local(schedule.timing, now).tzinfo


def moment(field: str, text: str, zone: tzinfo | None) -> datetime:
    """A time as it was typed; on this clock, if it says no other."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(field, f"{text!r:.60} is not a time", "give one such as 2026-12-31T23:59") from None
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
