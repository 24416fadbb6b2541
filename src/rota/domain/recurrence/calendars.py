"""Sets of days and windows, and the times of a timing that they leave.

A set covers the days that it lists, the days on which one of its rules falls, and its windows of every day. A time is
open if every set of `only` covers it and none of `exclude` does. Within a local day that changes only where a window
begins or ends: between two such edges lies a *piece*, which is open or closed as a whole. A search for a time goes from
piece to piece, forwards or backwards, and never through the times of a closed one.

A closed time may *roll* to the next or the previous day on which its time of day is open, within `FARTHEST`. Where two
come to the same instant, that is one time. Then each time of the timing is looked at.

A set whose own zone is not known here closes every time: which ones it covers cannot be said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final, NamedTuple

import msgspec

from ..errors import Invalid
from .occurrences import between, count, latest, next_after, on_clock
from .rrule.parse import parse_rrule
from .timing import MICROSECOND, RRule, Timing
from .zones import is_zone, zone_tzinfo

FARTHEST: Final = timedelta(days=31)
"""So far a closed time rolls."""
MOST_PIECES: Final = 1_000
"""So many closed pieces in a row, and the search ends: no time is left."""
_DAY: Final = timedelta(days=1)
_MIDNIGHT: Final = time(0)
_RULES_BEGIN: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Covered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The days and windows that a calendar covers; its days are in order. `timezone` is whose days and hours are meant;
    None: those of the timing."""

    name: str
    days: tuple[date, ...] = ()
    rules: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    timezone: str | None = None

    @property
    def has_unknown_zone(self) -> bool:
        return self.timezone is not None and not is_zone(self.timezone)


class Piece(NamedTuple):
    """From `begin` until before `end` every time is alike: open, or closed because of the set `closed_by`."""

    begin: datetime
    end: datetime
    closed_by: str | None


class Stretch(NamedTuple):
    """Times of a timing that follow each other: the first, the last, how many, and which set they are closed by."""

    first: datetime
    last: datetime
    number: int
    closed_by: str | None


def parse_window(text: str) -> tuple[time, time]:
    """`22:00-06:00`: when it begins and when it ends, the next day if that is earlier. `24:00` is midnight."""
    begin, dash, end = text.replace(" ", "").partition("-")
    try:
        if not dash or len(begin) != 5 or len(end) != 5:
            raise ValueError
        window = time.fromisoformat(begin), _MIDNIGHT if end == "24:00" else time.fromisoformat(end)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a window; accepted are such as 22:00-06:00") from None
    if window[0] == window[1]:
        raise ValueError(f"{text[:40]!r} begins when it ends; accepted are such as 22:00-06:00")
    return window


def check_rule(rule: str) -> None:
    """`Invalid` with one sentence if the rule is malformed, or not one of whole days."""
    parse_rrule(rule, 0, "UTC", None, None)
    parts = {part.partition("=")[0].strip().upper() for part in rule.split(":")[-1].split(";")}
    finer = parts & {"BYHOUR", "BYMINUTE", "BYSECOND", "COUNT"}
    if finer or any(f"FREQ={word}" in rule.upper() for word in ("HOURLY", "MINUTELY", "SECONDLY")):
        raise Invalid(
            "rrule",
            f"{rule[:80]!r} is not one of days; accepted are rules by day, week, month or year without"
            " BYHOUR and COUNT",
        )


@lru_cache(maxsize=4_096)
def _windows(texts: tuple[str, ...]) -> tuple[tuple[tuple[time, time], ...], tuple[time, ...]]:
    """The windows, and where in the day they begin and end."""
    parsed = tuple(parse_window(text) for text in texts)
    return parsed, tuple(sorted({_MIDNIGHT, *(edge for window in parsed for edge in window)}))


@lru_cache(maxsize=65_536)
def _falls_on(rule: str, day: date) -> bool:
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return (
        next_after(RRule(rule, _RULES_BEGIN), midnight - MICROSECOND, end_at=midnight + _DAY - MICROSECOND)
        is not None
    )


