"""The one shape every recurrence has inside: an ascending, sparse set of whole numbers.

A `Ticks` answers two questions about a closed range `[low, high]`, none of them by walking through it; `last` asks the
first of them again and again.
Three kinds of number are used, never mixed in one object:

* *local seconds*: what a wall clock reads, as if it were UTC (`1970-01-01 00:00:00` on the wall is 0);
* *instants*: seconds since 1970-01-01T00:00:00Z;
* *microseconds* since the same moment, for `once` and `interval`, which may carry a fraction.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from ..errors import Invalid

DAY: Final = 86_400
MILLION: Final = 1_000_000
_COUNTED: Final = 10_000
YEAR: Final = 366 * DAY
"""The longest."""
EARLIEST: Final = -62_135_596_800
"""0001-01-01 00:00:00, the first second that a `datetime` can hold."""
LATEST: Final = 253_402_300_799
"""9999-12-31 23:59:59, the last one: the horizon of every search."""


class NeverFires(Invalid):
    """The refusal of a timing that is understood, and has no time."""


class Ticks(Protocol):
    def first(self, low: int, high: int) -> int | None:
        """The smallest member in `[low, high]`."""

    def count(self, low: int, high: int) -> int:
        """How many members are in `[low, high]`."""


def last(ticks: Ticks, low: int, high: int) -> int | None:
    """The largest member in `[low, high]`: looked for in spans that become longer and longer, then by halving. That is
    some twenty questions, 30 µs for a cron line instead of 5, and spares every kind of ticks a way to look back."""
    span, found = 1, None
    while found is None:
        if low > high:
            return None
        begin = max(high - span, low)
        found = ticks.first(begin, high)
        high, span = (begin - 1 if found is None else high), 8 * span
    while found < high:
        middle = (found + high + 1) // 2
        later = ticks.first(middle, high)
        found, high = (found, middle - 1) if later is None else (later, high)
    return found


class Progression(msgspec.Struct, frozen=True):
    """`start + k * step` for k = 0, 1, 2, …"""

    start: int
    step: int

    def first(self, low: int, high: int) -> int | None:
        missing = low - self.start
        hit = self.start if missing <= 0 else low + -missing % self.step
        return hit if hit <= high else None

    def count(self, low: int, high: int) -> int:
        first = self.first(low, high)
        return 0 if first is None else (high - first) // self.step + 1


class Point(msgspec.Struct, frozen=True):
    """A single member."""

    at: int

    def first(self, low: int, high: int) -> int | None:
        return self.at if low <= self.at <= high else None

    def count(self, low: int, high: int) -> int:
        return int(low <= self.at <= high)


class Never:
    """No members at all."""

    def first(self, low: int, high: int) -> None:
        return None

    def count(self, low: int, high: int) -> int:
        return 0


class WholeSeconds(msgspec.Struct, frozen=True):
    """The members of `inner`, which are seconds, in microseconds."""

    _inner: Ticks

    def first(self, low: int, high: int) -> int | None:
        hit = self._inner.first(-(-low // MILLION), high // MILLION)
        return None if hit is None else hit * MILLION

    def count(self, low: int, high: int) -> int:
        return self._inner.count(-(-low // MILLION), high // MILLION)


class Union(msgspec.Struct, frozen=True):
    """Every member of any of the parts, once."""

    _parts: tuple[Ticks, ...]

    def first(self, low: int, high: int) -> int | None:
        earliest: int | None = None
        for part in self._parts:
            hit = part.first(low, high)
            if hit is not None:
                earliest, high = hit, hit
        return earliest

    def count(self, low: int, high: int) -> int:
        """Exact as long as it can be walked through in no time; beyond that, what two parts share counts twice."""
        total = sum(part.count(low, high) for part in self._parts)
        if total > _COUNTED:
            return total
        found = 0
        while (hit := self.first(low, high)) is not None:
            found, low = found + 1, hit + 1
        return found


def lowest_bit(mask: int) -> int:
    """The position of the lowest bit set; `mask` is not zero."""
    return (mask & -mask).bit_length() - 1
