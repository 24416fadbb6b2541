"""The times at which a schedule is expected to fire, and how those of two versions of it differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice

import msgspec

from .. import recurrence
from ..model import Schedule
from ..recurrence import MICROSECOND
from .decision import due_time, has_come

AHEAD = timedelta(days=14)
MOST_TIMES = 5000


class Expected(msgspec.Struct, frozen=True, gc=False):
    """A time that will fire: as the timing names it, and when it is due: offset and jitter added."""

    nominal: datetime
    due: datetime


class TimeChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The times that differ, all of them up to `until`. Of a schedule with very many times, `until` comes sooner."""

    appear: tuple[datetime, ...] = ()
    vanish: tuple[datetime, ...] = ()
    move: tuple[tuple[datetime, datetime], ...] = ()
    until: datetime

    @property
    def is_none(self) -> bool:
        return not (self.appear or self.vanish or self.move)


def expected(schedule: Schedule | None, after: datetime, until: datetime) -> Iterator[Expected]:
    """The times of a schedule that are due in `(after, until]`, in order: none, unless it is active. `max_runs` counts:
    each time before uses up one."""
    if schedule is None or not schedule.enabled or schedule.next_run_at is None:
        return
    left = None if schedule.max_runs is None else schedule.max_runs - schedule.run_count
    for nominal in islice(_nominal(schedule, schedule.next_run_at, after, until), left):
        due = due_time(schedule, nominal)
        if after < due <= until:
            yield Expected(nominal, due)


def _nominal(schedule: Schedule, first: datetime, after: datetime, until: datetime) -> Iterator[datetime]:
    """From the time that is promised, even if the timing would not give it any more. Of a long outage only the first
    and the last are looked at."""
    if first > until:
        return
    yield first
    yield from schedule.openings.between(max(first, after - schedule.most_put_off - MICROSECOND), until)


def compared(
    old: Schedule | None, new: Schedule | None, at: datetime, ahead: timedelta = AHEAD
) -> TimeChanges:
    """Which times appear, vanish or move if the new version takes the place of the old one at `at`.

    A time moves if only its offset or jitter differs, or if its day has as many others as before. Where both have a
    time, none moves, whatever put it there."""
    before, until = _listed(old, at, at + ahead)
    after, until_too = _listed(new, at, at + ahead)
    until = min(until, until_too)
    stay = {each.due for each in before} & {each.due for each in after}
    gone = {each.nominal: each.due for each in before if each.due <= until and each.due not in stay}
    come = {each.nominal: each.due for each in after if each.due <= until and each.due not in stay}
    moves = [(due, come[nominal]) for nominal, due in gone.items() if nominal in come]
    vanish = [due for nominal, due in gone.items() if nominal not in come]
    appear = [due for nominal, due in come.items() if nominal not in gone]
    either = new or old
    more, vanish, appear = _paired(either, vanish, appear) if either is not None else ([], vanish, appear)
    return TimeChanges(
        appear=tuple(sorted(appear)),
        vanish=tuple(sorted(vanish)),
        move=tuple(sorted([*moves, *more])),
        until=until,
    )


def _listed(schedule: Schedule | None, at: datetime, until: datetime) -> tuple[list[Expected], datetime]:
    """At most `MOST_TIMES`, and how far they reach."""
    found = list(islice(expected(schedule, at, until), MOST_TIMES + 1))
    if len(found) <= MOST_TIMES:
        return found, until
    return found[:MOST_TIMES], max(each.nominal for each in found[:MOST_TIMES])


Moves = list[tuple[datetime, datetime]]


def _paired(
    schedule: Schedule, vanish: list[datetime], appear: list[datetime]
) -> tuple[Moves, list[datetime], list[datetime]]:
    """A day on which as many vanish as appear has moves instead."""

    def day(due: datetime) -> str:
        return recurrence.local(schedule.timing, due).date().isoformat()

    gone = {key: list(each) for key, each in groupby(sorted(vanish), day)}
    come = {key: list(each) for key, each in groupby(sorted(appear), day)}
    equal = {key for key, each in gone.items() if len(each) == len(come.get(key, ()))}
    moves = [pair for key in equal for pair in zip(gone[key], come[key], strict=True)]
    return (
        moves,
        [due for key, each in gone.items() if key not in equal for due in each],
        [due for key, each in come.items() if key not in equal for due in each],
    )


def skipped_today(old: Schedule | None, new: Schedule | None, at: datetime) -> tuple[datetime, ...]:
    """The times that were due today, on the clock of the schedule, and will have no run instead."""
    if old is None:
        return ()
    overdue: tuple[datetime, ...] = ()
    is_moved = new is None or new.next_run_at != old.next_run_at
    if is_moved and old.next_run_at is not None and has_come(old, at):
        overdue = (due_time(old, old.next_run_at),)
    local = recurrence.local(old.timing, at)
    midnight = (local + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    left = midnight.astimezone(UTC) - MICROSECOND - at
    return overdue + (compared(old, new, at, left).vanish if is_moved else ())
