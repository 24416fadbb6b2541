"""Which days an RRULE names, and which of their moments BYSETPOS chooses.

BYMONTHDAY, BYYEARDAY, BYWEEKNO and BYDAY are a mask per month; bit 0 is the 1st. Each part that is given narrows the
month. A value that a month or year does not have selects nothing there: it is not moved to the last day.

BYSETPOS chooses among all moments of each period (a week, a month or a year): days x times, in order. The days come
from a `DaySet`, which already leaves out the periods that INTERVAL skips. Positions are picked without writing the
list out. The whole period is looked at, also the part before DTSTART.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ..days import (
    LAST_DAY,
    DaySet,
    Shape,
    month_of,
    month_start,
    next_shape,
    number_of,
    previous_shape,
    year_shapes,
)
from ..pattern import Times, nth_bit
from ..ticks import DAY
from .text import RuleText

_EVERY_SEVENTH: Final = 0x1020_4081


def bits_of(values: Iterable[int]) -> int:
    """A bit for each value."""
    return sum(1 << value for value in values)


def places_in(size: int, positions: Iterable[int]) -> list[int]:
    """The places, counted from 0, that BYSETPOS names among `size` moments. Negative positions count from the end."""
    places = {place - 1 if place > 0 else size + place for place in positions}
    return sorted(place for place in places if 0 <= place < size)


def month_mask(rule: RuleText) -> Callable[[Shape], int]:
    """The function that a `DaySet` asks, once per shape."""
    parts: list[Callable[[Shape, RuleText], int]] = []
    if rule.by_month_day:
        parts.append(_month_days)
    if rule.by_year_day:
        parts.append(_year_days)
    if rule.by_week_no:
        parts.append(_week_numbers)
    if rule.by_day:
        parts.append(_weekdays)

    def mask_of(shape: Shape) -> int:
        mask = (1 << shape.length) - 1
        for part in parts:
            mask &= part(shape, rule)
            if not mask:
                break
        return mask

    return mask_of


def _month_days(shape: Shape, rule: RuleText) -> int:
    days = (day - 1 if day > 0 else shape.length + day for day in rule.by_month_day)
    return sum(1 << day for day in set(days) if 0 <= day < shape.length)


def _year_days(shape: Shape, rule: RuleText) -> int:
    """Day 366 and day -366 are of leap years only."""
    days = {day - 1 if day > 0 else shape.year_length + day for day in rule.by_year_day}
    places = (day - shape.before for day in days if 0 <= day < shape.year_length)
    return sum(1 << place for place in places if 0 <= place < shape.length)


def _weekdays(shape: Shape, rule: RuleText) -> int:
    """Numbered days count within the month, or within the year in a YEARLY rule without BYMONTH. What
    reaches beyond the month is cut off by the caller."""
    in_year = rule.frequency == "YEARLY" and not rule.by_month
    mask = 0
    for nth, weekday in rule.by_day:
        first = (weekday - shape.weekday) % 7
        if nth == 0:
            mask |= _EVERY_SEVENTH << first
        elif in_year:
            mask |= _nth(
                nth, (weekday - shape.year_weekday) % 7, shape.year_length, shape.before, shape.length
            )
        else:
            mask |= _nth(nth, first, shape.length, 0, shape.length)
    return mask


def _nth(nth: int, first: int, length: int, before: int, month_length: int) -> int:
    """The bit of the n-th day of the series `first, first + 7, …` below `length`, if it is in the month."""
    size = (length - 1 - first) // 7 + 1
    place = nth - 1 if nth > 0 else size + nth
    day = first + 7 * place - before
    return 1 << day if 0 <= place < size and 0 <= day < month_length else 0


def _week_numbers(shape: Shape, rule: RuleText) -> int:
    """A week belongs to the year that has its fourth day. Days of January may lie in the last week of the
    year before, days of December in the first week of the next."""
    mask = 0
    first_week = -((shape.weekday - rule.week_start) % 7)
    for start in range(first_week, shape.length, 7):
        number, weeks = _week_of(shape.before + start + 3, shape, rule.week_start)
        if number in rule.by_week_no or number - weeks - 1 in rule.by_week_no:
            mask |= 0x7F << start if start >= 0 else 0x7F >> -start
    return mask


def _week_of(fourth: int, shape: Shape, week_start: int) -> tuple[int, int]:
    """`(week number, weeks of that year)` of the week whose fourth day is day `fourth` of shape's year."""
    length, weekday = shape.year_length, shape.year_weekday
    if fourth < 0:
        length = shape.last_year_length
        fourth, weekday = fourth + length, weekday - length
    elif fourth >= length:
        fourth, weekday, length = fourth - length, weekday + length, shape.next_year_length
    first_fourth = (week_start + 3 - weekday) % 7
    return fourth // 7 + 1, (length - 1 - first_fourth) // 7 + 1


