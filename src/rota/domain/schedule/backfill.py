"""A backfill: times of the past that a schedule runs after all. Pure.

It is a part of its schedule, so that both move in one commit. A tick takes the next times: one that has run, whenever
and however, is passed over; one that has no row, or was skipped, is started. The id of its row is that of the time, so
nothing runs twice. With `buffer_all` (the default) each waits until nothing of the schedule is live; with `allow` they
start as soon as there is room. They count as live runs of the schedule for its own times, and not towards `max_runs`.

A backfill goes on while its schedule is paused or has completed; a delete ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice

import msgspec
from msgspec.structs import replace

from ..checks import check_number, check_time
from ..errors import Invalid, Refused
from ..model import Backfill, BackfillStatus, OverlapPolicy, Run, RunReason, RunStatus, Schedule
from ..recurrence import MICROSECOND, After, Interval, Openings
from .decision import Skip, due_time
from .run import cut_short, run_id, skipped

_FIRST_YEAR = 1970
TIMES_PER_TICK = 100
MOST = 10_000
NO_ROOM = timedelta(seconds=5)


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one tick in a backfill: the times that start, and how it is afterwards."""

    starts: tuple[datetime, ...] = ()
    backfill: Backfill


def begin(
    id: str,
    schedule: Schedule,
    start: object,
    end: object,
    policy: OverlapPolicy,
    at_most: int,
    now: datetime,
    actor: str,
) -> Backfill:
    """A checked backfill of [start, end]. Refused while another is under way."""
    first, last = check_time("start", start), check_time("end", end)
    if first.year < _FIRST_YEAR:
        raise Invalid("start", f"{first.isoformat()} is out of range", f"give a time since {_FIRST_YEAR}")
    if last < first:
        raise Invalid("end", f"{last.isoformat()} is before start", "give a time after start")
    if last > now:
        raise Invalid("end", f"{last.isoformat()} is still to come", "give a time in the past")
    if isinstance(schedule.timing, After):
        raise Invalid(
            "start", "a schedule that runs after others has no times of its own", "trigger it instead"
        )
    if schedule.backfill is not None and schedule.backfill.is_open:
        raise Refused("backfill_running", schedule=schedule.key)
    most = check_number("at_most", at_most, 1, MOST)
    before = first - MICROSECOND
    times = len(list(islice(_openings(schedule, before).between(before, last), most + 1)))
    if times > most:
        problem = f"it has more than {most:,} times from {first.isoformat()} to {last.isoformat()}"
        raise Invalid("at_most", problem, f"give a shorter range, or a higher number up to {MOST:,}")
    return Backfill(
        id=id,
        start=first,
        end=last,
        overlap_policy=policy,
        after=before,
        total=times,
        created_by=actor,
        created_at=now,
    )


def check_policy(value: OverlapPolicy) -> OverlapPolicy:
    if value not in (OverlapPolicy.ALLOW, OverlapPolicy.BUFFER_ALL):
        raise Invalid(
            "overlap_policy",
            f"a backfill cannot {value.replace('_', ' ')}",
            "accepted are buffer_all and allow",
        )
    return value


def upcoming(schedule: Schedule) -> list[datetime]:
    """The times that the next tick looks at."""
    filling = schedule.backfill
    if filling is None or not filling.is_open:
        return []
    times = _openings(schedule, filling.after).between(filling.after, filling.end)
    return list(islice(times, TIMES_PER_TICK))


def step(
    schedule: Schedule,
    filling: Backfill,
    rows: Mapping[str, Run],
    now: datetime,
    *,
    is_live: bool,
    room: int | None,
    most: int = TIMES_PER_TICK,
) -> Portion:
    """Which of the upcoming times start now. `rows` are those that times have of their own."""
    one_by_one = filling.overlap_policy is OverlapPolicy.BUFFER_ALL
    free = most if room is None else min(room, most)
    if one_by_one:
        free = 0 if is_live else min(free, 1)
    times, passed, after = upcoming(schedule), 0, filling.after
    starts: list[datetime] = []
    for at in times:
        row = rows.get(run_id(schedule, at))
        if row is not None and row.status is not RunStatus.SKIPPED:
            passed += 1
        elif len(starts) < free:
            starts.append(at)
        else:
            break
        after = at
    done = len(times) < TIMES_PER_TICK and after == (times[-1] if times else after)
    moved = replace(
        filling,
        after=after,
        started=filling.started + len(starts),
        passed=filling.passed + passed,
        status=BackfillStatus.COMPLETED if done else filling.status,
        ended_at=now if done else None,
    )
    return Portion(starts=tuple(starts), backfill=moved)


def cancel(filling: Backfill, now: datetime, note: str) -> Backfill:
    """The backfill, ended. Runs that have been started go on; nothing more starts."""
    if not filling.is_open:
        return filling
    return replace(filling, status=BackfillStatus.CANCELLED, ended_at=now, note=note)


def carved(row: Run, schedule: Schedule, first: datetime, last: datetime, now: datetime) -> list[Run]:
    """The rows that are left of a stretch that was skipped, when its times from `first` to `last` are started."""
    assert row.until is not None
    rest: list[Run] = []
    if row.scheduled_at < first:
        rest.append(cut_short(row, schedule, first - MICROSECOND))
    if last < row.until:
        openings = _openings(schedule, last)
        for begins in islice(openings.between(last, row.until), 1):
            number = 1 + openings.number(begins, row.until)
            until = row.until if number > 1 else None
            skip = Skip(begins, row.reason or RunReason.MISSED, until, number)
            rest.append(skipped(schedule, skip, now))
    return rest


def awake(schedule: Schedule, at: datetime) -> Schedule:
    """Looked at by a tick at `at`, if it has a backfill to go on with, or sooner if a time of its own is due before."""
    if schedule.backfill is None or not schedule.backfill.is_open or schedule.deleted_at is not None:
        return schedule
    return replace(schedule, due_at=at if schedule.due_at is None else min(at, schedule.due_at))


def own_times(schedule: Schedule) -> Schedule:
    """Without what `awake` added: due when its next time is, or its pause ends."""
    if schedule.next_run_at is not None:
        return replace(schedule, due_at=due_time(schedule, schedule.next_run_at))
    return replace(schedule, due_at=schedule.pause_until)


def _openings(schedule: Schedule, after: datetime) -> Openings:
    """Its times since `after`, whatever its bounds. An interval counts from its anchor on; its grid goes back as far as
    is asked."""
    timing = schedule.timing
    match timing:
        case Interval(every, anchor) if anchor is not None and anchor > after:
            timing = replace(timing, anchor=anchor - ((anchor - after) // every + 1) * every)
    return schedule.openings._replace(timing=timing, start_at=None, end_at=None)
