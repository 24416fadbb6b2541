"""The Gregorian calendar, month by month, without `date` objects.

A month is its *index*, `year * 12 + month - 1`; a day is its number since 1970-01-01. The calendar repeats
every 400 years, which are 146,097 days and a whole number of weeks, so one table of 4,800 months serves all.
Months that look alike (same month of the year, weekdays and lengths, in years whose neighbours look alike)
share a *shape*; there are 336 of them, and anything that depends only on the calendar is computed per shape.
"""

from __future__ import annotations

from array import array
from calendar import isleap
from collections.abc import Iterable
from datetime import date
from itertools import chain
from typing import Final, NamedTuple

__all__ = [
    "CYCLE_DAYS",
    "CYCLE_MONTHS",
    "EPOCH_ORDINAL",
    "FIRST_DAY",
    "LAST_DAY",
    "SHAPES",
    "Shape",
    "month_of",
    "month_start",
    "next_shape",
    "number_of",
    "places_of",
    "previous_shape",
    "shape_number",
    "shape_of",
    "year_shapes",
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


def _neighbours(last_year_length: int, year_length: int, next_year_length: int) -> int:
    """Where the leap year is among three years in a row: 3 for nowhere."""
    lengths = (last_year_length, year_length, next_year_length)
    return lengths.index(366) if 366 in lengths else 3


def _tables() -> tuple[list[int], list[int], list[Shape | None]]:
    """Start days (relative to the cycle), shape numbers, and the shapes, for years 2000 to 2399."""
    starts: list[int] = []
    numbers: list[int] = []
    shapes: list[Shape | None] = [None] * SHAPES
    day = 0
    for year in range(2000, 2400):
        lengths = [365 + isleap(near) for near in (year - 1, year, year + 1)]
        year_weekday = (day + 5) % 7  # 2000-01-01 was a Saturday
        neighbours = _neighbours(*lengths)
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
_PLACES: Final[list[list[int]]] = [[] for _ in range(SHAPES)]
for _place, _number in enumerate(_NUMBERS):
    _PLACES[_number].append(_place)
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


def number_of(shape: Shape) -> int:
    """The number that the shape has."""
    lengths = shape.last_year_length, shape.year_length, shape.next_year_length
    return (shape.year_weekday * 4 + _neighbours(*lengths)) * 12 + shape.month - 1


def places_of(numbers: Iterable[int]) -> array[int]:
    """Which of the 4,800 months of a cycle have one of the given shapes, in order."""
    return array("H", sorted(chain.from_iterable(_PLACES[number] for number in numbers)))


def year_shapes(shape: Shape) -> list[Shape]:
    """The twelve months of the year that `shape` is a month of."""
    january = number_of(shape) - shape.month + 1
    return [shape_of(number) for number in range(january, january + 12)]


def next_shape(shape: Shape) -> Shape:
    """The month after. Past December, whether the year after that is a leap year is left open: no day of
    January depends on it."""
    if shape.month < 12:
        return year_shapes(shape)[shape.month]
    weekday = (shape.year_weekday + shape.year_length) % 7
    lengths = shape.year_length, shape.next_year_length, 365
    return shape_of((weekday * 4 + _neighbours(*lengths)) * 12)


def previous_shape(shape: Shape) -> Shape:
    """The month before. Before January, whether the year before that was a leap year is left open: no day of
    December depends on it."""
    if shape.month > 1:
        return year_shapes(shape)[shape.month - 2]
    weekday = (shape.year_weekday - shape.last_year_length) % 7
    lengths = 365, shape.last_year_length, shape.year_length
    return shape_of((weekday * 4 + _neighbours(*lengths)) * 12 + 11)
