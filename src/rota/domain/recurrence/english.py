"""Small words: lists, ordinals, durations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

__all__ = ["MONTHS", "WEEKDAYS", "duration", "every", "listed", "ordinal"]

WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_UNITS: Final = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; a long list is cut short."""
    if len(words) > 12:
        words = [*words[:10], f"{len(words) - 10} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def ordinal(number: int) -> str:
    """`1st`, `22nd`, and from the end `last`, `2nd to last`."""
    if number == -1:
        return "last"
    suffix = (
        "th" if abs(number) % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(abs(number) % 10, "th")
    )
    return f"{abs(number)}{suffix}" + (" to last" if number < 0 else "")


def every(number: int, unit: str) -> str:
    return f"Every {unit}" if number == 1 else f"Every {number:,} {unit}s"


def duration(length: timedelta) -> str:
    """`1 hour 30 minutes`."""
    rest, words = int(length.total_seconds()), []
    for size, unit in _UNITS:
        number, rest = divmod(rest, size)
        if number:
            words.append(f"{number:,} {unit}{'s' * (number != 1)}")
    if length.microseconds:
        words.append(f"{length.microseconds:,} microseconds")
    return " ".join(words)
