"""The Gregorian calendar, month by month, without `date` objects.

A month is its *index*, `year * 12 + month - 1`; a day is its number since 1970-01-01. The calendar repeats
every 400 years, which are 146,097 days and a whole number of weeks, so one table of 4,800 months serves all.
Months that look alike (same month of the year, weekdays and lengths, in years whose neighbours look alike)
share a *shape*; there are 336 of them, and anything that depends only on the calendar is computed per shape.
"""

from __future__ import annotations

from calendar import isleap
from datetime import date
from typing import Final, NamedTuple

__all__ = [
    "CYCLE_DAYS",
    "CYCLE_MONTHS",
    "EPOCH_ORDINAL",
    "FIRST_DAY",
    "LAST_DAY",
    "SHAPES",
    "Shape",
    "all_shapes",
    "month_of",
    "month_start",
    "shape_number",
    "shape_of",
]

CYCLE_MONTHS: Final = 4_800
CYCLE_DAYS: Final = 146_097
EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
FIRST_DAY: Final = date.min.toordinal() - EPOCH_ORDINAL
LAST_DAY: Final = date.max.toordinal() - EPOCH_ORDINAL
SHAPES: Final = 336
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Shape(NamedTuple):
    """What one month looks like. Weekdays count from Monday = 0; `before` is the days of the year gone by."""

    month: int
    length: int
    weekday: int
    before: int
    year_length: int
    year_weekday: int
    last_year_length: int
    next_year_length: int


def _tables() -> tuple[list[int], list[int], list[Shape | None]]:
    """Start days (relative to the cycle), shape numbers, and the shapes, for years 2000 to 2399."""
    starts: list[int] = []
    numbers: list[int] = []
    shapes: list[Shape | None] = [None] * SHAPES
    day = 0
    for year in range(2000, 2400):
        lengths = [365 + isleap(near) for near in (year - 1, year, year + 1)]
        year_weekday = (day + 5) % 7  # 2000-01-01 was a Saturday
        neighbours = lengths.index(366) if 366 in lengths else 3
        before = 0
        for month in range(1, 13):
            length = 29 if month == 2 and lengths[1] == 366 else _LENGTHS[month - 1]
            number = (year_weekday * 4 + neighbours) * 12 + month - 1
            if shapes[number] is None:
                weekday = (year_weekday + before) % 7
                shapes[number] = Shape(
                    month, length, weekday, before, lengths[1], year_weekday, lengths[0], lengths[2]
                )
            starts.append(day)
            numbers.append(number)
            before += length
            day += length
    return starts, numbers, shapes


_STARTS, _NUMBERS, _SHAPES = _tables()
_BASE: Final = date(2000, 1, 1).toordinal() - EPOCH_ORDINAL


def month_of(day: int) -> int:
    """The index of the month that holds `day`."""
    when = date.fromordinal(day + EPOCH_ORDINAL)
    return when.year * 12 + when.month - 1


def month_start(index: int) -> int:
    """The day number of the first of the month; also for months beyond the years that `date` knows."""
    cycle, place = divmod(index, CYCLE_MONTHS)  # 2000 is a multiple of 400: places agree with the table
    return _BASE + _STARTS[place] + (cycle - 5) * CYCLE_DAYS


def shape_number(index: int) -> int:
    """Which of the 336 shapes the month has."""
    return _NUMBERS[index % CYCLE_MONTHS]


def shape_of(number: int) -> Shape:
    shape = _SHAPES[number]
    if shape is None:
        raise LookupError(f"no month has shape {number}")
    return shape


def all_shapes() -> list[Shape]:
    """Every shape that occurs."""
    return [shape for shape in _SHAPES if shape is not None]
