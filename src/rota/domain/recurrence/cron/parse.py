"""Cron expressions: five fields, six with seconds first, or a macro.

`parse_cron` refuses with one sentence whatever is not understood, ambiguous, or can never happen; what it
returns is ready to be walked. Day-by-day arithmetic is in `days`, daylight saving in `walk`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from ..pattern import Pattern
from ..times import TimeGrid
from .days import DayField, day_set, parse_day_of_month, parse_day_of_week
from .fields import HOUR, MINUTE, MONTH, SECOND, parse_field, shown

__all__ = ["MACROS", "CronLine", "parse_cron"]

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
