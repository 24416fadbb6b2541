"""Recurrence: given a timing, when does it fire?

Begin with `occurrences`. Outside of this package nobody imports its modules, only the names below. All functions are
pure: the zone data of the `tzdata` package is read, the clock never is.

    timing      the five kinds of timing, as records
    occurrences next_after, between, latest, count, check, begun_after
    words       describe
    advice      what the owner of a schedule should be told: warnings, dst_note, local
    rule        the field-by-field RecurrenceRule, which becomes a timing

Inside, a timing becomes a `Ticks` (`ticks`). Cron lines (`cron`) and calendar rules (`rrule`) name wall-clock readings
as sets of days (`days`) and times (`pattern`). `walk` follows a zone's clock (`zones`) through them. `rrule.steps` does
the rules that advance in elapsed time.
"""

from __future__ import annotations

from .advice import dst_note, local, warnings
from .occurrences import begun_after, between, check, count, latest, next_after, on_clock
from .rule import DayOfWeek, Frequency, MonthOfYear, RecurrenceRule
from .timing import After, AfterOn, Cron, Interval, Once, RRule, Timing
from .words import describe
from .zones import close_zones, tzdata_version, zone_names

__all__ = [
    "After",
    "AfterOn",
    "Cron",
    "DayOfWeek",
    "Frequency",
    "Interval",
    "MonthOfYear",
    "Once",
    "RRule",
    "RecurrenceRule",
    "Timing",
    "begun_after",
    "between",
    "check",
    "close_zones",
    "count",
    "describe",
    "dst_note",
    "latest",
    "local",
    "next_after",
    "on_clock",
    "tzdata_version",
    "warnings",
    "zone_names",
]
