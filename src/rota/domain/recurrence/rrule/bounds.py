"""What a rule's own bounds do to its instants: DTSTART and UNTIL, COUNT, EXDATE and RDATE."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from ..ticks import DAY, Ticks

__all__ = ["Counted", "Edited", "Until"]

_WALKED: Final = 16
_LEAST: Final = 366 * DAY


class Until:
    """The members of `inner` up to `end`."""

    __slots__ = ("_end", "_inner")

    def __init__(self, inner: Ticks, end: int) -> None:
        self._inner = inner
        self._end = end

    def first(self, low: int, high: int) -> int | None:
        return self._inner.first(low, min(high, self._end))

    def last(self, low: int, high: int) -> int | None:
        return self._inner.last(low, min(high, self._end))

    def count(self, low: int, high: int) -> int:
        return self._inner.count(low, min(high, self._end))


class Counted:
    """The first `limit` members of `inner`, which begins at `start`.

    A count is a bound in disguise: the last member that counts. It is found when a question first reaches
    beyond it; until then a mark remembers how many had been counted where. The first few members are walked
    through, which settles small counts and sparse rules; from there on the stretches that are counted become
    longer and longer, so that what lies far beyond the last member is not counted in vain. Nothing is counted
    before `sure`, by when there cannot have been so many.
    """

    __slots__ = ("_end", "_inner", "_limit", "_mark", "_start", "_sure")

    def __init__(self, inner: Ticks, start: int, limit: int, sure: int) -> None:
        self._inner = inner
        self._start = start
        self._limit = limit
        self._sure = sure
        self._mark = (start - 1, 0)
        self._end: int | None = None

    def first(self, low: int, high: int) -> int | None:
        hit = self._inner.first(low, high)
        return hit if hit is None or hit <= self._reach(hit) else None

    def last(self, low: int, high: int) -> int | None:
        return self._inner.last(low, self._reach(high))

    def count(self, low: int, high: int) -> int:
        return self._inner.count(low, self._reach(high))

    def ends_by(self, at: int) -> bool:
        """Whether its last member is at or before `at`, which is found out now."""
        self._reach(at)
        return self._end is not None

    def _reach(self, at: int) -> int:
        """`at`, or the last member that counts if that is earlier."""
        if at < self._sure:
            return at
        while self._end is None:
            place, counted = self._mark
            if at <= place:
                return at
            if counted < _WALKED:
                self._walk(place, counted, at)
            else:
                stop = min(at, place + max(place - self._start, _LEAST))
                found = self._inner.count(place + 1, stop)
                if counted + found < self._limit:
                    self._mark = (stop, counted + found)
                else:
                    self._end = self._nth(self._limit - counted, place + 1, stop, found)
        return min(at, self._end)

    def _walk(self, place: int, counted: int, at: int) -> None:
        """Move the mark on by single members, up to `at`."""
        while counted < min(_WALKED, self._limit):
            member = self._inner.first(place + 1, at)
            if member is None:
                self._mark = (at, counted)
                return
            place, counted = member, counted + 1
        if counted == self._limit:
            self._end = place
        else:
            self._mark = (place, counted)

    def _nth(self, nth: int, low: int, high: int, found: int) -> int:
        """The n-th member of `[low, high]`, which has `found`: halve while there are many, then walk."""
        while found > 16:
            middle = (low + high) // 2
            below = self._inner.count(low, middle)
            if below >= nth:
                high, found = middle, below
            else:
                low, nth, found = middle + 1, nth - below, found - below
        for _ in range(nth):
            member = self._inner.first(low, high)
            if member is None:
                break
            low = member + 1
        return low - 1


class Edited:
    """`inner` with some instants added (RDATE) and some removed (EXDATE); a removal wins over an addition.

    `removed_days` are stretches `[start, end)` in which everything is removed (an EXDATE that is a date).
    """

    __slots__ = ("_added", "_inner", "_removed", "_removed_days")

    def __init__(
        self, inner: Ticks, added: list[int], removed: set[int], removed_days: list[tuple[int, int]]
    ) -> None:
        self._inner = inner
        self._removed = removed
        self._removed_days = removed_days
        self._added = sorted({at for at in added if not self._is_removed(at)})

    def first(self, low: int, high: int) -> int | None:
        hit = self._inner.first(low, high)
        while hit is not None and (beyond := self._is_removed(hit)):
            hit = self._inner.first(beyond, high)
        place = bisect_left(self._added, low)
        if place < len(self._added) and self._added[place] <= (high if hit is None else hit):
            return self._added[place]
        return hit

    def last(self, low: int, high: int) -> int | None:
        hit = self._inner.last(low, high)
        while hit is not None and self._is_removed(hit):
            hit = self._inner.last(low, hit - 1)
        place = bisect_right(self._added, high) - 1
        if place >= 0 and self._added[place] >= (low if hit is None else hit):
            return self._added[place]
        return hit

    def count(self, low: int, high: int) -> int:
        total = self._inner.count(low, high)
        stretches = _merged([*self._removed_days, *((at, at + 1) for at in self._removed)])
        for start, end in stretches:
            total -= self._inner.count(max(start, low), min(end - 1, high))
        added = self._added[bisect_left(self._added, low) : bisect_right(self._added, high)]
        return total + sum(self._inner.first(at, at) is None for at in added)

    def _is_removed(self, at: int) -> int:
        """0 if it stays; otherwise the first second that may not be removed for the same reason."""
        if at in self._removed:
            return at + 1
        return next((end for start, end in self._removed_days if start <= at < end), 0)


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same seconds as stretches that do not overlap."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
