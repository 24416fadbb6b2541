"""Cron's two day fields, and the set of days that they make together.

Both are read into small functions from a month's shape to a mask of its days, bit 0 for the 1st, so that
`L`, `W` and `#` cost nothing once a shape has been seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from ..days import DaySet
from ..months import Shape
from .fields import DAY_OF_MONTH, DAY_OF_WEEK, parse_item, parse_value

__all__ = ["DayField", "day_set", "parse_day_of_month", "parse_day_of_week"]

_LAST: Final = re.compile(r"L(?:-(?P<before>[0-9]+))?")
_NEAREST: Final = re.compile(r"(?P<day>[0-9]+)W")
_NTH: Final = re.compile(r"(?P<day>[A-Z0-9]+?)(?:#(?P<nth>[0-9]+)|(?P<last>L))")

MaskOf = Callable[[Shape], int]


class DayField(NamedTuple):
    """`starred` is cron's own test, "begins with `*`": such a field narrows the other instead of adding to
    it. `open` is a field that allows every day."""

    starred: bool
    open: bool
    mask_of: MaskOf


def parse_day_of_month(text: str) -> DayField:
    if text == "?":
        return DayField(True, True, _whole_month)
    plain = 0
    special: list[MaskOf] = []
    for item in text.split(","):
        found = _special_day_of_month(item)
        if found is None:
            plain |= parse_item(DAY_OF_MONTH, item) >> 1
        else:
            special.append(found)
    return _field(text, plain == 0x7FFF_FFFF, lambda shape: plain, special)


def parse_day_of_week(text: str) -> DayField:
    if text == "?":
        return DayField(True, True, _whole_month)
    plain = 0
    special: list[MaskOf] = []
    for item in text.split(","):
        found = _special_day_of_week(item)
        if found is None:
            plain |= parse_item(DAY_OF_WEEK, item)
        else:
            special.append(found)
    weekdays = (plain | plain >> 7) & 0x7F  # 7 is Sunday, like 0
    return _field(text, weekdays == 0x7F, lambda shape: _on_weekdays(shape, weekdays), special)


def day_set(months: int, of_month: DayField, of_week: DayField) -> DaySet:
    """The days of the given months that the two fields allow: either may match when both restrict."""
    if of_month.starred or of_week.starred:

        def mask_of(shape: Shape) -> int:
            return of_month.mask_of(shape) & of_week.mask_of(shape)
    else:

        def mask_of(shape: Shape) -> int:
            return of_month.mask_of(shape) | of_week.mask_of(shape)

    every = months == 0xFFF and of_month.open and of_week.open
    return DaySet(mask_of, months, every=every)


def _field(text: str, full: bool, plain: MaskOf, special: list[MaskOf]) -> DayField:
    def mask_of(shape: Shape) -> int:
        mask = plain(shape) & _whole_month(shape)
        for one in special:
            mask |= one(shape)
        return mask

    return DayField(text.startswith("*"), full, mask_of)


def _special_day_of_month(item: str) -> MaskOf | None:
    """`L`, `L-n`, `LW`, `nW`; None for anything that is no such thing."""
    if item == "LW":
        return _last_working_day
    if match := _NEAREST.fullmatch(item):
        day = parse_value(DAY_OF_MONTH, match["day"], item)
        return lambda shape: _nearest_working_day(shape, day)
    if match := _LAST.fullmatch(item):
        before = int(match["before"][:4]) if match["before"] is not None else 0
        if match["before"] is not None and not 1 <= before <= 30:
            raise DAY_OF_MONTH.refuse(item, "is out of range; accepted are L-1 to L-30")
        return lambda shape: 1 << shape.length - 1 >> before
    if item.startswith("L") or (item.endswith("W") and item[:-1] != ""):
        raise DAY_OF_MONTH.refuse(item, "is not understood; accepted with L and W are L, L-n, LW and nW")
    return None


def _special_day_of_week(item: str) -> MaskOf | None:
    """`dL`, `d#k`; None for anything that is no such thing."""
    if item == "L":
        raise DAY_OF_WEEK.refuse(item, "needs a day before it; accepted is for example 5L, the last Friday")
    match = _NTH.fullmatch(item)
    if match is None:
        if "#" in item:
            raise DAY_OF_WEEK.refuse(
                item, "is not understood; accepted is a day, '#' and 1 to 5, such as MON#2"
            )
        return None
    weekday = (parse_value(DAY_OF_WEEK, match["day"], item) - 1) % 7  # shapes count from Monday
    if match["last"]:
        return lambda shape: _last_weekday(shape, weekday)
    nth = int(match["nth"][:4])
    if not 1 <= nth <= 5:
        raise DAY_OF_WEEK.refuse(item, "is out of range; accepted after '#' are 1 to 5")
    return lambda shape: 1 << (weekday - shape.weekday) % 7 + 7 * (nth - 1) & _whole_month(shape)


def _whole_month(shape: Shape) -> int:
    return (1 << shape.length) - 1


def _on_weekdays(shape: Shape, weekdays: int) -> int:
    """All days of the month on the given weekdays, bit 0 for Sunday."""
    week = sum(1 << place for place in range(7) if weekdays >> (shape.weekday + 1 + place) % 7 & 1)
    return week * 0x1020_4081 & 0x7FFF_FFFF  # seven days, repeated


def _last_weekday(shape: Shape, weekday: int) -> int:
    last = (shape.weekday + shape.length - 1) % 7
    return 1 << shape.length - 1 - (last - weekday) % 7


def _last_working_day(shape: Shape) -> int:
    return _nearest_working_day(shape, shape.length)


def _nearest_working_day(shape: Shape, day: int) -> int:
    """Monday to Friday nearest to `day`, without leaving the month."""
    if day > shape.length:
        return 0
    weekday = (shape.weekday + day - 1) % 7
    if weekday == 5:
        day += 2 if day == 1 else -1
    elif weekday == 6:
        day -= 2 if day == shape.length else -1
    return 1 << day - 1
