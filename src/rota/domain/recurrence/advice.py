"""What the owner of a schedule should be told: surprises of day fields, daylight saving and sheer number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from .cron import CronLine
from .occurrences import (
    Compiled,
    compiled,
    count,
    cron_line,
    next_after,
    part_at,
    parts_of,
    seconds,
    with_zone,
)
from .ticks import DAY, LATEST, Ticks
from .timing import Cron, DstGap, RRule, Simple, Timing
from .zones import zone_tzinfo

_YEAR: Final = 366 * DAY
_MANY: Final = 1_000


class ClockChange(msgspec.Struct, frozen=True):
    """A coming change of the clocks that touches a timing: at `at` they go `forward` or `back`. `reading` is the first
    local time of the timing that does not exist or comes twice. `runs` are the moments at which the timing fires for
    it."""

    at: datetime
    direction: str
    reading: datetime
    runs: tuple[datetime, ...]
    text: str


def warnings(
    timing: Timing, now: datetime, changes: tuple[ClockChange, ...] | None = None
) -> tuple[str, ...]:
    """Sentences about a valid timing, most important first; none for most. `changes` are the clock changes that touch
    it; None: those that do without calendars."""
    changes = clock_changes(timing, now) if changes is None else changes
    found = [
        each for part in parts_of(timing) if isinstance(part, Cron) for each in _day_fields(cron_line(part))
    ]
    return (*found, *(change.text for change in changes), *_number(timing, now))


def clock_changes(timing: Timing, now: datetime) -> tuple[ClockChange, ...]:
    """The clock changes of the coming year that touch the timing, and what becomes of the times in them."""
    changes = [change for part in parts_of(timing) for change in _clock_changes(part, now)]
    return tuple(sorted(changes, key=lambda change: (change.at, change.text)))


def _clock_changes(timing: Simple, now: datetime) -> list[ClockChange]:
    ready = compiled(timing)
    named = ready.readings
    if named is None and isinstance(timing, Cron):
        line = cron_line(timing)
        named = None if line.fields[-4] in ("*", "*/1") else line.pattern  # every hour: nothing is noticed
    if named is None:
        return []
    begin = seconds(now)
    changes = [_left_out(ready, named, *jump) for jump in ready.zone.gaps(begin + 1, begin + _YEAR)]
    changes += [_repeated(ready, named, *jump) for jump in ready.zone.repeats(begin + 1, begin + _YEAR)]
    return [each for each in changes if each is not None]


def left_out(timing: Timing, at: datetime) -> datetime | None:
    """The local time of the timing that does not exist and is not made up for, if clocks go forward over it at `at`."""
    found = (_left_out_of(part, at) for part in parts_of(timing))
    return next((reading for reading in found if reading is not None), None)


def _left_out_of(timing: Simple, at: datetime) -> datetime | None:
    ready, then = compiled(timing), seconds(at)
    named = cron_line(timing).pattern if isinstance(timing, Cron) else ready.readings
    for start, skipped, after in ready.zone.gaps(then, then) if named is not None else ():
        reading = named.first(skipped, after - 1) if named is not None else None
        fires = (
            ready.ticks.first(start, start) is not None or ready.ticks.first(start - 1, start - 1) is not None
        )
        if reading is not None and not fires:
            return _naive(reading)
    return None


def local(timing: Timing, at: datetime) -> datetime:
    """`at` on the wall clock of the timing's zone: UTC for once and interval. Of several timings it is the one that
    fires then."""
    timing = part_at(timing, at)
    if isinstance(timing, Cron):
        timing = with_zone(timing)
    return at.astimezone(zone_tzinfo(timing.timezone if isinstance(timing, Cron | RRule) else "UTC"))


def dst_note(timing: Timing, at: datetime) -> str | None:
    """About a time at which the timing fires: `moved` or `moved before` when the local time that was asked for did not
    exist, `first of two` or `second of two` when the clock shows the same twice that night."""
    timing = part_at(timing, at)
    ready = compiled(timing)
    clock, then = ready.zone, seconds(at)
    reading = then + clock.offset(then)
    if ready.readings is not None:
        is_named = ready.readings.first(reading, reading) is not None
        if clock.gaps(then, then):
            return None if is_named else "moved"
        if not is_named and clock.gaps(then + 1, then + 1):
            return "moved before"
    if clock.reached(then) > reading:
        return "second of two"
    again = any(first <= reading < new for _, first, new in clock.repeats(then + 1, then + 2 * DAY))
    return "first of two" if again else None


def _day_fields(line: CronLine) -> list[str]:
    day, weekday = line.fields[-3], line.fields[-1]
    if line.both or line.of_month.open or line.of_week.open:
        return []
    if line.of_month.starred or line.of_week.starred:
        starred = day if line.of_month.starred else weekday
        return [
            f"'{starred}' in one day field narrows the other: it runs only on days that match both "
            f"day-of-month '{day}' and day-of-week '{weekday}'."
        ]
    return [
        f"Both day fields are given: it runs on days that match either day-of-month '{day}' "
        f"or day-of-week '{weekday}', not only on those that match both (day_match 'and')."
    ]


def _left_out(ready: Compiled, named: Ticks, then: int, skipped: int, after: int) -> ClockChange | None:
    reading = named.first(skipped, after - 1)
    if reading is None or ready.ticks.first(then - 1, LATEST) is None:
        return None
    runs = {DstGap.AFTER: [then], DstGap.BEFORE: [then - 1], DstGap.SKIP: []}[ready.gap]
    if runs and ready.ticks.first(runs[0], runs[0]) is None:
        return None  # a rule that has ended, or has not begun
    outcome = f"it runs at {_moment(ready, runs[0], reading)} instead" if runs else "it does not run for it"
    text = f"{_shown(reading)} does not exist in {ready.zone.name}, where clocks go forward; {outcome}."
    return ClockChange(_instant(then), "forward", _naive(reading), tuple(map(_instant, runs)), text)


def _repeated(ready: Compiled, named: Ticks, then: int, first: int, new: int) -> ClockChange | None:
    reading = named.first(first, new - 1)
    if reading is None:
        return None
    both = (ready.zone.resolve(reading), reading - ready.zone.offset(then))
    runs = [at for at in both if ready.ticks.first(at, at) is not None]
    if not runs:
        return None
    which = "first" if runs[0] == both[0] else "second"
    outcome = "both times" if len(runs) == 2 else f"once, the {which} time ({_clock(runs[0])} UTC)"
    text = f"{_shown(reading)} comes twice in {ready.zone.name}, where clocks go back; it runs {outcome}."
    return ClockChange(_instant(then), "back", _naive(reading), tuple(map(_instant, runs)), text)


def _number(timing: Timing, now: datetime) -> list[str]:
    first = next_after(timing, now)
    if first is None:
        return []
    day = timedelta(days=1)
    times = count(timing, first - timedelta(seconds=1), first + day - timedelta(seconds=1))
    return [f"It runs {times:,} times a day."] if times > _MANY else []


def _moment(ready: Compiled, at: int, asked: int) -> str:
    """A time on the clock of the zone, with its day if that is not the day that was asked for."""
    reading = at + ready.zone.offset(at)
    return _clock(reading) if reading // DAY == asked // DAY else f"{_day(reading)} {_clock(reading)}"


def _instant(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _naive(reading: int) -> datetime:
    return datetime.fromtimestamp(reading, UTC).replace(tzinfo=None)


def _shown(reading: int) -> str:
    return f"On {_day(reading)} the time {_clock(reading)}"


def _day(reading: int) -> str:
    return datetime.fromtimestamp(reading, UTC).strftime("%Y-%m-%d")


def _clock(reading: int) -> str:
    return datetime.fromtimestamp(reading, UTC).strftime("%H:%M:%S").removesuffix(":00")
