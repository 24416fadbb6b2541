"""RRULEs that repeat within the day: HOURLY, MINUTELY, SECONDLY.

The rule is an arithmetic progression of units (hours, minutes or seconds) in *elapsed* time. Which of them
count is decided by the local clock: BYHOUR and the like repeat every day, so they are a short cyclic pattern
over the progression, and the day parts are a `DaySet`. A search hops from the one to the other and never
steps through units that do not match. Finer parts (BYMINUTE of an HOURLY rule) expand a unit into moments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import lru_cache
from math import gcd
from typing import Final

from rota.domain.recurrence.days import DaySet
from rota.domain.recurrence.months import CYCLE_DAYS
from rota.domain.recurrence.rrule_days import month_mask
from rota.domain.recurrence.rrule_text import RuleText
from rota.domain.recurrence.ticks import DAY

__all__ = ["StepRule", "Steps"]

_UNITS: Final = {"HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}
_ALWAYS: Final = b"\x01"
_NEVER: Final = b"\x00"
_ANY: Final[frozenset[int]] = frozenset()


class Steps:
    """The readings of a step rule while the offset stays the same.

    Unit k begins at `base + k * step`, in local seconds; `hits[k % len(hits)]` says whether its time of day
    counts, `days` whether its day does, and `moments` are the seconds within the unit that fire.
    """

    __slots__ = ("_base", "_days", "_hits", "_moments", "_step")

    def __init__(self, base: int, step: int, hits: bytes, days: DaySet, moments: tuple[int, ...]) -> None:
        self._base = base
        self._step = step
        self._hits = hits
        self._days = days
        self._moments = moments

    def first(self, low: int, high: int) -> int | None:
        unit = self._unit_from(low - self._moments[-1])
        while (found := self._next_hit(unit)) is not None:
            start = self._base + found * self._step
            if start > high:
                return None
            if start // DAY in self._days:
                moment = start + self._moments[bisect_left(self._moments, low - start)]
                return moment if moment <= high else None
            day = self._days.following(start // DAY + 1, high // DAY)
            if day is None:
                return None
            unit = self._unit_from(day * DAY)
        return None

    def last(self, low: int, high: int) -> int | None:
        unit = (high - self._moments[0] - self._base) // self._step
        while (found := self._previous_hit(unit)) is not None:
            start = self._base + found * self._step
            if start + self._moments[-1] < low:
                return None
            if start // DAY in self._days:
                moment = start + self._moments[bisect_right(self._moments, high - start) - 1]
                return moment if moment >= low else None
            day = self._days.preceding(start // DAY - 1, low // DAY)
            if day is None:
                return None
            unit = ((day + 1) * DAY - 1 - self._base) // self._step
        return None

    def count(self, low: int, high: int) -> int:
        """Units wholly inside are counted a day, or all days, at a time; the two at the edges by hand."""
        if low > high:
            return 0
        first, last = (
            self._unit_from(low - self._moments[-1]),
            (high - self._moments[0] - self._base) // self._step,
        )
        if last - first < 2:
            return sum(self._moments_in(unit, low, high) for unit in range(first, last + 1))
        edges = self._moments_in(first, low, high) + self._moments_in(last, low, high)
        return edges + self._units_counting(first + 1, last - 1) * len(self._moments)

    def _moments_in(self, unit: int, low: int, high: int) -> int:
        start = self._base + unit * self._step
        if not self._hits[unit % len(self._hits)] or start // DAY not in self._days:
            return 0
        return bisect_right(self._moments, high - start) - bisect_left(self._moments, low - start)

    def _units_counting(self, first: int, last: int) -> int:
        """How many units from `first` to `last` count."""
        if self._days.every:
            return self._hits_below(last + 1) - self._hits_below(first)
        low, high = ((self._base + unit * self._step) // DAY for unit in (first, last))
        if DAY % self._step == 0 and high - low > 2:  # all days between are alike
            inner = self._days.count(low + 1, high - 1)
            total = inner * self._units_in(low + 1, first, last) if inner else 0
            days = [day for day in (low, high) if day in self._days]
        else:
            total, days = 0, self._days.between(low, high)
        return total + sum(self._units_in(day, first, last) for day in days)

    def _units_in(self, day: int, first: int, last: int) -> int:
        """How many of the units from `first` to `last` lie in the day and have a time of day that counts."""
        start, end = self._unit_from(day * DAY), self._unit_from((day + 1) * DAY)
        return self._hits_below(min(end, last + 1)) - self._hits_below(max(start, first))

    def _hits_below(self, unit: int) -> int:
        cycles, rest = divmod(unit, len(self._hits))
        return cycles * _hits_before(self._hits, len(self._hits)) + _hits_before(self._hits, rest)

    def _unit_from(self, reading: int) -> int:
        """The first unit that begins at or after `reading`."""
        return max(-((self._base - reading) // self._step), 0)

    def _next_hit(self, unit: int) -> int | None:
        place = unit % len(self._hits)
        found = self._hits.find(1, place)
        if found < 0:
            found = self._hits.find(1)
            return None if found < 0 else unit - place + len(self._hits) + found
        return unit - place + found

    def _previous_hit(self, unit: int) -> int | None:
        place = unit % len(self._hits)
        found = self._hits.rfind(1, 0, place + 1)
        if found < 0:
            found = self._hits.rfind(1)
            unit -= len(self._hits)
        hit = unit - place + found
        return hit if found >= 0 and hit >= 0 else None


@lru_cache(maxsize=8192)
def _hits_before(hits: bytes, place: int) -> int:
    """Days begin at the same few places of the pattern over and over."""
    return hits.count(1, 0, place)


class StepRule:
    """A step rule with its DTSTART, for any offset that the zone may have.

    When the offset changes, elapsed time moves on against the wall clock, and so do the units. Only where a
    part finer than the unit is given (`HOURLY;BYMINUTE=0`) do units stay aligned to the clock on the wall.
    """

    __slots__ = (
        "_aligned",
        "_base",
        "_days",
        "_interval",
        "_moments",
        "_offset",
        "_steps",
        "_time_of_day",
        "_unit",
        "_weekdays",
    )

    def __init__(self, rule: RuleText, days: DaySet, dtstart: int, offset: int) -> None:
        local = dtstart + offset
        self._unit = _UNITS[rule.frequency]
        self._interval = rule.interval
        self._days = days
        self._offset = offset
        self._aligned = _alignment(rule)
        self._base = local - local % self._aligned
        self._moments = _moments(rule, self._aligned, local % 60)
        self._time_of_day = _time_of_day(rule, self._unit)
        self._weekdays = DaySet(
            month_mask(rule._replace(by_month_day=_ANY, by_year_day=_ANY, by_week_no=_ANY))
        )
        self._steps: dict[int, Steps] = {}

    def under(self, offset: int) -> Steps:
        steps = self._steps.get(offset)
        if steps is None:
            hits = self._hits(offset, self._interval) if self.possible(offset) else _NEVER
            steps = self._steps[offset] = self._build(offset, self._interval, hits)
        return steps

    def possible(self, offset: int) -> bool:
        """Whether it ever fires under this offset; decided exactly, over one calendar cycle.

        A week is tried first: where the step and the weekdays never meet, the whole cycle need not be tried.
        """
        if not self._moments or not self._days.possible():
            return False
        return self._meets(offset, self._weekdays, 7) and self._meets(offset, self._days, CYCLE_DAYS)

    def _meets(self, offset: int, days: DaySet, cycle: int) -> bool:
        """Over a cycle of days the progression covers the same places as one whose interval is the common
        divisor of both (the Chinese remainder theorem again)."""
        interval = gcd(self._interval, cycle * DAY // self._unit)
        steps = self._build(offset, interval, self._hits(offset, interval), days)
        return steps.first(self._base - DAY, self._base + (cycle + 1) * DAY) is not None

    def _hits(self, offset: int, interval: int) -> bytes:
        return _hits(self._time_of_day, self._start(offset) % DAY // self._unit, interval)

    def _start(self, offset: int) -> int:
        """Where unit 0 begins on a clock with this offset."""
        shift = offset - self._offset
        return self._base + shift - shift % self._aligned

    def _build(self, offset: int, interval: int, hits: bytes, days: DaySet | None = None) -> Steps:
        start, step = self._start(offset), interval * self._unit
        return Steps(start, step, hits, self._days if days is None else days, self._moments)


def _alignment(rule: RuleText) -> int:
    """The seconds to which units are rounded down, because a finer part says what happens within."""
    if rule.frequency == "HOURLY" and rule.by_minute:
        return 3600
    return 60 if rule.frequency != "SECONDLY" and rule.by_second else 1


def _moments(rule: RuleText, aligned: int, second: int) -> tuple[int, ...]:
    """The seconds within a unit that fire, after BYSETPOS has chosen among them."""
    minutes = rule.by_minute if aligned == 3600 else {0}
    seconds = (rule.by_second or {second}) if aligned > 1 else {0}
    moments = sorted(minute * 60 + moment for minute in minutes for moment in seconds)
    if not rule.by_set_pos:
        return tuple(moments)
    chosen = {place - 1 if place > 0 else len(moments) + place for place in rule.by_set_pos}
    return tuple(moments[place] for place in sorted(chosen) if 0 <= place < len(moments))


def _time_of_day(rule: RuleText, unit: int) -> bytes:
    """One byte per unit of the day: is it allowed by BYHOUR, and by BYMINUTE and BYSECOND if not finer?"""
    day = bytes(not rule.by_hour or hour in rule.by_hour for hour in range(24))
    if unit < 3600:
        day = _refine(day, rule.by_minute)
    if unit < 60:
        day = _refine(day, rule.by_second)
    return _ALWAYS if day.count(1) == len(day) else day


def _refine(units: bytes, allowed: frozenset[int]) -> bytes:
    """Each unit becomes sixty: those allowed where it was allowed itself, none where it was not."""
    row = bytes(not allowed or place in allowed for place in range(60))
    return b"".join(row if unit else bytes(60) for unit in units)


def _hits(day: bytes, start: int, interval: int) -> bytes:
    """What a progression through the units of the day meets, from `start`, until it comes round again."""
    size = len(day)
    stride = interval % size
    if size == 1 or stride == 0:
        return day[start % size : start % size + 1]
    if stride > size // 2:  # the same walk, seen from the end of the day, has shorter strides
        day, start, stride = day[::-1], size - 1 - start, size - stride
    length = size // gcd(stride, size)
    rows, found = [], 0
    while found < length:  # one row for each time that it comes through midnight
        row = day[start::stride]
        rows.append(row)
        found += len(row)
        start = (start - size) % stride
    return b"".join(rows)[:length]
