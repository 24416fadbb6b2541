"""RRULEs with BYSETPOS: a choice among all moments of each period (a week, a month or a year).

The days of a period come from a `DaySet`, which already leaves out the periods that INTERVAL skips; its
moments are days x times, in order, and positions are picked from that list without writing it out. The whole
period is looked at, also the part before DTSTART.
"""

from __future__ import annotations

from collections.abc import Callable

from ..days import DaySet
from ..months import (
    LAST_DAY,
    Shape,
    month_of,
    month_start,
    next_shape,
    number_of,
    previous_shape,
    year_shapes,
)
from ..ticks import DAY
from ..times import Times, nth_bit

__all__ = ["Chosen"]


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

    def last(self, low: int, high: int) -> int | None:
        day = self._crowded.preceding(self._period(high // DAY)[1], low // DAY)
        while day is not None:
            start, end = self._period(day)
            for reading in reversed(self._readings(start, end)):
                if reading <= high:
                    return reading if reading >= low else None
            day = self._crowded.preceding(start - 1, low // DAY)
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
            number = self._sizes[days] = len(self._places(days * self._times.size))
        return number

    def _places(self, size: int) -> list[int]:
        """The positions, counted from 0, that a period of `size` moments has."""
        places = {place - 1 if place > 0 else size + place for place in self._positions}
        return sorted(place for place in places if 0 <= place < size)

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
        for place in self._places(size):
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
