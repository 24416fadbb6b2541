"""RRULEs with BYSETPOS: a choice among all moments of each period (a week, a month or a year).

The days of a period come from a `DaySet`, which already leaves out the periods that INTERVAL skips; its
moments are days x times, in order, and positions are picked from that list without writing it out. The whole
period is looked at, also the part before DTSTART.
"""

from __future__ import annotations

from rota.domain.recurrence.days import DaySet
from rota.domain.recurrence.months import CYCLE_DAYS, LAST_DAY, month_of, month_start
from rota.domain.recurrence.ticks import DAY
from rota.domain.recurrence.times import Times, nth_bit

__all__ = ["Chosen"]


class Chosen:
    """The readings at the given positions of every period, in local seconds."""

    __slots__ = ("_days", "_frequency", "_positions", "_times", "_week_start")

    def __init__(
        self, days: DaySet, times: Times, positions: frozenset[int], frequency: str, week_start: int
    ) -> None:
        self._days = days
        self._times = times
        self._positions = positions
        self._frequency = frequency
        self._week_start = week_start

    def first(self, low: int, high: int) -> int | None:
        day = self._days.following(self._period(low // DAY)[0], high // DAY)
        while day is not None:
            start, end = self._period(day)
            for reading in self._readings(start, end):
                if reading >= low:
                    return reading if reading <= high else None
            day = self._days.following(end + 1, high // DAY)
        return None

    def last(self, low: int, high: int) -> int | None:
        day = self._days.preceding(self._period(high // DAY)[1], low // DAY)
        while day is not None:
            start, end = self._period(day)
            for reading in reversed(self._readings(start, end)):
                if reading <= high:
                    return reading if reading >= low else None
            day = self._days.preceding(start - 1, low // DAY)
        return None

    def count(self, low: int, high: int) -> int:
        total = 0
        day = self._days.following(self._period(low // DAY)[0], high // DAY)
        while day is not None:
            start, end = self._period(day)
            total += sum(low <= reading <= high for reading in self._readings(start, end))
            day = self._days.following(end + 1, high // DAY)
        return total

    def possible(self) -> bool:
        """Whether any period has one of the positions: looked for over one calendar cycle."""
        days = self._days.reduced()
        chosen = Chosen(days, self._times, self._positions, self._frequency, self._week_start)
        start = month_start(2000 * 12)
        return chosen.first(start * DAY, (start + CYCLE_DAYS) * DAY) is not None

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
        places = {place - 1 if place > 0 else size + place for place in self._positions}
        readings = []
        for place in sorted(places):
            if 0 <= place < size:
                day, time = divmod(place, self._times.size)
                readings.append(_nth_day(months, day) * DAY + self._times.nth(time))
        return readings


def _nth_day(months: list[tuple[int, int]], place: int) -> int:
    """The day at `place` among those of the masks, counted from 0."""
    for start, mask in months:
        if place < mask.bit_count():
            return start + nth_bit(mask, place)
        place -= mask.bit_count()
    raise IndexError(place)
