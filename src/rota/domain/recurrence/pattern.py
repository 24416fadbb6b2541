"""Wall-clock readings that a calendar rule names: chosen days x chosen times of day, in local seconds.

Knows nothing of zones; `walk` turns readings into instants.
"""

from __future__ import annotations

from .days import DaySet
from .ticks import DAY
from .times import Times

__all__ = ["Pattern"]


class Pattern:
    """Every time of `times` on every day of `days`."""

    __slots__ = ("days", "times")

    def __init__(self, days: DaySet, times: Times) -> None:
        self.days = days
        self.times = times

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

    def last(self, low: int, high: int) -> int | None:
        day, second = divmod(high, DAY)
        if day in self.days:
            time = self.times.preceding(second)
            if time is not None:
                hit = high - second + time
                return hit if hit >= low else None
        found = self.days.preceding(day - 1, low // DAY)
        if found is None:
            return None
        hit = found * DAY + self.times.latest
        return hit if hit >= low else None

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
