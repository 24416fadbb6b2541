"""Forecasts: how many runs are expected when, and how much work they are. Pure.

Schedules that fire alike are one group: the same timing, calendars, offset, jitter and bounds; of intervals and single
times, those that fall into the same minutes. The minutes of a group are found once, however many schedules it has, and
what is kept is one number per minute, never a list of times. Jitter is what it will be, computed for each schedule; of
very many that fire alike, each minute is given its even share. What spreading a minute would do is in `spread.py`.

A schedule that comes after others has no times of its own. It counts if its time is known already, else it is only
numbered (`following`). A pause counts until its end; one without an end, a draft and a completed schedule fire never.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from itertools import chain, islice
from math import gcd
from typing import Any, NamedTuple

import msgspec

from ..errors import Invalid
from ..model import Schedule
from ..recurrence import MICROSECOND, After, Interval, Once
from .decision import jitter_share, room_after
from .spread import MINUTE, SPREADS, Moved, Mover, Spread, first_time, moves, spread_out

LONGEST = timedelta(days=31)
BUSIEST = 5
LOOKED_AT = 20
NAMED = 20
LISTED = 100
COLLISION = 5
"""Fewer schedules in a minute are not worth spreading."""
EXACTLY = 300_000
"""So many times with jitter are computed one by one; beyond them, groups of `MANY` are shared out evenly."""
MANY = 100
FEW = 48
_MINUTE = 60_000_000
_ONCE = 60 * 24 * 60 * _MINUTE


class ForecastSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that begin from `at` on: how many runs, and how many seconds of work they are."""

    at: datetime
    runs: int
    work: float


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and how often it fires; the work of these runs in seconds, None if none has ended so far."""

    key: str
    runs: int
    work: float | None


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
    """The runs that are expected from `start` to before `end`. `schedules` is how many fire, `unknown` how many of them
    have no run whose length is known: their work is missing. `following` is how many come after others and have no
    times of their own. `participants` are those with the most runs, at most a hundred."""

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


class _JitteredTime(NamedTuple):
    """A time: as the hash of jitter takes it, where its offset puts it, and by how much jitter may put it off."""

    text: str
    micros: int
    room: int


class _AlikeSchedules(msgspec.Struct):
    """Schedules that fire alike, one of which is `like`, from `low` to before `high`. With `every` (in microseconds)
    their times are arithmetic. `minutes` are the minutes in which they fire, if these are few. A busy minute asks every
    group whether it is in it, and most answer from `minutes`: that halves a forecast of rules that all differ."""

    like: Schedule
    low: datetime
    high: datetime
    most: int | None
    every: int | None
    members: list[_Member] = msgspec.field(default_factory=list)
    minutes: array[int] | None = None
    runs: int = 0

    def times(self, low: datetime, high: datetime) -> Iterator[datetime]:
        """The times in [low, high)."""
        low, high = max(self.low, low), min(self.high, high)
        if low >= high:
            return iter(())
        if self.every is not None:
            step = self.every * MICROSECOND
            first = self.low + -(-(low - self.low) // step) * step
            return (first + number * step for number in range(-(-(high - first) // step)))
        left = self.most
        if left is not None and low > self.low:
            left -= _number(self.like, self.low, low)
        times = self.like.openings.between(low - MICROSECOND, high - MICROSECOND)
        return times if left is None else islice(times, max(left, 0))

    def room(self, nominal: datetime, most: timedelta) -> timedelta:
        """As `room_after`, of one of these times."""
        if self.every is not None:
            return min(most, self.every * MICROSECOND)
        return room_after(self.like, nominal, most)

    def dues(self) -> Iterator[datetime]:
        """When its times are due, as far as they have no jitter."""
        times = self.times(self.low, self.high)
        offset = self.like.offset
        return (at + self.room(at, offset) for at in times) if offset else times


class Forecaster:
    """Gathers schedules, one after the other, for the time from `start` to `end`; `count` goes through their times, and
    `result` says what they come to."""

    def __init__(self, start: datetime, end: datetime, by: str = "hour") -> None:
        self.start, self.end = _range(start, end)
        self.by = by
        self._clock = start.tzinfo
        self._first = self.start.replace(second=0, microsecond=0)
        self._minutes = -(-(self.end - self._first) // MINUTE)
        self._groups: dict[Any, _AlikeSchedules] = {}
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
        high = self.end if schedule.end_at is None else min(self.end, schedule.end_at + MICROSECOND)
        if first < high:
            self._gather(schedule, seconds, first, high)

    def takes(self, schedule: Schedule) -> bool:
        """Whether a time of it may be in the range."""
        first = first_time(schedule)
        return first is not None and first < self.end

    def _gather(self, schedule: Schedule, seconds: float | None, first: datetime, high: datetime) -> None:
        low = max(first, self.start - schedule.most_put_off)
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
            step = every * MICROSECOND
            low = first + -(-(low - first) // step) * step
            high, most = (high if most is None else min(high, low + (most - 1) * step + MICROSECOND)), None
            alike = (every, low)
            if not schedule.most_put_off:
                alike = (every, self._micros(low) // gcd(every, _MINUTE))
        if low >= high:
            return
        key = (alike, schedule.offset, schedule.jitter, high, most)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _AlikeSchedules(schedule, low, high, most, every)
        group.members.append(_Member(schedule.id, schedule.key, seconds, (low - group.low) // MICROSECOND))

    def _micros(self, at: datetime) -> int:
        return (at - self._first) // MICROSECOND

    def count(self) -> Iterator[int]:
        """Go through the times of every group, and say of each how many steps that took: a caller with others to serve
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

    def _count_plain(self, group: _AlikeSchedules) -> int:
        number = len(group.members)
        seconds = sum(each.seconds or 0.0 for each in group.members)
        steps, before, few = 0, -1, array("i")
        for minute, times in self._minutes_of(group):
            steps += 1
            if steps <= FEW:
                few.append(minute)
            self.runs[minute] += times * number
            self.work[minute] += times * seconds
            self.schedules[minute] += number if minute != before else 0
            group.runs += times
            before = minute
        group.minutes = few if steps <= FEW else None
        return steps

    def _minutes_of(self, group: _AlikeSchedules) -> Iterator[tuple[int, int]]:
        """The minutes in which a group without jitter fires, and how often."""
        every = group.every
        if every is None or every >= _MINUTE or group.like.offset:
            first, dues = self._first, group.dues()
            yield from (((at - first) // MINUTE, 1) for at in dues if self.start <= at < self.end)
            return
        low, high = self._micros(group.low), self._micros(group.high)
        for minute in range(low // _MINUTE, -(-high // _MINUTE)):
            begin, end = max(minute * _MINUTE, low), min((minute + 1) * _MINUTE, high)
            times = (end - 1 - low) // every - (begin - 1 - low) // every
            if times:
                yield minute, times

    def _dues(self, group: _AlikeSchedules, low: datetime, high: datetime) -> list[_JitteredTime]:
        offset, most = group.like.offset, group.like.most_put_off
        found: list[_JitteredTime] = []
        for at in group.times(low, high):
            room = group.room(at, most)
            sure = min(offset, room)
            found.append(_JitteredTime(at.isoformat(), self._micros(at + sure), (room - sure) // MICROSECOND))
        return found

    def _count_each(self, group: _AlikeSchedules, times: list[_JitteredTime]) -> None:
        """Each time of each schedule, when it will be due."""
        begin, end = self._micros(self.start), self._micros(self.end)
        for id, _, seconds, _ in group.members:
            before = -1
            for text, micros, room in times:
                due = micros + (jitter_share(id, text) * room >> 64)
                if begin <= due < end:
                    minute = due // _MINUTE
                    self.runs[minute] += 1
                    self.work[minute] += seconds or 0.0
                    self.schedules[minute] += minute != before
                    group.runs += 1
                    before = minute
        group.runs = -(-group.runs // len(group.members))

    def _count_evenly(self, group: _AlikeSchedules, times: list[_JitteredTime]) -> None:
        """For each minute its share of those that jitter may put there."""
        number = len(group.members)
        seconds = sum(each.seconds or 0.0 for each in group.members) / number
        begin, end = self._micros(self.start), self._micros(self.end)
        for _, micros, most in times:
            room = max(most, 1)
            low = max(micros, begin)
            while low < min(micros + room, end):
                minute = low // _MINUTE
                high = min((minute + 1) * _MINUTE, micros + room, end)
                runs = number * (high - micros) // room - number * (low - micros) // room
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
                keys = chain.from_iterable(self._who(group, at) for group in self._around(at))
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

    def _who(self, group: _AlikeSchedules, at: datetime) -> Iterator[str]:
        """The keys of a group's schedules that fire within the minute."""
        most, micros = group.like.most_put_off, self._micros(at)
        if not most:
            if _nominal(group, at) is not None:
                yield from (each.key for each in group.members)
            return
        times = self._dues(group, at - most, at + MINUTE)
        for id, key, _, _ in group.members:
            dues = (due + (jitter_share(id, text) * room >> 64) for text, due, room in times)
            if any(micros <= due < micros + _MINUTE for due in dues):
                yield key

    def spread(self, at: datetime, over: timedelta | None = None) -> Spread | None:
        """The effect of spreading the schedules of a minute: over this long, or over the least while that takes the
        peak to a quarter, or else the one that does best. None if it does no good."""
        minute = (at - self._first) // MINUTE
        if over is None and self.schedules[minute] < COLLISION:
            return None
        firing = self._firing(at, SPREADS[-1] if over is None else over)
        if over is None and sum(len(group.members) for group, _, _ in firing) < COLLISION:
            return None
        best: Spread | None = None
        for each in SPREADS if over is None else (over,):
            made = spread_out(
                at.astimezone(self._clock),
                each,
                self._loads(at, each),
                self.schedules[minute],
                sum(len(group.members) for group, _, room in firing if room >= each),
            )
            if over is not None or (made.after < (made.before if best is None else best.after)):
                best = made
            if best is not None and best.after <= -(-best.before // 4):
                break
        return best

    def moves(self, spread: Spread) -> list[Moved]:
        """The schedules that it moves, and where to."""
        movers = (
            Mover(each.id, each.key, nominal + each.shift * MICROSECOND)
            for group, nominal, room in self._firing(spread.at, spread.over)
            if room >= spread.over
            for each in group.members
        )
        return moves(movers, self._loads(spread.at, spread.over))

    def _loads(self, at: datetime, over: timedelta) -> list[int]:
        minute = (at - self._first) // MINUTE
        return self.runs[minute : minute + over // MINUTE]

    def _around(self, at: datetime) -> Iterator[_AlikeSchedules]:
        """The groups that may fire in a minute."""
        minute = (at - self._first) // MINUTE
        return (each for each in self._groups.values() if each.minutes is None or minute in each.minutes)

    def _firing(self, at: datetime, longest: timedelta) -> list[tuple[_AlikeSchedules, datetime, timedelta]]:
        """The groups that fire in a minute and are not put off so far: when, and by how much they could be."""
        plain = (group for group in self._around(at) if not group.like.most_put_off)
        found = ((group, nominal) for group in plain if (nominal := _nominal(group, at)) is not None)
        return [(group, nominal, group.room(nominal, longest)) for group, nominal in found]


def _nominal(group: _AlikeSchedules, at: datetime) -> datetime | None:
    """The first time of a group within the minute, without its jitter."""
    return next(group.times(at, at + MINUTE), None)


def _every(schedule: Schedule) -> int | None:
    """The step between its times in microseconds, if that is all there is to know; a single time has a long one."""
    match schedule.timing:
        case Interval(every) if not schedule.calendars:
            return every // MICROSECOND
        case Once() | After():
            return _ONCE
    return None


def _number(schedule: Schedule, low: datetime, high: datetime) -> int:
    """How many times are in [low, high)."""
    return schedule.openings.number(low - MICROSECOND, high - MICROSECOND)


def _participants(groups: list[_AlikeSchedules]) -> tuple[Participant, ...]:
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
