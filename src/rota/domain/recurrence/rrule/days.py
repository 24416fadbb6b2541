"""The day parts of an RRULE as a mask per month: BYMONTHDAY, BYYEARDAY, BYWEEKNO, BYDAY.

Each part that is given narrows the month; bit 0 is the 1st. A value that a month or year does not have
selects nothing there (no clamping to the last day).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..months import Shape
from .text import RuleText

__all__ = ["month_mask"]

_EVERY_SEVENTH: Final = 0x1020_4081


def month_mask(rule: RuleText) -> Callable[[Shape], int]:
    """The function that a `DaySet` asks, once per shape."""
    parts: list[Callable[[Shape, RuleText], int]] = []
    if rule.by_month_day:
        parts.append(_month_days)
    if rule.by_year_day:
        parts.append(_year_days)
    if rule.by_week_no:
        parts.append(_week_numbers)
    if rule.by_day:
        parts.append(_weekdays)

    def mask_of(shape: Shape) -> int:
        mask = (1 << shape.length) - 1
        for part in parts:
            mask &= part(shape, rule)
            if not mask:
                break
        return mask

    return mask_of


def _month_days(shape: Shape, rule: RuleText) -> int:
    days = (day - 1 if day > 0 else shape.length + day for day in rule.by_month_day)
    return sum(1 << day for day in set(days) if 0 <= day < shape.length)


def _year_days(shape: Shape, rule: RuleText) -> int:
    """Day 366 and day -366 are of leap years only."""
    days = {day - 1 if day > 0 else shape.year_length + day for day in rule.by_year_day}
    places = (day - shape.before for day in days if 0 <= day < shape.year_length)
    return sum(1 << place for place in places if 0 <= place < shape.length)


def _weekdays(shape: Shape, rule: RuleText) -> int:
    """Numbered days count within the month, or within the year in a YEARLY rule without BYMONTH. What
    reaches beyond the month is cut off by the caller."""
    in_year = rule.frequency == "YEARLY" and not rule.by_month
    mask = 0
    for nth, weekday in rule.by_day:
        first = (weekday - shape.weekday) % 7
        if nth == 0:
            mask |= _EVERY_SEVENTH << first
        elif in_year:
            mask |= _nth(
                nth, (weekday - shape.year_weekday) % 7, shape.year_length, shape.before, shape.length
            )
        else:
            mask |= _nth(nth, first, shape.length, 0, shape.length)
    return mask


def _nth(nth: int, first: int, length: int, before: int, month_length: int) -> int:
    """The bit of the n-th day of the series `first, first + 7, …` below `length`, if it is in the month."""
    size = (length - 1 - first) // 7 + 1
    place = nth - 1 if nth > 0 else size + nth
    day = first + 7 * place - before
    return 1 << day if 0 <= place < size and 0 <= day < month_length else 0


def _week_numbers(shape: Shape, rule: RuleText) -> int:
    """A week belongs to the year that has its fourth day. Days of January may lie in the last week of the
    year before, days of December in the first week of the next."""
    mask = 0
    first_week = -((shape.weekday - rule.week_start) % 7)
    for start in range(first_week, shape.length, 7):
        number, weeks = _week_of(shape.before + start + 3, shape, rule.week_start)
        if number in rule.by_week_no or number - weeks - 1 in rule.by_week_no:
            mask |= 0x7F << start if start >= 0 else 0x7F >> -start
    return mask


def _week_of(fourth: int, shape: Shape, week_start: int) -> tuple[int, int]:
    """`(week number, weeks of that year)` of the week whose fourth day is day `fourth` of shape's year."""
    length, weekday = shape.year_length, shape.year_weekday
    if fourth < 0:
        length = shape.last_year_length
        fourth, weekday = fourth + length, weekday - length
    elif fourth >= length:
        fourth, weekday, length = fourth - length, weekday + length, shape.next_year_length
    first_fourth = (week_start + 3 - weekday) % 7
    return fourth // 7 + 1, (length - 1 - first_fourth) // 7 + 1
