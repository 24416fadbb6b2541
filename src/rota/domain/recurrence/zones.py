"""Time zones: stretches of constant offset from UTC.

Zone data comes from the `tzdata` package, and from the system for a zone that the package lacks: system copies are
often months old. The files (TZif, RFC 9636) are read here, so that `zoneinfo`'s search path, which belongs to the host
program, is left alone. A rule in the footer of a file holds for all later years. Only offsets are read.

`Zone` answers two questions in opposite directions, both by bisection:

* `reached(instant)`: the latest reading that the wall clock has shown by then. It never goes back, so it measures
  progress for rules that name readings: when clocks go back, nothing is reached anew until the clock has caught up.
* `resolve(reading)`: the first instant at which that reading is reached. For a reading inside a gap that is
  the first instant after the gap; for one that comes twice it is the first time.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import UTC, tzinfo
from functools import cache, lru_cache
from importlib import import_module
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from ..errors import Invalid
from .days import CYCLE_DAYS, month_of, month_start, shape_number, shape_of
from .ticks import DAY, EARLIEST, LATEST

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,3}")
_LONGEST: Final = 64
_NO_ZONES: Final = re.compile(r"localtime|posixrules|(posix|right)/.*")
"""The files that a system keeps beside its zones: what this machine is set to, and copies with leap seconds or
without."""


def read_zone(name: str) -> bytes | None:
    """The zone's TZif file; None if there is no such zone."""
    if not isinstance(name, str) or len(name) > _LONGEST or not _NAME.fullmatch(name):
        return None
    if _NO_ZONES.fullmatch(name):
        return None
    package = _package()
    places: list[Traversable | Path] = [] if package is None else [package / "zoneinfo" / name]
    places += [Path(folder) / name for folder in TZPATH]
    for place in places:
        try:
            data = place.read_bytes()
        except OSError:
            continue
        if data.startswith(b"TZif"):
            return data
    return None


@cache
def zone_names() -> tuple[str, ...]:
    """Every zone name known, sorted."""
    package = _package()
    if package is None:
        return tuple(sorted(available_timezones()))
    return tuple(sorted(package.joinpath("zones").read_text("ascii").split()))


@cache
def zone_countries() -> dict[str, str]:
    """The countries of the zones that belong to one, by the name of the zone."""
    package = _package()
    if package is None:
        return {}
    tables = [package.joinpath("zoneinfo", name).read_text("utf-8") for name in ("iso3166.tab", "zone.tab")]
    countries, zones = (
        [line.split("\t") for line in table.splitlines() if not line.startswith("#")] for table in tables
    )
    names = {code: name for code, name, *_ in countries}
    return {zone: names[code] for code, _, zone, *_ in zones if code in names}


def close_zones(name: str) -> tuple[str, ...]:
    """Up to three zone names that a person who wrote `name` may have meant."""
    wanted = name[:_LONGEST].strip().replace(" ", "_").casefold()
    names = {known.casefold(): known for known in zone_names()}
    if wanted in names:
        return (names[wanted],)
    cities: dict[str, str] = {}
    for folded, known in names.items():
        cities.setdefault(folded.rpartition("/")[2], known)
    city = cities.get(wanted.rpartition("/")[2])
    if city is not None:
        return (city,)
    from difflib import get_close_matches  # late: costs an import, and hardly anyone needs it

    return tuple(names[near] for near in get_close_matches(wanted, names, n=3, cutoff=0.8))


@cache
def tzdata_version() -> str:
    """The release of the zone data in use, such as `2026f`, or `system` when the package is missing."""
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except ImportError:
        return "system"


@cache
def _package() -> Traversable | None:
    from importlib.resources import files  # late: it costs as much as all else here

    try:
        return files("tzdata")
    except ModuleNotFoundError:
        return None


_HEADER: Final = struct.Struct(">4sc15x6l")
_ABBREVIATION: Final = r"(?:<[^>]+>|[A-Za-z]+)"
_CLOCK: Final = r"[+-]?\d+(?::\d+){0,2}"
_FOOTER: Final = re.compile(
    rf"{_ABBREVIATION}(?P<std>{_CLOCK})(?:{_ABBREVIATION}(?P<dst>{_CLOCK})?,(?P<start>[^,]+),(?P<end>[^,]+))?"
)


