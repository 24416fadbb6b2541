"""When something runs: five kinds of timing, and several of them together, as plain records.

A timing says nothing about bounds (`start_at`, `end_at`) or counts; those belong to the schedule and are
arguments of the functions that ask for occurrences. A record may hold nonsense: `check` tells.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

MICROSECOND = timedelta(microseconds=1)
"""The least that two times differ by: `at - MICROSECOND` is the last moment before `at`."""


class DstGap(StrEnum):
    """When a local time fires that does not exist, because clocks go forward: at the first instant after the gap, at
    the last second before it, or not at all."""

    AFTER = "after"
    BEFORE = "before"
    SKIP = "skip"


class DstFold(StrEnum):
    """Which of a local time that exists twice, because clocks go back, fires."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class DayMatch(StrEnum):
    """Where both day fields of a cron line restrict: a day matches either, or must match both."""

    OR = "or"
    AND = "and"


def _utc() -> str:
    """The default zone. It is a function, so that the zone is always written, unlike other defaults."""
    return "UTC"


class Once(msgspec.Struct, frozen=True, tag_field="type", tag="once"):
    """One instant."""

    run_at: datetime


class Interval(msgspec.Struct, frozen=True, tag_field="type", tag="interval"):
    """`anchor + k * every` for k = 0, 1, 2, …, in elapsed time; no anchor means 1970-01-01T00:00:00Z."""

    every: timedelta
    anchor: datetime | None = None


class Cron(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="cron"):
    """A cron line of five fields, six with seconds first, seven with a year last, or a macro, read on the clock of
    `timezone`. What was not chosen for daylight saving is `after` and `first`, or for a line that repeats within the
    day `skip` and `both`: it keeps its rhythm."""

    expression: str
    timezone: str = msgspec.field(default_factory=_utc)
    day_match: DayMatch = DayMatch.OR
    dst_gap: DstGap | None = None
    dst_fold: DstFold | None = None


class RRule(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="rrule"):
    """An RFC 5545 rule, with optional EXDATE and RDATE lines, on the local calendar of `timezone`. What was not chosen
    for daylight saving is as in `Cron`."""

    rule: str
    dtstart: datetime
    timezone: str = msgspec.field(default_factory=_utc)
    dst_gap: DstGap | None = None
    dst_fold: DstFold | None = None


Simple = Once | Interval | Cron | RRule
MOST_TIMINGS = 20


class Several(msgspec.Struct, frozen=True, tag_field="type", tag="several"):
    """Any of these timings, each on its own clock; where two give the same instant, that is one time."""

    timings: tuple[Simple, ...]

    @property
    def timezone(self) -> str:
        """The zone of the first that has one."""
        zones = (getattr(timing, "timezone", None) for timing in self.timings)
        return next((zone for zone in zones if zone is not None), "UTC")


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


Timing = Simple | Several | After
