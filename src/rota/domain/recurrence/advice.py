"""What the owner of a schedule should be told: surprises of day fields, daylight saving and sheer number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from .cron import CronLine, parse_cron
from .occurrences import EPOCH, Compiled, compiled, count, next_after, seconds
from .ticks import DAY, Ticks
from .timing import Cron, RRule, Timing
from .zones import zone, zone_tzinfo

__all__ = ["dst_note", "instant", "local", "warnings"]

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
            found += _rhythm(ready, line.pattern, seconds(now))
    if ready.readings is not None:
        found += _moved(ready, ready.readings, seconds(now))
    return tuple(found + _number(timing, now))


def local(timing: Timing, at: datetime) -> datetime:
    """`at` on the wall clock of the timing's zone: UTC for once and interval."""
    return at.astimezone(zone_tzinfo(timing.timezone if isinstance(timing, Cron | RRule) else "UTC"))


def instant(timing: Timing, reading: datetime) -> datetime:
    """When the clock of the timing's zone shows this naive `reading`: the first time of two; for a reading that does
    not exist, the first instant after the gap."""
    clock = zone(timing.timezone if isinstance(timing, Cron | RRule) else "UTC")
    return EPOCH + timedelta(seconds=clock.resolve(seconds(reading.replace(tzinfo=UTC))))


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


def _moved(ready: Compiled, readings: Ticks, now: int) -> list[str]:
    """Times of the coming year that do not exist, or exist twice."""
    found: list[tuple[int, str]] = []
    for then, skipped, after in ready.zone.gaps(now + 1, now + _YEAR):
        reading = readings.first(skipped, after - 1)
        if reading is not None and ready.ticks.first(then, then) is not None:
            moved = _clock(after) if after // DAY == reading // DAY else f"{_day(after)} {_clock(after)}"
            found.append(
                (
                    then,
                    f"On {_day(reading)} the time {_clock(reading)} does not exist in {ready.zone.name}, "
                    f"where clocks go forward; it runs at {moved} instead.",
                )
            )
    for then, first, new in ready.zone.repeats(now + 1, now + _YEAR):
        reading = readings.first(first, new - 1)
        if reading is None:
            continue
        once = ready.zone.resolve(reading)
        if ready.ticks.first(once, once) is not None:
            found.append(
                (
                    then,
                    f"On {_day(reading)} the time {_clock(reading)} comes twice in {ready.zone.name}, "
                    f"where clocks go back; it runs once, the first time ({_clock(once)} UTC).",
                )
            )
    return [sentence for _, sentence in sorted(found)]


def _rhythm(ready: Compiled, pattern: Ticks, now: int) -> list[str]:
    """The same for cron lines that keep their rhythm but do not run in every hour."""
    found: list[tuple[int, str]] = []
    for then, skipped, after in ready.zone.gaps(now + 1, now + _YEAR):
        reading = pattern.first(skipped, after - 1)
        if reading is not None:
            when = f"On {_day(reading)} the time {_clock(reading)} does not exist in {ready.zone.name}"
            found.append((then, f"{when}, where clocks go forward; it does not run for it."))
    for then, first, new in ready.zone.repeats(now + 1, now + _YEAR):
        reading = pattern.first(first, new - 1)
        if reading is not None:
            when = f"On {_day(reading)} the time {_clock(reading)} comes twice in {ready.zone.name}"
            found.append((then, f"{when}, where clocks go back; it runs both times."))
    return [sentence for _, sentence in sorted(found)]


def _number(timing: Timing, now: datetime) -> list[str]:
    first = next_after(timing, now)
    if first is None:
        return []
    day = timedelta(days=1)
    times = count(timing, first - timedelta(seconds=1), first + day - timedelta(seconds=1))
    return [f"It runs {times:,} times a day."] if times > _MANY else []


def _day(reading: int) -> str:
    return datetime.fromtimestamp(reading, UTC).strftime("%Y-%m-%d")


def _clock(reading: int) -> str:
    return datetime.fromtimestamp(reading, UTC).strftime("%H:%M:%S").removesuffix(":00")
