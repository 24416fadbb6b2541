"""When something runs: five kinds of timing, as plain records.

A timing says nothing about bounds (`start_at`, `end_at`) or counts; those belong to the schedule and are
arguments of the functions that ask for occurrences. A record may hold nonsense: `check` tells.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

__all__ = [
    "After",
    "AfterOn",
    "Cron",
    "Interval",
    "Once",
    "RRule",
    "Timing",
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


class AfterOn(StrEnum):
    """How a run must have ended: `end` is any of completed, failed and cancelled."""

    SUCCESS = "success"
    FAILURE = "failure"
    END = "end"


class After(msgspec.Struct, frozen=True, tag_field="type", tag="after"):
    """When a run of each of these schedules, named by their keys, has ended, and `delay` later. It has no times of its
    own: the commit that ends a run makes one."""

    schedules: tuple[str, ...]
    on: AfterOn = AfterOn.SUCCESS
    delay: timedelta = timedelta(0)


Timing = Once | Interval | Cron | RRule | After
