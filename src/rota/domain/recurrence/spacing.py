"""What INTERVAL leaves of the calendar: every n-th block of months, every n-th day or week."""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Final, NamedTuple

from rota.domain.recurrence.months import CYCLE_DAYS, CYCLE_MONTHS

__all__ = ["Blocks", "Comb"]

_MONTH_BITS: Final = 0x7FFF_FFFF


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
        origin, cycle, width = self
        gone = (start - origin) % cycle
        if cycle <= 31:
            return _comb_bits(gone, cycle, width)
        tooth = (1 << width) - 1
        if cycle - gone < 31:  # at most one more begins
            return (tooth >> gone | tooth << cycle - gone) & _MONTH_BITS
        return tooth >> gone if gone < width else 0

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
