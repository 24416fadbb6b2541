"""Recurrence: given a timing, when does it fire?

Begin with `occurrences`. Outside of this package nobody imports its modules, only the names below. All functions are
pure: the zone data of the `tzdata` package is read, the clock never is.

    timing      the five kinds of timing, and several together, as records
    occurrences next_after, between, latest, count, check, begun_after
    calendars   sets of days and windows, and the times that they leave
    words       describe
    advice      what the owner of a schedule should be told: warnings, clock_changes, dst_note, local
    rule        the field-by-field RecurrenceRule, which becomes a timing

Inside, a timing becomes a `Ticks` (`ticks`). Cron lines (`cron`) and calendar rules (`rrule`) name
wall-clock readings as sets of days (`days`) and times (`pattern`). `walk` follows a zone's clock (`zones`) through
them. `rrule.steps` does the rules that advance in elapsed time.
"""

from __future__ import annotations

from .advice import ClockChange, clock_changes, dst_note, left_out, local, warnings
from .calendars import Covered, Openings, check_rule, covered_days, parse_window
from .cron import split_zone
from .occurrences import (
    begun_after,
    between,
    check,
    count,
    latest,
    naming_part,
    next_after,
    on_clock,
    parts_of,
    unknown_zone,
    with_zone,
)
from .rule import DayOfWeek, Frequency, MonthOfYear, RecurrenceRule
from .ticks import NeverFires
from .timing import (
    MICROSECOND,
    MOST_TIMINGS,
    After,
    AfterOn,
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
)
from .words import describe
from .zones import tzdata_version, zone_countries, zone_names

__all__ = [
    "MICROSECOND",
    "MOST_TIMINGS",
    "After",
    "AfterOn",
    "ClockChange",
    "Covered",
    "Cron",
    "DayMatch",
    "DayOfWeek",
    "DstFold",
    "DstGap",
    "Frequency",
    "Interval",
    "MonthOfYear",
    "NeverFires",
    "Once",
    "Openings",
    "RRule",
    "RecurrenceRule",
    "Several",
    "Simple",
    "Timing",
    "begun_after",
    "between",
    "check",
    "check_rule",
    "clock_changes",
    "count",
    "covered_days",
    "describe",
    "dst_note",
    "latest",
    "left_out",
    "local",
    "naming_part",
    "next_after",
    "on_clock",
    "parse_window",
    "parts_of",
    "split_zone",
    "tzdata_version",
    "unknown_zone",
    "warnings",
    "with_zone",
    "zone_countries",
    "zone_names",
]
