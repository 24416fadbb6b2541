"""Forecasts: how many runs are expected when, how much work they are, and what spreading them would do. Pure.

Schedules that fire alike are one group: the same timing, calendars, jitter and bounds; of intervals and single times,
those that fall into the same minutes. The minutes of a group are found once, however many schedules it has, and what is
kept is one number per minute, never a list of times. Jitter is what it will be, computed for each schedule; of very
many that fire alike, each minute is given its even share.

A schedule that comes after others has no times of its own. It counts if its time is known already, else it is only
numbered (`following`). A pause counts until its end; one without an end, a draft and a completed schedule fire never.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from itertools import chain, islice
from math import gcd
from typing import Any, NamedTuple

import msgspec

from .. import recurrence
from ..errors import Invalid
from ..model import Schedule, ScheduleStatus
from ..recurrence import After, Interval, Once
from .decision import jitter_room, jitter_share

__all__ = [
    "LONGEST",
    "BusyMinute",
    "Forecast",
    "ForecastSpan",
    "Forecaster",
    "Moved",
    "Participant",
    "Spread",
    "can_move",
    "check_over",
    "minute_of",
]

LONGEST = timedelta(days=31)
MINUTE = timedelta(minutes=1)
BUSIEST = 5
LOOKED_AT = 20
NAMED = 20
LISTED = 100
COLLISION = 5
"""Fewer runs in a minute are not worth spreading."""
LONGEST_SPREAD = timedelta(days=1)
SPREADS = tuple(timedelta(minutes=each) for each in (5, 10, 15, 30, 60))
EXACTLY = 300_000
"""So many times with jitter are computed one by one; beyond them, groups of `MANY` are shared out evenly."""
MANY = 100
_TICK = timedelta(microseconds=1)
_MINUTE = 60_000_000
_ONCE = 60 * 24 * 60 * _MINUTE


class ForecastSpan(msgspec.Struct, frozen=True, kw_only=True):
    """What begins from `at` on: how many runs, and how many seconds of work they are."""

    at: datetime
    runs: int
    work: float


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and how often it fires; the work of these runs in seconds, None if none has ended so far."""

    key: str
    runs: int
    work: float | None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, when it would fire, and when it will with its jitter."""

    key: str
    before: datetime
    after: datetime


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules of the minute `at`, spread over a while: how many runs its busiest minute has before and after.
    `schedules` is how many fire in that minute, `moving` how many of them get the jitter; `moves` are the first."""

    at: datetime
    over: timedelta
    schedules: int
    moving: int
    before: int
    after: int
    moves: tuple[Moved, ...] = ()

    def sentence(self, clock: str) -> str:
        """In words; `clock` is the minute, as whoever reads it knows it."""
        many = f"{self.schedules:,} schedules fire" if self.schedules != 1 else "1 schedule fires"
        them = "them" if self.moving == self.schedules else f"{self.moving:,} of them"
        minutes = "1 minute" if self.over == MINUTE else f"{self.over // MINUTE:,} minutes"
        return (
            f"{many} at {clock}; spreading {them} over {minutes} takes the peak from"
            f" {self.before:,} to {self.after:,}"
        )


