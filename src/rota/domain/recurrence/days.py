"""The calendar without `date` objects, and sets of days in it.

A month is its *index*, `year * 12 + month - 1`; a day is its number since 1970-01-01. The calendar repeats every 400
years, which are 146,097 days and a whole number of weeks, so one table of 4,800 months serves all. Months that look
alike (same month of the year, weekdays and lengths, in years whose neighbours look alike) share a *shape*. There are
336 of them, and anything that depends only on the calendar is computed per shape.

A `DaySet` is what cron's day fields and an RRULE's day parts have in common: some days of each month shape
(`mask_of`), in some months of the year (`months`), in every n-th block of months (`Blocks`: MONTHLY and
YEARLY with INTERVAL), on every n-th day or in every n-th week (`Comb`: DAILY and WEEKLY with INTERVAL).
A search goes from month to month and skips those that cannot match. Where matches are rare, it goes through a list of
the months of the 400-year cycle that have any: a rule that fires once in two thousand years takes 0.07 instead of 1 ms.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from calendar import isleap
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import cache
from itertools import chain
from math import gcd
from typing import Final, NamedTuple

from .ticks import lowest_bit

CYCLE_MONTHS: Final = 4_800
CYCLE_DAYS: Final = 146_097
EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
FIRST_DAY: Final = date.min.toordinal() - EPOCH_ORDINAL
LAST_DAY: Final = date.max.toordinal() - EPOCH_ORDINAL
SHAPES: Final = 336
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Shape(NamedTuple):
    """The shape of one month. Weekdays count from Monday = 0; `before` is the days of the year gone by."""

    month: int
    length: int
    weekday: int
    before: int
    year_length: int
    year_weekday: int
    last_year_length: int
    next_year_length: int


def _neighbours(last_year_length: int, year_length: int, next_year_length: int) -> int:
    """Where the leap year is among three years in a row: 3 for nowhere."""
    lengths = (last_year_length, year_length, next_year_length)
    return lengths.index(366) if 366 in lengths else 3


def _tables() -> tuple[list[int], list[int], list[Shape | None]]:
    """Start days (relative to the cycle), shape numbers, and the shapes, for years 2000 to 2399."""
    starts: list[int] = []
    numbers: list[int] = []
    shapes: list[Shape | None] = [None] * SHAPES
    day = 0
    for year in range(2000, 2400):
        lengths = [365 + isleap(near) for near in (year - 1, year, year + 1)]
        year_weekday = (day + 5) % 7  # 2000-01-01 was a Saturday
        neighbours = _neighbours(*lengths)
        before = 0
        for month in range(1, 13):
            length = 29 if month == 2 and lengths[1] == 366 else _LENGTHS[month - 1]
            number = (year_weekday * 4 + neighbours) * 12 + month - 1
            if shapes[number] is None:
                weekday = (year_weekday + before) % 7
                shapes[number] = Shape(
                    month, length, weekday, before, lengths[1], year_weekday, lengths[0], lengths[2]
                )
            starts.append(day)
            numbers.append(number)
            before += length
            day += length
    return starts, numbers, shapes


_STARTS, _NUMBERS, _SHAPES = _tables()
_PLACES: Final[list[list[int]]] = [[] for _ in range(SHAPES)]
for _place, _number in enumerate(_NUMBERS):
    _PLACES[_number].append(_place)
_BASE: Final = date(2000, 1, 1).toordinal() - EPOCH_ORDINAL


def month_of(day: int) -> int:
    """The index of the month that holds `day`."""
    when = date.fromordinal(day + EPOCH_ORDINAL)
    return when.year * 12 + when.month - 1


def month_start(index: int) -> int:
    """The day number of the first of the month; also for months beyond the years that `date` knows."""
    cycle, place = divmod(index, CYCLE_MONTHS)  # 2000 is a multiple of 400: places agree with the table
    return _BASE + _STARTS[place] + (cycle - 5) * CYCLE_DAYS


def shape_number(index: int) -> int:
    """Which of the 336 shapes the month has."""
    return _NUMBERS[index % CYCLE_MONTHS]


def shape_of(number: int) -> Shape:
    shape = _SHAPES[number]
    if shape is None:
        raise LookupError(f"no month has shape {number}")
    return shape


def number_of(shape: Shape) -> int:
    """The number that the shape has."""
    lengths = shape.last_year_length, shape.year_length, shape.next_year_length
    return (shape.year_weekday * 4 + _neighbours(*lengths)) * 12 + shape.month - 1


def places_of(numbers: Iterable[int]) -> array[int]:
    """Which of the 4,800 months of a cycle have one of the given shapes, in order."""
    return array("H", sorted(chain.from_iterable(_PLACES[number] for number in numbers)))


def year_shapes(shape: Shape) -> list[Shape]:
    """The twelve months of the year that `shape` is a month of."""
    january = number_of(shape) - shape.month + 1
    return [shape_of(number) for number in range(january, january + 12)]


def next_shape(shape: Shape) -> Shape:
    """The month after. Past December, whether the year after that is a leap year is left open: no day of
    January depends on it."""
    if shape.month < 12:
        return year_shapes(shape)[shape.month]
    weekday = (shape.year_weekday + shape.year_length) % 7
    lengths = shape.year_length, shape.next_year_length, 365
    return shape_of((weekday * 4 + _neighbours(*lengths)) * 12)


def previous_shape(shape: Shape) -> Shape:
    """The month before. Before January, whether the year before that was a leap year is left open: no day of
    December depends on it."""
    if shape.month > 1:
        return year_shapes(shape)[shape.month - 2]
    weekday = (shape.year_weekday - shape.last_year_length) % 7
    lengths = 365, shape.last_year_length, shape.year_length
    return shape_of((weekday * 4 + _neighbours(*lengths)) * 12 + 11)


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
        tooth = (1 << width) - 1
        bits = tooth >> gone
        for ahead in range(cycle - gone, 31, cycle):
            bits |= tooth << ahead
        return bits & _MONTH_BITS

    def reduced(self) -> Comb:
        return self._replace(cycle=gcd(self.cycle, CYCLE_DAYS))


ALL_MONTHS: Final = 0xFFF
_TRIES: Final = 3
_END_OF_TIME: Final = month_of(LAST_DAY) + 1


_Month = tuple[int, int, int, int]
"""First day, day after the last, mask, index."""


class DaySet:
    """The days that a rule allows."""

    __slots__ = (
        "_ahead",
        "_blocks",
        "_comb",
        "_listed",
        "_mask_of",
        "_masks",
        "_memo",
        "_months",
        "every",
    )

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
        self._ahead = _distances(months)
        self._blocks = blocks if blocks is not None and blocks.interval > 1 else None
        self._comb = comb if comb is not None and comb.cycle > comb.width else None
        self._masks: dict[int, int] = {}
        self._listed: array[int] | None = None
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
        month = self._memo
        if not month[0] <= day < month[1]:
            near = self._next_month(month_of(day), limit) if self._listed else self._month_around(day)
            if near is None:
                return None
            month = near
        start, _, mask, index = month
        rest = mask >> (day - start) if day > start else mask
        day = max(day, start)
        if not rest:
            later = self._next_month(index + 1, limit)
            if later is None:
                return None
            day, _, rest, _ = later
        day += (rest & -rest).bit_length() - 1
        return day if day <= limit else None

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
        while position <= high and (day := self.following(position, high)) is not None:
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
        if not any(self._shape_mask(number) for number in self._shape_numbers()):
            return False
        if self._blocks is None and self._comb is None:
            return True
        low = month_start(2000 * 12)
        return self.reduced().following(low, low + CYCLE_DAYS - 1) is not None

    def reduced(self) -> DaySet:
        """A set that is the same in every calendar cycle. It holds a day of the cycle if this set holds it in some
        cycle."""
        reduced = DaySet(
            self._mask_of,
            self._months,
            self._blocks.reduced() if self._blocks else None,
            self._comb.reduced() if self._comb else None,
            every=self.every,
        )
        reduced._masks = self._masks
        return reduced

    def narrowed(self, mask_of: Callable[[Shape], int]) -> DaySet:
        """The same months, blocks and comb with other masks, which have no days that this one lacks."""
        return DaySet(mask_of, self._months, self._blocks, self._comb)

    def shape_mask(self, shape: Shape) -> int:
        """The members of a month of that shape, were it chosen: nothing if it is not an allowed month."""
        return self._shape_mask(number_of(shape)) if self._months >> shape.month - 1 & 1 else 0

    def _month_around(self, day: int) -> _Month:
        """The month that holds `day`. It is remembered: the next question is mostly about the same month (40 % of the
        time that a next one takes)."""
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
        mask = self._shape_mask(shape_number(index))
        return mask & self._comb.bits(month_start(index)) if self._comb is not None and mask else mask

    def _shape_mask(self, number: int) -> int:
        mask = self._masks.get(number)
        if mask is None:
            mask = self._masks[number] = self._mask_of(shape_of(number))
        return mask

    def _next_month(self, index: int, limit: int) -> _Month | None:
        """The first month at or after `index` that has members, up to day `limit`; remembered."""
        end = month_of(limit) if limit < LAST_DAY else _END_OF_TIME - 1
        if self._listed and self._blocks is None and self._comb is None:
            month = _listed_from(self._listed, index)
        else:
            month = self._admit(index)  # which will mostly do
        if month <= end and not (mask := self._mask(month)):
            later = ((month, self._mask(month)) for month in self._candidates(month + 1, end))
            month, mask = next((found for found in later if found[1]), (end + 1, 0))
        if month > end:
            return None
        found = self._memo = (month_start(month), month_start(month + 1), mask, month)
        return found

    def _candidates(self, index: int, end: int) -> Iterator[int]:
        """The months from `index` to `end` that may have members: by hopping to the allowed ones and, when a
        few of those were in vain, from the list."""
        if not self._listed:
            sparse = self._comb is not None and self._comb.cycle > 31
            months = self._combed(index, end) if sparse else self._allowed(index, end)
            for tried, month in enumerate(months, 1):
                yield month
                if tried == _TRIES:
                    self._make_list()
                if self._listed:
                    index = month + 1
                    break
        if self._listed:
            yield from self._chosen(_upwards(self._listed, index, end))

    def _allowed(self, index: int, end: int) -> Iterator[int]:
        while (index := self._admit(index)) <= end:
            yield index
            index += 1

    def _combed(self, index: int, end: int) -> Iterator[int]:
        """The allowed months in which a tooth of the comb begins or ends."""
        if self._comb is None:
            return
        origin, cycle, width = self._comb
        low, high = month_start(index), min(month_start(end + 1), LAST_DAY + 1)
        for day in range(low - (low - origin) % cycle, high, cycle):
            month = month_of(day) if day >= low else index
            last = month_of(min(day + width - 1, LAST_DAY)) if width > 1 and day + width > low else month
            if self._months >> month % 12 & 1 and (day >= low or last >= index):
                yield month
            if last != month and last <= end and self._months >> last % 12 & 1:
                yield last

    def _make_list(self) -> None:
        """List the months of a cycle that have days; an empty list stands for one that is no shorter than
        the way from one allowed month to the next."""
        if self._listed is None:
            listed = places_of(number for number in self._shape_numbers() if self._shape_mask(number))
            hop = 1.0
            if self._blocks is not None:
                hop = self._blocks.size * self._blocks.interval / self._months.bit_count()
            elif self._comb is not None:
                hop = self._comb.cycle / 31
            self._listed = listed if len(listed) * hop < CYCLE_MONTHS else listed[:0]

    def _shape_numbers(self) -> Iterator[int]:
        """The shapes of the allowed months of the year."""
        return (number for number in range(SHAPES) if self._months >> number % 12 & 1)

    def _chosen(self, months: Iterator[int]) -> Iterator[int]:
        """The months that the blocks allow."""
        if self._blocks is None:
            return months
        size, origin, interval = self._blocks
        return (month for month in months if (month // size - origin) % interval == 0)

    def _admit(self, index: int) -> int:
        """The first allowed month at or after `index`, or one beyond the end of time."""
        index += self._ahead[index % 12]
        if self._blocks is not None:
            size, origin, interval = self._blocks
            while index < _END_OF_TIME and (gone := (index // size - origin) % interval):
                index = (index // size + interval - gone) * size
                index += self._ahead[index % 12]
        return index


def _listed_from(listed: array[int], index: int) -> int:
    """The first month at or after `index` whose place in the cycle is listed."""
    place = index % CYCLE_MONTHS
    position = bisect_left(listed, place)
    if position < len(listed):
        return index - place + listed[position]
    return index - place + CYCLE_MONTHS + listed[0]


def _upwards(listed: array[int], index: int, end: int) -> Iterator[int]:
    """The months from `index` to `end` whose places in the cycle are listed."""
    cycle, place = divmod(index, CYCLE_MONTHS)
    position = bisect_left(listed, place)
    for first in range(cycle * CYCLE_MONTHS, end + 1, CYCLE_MONTHS):
        for place in listed[position:]:
            if first + place > end:
                return
            yield first + place
        position = 0


@cache
def _distances(months: int) -> tuple[int, ...]:
    """From each month of the year, how many months it is to the nearest allowed one."""
    return tuple(
        next(steps for steps in range(12) if months >> (month + steps) % 12 & 1) for month in range(12)
    )
