"""What the owner of a schedule should be told: surprises of day fields, daylight saving and sheer number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from .cron import CronLine, parse_cron
from .occurrences import Compiled, compiled, count, next_after, seconds
from .ticks import DAY, Ticks
from .timing import Cron, RRule, Timing
from .zones import zone_tzinfo

__all__ = ["dst_note", "local", "warnings"]

_YEAR: Final = 366 * DAY
_MANY: Final = 1_000


def warnings(timing: Timing, now: datetime) -> tuple[str, ...]:
    """Sentences about a valid timing, most important first; none for most."""
    ready = compiled(timing)
    found: list[str] = []
    if isinstance(timing, Cron):
        line = parse_cron(timing.expression)
        found += _day_fields(line)
        if line.repeats and line.fields[-4] not in ("*", "*/1"):
            found += _clock_changes(ready, line.pattern, seconds(now))
    if ready.readings is not None:
        found += _clock_changes(ready, ready.readings, seconds(now))
    return tuple(found + _number(timing, now))


def local(timing: Timing, at: datetime) -> datetime:
    """`at` on the wall clock of the timing's zone: UTC for once and interval."""
    return at.astimezone(zone_tzinfo(timing.timezone if isinstance(timing, Cron | RRule) else "UTC"))


def dst_note(timing: Timing, at: datetime) -> str | None:
    """About a time at which the timing fires: `moved` when the local time that was asked for did not exist,
    `first of two` or `second of two` when the clock shows the same twice that night."""
    ready = compiled(timing)
    clock, then = ready.zone, seconds(at)
    reading = then + clock.offset(then)
    if ready.readings is not None and clock.gaps(then, then):
        return None if ready.readings.first(reading, reading) is not None else "moved"
    if clock.reached(then) > reading:
        return "second of two"
    again = any(first <= reading < new for _, first, new in clock.repeats(then + 1, then + 2 * DAY))
    return "first of two" if again else None


def _day_fields(line: CronLine) -> list[str]:
    day, weekday = line.fields[-3], line.fields[-1]
    if line.of_month.open or line.of_week.open:
        return []
    if line.of_month.starred or line.of_week.starred:
        starred = day if line.of_month.starred else weekday
        return [
            f"'{starred}' in one day field narrows the other: it runs only on days that match both "
            f"day-of-month '{day}' and day-of-week '{weekday}'."
        ]
    return [
        f"Both day fields are given: it runs on days that match either day-of-month '{day}' "
        f"or day-of-week '{weekday}', not only on those that match both."
    ]


def _clock_changes(ready: Compiled, named: Ticks, now: int) -> list[str]:
    """Times of the coming year that do not exist, or that come twice, and what becomes of them. A timing without
    `readings` keeps its rhythm."""
    keeps_rhythm = ready.readings is None
    found: list[tuple[int, str]] = []
    for then, skipped, after in ready.zone.gaps(now + 1, now + _YEAR):
        reading = named.first(skipped, after - 1)
        if reading is not None and (keeps_rhythm or ready.ticks.first(then, then) is not None):
            moved = _clock(after) if after // DAY == reading // DAY else f"{_day(after)} {_clock(after)}"
            outcome = "it does not run for it" if keeps_rhythm else f"it runs at {moved} instead"
            problem = f"{_shown(reading)} does not exist in {ready.zone.name}"
            found.append((then, f"{problem}, where clocks go forward; {outcome}."))
    for then, first, new in ready.zone.repeats(now + 1, now + _YEAR):
        reading = named.first(first, new - 1)
        if reading is None:
            continue
        once = ready.zone.resolve(reading)
        if keeps_rhythm or ready.ticks.first(once, once) is not None:
            outcome = "both times" if keeps_rhythm else f"once, the first time ({_clock(once)} UTC)"
            problem = f"{_shown(reading)} comes twice in {ready.zone.name}"
            found.append((then, f"{problem}, where clocks go back; it runs {outcome}."))
    return [sentence for _, sentence in sorted(found)]


def _number(timing: Timing, now: datetime) -> list[str]:
    first = next_after(timing, now)
    if first is None:
        return []
    day = timedelta(days=1)
    times = count(timing, first - timedelta(seconds=1), first + day - timedelta(seconds=1))
    return [f"It runs {times:,} times a day."] if times > _MANY else []


def _shown(reading: int) -> str:
    return f"On {_day(reading)} the time {_clock(reading)}"


def _day(reading: int) -> str:
    return datetime.fromtimestamp(reading, UTC).strftime("%Y-%m-%d")


def _clock(reading: int) -> str:
    return datetime.fromtimestamp(reading, UTC).strftime("%H:%M:%S").removesuffix(":00")
