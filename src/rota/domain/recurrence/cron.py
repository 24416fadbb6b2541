"""Cron expressions: five fields, six with seconds first, or a macro.

`parse_cron` refuses with one sentence what is not understood, is ambiguous, or can never happen. A field is a list of
items; an item is `*`, a value, `a-b`, or one of these with `/step`. The two day fields also know `L`, `W` and `#`: they
become functions from a month's shape to a mask of its days, bit 0 for the 1st, so that a shape is computed once.
Daylight saving is in `walk`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from .days import DaySet, Shape
from .pattern import Pattern, TimeGrid

__all__ = ["CronLine", "parse_cron"]

_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FULL_NAME: Final = re.compile(
    r"(?:SUN|MON|TUES|WEDNES|THURS|FRI|SATUR)DAY|(?:[A-Z]{3,}(?:UARY|CH|IL|E|Y|UST|BER))"
)
_ITEM: Final = re.compile(r"(?P<first>\*|[A-Z0-9]+)(?:-(?P<last>[A-Z0-9]+))?(?:/(?P<step>[0-9]+))?")


class Field(NamedTuple):
    """`high` is the largest value one may write, `top` the last that `*` and `a/step` reach."""

    name: str
    low: int
    high: int
    top: int
    names: tuple[str, ...] = ()

    def refuse(self, text: str, reason: str) -> ValueError:
        return ValueError(f"cron: {self.name} field {shown(text)} {reason}")

    def out_of_range(self, text: str) -> ValueError:
        return self.refuse(text, f"is out of range; accepted are {self.accepted}")

    def not_understood(self, text: str) -> ValueError:
        return self.refuse(
            text, f"is not understood; accepted are {self.accepted}, '*', ranges, steps and lists"
        )

    @property
    def accepted(self) -> str:
        names = f" and {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"{self.low}-{self.high}{names}"

    def forwards(self, first: int, last: int) -> str:
        """What someone who wrote a range that runs backwards may have meant."""
        if self is DAY_OF_WEEK and last == 0:
            return f"{first}-7"
        return f"{first}-{self.top},{self.low}-{last}"

    @property
    def size(self) -> int:
        return self.high - self.low + 1


SECOND: Final = Field("second", 0, 59, 59)
MINUTE: Final = Field("minute", 0, 59, 59)
HOUR: Final = Field("hour", 0, 23, 23)
DAY_OF_MONTH: Final = Field("day-of-month", 1, 31, 31)
MONTH: Final = Field("month", 1, 12, 12, _MONTHS)
DAY_OF_WEEK: Final = Field("day-of-week", 0, 7, 6, _WEEKDAYS)


def parse_field(field: Field, text: str) -> int:
    """The mask of a field that has no special items."""
    mask = 0
    for item in text.split(","):
        mask |= parse_item(field, item)
    return mask


def parse_item(field: Field, item: str) -> int:
    """The mask of one item of the list; in day-of-week bit 7 may be set, and means Sunday like bit 0."""
    if not item:
        raise ValueError(
            f"cron: {field.name} field has an empty item; accepted are values separated by single commas"
        )
    match = _ITEM.fullmatch(item)
    if match is None or (match["first"] == "*" and match["last"] is not None):
        raise _explain(field, item)
    step = _step(field, item, match["step"], bounded=match["last"] is not None)
    if match["first"] == "*":
        return _mask(field.low, field.top, step)
    first = parse_value(field, match["first"], item)
    if match["last"] is not None:
        last = parse_value(field, match["last"], item)
        if last < first:
            raise field.refuse(item, f"runs backwards; accepted is for example {field.forwards(first, last)}")
        return _mask(first, last, step)
    return _mask(first, max(field.top, first), step) if match["step"] is not None else 1 << first


def parse_value(field: Field, text: str, item: str) -> int:
    """A number, or a name in the fields that have names."""
    if text in field.names:
        return field.low + field.names.index(text)
    if not text.isdecimal():
        raise _explain(field, item)
    value = int(text) if len(text) <= 4 else field.high + 1
    if not field.low <= value <= field.high:
        raise field.out_of_range(item)
    return value


def _step(field: Field, item: str, text: str | None, *, bounded: bool) -> int:
    """A step of 0 never ends; one beyond the whole field is surely meant otherwise (`*/100`)."""
    if text is None:
        return 1
    step = int(text) if len(text) <= 4 else 10_000
    if step < 1:
        raise field.refuse(item, "has a step of 0; accepted are steps from 1")
    if step > field.size and not bounded:
        raise field.refuse(item, f"has a step beyond the field; accepted are steps from 1 to {field.size}")
    return step


def _mask(first: int, last: int, step: int) -> int:
    mask = 0
    for value in range(first, last + 1, step):
        mask |= 1 << value
    return mask


def _explain(field: Field, item: str) -> ValueError:
    """The refusal that helps most: people write what other crons know."""
    if item == "H" or item.startswith(("H/", "H(")):
        return field.refuse(item, "uses H, which is Jenkins's; give a number, and a jitter on the schedule")
    if item == "?":
        return field.refuse(item, "is for the day fields only; write '*'")
    if field.names and _FULL_NAME.fullmatch(item):
        return field.refuse(item, f"is a full name; write the first three letters, {item[:3]}")
    return field.not_understood(item)


def shown(text: str) -> str:
    """A text as a refusal quotes it."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


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


MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST: Final = 1_000
_FROM_STEP: Final = re.compile(r"[0-9]+/")


class CronLine(NamedTuple):
    """A parsed expression. `fields` are five or six, in capitals; `repeats` is true for expressions that
    repeat within the day and keep their real-time rhythm through clock changes."""

    fields: tuple[str, ...]
    repeats: bool
    of_month: DayField
    of_week: DayField
    pattern: Pattern


@lru_cache(maxsize=4096)
def parse_cron(expression: str) -> CronLine:
    """Read an expression; `ValueError` says what is wrong with it."""
    fields = _split(expression)
    second, minute, hour, day, month, weekday = ("0", *fields)[-6:]
    grid = TimeGrid(parse_field(HOUR, hour), parse_field(MINUTE, minute), parse_field(SECOND, second))
    of_month, of_week = parse_day_of_month(day), parse_day_of_week(weekday)
    days = day_set(parse_field(MONTH, month) >> 1, of_month, of_week)
    if not days.possible():
        also = "" if of_week.open else f" on day-of-week field {shown(weekday)}"
        raise ValueError(
            f"cron: day-of-month field {shown(day)} never occurs in month field {shown(month)}{also}; "
            "accepted are dates that some year has"
        )
    repeats = any(_is_wildcard(field) for field in (second, minute, hour))
    return CronLine(fields, repeats, of_month, of_week, Pattern(days, grid))


def _split(expression: str) -> tuple[str, ...]:
    """The fields, in capitals and with macros replaced."""
    if not isinstance(expression, str) or not expression.strip():
        raise ValueError(
            "cron: the expression is empty; accepted are 5 fields, 6 with seconds first, or a macro"
        )
    if len(expression) > _LONGEST:
        raise ValueError(
            f"cron: the expression has {len(expression):,} characters; accepted are up to {_LONGEST:,}"
        )
    text = expression.strip()
    if text.startswith("@"):
        text = _macro(text)
    fields = tuple(field for field in re.split(r"[ \t]+", text.upper()) if field)
    if len(fields) not in (5, 6):
        hint = " (there is no year field)" if len(fields) == 7 else ""
        raise ValueError(
            f"cron: the expression has {len(fields)} field{'s' * (len(fields) != 1)}; "
            f"accepted are 5 fields, or 6 with seconds first{hint}"
        )
    return fields


def _macro(text: str) -> str:
    line = MACROS.get(text.lower())
    if line is not None:
        return line
    if text.lower().startswith("@every"):
        raise ValueError(
            "cron: '@every' is not accepted; use an interval, such as PT5M, instead of an expression"
        )
    if text.lower() == "@reboot":
        raise ValueError(
            "cron: '@reboot' is not accepted, since a schedule outlives the machine; give a time"
        )
    raise ValueError(f"cron: macro {text[:40]!r} is not known; accepted are {', '.join(MACROS)}")


def _is_wildcard(field: str) -> bool:
    """Debian cron's test, begins with `*`; `n/step` reads as `*/step` from n and counts too."""
    return field.startswith("*") or _FROM_STEP.match(field) is not None
