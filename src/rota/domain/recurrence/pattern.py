"""Wall-clock readings that a calendar rule names: chosen days x chosen times of day, in local seconds.

Times of day are seconds since local midnight. `TimeGrid` is hours x minutes x seconds, what cron and BYHOUR, BYMINUTE,
BYSECOND give: 1,440 bits for the minutes and 60 for the seconds. `TimeList` is any sorted choice of times, what
BYSETPOS makes of a grid. Zones are unknown here; `walk` turns readings into instants.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Protocol

import msgspec

from .days import DaySet
from .ticks import DAY, EARLIEST, LATEST, lowest_bit


class Times(Protocol):
    @property
    def size(self) -> int:
        """How many times a day has."""

    @property
    def earliest(self) -> int:
        """The first time of the day."""

    def following(self, second: int) -> int | None:
        """The first time at or after `second`."""

    def count(self, low: int, high: int) -> int:
        """How many times are in `[low, high]`."""

    def nth(self, place: int) -> int:
        """The time at `place`, counted from 0."""


class TimeGrid:
    """Every combination of the given hours, minutes and seconds (bit masks)."""

    __slots__ = ("_minutes", "_seconds", "earliest", "size")

    def __init__(self, hours: int, minutes: int, seconds: int) -> None:
        self._minutes = 0
        for hour in range(24):
            if hours >> hour & 1:
                self._minutes |= minutes << 60 * hour
        self._seconds = seconds
        self.size = self._minutes.bit_count() * seconds.bit_count()
        self.earliest = lowest_bit(self._minutes) * 60 + lowest_bit(seconds)

    def following(self, second: int) -> int | None:
        minute = second // 60
        rest = self._minutes >> minute
        if rest & 1:
            seconds = self._seconds >> second % 60
            if seconds:
                return second + (seconds & -seconds).bit_length() - 1
            rest &= -2
        if not rest:
            return None
        return (minute + (rest & -rest).bit_length() - 1) * 60 + self.earliest % 60

    def count(self, low: int, high: int) -> int:
        return self._count_below(high + 1) - self._count_below(low)

    def _count_below(self, second: int) -> int:
        minute, place = divmod(second, 60)
        total = (self._minutes & ((1 << minute) - 1)).bit_count() * self._seconds.bit_count()
        if self._minutes >> minute & 1:
            total += (self._seconds & ((1 << place) - 1)).bit_count()
        return total

    def nth(self, place: int) -> int:
        minute, second = divmod(place, self._seconds.bit_count())
        return nth_bit(self._minutes, minute) * 60 + nth_bit(self._seconds, second)


class TimeList:
    """The given times, in ascending order."""

    __slots__ = ("_times", "earliest", "size")

    def __init__(self, times: tuple[int, ...]) -> None:
        self._times = times
        self.size = len(times)
        self.earliest = times[0]

    def following(self, second: int) -> int | None:
        place = bisect_left(self._times, second)
        return self._times[place] if place < self.size else None

    def count(self, low: int, high: int) -> int:
        return bisect_right(self._times, high) - bisect_left(self._times, low)

    def nth(self, place: int) -> int:
        return self._times[place]


def nth_bit(mask: int, place: int) -> int:
    """The position of the bit at `place` among those set, counted from 0: found by halving."""
    low, high = 0, mask.bit_length() - 1
    while low < high:
        middle = (low + high) // 2
        if (mask & ((2 << middle) - 1)).bit_count() > place:
            high = middle
        else:
            low = middle + 1
    return low


class Pattern(msgspec.Struct, frozen=True):
    """Every time of `times` on every day of `days`."""

    days: DaySet
    times: Times

    def under(self, offset: int) -> Pattern:
        """The same whatever the offset: a calendar rule looks at the wall clock alone."""
        return self

    def first(self, low: int, high: int) -> int | None:
        day = low // DAY
        if self.days.every or day in self.days:
            second = low - day * DAY
            time = self.times.following(second)
            if time is not None:
                hit = low - second + time
                return hit if hit <= high else None
        found = self.days.following(day + 1, high // DAY)
        if found is None:
            return None
        hit = found * DAY + self.times.earliest
        return hit if hit <= high else None

    def count(self, low: int, high: int) -> int:
        if low > high:
            return 0
        (first, start), (last, end) = divmod(low, DAY), divmod(high, DAY)
        if first == last:
            return self.times.count(start, end) if first in self.days else 0
        total = self.days.count(first + 1, last - 1) * self.times.size
        if first in self.days:
            total += self.times.count(start, DAY - 1)
        if last in self.days:
            total += self.times.count(0, end)
        return total


class Within(msgspec.Struct, frozen=True):
    """The readings of a pattern within the given ranges of local seconds, which are in order and do not touch each
    other's members: the years of a cron line."""

    _pattern: Pattern
    _spans: tuple[tuple[int, int], ...]

    def under(self, offset: int) -> Within:
        return self

    def any(self) -> bool:
        return self.first(EARLIEST, LATEST) is not None

    def first(self, low: int, high: int) -> int | None:
        for start, end in self._overlapping(low, high):
            if (hit := self._pattern.first(start, end)) is not None:
                return hit
        return None

    def count(self, low: int, high: int) -> int:
        return sum(self._pattern.count(start, end) for start, end in self._overlapping(low, high))

    def _overlapping(self, low: int, high: int) -> list[tuple[int, int]]:
        return [
            (max(start, low), min(end, high)) for start, end in self._spans if start <= high and end >= low
        ]
