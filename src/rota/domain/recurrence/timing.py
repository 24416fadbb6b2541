"""When something runs: four kinds of timing, as plain records.

A timing says nothing about bounds (`start_at`, `end_at`) or counts; those belong to the schedule and are
arguments of the functions that ask for occurrences. A record may hold nonsense: `check` tells.

ISO 8601 durations of weeks, days, hours, minutes and seconds: elapsed time only.

Years and months have no fixed length and are refused. A fraction is accepted in the seconds.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

import msgspec

__all__ = [
    "Cron",
    "Interval",
    "Once",
    "RRule",
    "Timing",
    "parse_duration",
]


class Once(msgspec.Struct, frozen=True, tag_field="type", tag="once"):
    """One instant."""

    run_at: datetime


class Interval(msgspec.Struct, frozen=True, tag_field="type", tag="interval"):
    """`anchor + k * every` for k = 0, 1, 2, …, in elapsed time; no anchor means 1970-01-01T00:00:00Z."""

    every: timedelta
    anchor: datetime | None = None


class Cron(msgspec.Struct, frozen=True, tag_field="type", tag="cron"):
    """A cron line of five fields, or six with seconds first, or a macro, read on the clock of `timezone`."""

    expression: str
    timezone: str = "UTC"


class RRule(msgspec.Struct, frozen=True, tag_field="type", tag="rrule"):
    """An RFC 5545 rule, with optional EXDATE and RDATE lines, on the local calendar of `timezone`."""

    rule: str
    dtstart: datetime
    timezone: str = "UTC"


Timing = Once | Interval | Cron | RRule


_DURATION: Final = re.compile(
    r"P(?:(?P<weeks>[0-9]{1,9})W)?(?:(?P<days>[0-9]{1,9})D)?"
    r"(?P<time>T(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?"
    r"(?:(?P<seconds>[0-9]{1,12})(?:[.,](?P<fraction>[0-9]{1,6}))?S)?)?"
)


def parse_duration(text: str) -> timedelta:
    """`PT1H30M` and the like; `ValueError` for anything else and for what is not more than zero."""
    match = _DURATION.fullmatch(text.strip().upper()) if isinstance(text, str) else None
    if match is None or text.strip()[-1] in "PpTt":
        shown = repr(text[:40]) if isinstance(text, str) else type(text).__name__
        raise ValueError(
            f"interval: {shown} is not a duration; accepted are weeks to seconds, such as PT5M or P1DT12H"
        )
    units = {unit: int(match[unit] or 0) for unit in ("weeks", "days", "hours", "minutes", "seconds")}
    fraction = int((match["fraction"] or "").ljust(6, "0"))
    try:
        every = timedelta(**units, microseconds=fraction)
    except OverflowError:
        raise ValueError(f"interval: {text[:40]!r} is too long; accepted are up to 999999999 days") from None
    if not every:
        raise ValueError(f"interval: {text[:40]!r} is zero; accepted are durations of one second or more")
    return every
