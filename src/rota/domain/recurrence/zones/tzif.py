"""Reading zone files: RFC 9636 TZif data, and the POSIX rule in its footer that holds for all later years.

Only offsets matter here. Names of zones and the "is it summer time" flag are not read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..months import month_start, shape_number, shape_of
from ..ticks import DAY

__all__ = ["ZoneFile", "parse_zone_file"]

_HEADER: Final = struct.Struct(">4sc15x6l")
_NAME: Final = r"(?:<[^>]+>|[A-Za-z]+)"
_CLOCK: Final = r"[+-]?\d+(?::\d+){0,2}"
_FOOTER: Final = re.compile(
    rf"{_NAME}(?P<std>{_CLOCK})(?:{_NAME}(?P<dst>{_CLOCK})?,(?P<start>[^,]+),(?P<end>[^,]+))?"
)


class _Change(NamedTuple):
    """When in a year clocks change: `M` month.week.weekday, `J` a day without 29 February, or a plain day."""

    kind: str
    numbers: tuple[int, ...]
    clock: int

    def at(self, year: int) -> int:
        """Local seconds of the change."""
        january = month_start(year * 12)
        if self.kind == "M":
            month, week, weekday = self.numbers
            index = year * 12 + month - 1
            shape = shape_of(shape_number(index))
            day = (weekday - 1 - shape.weekday) % 7 + 7 * (week - 1)
            return (month_start(index) + (day if day < shape.length else day - 7)) * DAY + self.clock
        (day,) = self.numbers
        if self.kind == "J":
            leap = shape_of(shape_number(year * 12)).year_length == 366
            day = day if leap and day > 59 else day - 1
        return (january + day) * DAY + self.clock


class ZoneFile(NamedTuple):
    """`before` is the offset until the first of `changes`, each `(instant, offset from then on)`."""

    before: int
    changes: list[tuple[int, int]]
    standard: int
    summer: int
    rule: tuple[_Change, _Change] | None

    def later_changes(self, first_year: int, last_year: int) -> Iterator[tuple[int, int]]:
        """What the footer's rule says about the given years, in order of time."""
        if self.rule is None:
            return
        start, end = self.rule
        for year in range(first_year, last_year + 1):
            yield from sorted(
                [(start.at(year) - self.standard, self.summer), (end.at(year) - self.summer, self.standard)]
            )


def parse_zone_file(data: bytes) -> ZoneFile:
    """Read a TZif file of version 2 or later (version 1 has no footer and is not published any more)."""
    magic, version, *counts = _HEADER.unpack_from(data)
    if magic != b"TZif" or version < b"2":
        raise ValueError("not a TZif file of version 2 or later")
    isut, isstd, leap, times, types, chars = counts
    position = _HEADER.size + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _, _, isut, isstd, leap, times, types, chars = _HEADER.unpack_from(data, position)
    position += _HEADER.size
    instants = struct.unpack_from(f">{times}q", data, position)
    kinds = data[position + times * 8 : position + times * 9]
    position += times * 9
    offsets = [struct.unpack_from(">l", data, position + 6 * kind)[0] for kind in range(types)]
    position += types * 6 + chars + leap * 12 + isstd + isut
    footer = data[position:].strip(b"\n").decode("ascii")
    changes = [(instant, offsets[kind]) for instant, kind in zip(instants, kinds, strict=True)]
    standard, summer, rule = (
        _parse_footer(footer) if footer else (changes[-1][1] if changes else offsets[0], 0, None)
    )
    return ZoneFile(offsets[0], changes, standard, summer, rule)


def _parse_footer(text: str) -> tuple[int, int, tuple[_Change, _Change] | None]:
    match = _FOOTER.fullmatch(text)
    if match is None:
        raise ValueError(f"zone rule {text!r} is not understood")
    standard = -_seconds(match["std"])
    if match["start"] is None:
        return standard, standard, None
    summer = -_seconds(match["dst"]) if match["dst"] else standard + 3600
    return standard, summer, (_parse_change(match["start"]), _parse_change(match["end"]))


def _parse_change(text: str) -> _Change:
    when, _, clock = text.partition("/")
    kind = when[0] if when[0] in "MJ" else ""
    numbers = tuple(int(number) for number in when.lstrip("MJ").split("."))
    return _Change(kind, numbers, _seconds(clock) if clock else 7200)


def _seconds(clock: str) -> int:
    sign = -1 if clock.startswith("-") else 1
    parts = [int(part) for part in clock.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