class _YearlyChange(NamedTuple):
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
    rule: tuple[_YearlyChange, _YearlyChange] | None

    def later_changes(self, first_year: int, last_year: int) -> Iterator[tuple[int, int]]:
        """The changes of the given years by the footer's rule, in order of time."""
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


def _parse_footer(text: str) -> tuple[int, int, tuple[_YearlyChange, _YearlyChange] | None]:
    match = _FOOTER.fullmatch(text)
    if match is None:
        raise ValueError(f"zone rule {text!r} is not understood")
    standard = -_seconds(match["std"])
    if match["start"] is None:
        return standard, standard, None
    summer = -_seconds(match["dst"]) if match["dst"] else standard + 3600
    return standard, summer, (_parse_change(match["start"]), _parse_change(match["end"]))


def _parse_change(text: str) -> _YearlyChange:
    when, _, clock = text.partition("/")
    kind = when[0] if when[0] in "MJ" else ""
    numbers = tuple(int(number) for number in when.lstrip("MJ").split("."))
    return _YearlyChange(kind, numbers, _seconds(clock) if clock else 7200)


def _seconds(clock: str) -> int:
    sign = -1 if clock.startswith("-") else 1
    parts = [int(part) for part in clock.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))


_END: Final = LATEST + 4 * DAY
_YEARS: Final = 400
"""The calendar repeats after so many, and with it the changes that follow a zone's rule."""


class _Stretches(NamedTuple):
    """Parallel lists: stretch i begins at `starts[i]`, has `offsets[i]`, begins when the clock has already
    been at `shown[i]` (exclusive), and leaves it at `shown[i + 1]`."""

    starts: list[int]
    offsets: list[int]
    shown: list[int]


