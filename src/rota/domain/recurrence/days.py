"""Sets of days, kept as one bit mask per month.

A `DaySet` is what cron's day fields and an RRULE's day parts have in common: some days of each month shape
(`mask_of`), in some months of the year (`months`), in every n-th block of months (`Blocks`: MONTHLY and
YEARLY with INTERVAL), on every n-th day or in every n-th week (`Comb`: DAILY and WEEKLY with INTERVAL).
Searches go from month to month and skip those that cannot match.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import gcd
from typing import Final, NamedTuple

from rota.domain.recurrence.months import (
    CYCLE_DAYS,
    CYCLE_MONTHS,
    FIRST_DAY,
    LAST_DAY,
    Shape,
    month_of,
    month_start,
    shape_number,
    shape_of,
)
from rota.domain.recurrence.ticks import lowest_bit

__all__ = ["ALL_MONTHS", "Blocks", "Comb", "DaySet"]

ALL_MONTHS: Final = 0xFFF
_MONTH_BITS: Final = 0x7FFF_FFFF
_END_OF_TIME: Final = month_of(LAST_DAY) + 1


class Blocks(NamedTuple):
    """Every `interval`-th block of `size` months (1: months, 12: years), counted from block `origin`."""

    size: int = 1
    origin: int = 0
    interval: int = 1

    def reduced(self) -> Blocks:
        """The same choice as seen over a whole 400-year cycle: by the Chinese remainder theorem a calendar
        month is chosen in *some* cycle exactly if this one chooses it."""
        return self._replace(interval=gcd(self.interval, CYCLE_MONTHS // self.size))


class Comb(NamedTuple):
    """`width` days (1: a day, 7: a week) at the start of every `cycle` days, counted from day `origin`."""

    origin: int
    cycle: int
    width: int

    def bits(self, start: int) -> int:
        """The chosen days among the 31 that begin with day `start`."""
        return _comb_bits((start - self.origin) % self.cycle, self.cycle, self.width)

    def following(self, day: int) -> int:
        """The first chosen day at or after `day`."""
        gone = (day - self.origin) % self.cycle
        return day if gone < self.width else day + self.cycle - gone

    def preceding(self, day: int) -> int:
        """The last chosen day at or before `day`."""
        gone = (day - self.origin) % self.cycle
        return day if gone < self.width else day - (gone - self.width + 1)

    def reduced(self) -> Comb:
        return self._replace(cycle=gcd(self.cycle, CYCLE_DAYS))


@lru_cache(maxsize=4096)
def _comb_bits(gone: int, cycle: int, width: int) -> int:
    """31 days of a comb, from a day that is `gone` days into its cycle."""
    tooth = (1 << width) - 1
    bits = tooth >> gone
    for ahead in range(cycle - gone, 31, cycle):
        bits |= tooth << ahead
    return bits & _MONTH_BITS


class DaySet:
    """The days that a rule allows."""

    __slots__ = ("_ahead", "_behind", "_blocks", "_comb", "_mask_of", "_masks", "_memo", "_months", "every")

    def __init__(
        self,
        mask_of: Callable[[Shape], int],
        months: int = ALL_MONTHS,
        blocks: Blocks | None = None,
        comb: Comb | None = None,
        *,
        every: bool = False,
    ) -> None:
        """`every` asserts that all days are members, which makes most questions trivial."""
        self._mask_of = mask_of
        self._months = months
        self._ahead = _distances(months, 1)
        self._behind = _distances(months, -1)
        self._blocks = blocks if blocks is not None and blocks.interval > 1 else None
        self._comb = comb if comb is not None and comb.cycle > comb.width else None
        self._masks: dict[int, int] = {}
        self._memo = (0, 0, 0, 0)
        self.every = every

    def __contains__(self, day: int) -> bool:
        if self.every:
            return True
        start, end, mask, _ = self._memo
        if not start <= day < end:
            if not FIRST_DAY <= day <= LAST_DAY:
                return False
            start, end, mask, _ = self._month_around(day)
        return bool(mask >> (day - start) & 1)

    def following(self, day: int, limit: int = LAST_DAY) -> int | None:
        """The first member in `[day, limit]`."""
        if self.every:
            return day if day <= limit else None
        day = max(day, FIRST_DAY)
        if day > limit or day > LAST_DAY:
            return None
        start, end, mask, index = self._memo
        if not start <= day < end:
            start, end, mask, index = self._month_around(day)
        rest = mask >> (day - start)
        if not rest:
            found = self._next_month(index + 1, limit)
            if found is None:
                return None
            day, rest = found
        day += (rest & -rest).bit_length() - 1
        return day if day <= limit else None

    def preceding(self, day: int, limit: int = FIRST_DAY) -> int | None:
        """The last member in `[limit, day]`."""
        if self.every:
            return day if day >= limit else None
        day = min(day, LAST_DAY)
        if day < limit or day < FIRST_DAY:
            return None
        start, _, mask, index = self._month_around(day)
        rest = mask & ((2 << (day - start)) - 1)
        if not rest:
            found = self._previous_month(index - 1, limit)
            if found is None:
                return None
            start, rest = found
        day = start + rest.bit_length() - 1
        return day if day >= limit else None

    def count(self, low: int, high: int) -> int:
        """How many members are in `[low, high]`."""
        if self.every:
            return max(high - low + 1, 0)
        return sum(mask.bit_count() for _, mask in self.masks(low, high))

    def between(self, low: int, high: int) -> list[int]:
        """The members in `[low, high]`."""
        days: list[int] = []
        for start, mask in self.masks(low, high):
            rest = mask
            while rest:
                days.append(start + lowest_bit(rest))
                rest &= rest - 1
        return days

    def masks(self, low: int, high: int) -> list[tuple[int, int]]:
        """`(first day, mask)` of each month that has members in `[low, high]`, cut to that range."""
        found: list[tuple[int, int]] = []
        position, high = max(low, FIRST_DAY), min(high, LAST_DAY)
        while (day := self.following(position, high)) is not None:
            start, position, mask, _ = self._month_around(day)
            if start < low:
                mask &= -1 << (low - start)
            if position > high:
                mask &= (2 << (high - start)) - 1
            found.append((start, mask))
        return found

    def possible(self) -> bool:
        """Whether any day at all, in any year, is a member: decided exactly, over one calendar cycle."""
        if self.every:
            return True
        low = month_start(2000 * 12)
        return self.reduced().following(low, low + CYCLE_DAYS - 1) is not None

    def reduced(self) -> DaySet:
        """A set whose every calendar cycle holds what this one holds in some cycle or other."""
        return DaySet(
            self._mask_of,
            self._months,
            self._blocks.reduced() if self._blocks else None,
            self._comb.reduced() if self._comb else None,
            every=self.every,
        )

    def _month_around(self, day: int) -> tuple[int, int, int, int]:
        """`(first day, day after the last, mask, index)` of the month that holds `day`, remembered."""
        memo = self._memo
        if memo[0] <= day < memo[1]:
            return memo
        index = month_of(day)
        start = month_start(index)
        allowed = self._admit(index) == index
        memo = (start, month_start(index + 1), self._mask(index) if allowed else 0, index)
        self._memo = memo  # one assignment of one tuple: threads may race here and lose nothing
        return memo

    def _mask(self, index: int) -> int:
        """The members of a month that is allowed."""
        number = shape_number(index)
        mask = self._masks.get(number)
        if mask is None:
            mask = self._masks[number] = self._mask_of(shape_of(number))
        return mask & self._comb.bits(month_start(index)) if self._comb is not None and mask else mask

    def _next_month(self, index: int, limit: int) -> tuple[int, int] | None:
        """`(first day, mask)` of the first month at or after `index` that has members, up to day `limit`."""
        end = month_of(limit) if limit < LAST_DAY else _END_OF_TIME - 1
        while (index := self._admit(index)) <= end:
            mask = self._mask(index)
            if mask:
                start = month_start(index)
                self._memo = (start, month_start(index + 1), mask, index)
                return start, mask
            index += 1
            if self._comb is not None and self._comb.cycle > 31:
                day = self._comb.following(month_start(index))
                if day > min(limit, LAST_DAY):
                    return None
                index = month_of(day)
        return None

    def _previous_month(self, index: int, limit: int) -> tuple[int, int] | None:
        """The same backwards, down to day `limit`."""
        end = month_of(limit) if limit > FIRST_DAY else 12
        while (index := self._admit_backwards(index)) >= end:
            mask = self._mask(index)
            if mask:
                return month_start(index), mask
            index -= 1
            if self._comb is not None and self._comb.cycle > 31:
                day = self._comb.preceding(month_start(index + 1) - 1)
                if day < max(limit, FIRST_DAY):
                    return None
                index = month_of(day)
        return None

    def _admit(self, index: int) -> int:
        """The first allowed month at or after `index`, or one beyond the end of time."""
        index += self._ahead[index % 12]
        if self._blocks is None:
            return index
        size, origin, interval = self._blocks
        while index < _END_OF_TIME and (gone := (index // size - origin) % interval):
            index = (index // size + interval - gone) * size
            index += self._ahead[index % 12]
        return index

    def _admit_backwards(self, index: int) -> int:
        """The last allowed month at or before `index`, or one before the beginning of time."""
        index -= self._behind[index % 12]
        if self._blocks is None:
            return index
        size, origin, interval = self._blocks
        while index >= 12 and (gone := (index // size - origin) % interval):
            index = (index // size - gone + 1) * size - 1
            index -= self._behind[index % 12]
        return index


def _distances(months: int, direction: int) -> tuple[int, ...]:
    """From each month of the year, how many months it is to the nearest allowed one."""
    return tuple(
        next(steps for steps in range(12) if months >> (month + direction * steps) % 12 & 1)
        for month in range(12)
    )
