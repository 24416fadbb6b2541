"""Cron lines for those who know none: a few fields that make a line, and the fields that a line would fill."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PACES = {"minute": "minutes", "hour": "hours", "day": "day", "week": "week", "month": "month"}
WEEKDAYS = {"1": "Mon", "2": "Tue", "3": "Wed", "4": "Thu", "5": "Fri", "6": "Sat", "0": "Sun"}
_NUMBER = r"(\d{1,2})"
_DAYS = r"([0-6](?:[-,][0-6])*)"
_LINES = {
    "minute": re.compile(rf"(?:\*/{_NUMBER}|\*) \* \* \* \*"),
    "hour": re.compile(rf"{_NUMBER} (?:\*/{_NUMBER}|\*) \* \* \*"),
    "day": re.compile(rf"{_NUMBER} {_NUMBER} \* \* \*"),
    "week": re.compile(rf"{_NUMBER} {_NUMBER} \* \* {_DAYS}"),
    "month": re.compile(rf"{_NUMBER} {_NUMBER} (\d{{1,2}}|L) \* \*"),
}


class Built(NamedTuple):
    """The fields. `step` is every how many minutes or hours, `minute` that of the hour, `at` a time of day, `days` are
    weekdays (0 is Sunday), `day` is one of the month or L, its last."""

    pace: str = "day"
    step: str = "1"
    minute: str = "0"
    at: str = "09:00"
    days: tuple[str, ...] = ("1",)
    day: str = "1"


def line_of(form: Mapping[str, str], days: Sequence[str]) -> str:
    """The line that these fields make. What is not a number stays as it is: the line then says what is wrong."""
    usual = Built()
    step = form.get("build_step", "").strip() or usual.step
    minute = form.get("build_minute", "").strip() or usual.minute
    hours, _, minutes = (form.get("build_at", "").strip() or usual.at).partition(":")
    at = f"{_plain(minutes)} {_plain(hours)}"
    every = "*" if step == "1" else f"*/{step}"
    match form.get("build_pace"):
        case "minute":
            return f"{every} * * * *"
        case "hour":
            return f"{minute} {every} * * *"
        case "week":
            chosen = [day for day in WEEKDAYS if day in days]
            return f"{at} * * {'1-5' if chosen == list('12345') else ','.join(chosen or usual.days)}"
        case "month":
            return f"{at} {form.get('build_day') or usual.day} * *"
    return f"{at} * * *"


def _plain(number: str) -> str:
    """The number without a leading zero."""
    return str(int(number)) if number.isdecimal() else number or "0"


def read(line: str) -> Built | None:
    """The fields that make this line; None, if it says more than they can."""
    line = " ".join(line.split())
    for pace, shape in _LINES.items():
        if found := shape.fullmatch(line):
            return _filled(pace, found.groups())
    return None


def _filled(pace: str, parts: tuple[str | None, ...]) -> Built | None:
    first, second, third = (*parts, None, None)[:3]
    if pace == "minute":
        return Built(pace, step=first or "1")
    if pace == "hour":
        return Built(pace, step=second or "1", minute=first or "0")
    at = f"{int(second or 0):02d}:{int(first or 0):02d}"
    if pace == "week":
        return Built(pace, at=at, days=_weekdays(third or ""))
    return Built(pace, at=at, day=third or "1")


def _weekdays(text: str) -> tuple[str, ...]:
    """`1-5` and `1,3`, each day by itself."""
    found: set[str] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= {str(day) for day in range(int(first), int(last or first) + 1)}
    return tuple(day for day in WEEKDAYS if day in found)
