"""RRULEs that repeat within the day: HOURLY, MINUTELY, SECONDLY.

The rule is an arithmetic progression of units (hours, minutes or seconds) in *elapsed* time. Which of them
count is decided by the local clock: BYHOUR and the like repeat every day, so they are a short cyclic pattern
over the progression, and the day parts are a `DaySet`. A search hops from the one to the other and never
steps through units that do not match. Finer parts (BYMINUTE of an HOURLY rule) expand a unit into moments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from math import gcd
from typing import Final, NamedTuple

from ..days import CYCLE_DAYS, DaySet
from ..ticks import DAY, Never, Ticks
from .days import bits_of, month_mask, places_in
from .text import RuleText

_UNITS: Final = {"HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}
_SMALL: Final = 2048
_BLOCK: Final = 256
_LONG: Final = 60 * DAY
"""From here on a count is worth a table of the week, which may have 600,000 bytes."""
_ANY: Final[frozenset[int]] = frozenset()


class Course(NamedTuple):
    """A walk through the units of the day: from unit `start`, `stride` at a time. The masks say which units
    count; 0 allows all. With `weekdays` it is a walk through the units of the week, from Monday on."""

    unit: int
    hours: int
    minutes: int
    seconds: int
    start: int
    stride: int
    weekdays: int = 0


class Steps:
    """The readings of a step rule while the offset stays the same.

    Unit k begins at `base + k * step`, in local seconds; its time of day counts if byte k of the course's
    hits, which repeat, is 1; its day counts if it is in `days`; `moments` are the seconds within the unit
    that fire. `weekly` is the course through the week, where the days are chosen by their weekday alone.
    """

    __slots__ = ("_base", "_course", "_days", "_known", "_moments", "_step", "_weekly")

    def __init__(
        self,
        base: int,
        step: int,
        course: Course,
        days: DaySet,
        moments: tuple[int, ...],
        weekly: Course | None = None,
    ) -> None:
        self._base = base
        self._step = step
        self._course = course
        self._days = days
        self._moments = moments
        self._weekly = weekly
        hits = hits_of(course)
        self._known = hits if len(hits) <= _SMALL else None  # the large ones are shared, and may be dropped

    @property
    def _pattern(self) -> bytes:
        return self._known or hits_of(self._course)

    def first(self, low: int, high: int) -> int | None:
        unit = self._unit_from(low - self._moments[-1])
        hits = self._pattern
        while (found := _next_hit(hits, unit)) is not None:
            start = self._base + found * self._step
            if start > high:
                return None
            day = self._days.following(start // DAY, high // DAY)
            if day is None:
                return None
            if day == start // DAY:
                hit = start + self._moments[bisect_left(self._moments, low - start)]
                return hit if hit <= high else None
            unit = self._unit_from(day * DAY)
        return None

    def count(self, low: int, high: int) -> int:
        """Units wholly inside are counted a day, or all days, at a time; the two at the edges by hand."""
        if low > high:
            return 0
        first = self._unit_from(low - self._moments[-1])
        last = (high - self._moments[0] - self._base) // self._step
        if last - first < 2:
            return sum(self._moments_in(unit, low, high) for unit in range(first, last + 1))
        edges = self._moments_in(first, low, high) + self._moments_in(last, low, high)
        return edges + self._units_counting(first + 1, last - 1) * len(self._moments)

    def _moments_in(self, unit: int, low: int, high: int) -> int:
        start = self._base + unit * self._step
        hits = self._pattern
        if not hits[unit % len(hits)] or start // DAY not in self._days:
            return 0
        return bisect_right(self._moments, high - start) - bisect_left(self._moments, low - start)

    def _units_counting(self, first: int, last: int) -> int:
        """How many units from `first` to `last` count."""
        if self._days.every:
            return _hits_below(self._course, last + 1) - _hits_below(self._course, first)
        if self._weekly is not None and (last - first) * self._step > _LONG:
            return _hits_below(self._weekly, last + 1) - _hits_below(self._weekly, first)
        if self._step > 4 * DAY:
            return sum(1 for _ in self._units(first, last))
        low, high = ((self._base + unit * self._step) // DAY for unit in (first, last))
        if DAY % self._step == 0 and high - low > 2:  # all days between are alike
            inner = self._days.count(low + 1, high - 1)
            total = inner * self._units_in(low + 1, first, last) if inner else 0
            days = [day for day in (low, high) if day in self._days]
        else:
            total, days = 0, self._days.between(low, high)
        return total + sum(self._units_in(day, first, last) for day in days)

    def _units(self, first: int, last: int) -> Iterator[int]:
        """The units from `first` to `last` that count, one by one."""
        hits, base, step, days = self._pattern, self._base, self._step, self._days
        unit = _next_hit(hits, first)
        while unit is not None and unit <= last:
            if (base + unit * step) // DAY in days:
                yield unit
            unit = _next_hit(hits, unit + 1)

    def _units_in(self, day: int, first: int, last: int) -> int:
        """How many of the units from `first` to `last` lie in the day and have a time of day that counts."""
        start, end = self._unit_from(day * DAY), self._unit_from((day + 1) * DAY)
        return _hits_below(self._course, min(end, last + 1)) - _hits_below(self._course, max(start, first))

    def _unit_from(self, reading: int) -> int:
        """The first unit that begins at or after `reading`."""
        return max(-((self._base - reading) // self._step), 0)


class StepRule:
    """A step rule with its DTSTART, for any offset that the zone may have.

    When the offset changes, elapsed time moves on against the wall clock, and so do the units. Only where a
    part finer than the unit is given (`HOURLY;BYMINUTE=0`) do units stay aligned to the clock on the wall.
    """

    __slots__ = (
        "_aligned",
        "_base",
        "_days",
        "_moments",
        "_offset",
        "_rule",
        "_steps",
        "_unit",
        "_weekdays",
    )

    def __init__(self, rule: RuleText, days: DaySet, dtstart: int, offset: int) -> None:
        local = dtstart + offset
        self._rule = rule
        self._unit = _UNITS[rule.frequency]
        self._days = days
        self._weekdays = DaySet(
            month_mask(rule._replace(by_month_day=_ANY, by_year_day=_ANY, by_week_no=_ANY))
        )
        self._offset = offset
        self._aligned = _alignment(rule)
        self._base = local - local % self._aligned
        self._moments = _moments(rule, self._aligned, local % 60)
        self._steps: dict[int, Ticks] = {}

    def under(self, offset: int) -> Ticks:
        steps = self._steps.get(offset)
        if steps is None:
            possible = self._possible(offset)
            steps = self._build(offset, self._rule.interval, self._days) if possible else Never()
            self._steps[offset] = steps
        return steps

    def _possible(self, offset: int) -> bool:
        """Whether it ever fires under this offset; decided exactly, over one calendar cycle.

        A week is tried first: where the step and the weekdays never meet, the whole cycle need not be tried.
        """
        if not self._moments or not self._days.possible():
            return False
        return self._meets(offset, self._weekdays, 7) and self._meets(offset, self._days, CYCLE_DAYS)

    def _meets(self, offset: int, days: DaySet, cycle: int) -> bool:
        """Over a cycle of days the progression covers the same places as one whose interval is the common
        divisor of both (the Chinese remainder theorem again)."""
        interval = gcd(self._rule.interval, cycle * DAY // self._unit)
        steps = self._build(offset, interval, days)
        return steps.first(self._base - DAY, self._base + (cycle + 1) * DAY) is not None

    def _build(self, offset: int, interval: int, days: DaySet) -> Steps:
        shift = offset - self._offset
        start = self._base + shift - shift % self._aligned
        size = DAY // self._unit
        course = _course(self._rule, self._unit, start % DAY // self._unit, interval % size)
        weekly = None
        if self._rule.by_day and not _by_calendar(self._rule):
            into_week = (start + 3 * DAY) % (7 * DAY)  # 1970-01-01 was a Thursday
            weekly = course._replace(
                start=into_week // self._unit,
                stride=interval % (7 * size),
                weekdays=bits_of({weekday for _, weekday in self._rule.by_day}),
            )
        return Steps(start, interval * self._unit, course, days, self._moments, weekly)


def countable_years(rule: RuleText) -> int | None:
    """Over how many years a step rule is counted in less than a tenth of a second; None if it is any number.

    Where the calendar chooses the days they are counted month by month and, if the step does not divide the
    day, each by itself, since each has other times."""
    if rule.frequency not in _UNITS or not _by_calendar(rule):
        return None
    return 1000 if DAY % (rule.interval * _UNITS[rule.frequency]) == 0 else 100


def _by_calendar(rule: RuleText) -> bool:
    """Whether more than the weekday decides which days count."""
    return bool(rule.by_month or rule.by_month_day or rule.by_year_day or rule.by_week_no)


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
    return tuple(moments[place] for place in places_in(len(moments), rule.by_set_pos))


def _course(rule: RuleText, unit: int, start: int, stride: int) -> Course:
    """Parts finer than the unit are no filters; they made its moments."""
    hours = bits_of(rule.by_hour)
    minutes = bits_of(rule.by_minute) if unit < 3600 else 0
    seconds = bits_of(rule.by_second) if unit < 60 else 0
    if not hours | minutes | seconds:
        start = stride = 0  # all units count, wherever it begins
    return Course(unit, hours, minutes, seconds, start, stride)


@lru_cache(maxsize=256)
def hits_of(course: Course) -> bytes:
    """The units that the course meets until it comes round again, a byte for each: 1 if the unit counts. For the
    seconds of a day that takes 6 ms, once; for those of a week, which only long counts ask for, 50 ms."""
    day, start, stride = _time_of_day(*course[:4]), course.start, course.stride
    if course.weekdays:
        day = b"".join(day if course.weekdays >> weekday & 1 else bytes(len(day)) for weekday in range(7))
    size = len(day)
    return bytes([day[(start + place * stride) % size] for place in range(size // gcd(stride, size))])


def _hits_below(course: Course, unit: int) -> int:
    """How many units before `unit` count."""
    rounds, place = divmod(unit, len(hits_of(course)))
    return rounds * _sums(course)[-1] + _hits_before(course, place)


def _hits_before(course: Course, place: int) -> int:
    """Looked up for whole blocks, and counted in the last one: it is asked for every day of a count."""
    block = place // _BLOCK
    return _sums(course)[block] + hits_of(course).count(1, block * _BLOCK, place)


@lru_cache(maxsize=256)
def _sums(course: Course) -> tuple[int, ...]:
    """How many hits there are before each block."""
    hits = hits_of(course)
    blocks = (hits.count(1, start, start + _BLOCK) for start in range(0, len(hits), _BLOCK))
    return tuple(accumulate(blocks, initial=0))


@lru_cache(maxsize=16)
def _time_of_day(unit: int, hours: int, minutes: int, seconds: int) -> bytes:
    """One byte per unit of the day."""
    day = bytes(not hours or hours >> hour & 1 for hour in range(24))
    for coarser, mask in ((3600, minutes), (60, seconds)):
        if unit < coarser:
            row = bytes(not mask or mask >> place & 1 for place in range(60))
            day = b"".join(row if allowed else bytes(60) for allowed in day)
    return day


def _next_hit(hits: bytes, unit: int) -> int | None:
    """The first unit at or after `unit` that counts."""
    place = unit % len(hits)
    found = hits.find(1, place)
    if found < 0:
        found = hits.find(1)
        unit += len(hits)
    return None if found < 0 else unit - place + found
