"""Spreading: the schedules that fire in one minute are given offsets, so that its neighbours take their share. Pure.

Each minute of the while gets as many as make it as busy as the others, counting what fires in it anyway. Who goes where
follows from the keys: the first stay, the last are put off furthest. Within a minute they are some seconds apart. An
offset is a field of the schedule: what was shown is what happens, on every day and every node.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..errors import Invalid
from ..model import Schedule, ScheduleStatus
from ..recurrence import MICROSECOND
from .decision import room_after

MINUTE = timedelta(minutes=1)
SPREADS = tuple(timedelta(minutes=each) for each in (5, 10, 15, 30, 60))
LISTED = 100
LONGEST_SPREAD = timedelta(days=1)
_SECOND = timedelta(seconds=1)


class Mover(NamedTuple):
    """A schedule that moves, and when it fires."""

    id: str
    key: str
    before: datetime


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, when it would fire, and when it will with its offset."""

    id: str
    key: str
    before: datetime
    after: datetime

    @property
    def offset(self) -> timedelta:
        return self.after - self.before


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules of the minute `at`, spread over a while: how many runs its busiest minute has before and after.
    `schedules` is how many fire in that minute, `moving` how many of them are spread; `moves` are the first.
    `token` stands for all of them: two with the same token do the same."""

    at: datetime
    over: timedelta
    schedules: int
    moving: int
    before: int
    after: int
    moves: tuple[Moved, ...] = ()
    token: str | None = None

    def with_moves(self, moves: Sequence[Moved]) -> Spread:
        told = "".join(f"{each.id} {each.before.isoformat()} {each.offset}\n" for each in moves)
        token = blake2b(told.encode(), digest_size=16).hexdigest()
        return replace(self, moving=len(moves), moves=tuple(moves[:LISTED]), token=token)

    def sentence(self, clock: str) -> str:
        """The spread in words; `clock` is the minute as its reader knows it."""
        many = f"{self.schedules:,} schedules fire" if self.schedules != 1 else "1 schedule fires"
        them = "them" if self.moving == self.schedules else f"{self.moving:,} of them"
        minutes = "1 minute" if self.over == MINUTE else f"{self.over // MINUTE:,} minutes"
        return (
            f"{many} at {clock}; spreading {them} over {minutes} takes the peak from"
            f" {self.before:,} to {self.after:,}"
        )


def spread_out(at: datetime, over: timedelta, loads: Sequence[int], schedules: int, moving: int) -> Spread:
    """The spread, with the peak before and after. `loads` are the runs of each minute of the while, those that may move
    among the first; one of them stays at its time, if its minute has room."""
    rest = [loads[0] - moving, *loads[1:]]
    shares = _shares(rest, moving)
    after = max(load + share for load, share in zip(rest, shares, strict=True))
    moving -= shares[0] > 0
    return Spread(at=at, over=over, schedules=schedules, moving=moving, before=loads[0], after=after)


def moves(movers: Iterable[Mover], loads: Sequence[int]) -> list[Moved]:
    """The schedules that move, out of the movable ones, and their new offsets."""
    able = sorted(movers, key=lambda each: each.key)
    left, shares = iter(able), _shares([loads[0] - len(able), *loads[1:]], len(able))
    spread = (
        _moved(next(left), minute, place, share)
        for minute, share in enumerate(shares)
        for place in range(share)
    )
    return [each for each in spread if each.offset]


def _shares(loads: Sequence[int], number: int) -> list[int]:
    """How many each minute gets: all are filled to one level, the earliest to one more."""

    def room(level: int) -> int:
        return sum(max(level - load, 0) for load in loads)

    level = bisect_right(range(max(loads) + number + 1), number, key=room) - 1
    shares = [max(level - load, 0) for load in loads]
    for minute in islice((at for at, load in enumerate(loads) if load <= level), number - sum(shares)):
        shares[minute] += 1
    return shares


def _moved(mover: Mover, minute: int, place: int, share: int) -> Moved:
    """It stays in its minute however many seconds are between it and the others there."""
    seconds = (MINUTE - mover.before.second * _SECOND - mover.before.microsecond * MICROSECOND) // _SECOND
    offset = minute * MINUTE + place * seconds // share * _SECOND
    return Moved(id=mover.id, key=mover.key, before=mover.before, after=mover.before + offset)


def first_time(schedule: Schedule) -> datetime | None:
    """The first time that is still to come, as far as it is known; a pause counts until its end."""
    if schedule.enabled:
        return schedule.next_run_at
    is_paused = schedule.status is ScheduleStatus.PAUSED and schedule.deleted_at is None
    return schedule.next_occurrence(schedule.pause_until) if is_paused and schedule.pause_until else None


def can_move(schedule: Schedule, at: datetime, over: timedelta) -> bool:
    """Whether a schedule fires in the minute from `at` on, is not put off so far, and does not fire again within the
    while."""
    first = first_time(schedule)
    if schedule.most_put_off or first is None:
        return False
    found = first if first >= at else schedule.next_occurrence(at - MICROSECOND)
    if found is None or not at <= found < at + MINUTE:
        return False
    return room_after(schedule, found, over) == over


def check_over(over: object) -> timedelta:
    if not isinstance(over, timedelta) or over % MINUTE or not MINUTE <= over <= LONGEST_SPREAD:
        raise Invalid("over", f"{over!s:.60} is no number of minutes", "give one minute to a day")
    return over


def minute_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)
