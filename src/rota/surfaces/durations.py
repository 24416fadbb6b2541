"""Durations as people write and read them: `30s 5m 1h 7d 2w`; times, as programs read them, and how far off they are:
`in 2h 30m`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ..domain.checks import check_duration, parsed_duration

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_LONG = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def parsed(field: str, text: str) -> timedelta:
    """`1h30m` as a timedelta. Where everything is a text, a number is one of seconds, too."""
    is_number = _NUMBER.fullmatch(text.strip())
    return check_duration(field, float(text)) if is_number else parsed_duration(field, text)


def short(span: timedelta) -> str:
    """The two largest units: `2h 30m`, `45s`, `120ms`, `3d`."""
    seconds = abs(span.total_seconds())
    if seconds < 1:
        return f"{round(seconds * 1000)}ms" if seconds else "0s"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = round(seconds) if seconds < 3_600 else round(seconds / 60) * 60
    if whole >= 86_400:
        whole = round(seconds / 3_600) * 3_600
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, left = divmod(rest, 60)
    parts = [
        f"{value}{unit}" for value, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (left, "s")) if value
    ]
    return " ".join(parts[:2]) or "0s"


def long_text(span: timedelta) -> str:
    """For sentences: `1 minute`, `2 hours 30 minutes`."""
    left = span.total_seconds()
    if left < 1:
        return f"{left * 1000:g} ms" if left else "0 seconds"
    parts = []
    for unit, size in _LONG:
        value, left = divmod(left, size)
        if value:
            parts.append(f"{value:g} {unit}{'' if value == 1 else 's'}")
    return " ".join(parts[:2])


def iso(at: datetime) -> str:
    """`2026-01-28T17:00:00Z`; whole seconds where there is nothing finer."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def relative(at: datetime, now: datetime) -> str:
    """`in 2h 30m`, `5s ago`, `now`."""
    away = at - now
    if abs(away) < timedelta(milliseconds=500):
        return "now"
    rounded = away if abs(away) >= timedelta(seconds=60) else timedelta(seconds=round(away.total_seconds()))
    return f"in {short(rounded)}" if away > timedelta(0) else f"{short(rounded)} ago"


def coarse(at: datetime, now: datetime) -> str:
    """As `relative`, the largest unit only: `2m ago`. For columns."""
    words = relative(at, now).split()
    return " ".join([*words[:1], "ago"]) if words[-1] == "ago" else " ".join(words[:2])