class Zone:
    """One zone's clock. Build it with `zone(name)`."""

    __slots__ = ("_coming", "_cycle", "_end", "_file", "_memo", "_table", "name")

    def __init__(self, name: str, file: ZoneFile) -> None:
        self.name = name
        self._file = file
        self._table, self._end = _tabulate(file)
        self._coming = _coming(self._table.offsets, file)
        self._cycle: _Stretches | None = None
        self._memo = (0, 0, 0, 0, 0)

    def stretch(self, instant: int) -> tuple[int, int, int]:
        """`(first instant, instant after the last, offset)` of the stretch that holds `instant`."""
        start, end, offset, _, _ = self._memo
        if not start <= instant < end:
            start, end, offset, _, _ = self._around(instant)
        return start, end, offset

    def offset(self, instant: int) -> int:
        return self.stretch(instant)[2]

    def offsets_from(self, instant: int) -> frozenset[int]:
        """Every offset that the zone has at or after `instant`."""
        return self._coming[bisect_right(self._table.starts, instant) - 1]

    def reached(self, instant: int) -> int:
        """The latest wall-clock reading shown up to and including `instant`."""
        start, end, offset, shown, _ = self._memo
        if not start <= instant < end:
            _, _, offset, shown, _ = self._around(instant)
        reading = instant + offset
        return reading if reading >= shown else shown - 1

    def resolve(self, reading: int) -> int:
        """The first instant by which the wall clock has reached `reading`."""
        start, _, offset, shown, later = self._memo
        if not shown <= reading < later:
            (starts, offsets, marks), shift = self._reaching(reading + 2 * DAY)
            place = bisect_right(marks, reading - shift) - 1
            start, offset = starts[place] + shift, offsets[place]
        hit = reading - offset
        return hit if hit > start else start

    def gaps(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """`(instant, first skipped reading, first reading after)` of each jump forward in `[low, high]`."""
        jumps = ((start, shown, start + offset) for start, offset, shown in self._changes(low, high))
        return [jump for jump in jumps if jump[1] < jump[2]]

    def repeats(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """`(instant, first repeated reading, first reading that is new again)` of each jump back."""
        jumps = ((start, start + offset, shown) for start, offset, shown in self._changes(low, high))
        return [jump for jump in jumps if jump[1] < jump[2]]

    def _changes(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """`(start, offset, shown before)` of each stretch but the first that begins in `[low, high]`."""
        high = min(high, LATEST)
        while low <= high:
            (starts, offsets, shown), shift = self._reaching(low)
            end = self._end if low < self._end else _cycle_end(low)
            first = max(bisect_right(starts, low - 1 - shift), 1)
            last = bisect_right(starts, min(high, end - 1) - shift)
            for place in range(first, last):
                yield starts[place] + shift, offsets[place], shown[place] + shift
            low = end

    def _around(self, instant: int) -> tuple[int, int, int, int, int]:
        """`(start, end, offset, shown before, shown by its end)` of the stretch that holds `instant`. It is remembered:
        the next question is mostly about the same stretch (a quarter of the time that a next one takes)."""
        (starts, offsets, shown), shift = self._reaching(instant)
        place = bisect_right(starts, instant - shift) - 1
        start, offset, before = starts[place] + shift, offsets[place], shown[place] + shift
        if place + 1 < len(starts):
            memo = (start, starts[place + 1] + shift, offset, before, shown[place + 1] + shift)
        else:
            memo = (start, _END, offset, before, max(before, _END + offset))
        self._memo = memo  # one assignment of one tuple: threads may race here and lose nothing
        return memo

    def _reaching(self, instant: int) -> tuple[_Stretches, int]:
        """The table that holds `instant`, and by how much its times are to be moved on: beyond the changes
        that are published, the zone's rule repeats with the calendar, every 400 years."""
        if instant < self._end:
            return self._table, 0
        if self._cycle is None:
            self._cycle = _stretches(self._file.standard, self._file.later_changes(1999, 2000 + _YEARS))
        return self._cycle, (_year(instant) - 2000) // _YEARS * CYCLE_DAYS * DAY


def _year(instant: int) -> int:
    return month_of(min(instant, LATEST) // DAY) // 12


def _cycle_end(instant: int) -> int:
    """The instant after the last of the calendar cycle that holds `instant`."""
    return _END if instant > LATEST else month_start((_year(instant) // _YEARS + 1) * _YEARS * 12) * DAY


def _tabulate(file: ZoneFile) -> tuple[_Stretches, int]:
    """All published changes and a few that follow from the rule, and the instant up to which they suffice:
    the end of time when there is no rule, so that clocks will not change any more."""
    latest = max(file.changes[-1][0], EARLIEST) if file.changes else EARLIEST
    year = month_of(latest // DAY) // 12
    later = (change for change in file.later_changes(year, max(year + 2, 2037)) if change[0] > latest)
    table = _stretches(file.before, chain(file.changes, later))
    return table, _END if file.rule is None else table.starts[-1]


def _stretches(before: int, changes: Iterable[tuple[int, int]]) -> _Stretches:
    """The stretches between `changes`, each `(instant, offset from then on)`, after the offset `before`."""
    starts, offsets, shown = [EARLIEST - 4 * DAY], [before], [EARLIEST - 8 * DAY]
    for instant, offset in changes:
        if instant <= starts[0]:
            offsets[0] = offset
        elif offset != offsets[-1]:
            shown.append(max(shown[-1], instant + offsets[-1]))
            starts.append(instant)
            offsets.append(offset)
    return _Stretches(starts, offsets, shown)


def _coming(offsets: list[int], file: ZoneFile) -> list[frozenset[int]]:
    """For each stretch, the offsets that there are from its beginning on."""
    coming = [frozenset({file.standard, file.summer} if file.rule else offsets[-1:])]
    for offset in reversed(offsets[:-1]):
        coming.append(coming[-1] if offset in coming[-1] else coming[-1] | {offset})
    return coming[::-1]


class UnknownZone(Invalid):
    """No zone has this name, as far as the zone data of this machine goes."""


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """The zone called `name`, which is case-sensitive as everywhere; `UnknownZone` if there is none."""
    return Zone(name, parse_zone_file(_data(name)))


@lru_cache(maxsize=1024)
def is_zone(name: str) -> bool:
    """Whether this machine knows the zone."""
    return read_zone(name) is not None


@lru_cache(maxsize=1024)
def zone_tzinfo(name: str) -> tzinfo:
    """A `tzinfo` of the same data, for showing local times: UTC, if there is no such zone."""
    data = None if name == "UTC" else read_zone(name)
    return UTC if data is None else ZoneInfo.from_file(BytesIO(data), key=name)


def _data(name: str) -> bytes:
    data = read_zone(name)
    if data is None:
        near = close_zones(str(name))
        hint = (
            f"did you mean {' or '.join(near)}?" if near else "accepted are IANA names such as Europe/Paris"
        )
        raise UnknownZone("timezone", f"{str(name)[:64]!r} is not a known time zone; {hint}")
    return data