def _covers(covering: Covered, local: datetime) -> bool:
    clock = local.time()
    windows, _ = _windows(covering.windows)
    if any(
        begin <= clock < end if begin < end else (clock >= begin or clock < end) for begin, end in windows
    ):
        return True
    day, days = local.date(), covering.days
    place = bisect_left(days, day)
    return days[place : place + 1] == (day,) or any(_falls_on(rule, day) for rule in covering.rules)


def covered_days(covering: Covered, first: date, most: int) -> list[date]:
    """The next days that it covers as a whole, from this one on, within a year."""
    days = (first + timedelta(days=number) for number in range(366))
    known = frozenset(covering.days)
    return list(
        islice(
            (day for day in days if day in known or any(_falls_on(rule, day) for rule in covering.rules)),
            most,
        )
    )


class Openings(NamedTuple):
    """The times of a timing that its calendars leave, within its bounds. `timezone` is that of the timing."""

    timing: Timing
    only: tuple[Covered, ...]
    exclude: tuple[Covered, ...]
    timezone: str
    start_at: datetime | None = None
    end_at: datetime | None = None
    rolls: int = 0
    """1: a closed time goes to the next open day; -1: to the previous one; 0: it is left out."""

    @property
    def are_all(self) -> bool:
        """Whether there are no calendars: every time is open."""
        return not (self.only or self.exclude)

    @property
    def nominal(self) -> Openings:
        """The times of the timing within its bounds, with the times that calendars take away."""
        return Openings(self.timing, (), (), self.timezone, self.start_at, self.end_at)

    def next_after(self, after: datetime) -> datetime | None:
        """The first open time after `after`; None also where calendars close everything for years."""
        if self.are_all:
            return next_after(self.timing, after, start_at=self.start_at, end_at=self.end_at)
        if self.rolls:
            return self._next_landing(after)
        nominal = self.nominal
        for _ in range(MOST_PIECES):
            at = nominal.next_after(after)
            if at is None:
                return None
            piece = self.piece_at(at)
            if piece.closed_by is None:
                return at
            after = piece.end - MICROSECOND
        return None

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        if self.are_all:
            yield from between(self.timing, after, until, start_at=self.start_at, end_at=self.end_at)
            return
        at = self.next_after(after)
        while at is not None and at <= until:
            if self.rolls:  # a month together: each is looked at once for all of them
                after = min(at + FARTHEST, until)
                yield from self._landings(at - MICROSECOND, after)
            else:
                yield at
                after = at
            at = self.next_after(after)

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """The last open time in `(after, until]`."""
        if self.are_all:
            return latest(self.timing, after, until, start_at=self.start_at, end_at=self.end_at)
        if self.rolls:
            return self._latest_landing(after, until)
        nominal = self.nominal
        while until > after:
            at = nominal.latest(after, until)
            if at is None:
                return None
            piece = self.piece_at(at)
            if piece.closed_by is None:
                return at
            until = piece.begin - MICROSECOND
        return None

    def stretches(self, after: datetime, until: datetime) -> Iterator[Stretch]:
        """The times in `(after, until]`, open and closed ones: those of a piece together, and of closed pieces that
        follow each other and are closed by the same set."""
        nominal = self.nominal
        gathered: Stretch | None = None
        while (first := nominal.next_after(after)) is not None and first <= until:
            piece = self.piece_at(first)
            after = min(piece.end - MICROSECOND, until)
            last = nominal.latest(first - MICROSECOND, after) or first
            number = 1 if last == first else nominal.number(first - MICROSECOND, last)
            if gathered is not None and gathered.closed_by == piece.closed_by:
                gathered = gathered._replace(last=last, number=gathered.number + number)
                continue
            if gathered is not None:
                yield gathered
            gathered = Stretch(first, last, number, piece.closed_by)
        if gathered is not None:
            yield gathered

    def number(self, after: datetime, until: datetime, *, at_most: int | None = None) -> int:
        """How many open times are in `(after, until]`. Who needs not know more than `at_most` waits less long."""
        if self.are_all:
            return count(self.timing, after, until, start_at=self.start_at, end_at=self.end_at)
        if self.rolls:
            return len(self._landings(after, until))
        number = 0
        for each in self.stretches(after, until):
            number += each.number if each.closed_by is None else 0
            if at_most is not None and number >= at_most:
                break
        return number

    def rolled(self, at: datetime) -> datetime | None:
        """Where a closed time goes, within its bounds; None: nowhere."""
        zone = zone_tzinfo(self.timezone)
        local = at.astimezone(zone).replace(tzinfo=None)
        for days in range(1, FARTHEST.days + 1):
            there = on_clock(local + self.rolls * days * _DAY, self.timezone)
            if self.closed_by(there) is None:
                is_early = self.start_at is not None and there < self.start_at
                return None if is_early or (self.end_at is not None and there > self.end_at) else there
        return None

    def rolled_from(self, at: datetime) -> datetime | None:
        """The last of the closed times that go to `at`."""
        low, high = (at - FARTHEST, at) if self.rolls > 0 else (at, at + FARTHEST)
        found = [
            each
            for each in self.nominal.between(low - MICROSECOND, high)
            if self._landing(each) == at and each != at
        ]
        return found[-1] if self.rolls and found else None

    def _landing(self, at: datetime) -> datetime | None:
        return at if self.closed_by(at) is None else self.rolled(at)

    def _landings(self, after: datetime, until: datetime) -> list[datetime]:
        """The times in `(after, until]`, in order."""
        low, high = (after - FARTHEST, until) if self.rolls > 0 else (after, until + FARTHEST)
        found = {self._landing(at) for at in self.nominal.between(low, high)}
        return sorted(at for at in found if at is not None and after < at <= until)

    def _next_landing(self, after: datetime) -> datetime | None:
        """A time before `at` cannot come from one that is more than `FARTHEST` away: there the search ends."""
        nominal, ahead = self.nominal, FARTHEST if self.rolls < 0 else timedelta(0)
        best: datetime | None = None
        at = after if self.rolls < 0 else after - FARTHEST
        closed = 0
        while closed < MOST_PIECES and (best is None or at - ahead < best):
            following = nominal.next_after(at)
            if following is None:
                break
            at, landing = following, self._landing(following)
            if landing is None:
                closed += 1
            elif landing > after:
                best, closed = landing if best is None else min(best, landing), 0
        return best

    def _latest_landing(self, after: datetime, until: datetime) -> datetime | None:
        for _ in range(MOST_PIECES):
            low = max(after, until - FARTHEST)
            if low >= until:
                return None
            if found := self._landings(low, until):
                return found[-1]
            at = self.nominal.latest(after - FARTHEST, low)
            if at is None:
                return None
            until = min(low, at + FARTHEST)
        return None

    def closed_by(self, at: datetime) -> str | None:
        """The set that closes `at`: one that excludes it, or else one that it would have to be in."""
        for number, covering in enumerate((*self.exclude, *self.only)):
            if covering.has_unknown_zone:
                return covering.name
            local = at.astimezone(zone_tzinfo(covering.timezone or self.timezone))
            if _covers(covering, local) == (number < len(self.exclude)):
                return covering.name
        return None

    def piece_at(self, at: datetime) -> Piece:
        pieces = []
        for number, covering in enumerate((*self.exclude, *self.only)):
            zone = covering.timezone or self.timezone
            if covering.has_unknown_zone:
                midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
                return Piece(midnight, midnight + _DAY, covering.name)
            local = at.astimezone(zone_tzinfo(zone)).replace(tzinfo=None)
            begin, end = _around(at, local, covering, zone)
            if _covers(covering, local) == (number < len(self.exclude)):
                return Piece(begin, end, covering.name)
            pieces.append((begin, end))
        return Piece(max(begin for begin, _ in pieces), min(end for _, end in pieces), None)


def _around(at: datetime, local: datetime, covering: Covered, zone: str) -> tuple[datetime, datetime]:
    """The instants of the edges around `at`. Where clocks change in between, the nearer of the two readings counts."""
    _, edges = _windows(covering.windows)
    today = [datetime.combine(local.date(), edge) for edge in edges]
    today.append(datetime.combine(local.date(), _MIDNIGHT) + _DAY)
    begin, end = next((low, high) for low, high in pairwise(today) if low <= local < high)
    ends = [at + (end - local)]
    if (shown := on_clock(end, zone)) > at:
        ends.append(shown)
    begins = [at - (local - begin)]
    if (shown := on_clock(begin, zone)) <= at:
        begins.append(shown)
    return max(begins), min(ends)