class BusyMinute(msgspec.Struct, frozen=True, kw_only=True):
    """A minute with many runs, the keys of some who are in it, and what spreading them would do. Of minutes in which
    the same schedules meet, such as 09:00 of every day, it is the busiest, and else the first."""

    at: datetime
    runs: int
    work: float
    schedules: int
    keys: tuple[str, ...]
    spread: Spread | None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected from `start` to before `end`. `schedules` is how many fire, `unknown` how many of them have no
    run whose length is known: their work is missing. `following` is how many come after others and have no times of
    their own. `participants` are those with the most runs, at most a hundred."""

    start: datetime
    end: datetime
    by: str
    schedules: int
    runs: int
    work: float
    unknown: int
    following: int
    spans: tuple[ForecastSpan, ...]
    busiest: tuple[BusyMinute, ...]
    participants: tuple[Participant, ...]


class _Member(NamedTuple):
    """A schedule of a group. `shift` is by how many microseconds its times are later than those of the group."""

    id: str
    key: str
    seconds: float | None
    shift: int


class _Due(NamedTuple):
    """A time: as the hash of jitter takes it, where it is in the forecast, and by how much it may be put off."""

    text: str
    tick: int
    room: int


class _Movable(NamedTuple):
    """Schedules that fire in one minute: by how much they may be put off, and of each when in the minute that is, and
    its share of a jitter."""

    members: list[_Member]
    room: timedelta
    times: list[tuple[int, int]]


class _Group(msgspec.Struct):
    """Schedules that fire alike, one of which is `like`, from `low` to before `high`. With `every` (in microseconds)
    their times are arithmetic."""

    like: Schedule
    low: datetime
    high: datetime
    most: int | None
    every: int | None
    members: list[_Member] = msgspec.field(default_factory=list)
    runs: int = 0

    def times(self, low: datetime, high: datetime) -> Iterator[datetime]:
        """Those in [low, high)."""
        low, high = max(self.low, low), min(self.high, high)
        if low >= high:
            return iter(())
        if self.every is not None:
            step = self.every * _TICK
            first = self.low + -(-(low - self.low) // step) * step
            return (first + number * step for number in range(-(-(high - first) // step)))
        left = self.most
        if left is not None and low > self.low:
            left -= _number(self.like, self.low, low)
        return (
            _between(self.like, low, high)
            if left is None
            else islice(_between(self.like, low, high), max(left, 0))
        )

    def room(self, nominal: datetime, jitter: timedelta) -> timedelta:
        """By how much a time may be put off: never beyond the next one."""
        if self.every is not None:
            return min(jitter, self.every * _TICK)
        return jitter_room(self.like, nominal, jitter)


class Forecaster:
    """Gathers schedules, one after the other, for the time from `start` to `end`; `count` goes through their times, and
    `result` says what they come to."""

    def __init__(self, start: datetime, end: datetime, by: str = "hour") -> None:
        self.start, self.end = _range(start, end)
        self.by = by
        self._clock = start.tzinfo
        self._first = self.start.replace(second=0, microsecond=0)
        self._minutes = -(-(self.end - self._first) // MINUTE)
        self._groups: dict[Any, _Group] = {}
        self._exactly = EXACTLY
        self.following = 0
        self.runs = [0] * self._minutes
        self.work = [0.0] * self._minutes
        self.schedules = [0] * self._minutes

    def add(self, schedule: Schedule, seconds: float | None) -> None:
        """A schedule, and how long its runs take, if that is known."""
        first = first_time(schedule)
        if first is None:
            self.following += isinstance(schedule.timing, After) and schedule.enabled
            return
        high = self.end if schedule.end_at is None else min(self.end, schedule.end_at + _TICK)
        if first < high:
            self._gather(schedule, seconds, first, high)

    def takes(self, schedule: Schedule) -> bool:
        """Whether a time of it may be in the range."""
        first = first_time(schedule)
        return first is not None and first < self.end

    def _gather(self, schedule: Schedule, seconds: float | None, first: datetime, high: datetime) -> None:
        low = max(first, self.start - schedule.jitter)
        most = None if schedule.max_runs is None else schedule.max_runs - schedule.run_count
        if most is not None and low > first:
            most -= _number(schedule, first, low)
        if most is not None and most <= 0:
            return
        every = _every(schedule)
        alike: Any = (schedule.timing, low)
        if schedule.calendars:
            alike = (schedule.openings[3:], schedule.timing, schedule.exclude, schedule.only, low)
        if every is not None:
            step = every * _TICK
            low = first + -(-(low - first) // step) * step
            high, most = (high if most is None else min(high, low + (most - 1) * step + _TICK)), None
            alike = (every, low)
            if not schedule.jitter:
                alike = (every, self._ticks(low) // gcd(every, _MINUTE))
        if low >= high:
            return
        key = (alike, schedule.jitter, high, most)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(schedule, low, high, most, every)
        group.members.append(_Member(schedule.id, schedule.key, seconds, (low - group.low) // _TICK))

    def _ticks(self, at: datetime) -> int:
        return (at - self._first) // _TICK

    def count(self) -> Iterator[int]:
        """Go through the times of every group, and say of each how many steps that took: whoever serves others, too,
        pauses now and then."""
        for group in self._groups.values():
            if not group.like.jitter:
                yield self._count_plain(group)
                continue
            times = self._dues(group, group.low, group.high)
            steps = len(times) * len(group.members)
            if len(group.members) >= MANY and steps > self._exactly:
                self._count_evenly(group, times)
                yield len(times)
            else:
                self._exactly -= steps
                self._count_each(group, times)
                yield steps

    def _count_plain(self, group: _Group) -> int:
        number = len(group.members)
        seconds = sum(each.seconds or 0.0 for each in group.members)
        steps, before = 0, -1
        for minute, times in self._minutes_of(group):
            steps += 1
            self.runs[minute] += times * number
            self.work[minute] += times * seconds
            self.schedules[minute] += number if minute != before else 0
            group.runs += times
            before = minute
        return steps

    def _minutes_of(self, group: _Group) -> Iterator[tuple[int, int]]:
        """The minutes in which a group without jitter fires, and how often."""
        every = group.every
        if every is None or every >= _MINUTE:
            first = self._first
            for at in group.times(group.low, group.high):
                yield (at - first) // MINUTE, 1
            return
        low, high = self._ticks(group.low), self._ticks(group.high)
        for minute in range(low // _MINUTE, -(-high // _MINUTE)):
            begin, end = max(minute * _MINUTE, low), min((minute + 1) * _MINUTE, high)
            times = (end - 1 - low) // every - (begin - 1 - low) // every
            if times:
                yield minute, times

    def _dues(self, group: _Group, low: datetime, high: datetime) -> list[_Due]:
        jitter = group.like.jitter
        return [
            _Due(at.isoformat(), self._ticks(at), max(group.room(at, jitter) // _TICK, 1))
            for at in group.times(low, high)
        ]

    def _count_each(self, group: _Group, times: list[_Due]) -> None:
        """Each time of each schedule, when it will be due."""
        begin, end = self._ticks(self.start), self._ticks(self.end)
        for id, _, seconds, _ in group.members:
            before = -1
            for text, tick, room in times:
                due = tick + (jitter_share(id, text) * room >> 64)
                if begin <= due < end:
                    minute = due // _MINUTE
                    self.runs[minute] += 1
                    self.work[minute] += seconds or 0.0
                    self.schedules[minute] += minute != before
                    group.runs += 1
                    before = minute
        group.runs = -(-group.runs // len(group.members))

    def _count_evenly(self, group: _Group, times: list[_Due]) -> None:
        """For each minute its share of those that jitter may put there."""
        number = len(group.members)
        seconds = sum(each.seconds or 0.0 for each in group.members) / number
        begin, end = self._ticks(self.start), self._ticks(self.end)
        for _, tick, room in times:
            low = max(tick, begin)
            while low < min(tick + room, end):
                minute = low // _MINUTE
                high = min((minute + 1) * _MINUTE, tick + room, end)
                runs = number * (high - tick) // room - number * (low - tick) // room
                self.runs[minute] += runs
                self.work[minute] += runs * seconds
                self.schedules[minute] += runs
                group.runs += runs
                low = high
        group.runs = -(-group.runs // number)

    def result(self) -> Forecast:
        firing = [group for group in self._groups.values() if group.runs]
        return Forecast(
            start=self.start,
            end=self.end,
            by=self.by,
            schedules=sum(len(group.members) for group in firing),
            runs=sum(self.runs),
            work=round(sum(self.work), 3),
            unknown=sum(each.seconds is None for group in firing for each in group.members),
            following=self.following,
            spans=tuple(self._spans()),
            busiest=tuple(self._busy(minute, keys) for minute, keys in self._peaks()),
            participants=_participants(firing),
        )

    def _spans(self) -> Iterator[ForecastSpan]:
        edge = _floored(self.start.astimezone(self._clock), self.by)
        begin = 0
        while begin < self._minutes:
            following = _next_edge(edge, self.by)
            end = min(-(-(following - self._first) // MINUTE), self._minutes)
            yield ForecastSpan(
                at=edge, runs=sum(self.runs[begin:end]), work=round(sum(self.work[begin:end]), 3)
            )
            begin, edge = end, following

    def _peaks(self) -> list[tuple[int, tuple[str, ...]]]:
        """The busiest minutes, and who is in them: those in which the same schedules meet are one."""
        found: dict[tuple[str, ...], int] = {}
        for minute in nlargest(LOOKED_AT, range(self._minutes), key=self.runs.__getitem__):
            if self.runs[minute] and len(found) < BUSIEST:
                at = self._first + minute * MINUTE
                keys = chain.from_iterable(self._who(group, at) for group in self._groups.values())
                found.setdefault(tuple(islice(keys, NAMED)), minute)
        return [(minute, keys) for keys, minute in found.items()]

    def _busy(self, minute: int, keys: tuple[str, ...]) -> BusyMinute:
        at = self._first + minute * MINUTE
        return BusyMinute(
            at=at.astimezone(self._clock),
            runs=self.runs[minute],
            work=round(self.work[minute], 3),
            schedules=self.schedules[minute],
            keys=keys,
            spread=self.spread(at),
        )

    def _who(self, group: _Group, at: datetime) -> Iterator[str]:
        """The keys of a group's schedules that fire within the minute."""
        jitter, tick = group.like.jitter, self._ticks(at)
        if not jitter:
            if _nominal(group, at) is not None:
                yield from (each.key for each in group.members)
            return
        for text, nominal, room in self._dues(group, at - jitter, at + MINUTE):
            for id, key, _, _ in group.members:
                if tick <= nominal + (jitter_share(id, text) * room >> 64) < tick + _MINUTE:
                    yield key

    def spread(self, at: datetime, over: timedelta | None = None) -> Spread | None:
        """What spreading the schedules of a minute does: over this long, or over the least while that takes the peak
        to a quarter, or else the one that does best. None if it does no good."""
        minute = (at - self._first) // MINUTE
        if over is None and self.runs[minute] < COLLISION:
            return None
        movable = [_movable(group, nominal, at) for group, nominal in self._firing(at)]
        best: Spread | None = None
        for each in SPREADS if over is None else (over,):
            made = self._spread(minute, each, movable)
            if over is not None or (made.after < (made.before if best is None else best.after)):
                best = made
            if best is not None and best.after <= -(-best.before // 4):
                break
        return best

    def movers(self, at: datetime, over: timedelta) -> list[str]:
        """The ids of those that it would move."""
        groups = [group for group, nominal in self._firing(at) if group.room(nominal, over) == over]
        return [each.id for group in groups for each in group.members]

    def _firing(self, at: datetime) -> list[tuple[_Group, datetime]]:
        """The groups without jitter that fire in a minute, and when."""
        plain = (group for group in self._groups.values() if not group.like.jitter)
        return [(group, found) for group in plain if (found := _nominal(group, at)) is not None]

    def _spread(self, minute: int, over: timedelta, movable: list[_Movable]) -> Spread:
        peaks = self.runs[minute : minute + over // MINUTE + 1]
        begin, room = self._first + minute * MINUTE, over // _TICK
        moves: list[Moved] = []
        moving = 0
        for each in movable:
            if each.room < over:
                continue
            peaks[0] -= len(each.times)
            moving += len(each.times)
            for tick, share in each.times:
                place = (tick + (share * room >> 64)) // _MINUTE
                if place < len(peaks):
                    peaks[place] += 1
            for member, (tick, share) in zip(each.members[: LISTED - len(moves)], each.times, strict=False):
                before = begin + tick * _TICK
                moves.append(
                    Moved(key=member.key, before=before, after=before + (share * room >> 64) * _TICK)
                )
        return Spread(
            at=begin.astimezone(self._clock),
            over=over,
            schedules=self.schedules[minute],
            moving=moving,
            before=self.runs[minute],
            after=max(peaks),
            moves=tuple(moves),
        )


def first_time(schedule: Schedule) -> datetime | None:
    """The first time that is still to come, as far as it is known; a pause counts until its end."""
    if schedule.enabled:
        return schedule.next_run_at
    is_paused = schedule.status is ScheduleStatus.PAUSED and schedule.deleted_at is None
    return schedule.next_occurrence(schedule.pause_until) if is_paused and schedule.pause_until else None


def can_move(schedule: Schedule, at: datetime, over: timedelta) -> bool:
    """Whether a schedule fires in the minute from `at` on, has no jitter, and does not fire again before it would be
    put off."""
    first = first_time(schedule)
    if schedule.jitter or first is None:
        return False
    found = first if first >= at else schedule.next_occurrence(at - _TICK)
    if found is None or not at <= found < at + MINUTE:
        return False
    return jitter_room(schedule, found, over) == over


def check_over(over: object) -> timedelta:
    if not isinstance(over, timedelta) or over % MINUTE or not MINUTE <= over <= LONGEST_SPREAD:
        raise Invalid("over", f"{over!s:.60} is no number of minutes", "give one minute to a day")
    return over


def minute_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _nominal(group: _Group, at: datetime) -> datetime | None:
    """The first time of a group within the minute, without its jitter."""
    return next(group.times(at, at + MINUTE), None)


def _movable(group: _Group, nominal: datetime, at: datetime) -> _Movable:
    tick, text = (nominal - at) // _TICK, nominal.isoformat()
    times = [
        (
            tick + each.shift,
            jitter_share(each.id, (nominal + each.shift * _TICK).isoformat() if each.shift else text),
        )
        for each in group.members
    ]
    return _Movable(group.members, group.room(nominal, LONGEST_SPREAD), times)


def _every(schedule: Schedule) -> int | None:
    """The step between its times in microseconds, if that is all there is to know; a single time has a long one."""
    match schedule.timing:
        case Interval(every) if not schedule.calendars:
            return every // _TICK
        case Once() | After():
            return _ONCE
    return None


def _between(schedule: Schedule, low: datetime, high: datetime) -> Iterator[datetime]:
    """The times in [low, high)."""
    if schedule.calendars:
        return schedule.openings.between(low - _TICK, high - _TICK)
    return recurrence.between(schedule.timing, low - _TICK, high - _TICK)


def _number(schedule: Schedule, low: datetime, high: datetime) -> int:
    """How many times are in [low, high)."""
    if schedule.calendars:
        return schedule.openings.number(low - _TICK, high - _TICK)
    return recurrence.count(schedule.timing, low - _TICK, high - _TICK)


def _participants(groups: list[_Group]) -> tuple[Participant, ...]:
    often = sorted(groups, key=lambda group: -group.runs)
    found = ((group.runs, each) for group in often for each in group.members)
    return tuple(
        Participant(key=key, runs=runs, work=None if seconds is None else round(runs * seconds, 3))
        for runs, (_, key, seconds, _) in islice(found, LISTED)
    )


def _range(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    for name, at in (("start", start), ("end", end)):
        if not isinstance(at, datetime) or at.utcoffset() is None:
            raise Invalid(name, f"{at!s:.60} is no time with a zone", "give an aware datetime")
    if not timedelta(0) < end - start <= LONGEST:
        raise Invalid(
            "end", f"{end.isoformat()} is not within {LONGEST.days} days after start", "give a time that is"
        )
    return start.astimezone(UTC), end.astimezone(UTC)


def _floored(local: datetime, by: str) -> datetime:
    if by == "day":
        return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    into = timedelta(
        minutes=local.minute if by == "hour" else 0, seconds=local.second, microseconds=local.microsecond
    )
    return (local.astimezone(UTC) - into).astimezone(local.tzinfo)


def _next_edge(edge: datetime, by: str) -> datetime:
    """The next whole minute, hour or day on the clock of `edge`; days are as long as that clock makes them."""
    if by == "day":
        return (edge + timedelta(days=1)).replace(fold=0)
    step = MINUTE if by == "minute" else timedelta(hours=1)
    return (edge.astimezone(UTC) + step).astimezone(edge.tzinfo)
