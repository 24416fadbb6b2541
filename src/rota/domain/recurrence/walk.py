"""From wall-clock readings to instants: the ways in which a rule can follow a zone's clock.

`Nominal` is for rules that name times of day. Each reading fires once, when the clock first reaches it:
inside a gap that is the first instant after it, and when clocks go back it is the first of the two.

`Elapsed` is for rules that repeat within the day. They fire at every instant whose reading matches, so they
keep their rhythm: nothing is added for readings that are skipped, nothing removed for those that come twice.

`ByChoice` is for rules whose owner chose otherwise. It is the general case, of which the two are the ends. It takes 3
to 10 µs for a next time; they take 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from ..errors import Invalid
from .ticks import DAY, EARLIEST, LATEST, YEAR, Point, Ticks
from .timing import DstFold, DstGap
from .zones import Zone


class Nominal:
    """Instants at which the clock of `zone` first reaches a reading of `pattern`.

    With an `origin` nothing fires before it, and readings that the clock showed before it do not count: a
    rule that begins at the second 01:30 of an autumn night has its first 01:30 there.
    """

    __slots__ = ("_again", "_offset", "_origin", "_pattern", "_zone")

    def __init__(self, pattern: Ticks, zone: Zone, origin: int = EARLIEST) -> None:
        self._pattern = pattern
        self._zone = zone
        self._origin = origin
        self._offset = zone.offset(origin)
        self._again = zone.reached(origin) - self._offset
        """Until this instant the clock repeats what it showed before the origin."""

    def first(self, low: int, high: int) -> int | None:
        if low <= self._again:
            if low < self._origin:
                low = self._origin
            reached = self._reached(low - 1)
        else:
            reached = self._zone.reached(low - 1)
        if high > LATEST:
            high = LATEST
        if low > high:
            return None
        reading = self._pattern.first(reached + 1, high + 2 * DAY)
        if reading is None:
            return None
        hit = self._zone.resolve(reading)
        if hit < self._origin:
            hit = reading - self._offset
        return hit if hit <= high else None

    def count(self, low: int, high: int) -> int:
        low, high = max(low, self._origin), min(high, LATEST)
        if low > high:
            return 0
        total = self._pattern.count(self._reached(low - 1) + 1, self._reached(high))
        for _, skipped, after in self._zone.gaps(low, high):
            total -= max(self._pattern.count(skipped, after) - 1, 0)  # all of them fire as one
        return total

    def _reached(self, instant: int) -> int:
        if instant < self._again:
            return instant + self._offset
        return self._zone.reached(instant)


class Readings(Protocol):
    """A pattern that may depend on the offset: elapsed time moves against the wall clock when it changes."""

    def under(self, offset: int) -> Ticks:
        """The readings that match while the clock is `offset` seconds ahead of UTC."""


class Elapsed(msgspec.Struct, frozen=True):
    """Instants at which the clock of `zone` shows a reading of `pattern`, each time it does.

    A count over more than so many `years` is refused: some patterns have to count every day by itself.
    """

    _pattern: Readings
    _zone: Zone
    _origin: int = EARLIEST
    _years: int | None = None

    def first(self, low: int, high: int) -> int | None:
        if low < self._origin:
            low = self._origin
        if high > LATEST:
            high = LATEST
        while low <= high:
            _, end, offset = self._zone.stretch(low)
            stop = end - 1 if end <= high else high
            hit = self._pattern.under(offset).first(low + offset, stop + offset)
            if hit is not None:
                return hit - offset
            low = _quiet_until(self._pattern.under, self._zone, end, high) if end <= high else end
        return None

    def count(self, low: int, high: int) -> int:
        low, high = max(low, self._origin), min(high, LATEST)
        if self._years is not None and high - low > self._years * YEAR:
            raise Invalid(
                "count", f"the range is too long for this rule; accepted are up to {self._years:,} years"
            )
        total = 0
        while low <= high:
            _, end, offset = self._zone.stretch(low)
            total += self._pattern.under(offset).count(low + offset, min(end - 1, high) + offset)
            low = end
        return total


def _quiet_until(under: Callable[[int], Ticks], zone: Zone, low: int, high: int) -> int:
    """An instant at or after `low` before which nothing can fire, whatever the offset will be. `under` an offset there
    are these readings."""
    earliest = high + 1
    for offset in zone.offsets_from(low):
        hit = under(offset).first(low + offset, earliest - 1 + offset)
        if hit is not None:
            earliest = hit - offset
    return earliest


class ByChoice(msgspec.Struct, frozen=True):
    """Instants at which the clock of `zone` shows a reading of `pattern`. Where a reading comes twice, `fold` chooses.
    Where the clock leaves readings out, `gap` chooses the moment, one for each gap."""

    _pattern: Ticks
    _zone: Zone
    _gap: DstGap
    _fold: DstFold
    _origin: int = EARLIEST

    def first(self, low: int, high: int) -> int | None:
        low, high = max(low, self._origin), min(high, LATEST)
        while low <= high:
            end = self._zone.stretch(low)[1]
            hits = [piece.first(low, high) for piece in self._pieces(low)]
            found = [hit for hit in hits if hit is not None]
            if found:
                return min(found)
            is_gap = bool(self._zone.gaps(end, end))  # readings that it leaves out may fire there
            is_quiet = not is_gap and end <= high
            low = _quiet_until(lambda _: self._pattern, self._zone, end, high) if is_quiet else end
        return None

    def count(self, low: int, high: int) -> int:
        low, high = max(low, self._origin), min(high, LATEST)
        total = 0
        while low <= high:
            pieces = list(self._pieces(low))
            total += sum(piece.count(low, high) for piece in pieces)
            low = self._zone.stretch(low)[1]
        return total

    def _pieces(self, instant: int) -> Iterator[Ticks]:
        """All that can fire in the stretch that holds `instant`: the readings that it shows, and for the gaps at its
        ends a moment each. No two of them have a member in common."""
        start, end, offset = self._zone.stretch(instant)
        shown_from, shown_until = start, end - 1
        left_out: list[tuple[int, int, int]] = []
        if self._gap is DstGap.AFTER:
            left_out = [(start, skipped, after) for _, skipped, after in self._zone.gaps(start, start)]
        elif self._gap is DstGap.BEFORE:
            left_out = [(end - 1, skipped, after) for _, skipped, after in self._zone.gaps(end, end)]
        if self._fold is DstFold.FIRST:
            for _, first, new in self._zone.repeats(start, start):
                shown_from = min(start + new - first, end)
        elif self._fold is DstFold.SECOND:
            for _, first, new in self._zone.repeats(end, end):
                shown_until = max(end - 1 - (new - first), start - 1)
        shown = Shown(self._pattern, offset, shown_from, shown_until)
        yield shown
        for moment, skipped, after in left_out:
            if shown.first(moment, moment) is None and self._pattern.first(skipped, after - 1) is not None:
                yield Point(moment)


class Shown(msgspec.Struct, frozen=True):
    """The readings of a pattern while the clock is `offset` ahead of UTC, as instants from `start` to `end`."""

    _pattern: Ticks
    _offset: int
    _start: int
    _end: int

    def first(self, low: int, high: int) -> int | None:
        low, high = max(low, self._start), min(high, self._end)
        if low > high:
            return None
        hit = self._pattern.first(low + self._offset, high + self._offset)
        return None if hit is None else hit - self._offset

    def count(self, low: int, high: int) -> int:
        low, high = max(low, self._start), min(high, self._end)
        return 0 if low > high else self._pattern.count(low + self._offset, high + self._offset)


def following(
    pattern: Ticks, zone: Zone, gap: DstGap | None, fold: DstFold | None, origin: int = EARLIEST
) -> Ticks:
    """The instants of a rule that names times of day."""
    if gap in (None, DstGap.AFTER) and fold in (None, DstFold.FIRST):
        return Nominal(pattern, zone, origin)
    return ByChoice(pattern, zone, gap or DstGap.AFTER, fold or DstFold.FIRST, origin)