class Chosen:
    """The readings at the given positions of every period, in local seconds."""

    __slots__ = ("_crowded", "_days", "_frequency", "_positions", "_sizes", "_times", "_week_start")

    def __init__(
        self, days: DaySet, times: Times, positions: frozenset[int], frequency: str, week_start: int
    ) -> None:
        self._days = days
        needed = -(-min(abs(place) for place in positions) // times.size)
        self._crowded = days.narrowed(_crowded(days, needed, frequency, week_start)) if needed > 1 else days
        """The days of the periods that are large enough to have one of the positions."""
        self._sizes: dict[int, int] = {}
        self._times = times
        self._positions = positions
        self._frequency = frequency
        self._week_start = week_start

    def first(self, low: int, high: int) -> int | None:
        day = self._crowded.following(self._period(low // DAY)[0], high // DAY)
        while day is not None:
            start, end = self._period(day)
            for reading in self._readings(start, end):
                if reading >= low:
                    return reading if reading <= high else None
            day = self._crowded.following(end + 1, high // DAY)
        return None

    def count(self, low: int, high: int) -> int:
        total = 0
        day = self._crowded.following(self._period(low // DAY)[0], high // DAY)
        while day is not None:
            start, end = self._period(day)
            if low <= start * DAY and (end + 1) * DAY <= high:
                total += self._number(self._days.count(start, end))
            else:
                total += sum(low <= reading <= high for reading in self._readings(start, end))
            day = self._crowded.following(end + 1, high // DAY)
        return total

    def possible(self) -> bool:
        """Whether any period, in any year, has one of the positions."""
        return self._crowded.possible()

    def _number(self, days: int) -> int:
        """How many readings are chosen in a period that has so many days."""
        number = self._sizes.get(days)
        if number is None:
            number = self._sizes[days] = len(places_in(days * self._times.size, self._positions))
        return number

    def _period(self, day: int) -> tuple[int, int]:
        """The first and the last day of the period that holds `day`."""
        if self._frequency == "WEEKLY":
            start = day - (day + 3 - self._week_start) % 7  # 1970-01-01 was a Thursday
            return start, start + 6
        size = 12 if self._frequency == "YEARLY" else 1
        index = month_of(min(day, LAST_DAY)) // size * size
        return month_start(index), month_start(index + size) - 1

    def _readings(self, start: int, end: int) -> list[int]:
        """The chosen readings of the period from day `start` to day `end`."""
        months = self._days.masks(start, end)
        size = sum(mask.bit_count() for _, mask in months) * self._times.size
        readings = []
        for place in places_in(size, self._positions):
            day, time = divmod(place, self._times.size)
            readings.append(_nth_day(months, day) * DAY + self._times.nth(time))
        return readings


def _crowded(days: DaySet, needed: int, frequency: str, week_start: int) -> Callable[[Shape], int]:
    """Masks of the days whose whole period has `needed` days or more. All that counts for a period shows in
    the shape of a month: the other months of its year, and the ends of the months next to it."""

    years: dict[int, int] = {}

    def of_month(shape: Shape) -> int:
        mask = days.shape_mask(shape)
        return mask if mask.bit_count() >= needed else 0

    def of_year(shape: Shape) -> int:
        year = number_of(shape) // 12
        if year not in years:
            years[year] = sum(days.shape_mask(month).bit_count() for month in year_shapes(shape))
        return days.shape_mask(shape) if years[year] >= needed else 0

    def of_weeks(shape: Shape) -> int:
        mask = days.shape_mask(shape)
        before = previous_shape(shape)
        line = days.shape_mask(before) | mask << before.length
        line |= days.shape_mask(next_shape(shape)) << before.length + shape.length
        chosen = 0
        first_week = before.length - (shape.weekday - week_start) % 7
        for start in range(first_week, before.length + shape.length, 7):
            week = line & 0x7F << start
            chosen |= week if week.bit_count() >= needed else 0
        return chosen >> before.length & mask

    return {"MONTHLY": of_month, "YEARLY": of_year, "WEEKLY": of_weeks}[frequency]


def _nth_day(months: list[tuple[int, int]], place: int) -> int:
    """The day at `place` among those of the masks, counted from 0."""
    for start, mask in months:
        if place < mask.bit_count():
            return start + nth_bit(mask, place)
        place -= mask.bit_count()
    raise IndexError(place)
