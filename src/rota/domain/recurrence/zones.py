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
from datetime import UTC, tzinfo
from functools import lru_cache
from io import BytesIO
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from rota.domain.recurrence.months import month_of
from rota.domain.recurrence.ticks import DAY, EARLIEST, LATEST
from rota.domain.recurrence.tzif import ZoneFile, parse_zone_file
from rota.domain.recurrence.zone_data import close_zones, read_zone

__all__ = ["Zone", "zone", "zone_tzinfo"]

_END: Final = LATEST + 4 * DAY


class _Stretches(NamedTuple):
    """Parallel lists: stretch i begins at `starts[i]`, has `offsets[i]`, begins when the clock has already
    been at `shown[i]` (exclusive), and leaves it at `shown[i + 1]`; `coming[i]` are the offsets from there
    on. `end` is how far the lists reach."""

    starts: list[int]
    offsets: list[int]
    shown: list[int]
    end: int
    coming: list[frozenset[int]]


class Zone:
    """One zone's clock. Build it with `zone(name)`."""

    __slots__ = ("_file", "_memo", "_table", "name")

    def __init__(self, name: str, file: ZoneFile) -> None:
        self.name = name
        self._file = file
        self._table = _tabulate(file, 2037)
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
        starts, _, _, _, coming = self._reaching(instant + 400 * DAY)
        return coming[bisect_right(starts, instant) - 1]

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
            starts, offsets, marks, _, _ = self._reaching(reading + 2 * DAY)
            place = bisect_right(marks, reading) - 1
            start, offset = starts[place], offsets[place]
        hit = reading - offset
        return hit if hit > start else start

    def gaps(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """`(instant, first skipped reading, first reading after)` of each jump forward in `[low, high]`."""
        starts, offsets, shown, _, _ = self._reaching(high)
        places = range(max(bisect_right(starts, low - 1), 1), bisect_right(starts, high))
        jumps = ((starts[place], shown[place], starts[place] + offsets[place]) for place in places)
        return [jump for jump in jumps if jump[1] < jump[2]]

    def repeats(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """`(instant, first repeated reading, first reading that is new again)` of each jump back."""
        starts, offsets, shown, _, _ = self._reaching(high)
        places = range(max(bisect_right(starts, low - 1), 1), bisect_right(starts, high))
        jumps = ((starts[place], starts[place] + offsets[place], shown[place]) for place in places)
        return [jump for jump in jumps if jump[1] < jump[2]]

    def _around(self, instant: int) -> tuple[int, int, int, int, int]:
        """`(start, end, offset, shown before, shown by its end)` of the stretch that holds `instant`,
        remembered: questions come in clusters."""
        starts, offsets, shown, end, _ = self._reaching(instant)
        place = bisect_right(starts, instant) - 1
        if place + 1 < len(starts):
            memo = (starts[place], starts[place + 1], offsets[place], shown[place], shown[place + 1])
        else:
            memo = (starts[place], end, offsets[place], shown[place], max(shown[place], end + offsets[place]))
        self._memo = memo  # one assignment of one tuple: threads may race here and lose nothing
        return memo

    def _reaching(self, instant: int) -> _Stretches:
        """The table, extended by the zone's rule for coming years if it does not go as far as `instant`: each
        time by as many years as it has, so that a walk to the end of time extends it a few times only."""
        table = self._table
        if instant >= table.end and table.end < _END:
            year = month_of(min(instant, LATEST) // DAY) // 12
            table = self._table = _tabulate(self._file, min(year + max(year - 2000, 40), 10_000))
        return table


def _tabulate(file: ZoneFile, last_year: int) -> _Stretches:
    """Stretches up to the end of `last_year`; all of time when no rule says that clocks will change."""
    changes = list(file.changes)
    latest = changes[-1][0] if changes else EARLIEST
    first_year = month_of(max(latest, EARLIEST) // DAY) // 12
    changes += [change for change in file.later_changes(first_year, last_year) if change[0] > latest]
    starts, offsets, shown = [EARLIEST - 4 * DAY], [file.before], [EARLIEST - 8 * DAY]
    for instant, offset in changes:
        if instant <= starts[0]:
            offsets[0] = offset
        elif offset != offsets[-1]:
            shown.append(max(shown[-1], instant + offsets[-1]))
            starts.append(instant)
            offsets.append(offset)
    settled = file.rule is None or last_year >= 9999
    coming = [frozenset(offsets[-2:] if file.rule else offsets[-1:])]
    for offset in reversed(offsets[:-1]):
        coming.append(coming[-1] if offset in coming[-1] else coming[-1] | {offset})
    return _Stretches(starts, offsets, shown, _END if settled else starts[-1], coming[::-1])


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
