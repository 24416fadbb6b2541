"""Time zones as what they are here: stretches of constant offset from UTC.

`Zone` answers two questions in opposite directions, both by bisection:

* `reached(instant)`: the latest reading that the wall clock has shown by then. It never goes back, so it is
  the measure of progress for rules that name readings: when clocks go back, readings come a second time,
  and nothing is reached anew until the clock has caught up with itself.
* `resolve(reading)`: the first instant at which that reading is reached. For a reading inside a gap that is
  the first instant after the gap; for one that comes twice it is the first time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import UTC, tzinfo
from functools import lru_cache
from io import BytesIO
from itertools import chain
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from ..months import CYCLE_DAYS, month_of, month_start
from ..ticks import DAY, EARLIEST, LATEST
from .data import close_zones, read_zone
from .tzif import ZoneFile, parse_zone_file

__all__ = ["Zone", "zone", "zone_tzinfo"]

_END: Final = LATEST + 4 * DAY
_CYCLE: Final = CYCLE_DAYS * DAY
_BLOCK: Final = 16
"""Years that are tabulated at a time once a zone's changes follow its rule; 25 blocks are a calendar cycle."""


class _Stretches(NamedTuple):
    """Parallel lists: stretch i begins at `starts[i]`, has `offsets[i]`, begins when the clock has already
    been at `shown[i]` (exclusive), and leaves it at `shown[i + 1]`."""

    starts: list[int]
    offsets: list[int]
    shown: list[int]


class Zone:
    """One zone's clock. Build it with `zone(name)`."""

    __slots__ = ("_blocks", "_coming", "_end", "_file", "_memo", "_table", "name")

    def __init__(self, name: str, file: ZoneFile) -> None:
        self.name = name
        self._file = file
        self._table, self._end = _tabulate(file)
        self._coming = _coming(self._table.offsets, file)
        self._blocks: dict[int, _Stretches] = {}
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
        while low <= high:
            (starts, offsets, shown), shift = self._reaching(low)
            end = self._end if low < self._end else _block_end(low)
            first = max(bisect_right(starts, low - 1 - shift), 1)
            last = bisect_right(starts, min(high, end - 1) - shift)
            for place in range(first, last):
                yield starts[place] + shift, offsets[place], shown[place] + shift
            low = end

    def _around(self, instant: int) -> tuple[int, int, int, int, int]:
        """`(start, end, offset, shown before, shown by its end)` of the stretch that holds `instant`,
        remembered: questions come in clusters."""
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
        cycle, block = divmod(_year(instant) // _BLOCK, 400 // _BLOCK)
        table = self._blocks.get(block)
        if table is None:
            year = 2000 + block * _BLOCK
            table = _stretches(self._file.standard, self._file.later_changes(year - 1, year + _BLOCK))
            self._blocks[block] = table
        return table, (cycle - 5) * _CYCLE


def _year(instant: int) -> int:
    return month_of(min(instant, LATEST) // DAY) // 12


def _block_end(instant: int) -> int:
    """The instant after the last of the block of years that holds `instant`."""
    if instant > LATEST:
        return _END
    return month_start((_year(instant) // _BLOCK + 1) * _BLOCK * 12) * DAY


def _tabulate(file: ZoneFile) -> tuple[_Stretches, int]:
    """All published changes and a few that follow from the rule, and the instant up to which they suffice:
    the end of time when there is no rule, so that clocks will not change any more."""
    latest = max(file.changes[-1][0], EARLIEST) if file.changes else EARLIEST
    year = month_of(latest // DAY) // 12
    later = (change for change in file.later_changes(year, max(year + 2, 2037)) if change[0] > latest)
    table = _stretches(file.before, chain(file.changes, later))
    return table, _END if file.rule is None else table.starts[-1]


def _stretches(before: int, changes: Iterable[tuple[int, int]]) -> _Stretches:
    """What comes of `changes`, each `(instant, offset from then on)`, after the offset `before`."""
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


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """The zone called `name`, which is case-sensitive as everywhere; `ValueError` if there is none."""
    return Zone(name, parse_zone_file(_data(name)))


@lru_cache(maxsize=1024)
def zone_tzinfo(name: str) -> tzinfo:
    """A `tzinfo` of the same data, for showing local times."""
    return UTC if name == "UTC" else ZoneInfo.from_file(BytesIO(_data(name)), key=name)


def _data(name: str) -> bytes:
    data = read_zone(name)
    if data is None:
        near = close_zones(str(name))
        hint = (
            f"did you mean {' or '.join(near)}?" if near else "accepted are IANA names such as Europe/Paris"
        )
        raise ValueError(f"timezone: {str(name)[:64]!r} is not a known time zone; {hint}")
    return data
