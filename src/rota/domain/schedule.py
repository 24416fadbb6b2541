"""What a tick decides: `decide(schedule, now, live)`, pure, the heart of the product.

The due times are `next_run_at` and those that the timing gives after it, up to now. One that is late by more
than `misfire_grace` is *missed*, and the missed-run policy says what becomes of it. The others fire, unless
the overlap policy forbids it. Every due time ends as a fire or as a skip; nothing is dropped, and a long
outage is one row, not thousands. Jitter delays a time without making it late: lateness counts from `due_at`.

| case | outcome |
| --- | --- |
| late by at most the grace | fires |
| missed, policy `skip` | skipped (missed) |
| missed, policy `execute_once` | the latest due time fires, once; the others are skipped (missed) |
| missed, policy `catch_up` | each fires, oldest first; those before the window are skipped (missed) |
| the clock jumped (a laptop slept) | as above; of the times within the grace only the latest fires |
| a live target, overlap `skip` | skipped (overlap); does not count as a run |
| a live target, overlap `allow` | fires beside it |
| a live target, overlap `cancel_previous` | the live ones are cancelled, then it fires |
| several to fire, overlap `skip` | the first fires, the others are skipped (overlap) |
| several to fire, overlap `cancel_previous` | the last fires, the others are skipped (overlap) |
| the tenant has no room for another pending task | skipped (limit); does not count as a run |
| the tenant is suspended | skipped (suspended), whatever the policies say |
| `max_runs` reached, or no time left | the schedule is completed, with the reason |
| paused, draft, deleted, completed | nothing |

`catch_up` asks for every missed run, so neither the overlap policy nor a clock that jumped takes any of those
that it makes up for. A tick starts at most a hundred of them, and the next tick goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import islice

import msgspec
from msgspec.structs import replace

from . import recurrence
from .model import MissedRunPolicy, OverlapPolicy, RunReason, RunTrigger, Schedule, ScheduleStatus, Task

__all__ = [
    "Decision",
    "Fire",
    "Skip",
    "decide",
    "given_up",
    "jittered",
    "planned",
    "turned_away",
    "with_fewer_runs",
]

FIRES_PER_DECISION = 100
ROWS_PER_OUTAGE = 100
_TICK = timedelta(microseconds=1)
_SHORTEST = timedelta(seconds=1)


class Fire(msgspec.Struct, frozen=True):
    """A due time that starts its target."""

    scheduled_at: datetime
    trigger: RunTrigger = RunTrigger.SCHEDULED


class Skip(msgspec.Struct, frozen=True):
    """A due time that does not, or (`count` > 1) a whole stretch of them."""

    scheduled_at: datetime
    reason: RunReason
    until: datetime | None = None
    count: int = 1


class Decision(msgspec.Struct, frozen=True):
    """What a tick does about one schedule: how it is afterwards, what happens to each due time, and the last of them
    (`until`)."""

    schedule: Schedule
    fires: tuple[Fire, ...] = ()
    skips: tuple[Skip, ...] = ()
    cancels: tuple[Task, ...] = ()
    until: datetime | None = None


def decide(
    schedule: Schedule, now: datetime, live: Sequence[Task], *, jumped: bool = False, room: int | None = None
) -> Decision:
    """What becomes of every due time of the schedule. `live` are its pending and running tasks; `room` is how many
    tasks its tenant may still start (None: any number)."""
    first = schedule.next_run_at
    if first is None or not schedule.is_due(now):
        return Decision(schedule)
    wanted, missed = _Due(schedule, first, now).judged(jumped)
    most = FIRES_PER_DECISION
    if schedule.max_runs is not None:
        most = min(most, schedule.max_runs - schedule.run_count)
    fires, overlaps, cancels = _without_overlap(schedule, list(islice(wanted, max(most, 0))), live)
    fires, excess = _within(room, fires)
    skips = (*missed, *overlaps, *excess)
    done = [fire.scheduled_at for fire in fires] + [skip.until or skip.scheduled_at for skip in skips]
    moved = replace(
        schedule,
        run_count=schedule.run_count + len(fires),
        last_run_at=now if fires else schedule.last_run_at,
        updated_at=now,
    )
    until = max(done, default=now)
    return Decision(planned(moved, until), fires, skips, () if excess else cancels, until)


def with_fewer_runs(decision: Decision, number: int) -> Schedule:
    """The schedule of a decision of whose fires so many started nothing: they do not count towards `max_runs`."""
    schedule = decision.schedule
    if not number or decision.until is None:
        return schedule
    return planned(replace(schedule, run_count=schedule.run_count - number), decision.until)


def turned_away(schedule: Schedule, now: datetime) -> Decision:
    """What is decided while the tenant is suspended: every due time is skipped, and the schedule moves on."""
    if schedule.next_run_at is None or not schedule.is_due(now):
        return Decision(schedule)
    due = _Due(schedule, schedule.next_run_at, now)
    moved = planned(replace(schedule, updated_at=now), due.last)
    return Decision(moved, skips=due.skipped(due.last, RunReason.SUSPENDED))


def given_up(schedule: Schedule, now: datetime) -> tuple[Skip, ...]:
    """The times that are due and not handled when someone changes, pauses or deletes the schedule. They must not
    vanish, and a change runs nothing by itself: they are skipped (changed)."""
    if schedule.next_run_at is None or not schedule.is_due(now):
        return ()
    due = _Due(schedule, schedule.next_run_at, now)
    return due.skipped(due.last, RunReason.CHANGED)


def planned(schedule: Schedule, after: datetime) -> Schedule:
    """With the next time after `after`, or completed, with the reason, if there is none."""
    if schedule.has_reached_max_executions():
        return _completed(schedule, f"it has run {schedule.run_count} times, its max_runs")
    nominal = schedule.next_occurrence(after)
    if nominal is None:
        return _completed(schedule, _why_no_more(schedule, after))
    return replace(
        schedule,
        status=ScheduleStatus.ACTIVE,
        next_run_at=nominal,
        due_at=jittered(schedule, nominal),
        completed_reason=None,
        zone_data=zone_data(schedule),
    )


def jittered(schedule: Schedule, nominal: datetime) -> datetime:
    """The nominal time plus a share of the jitter that is a hash of schedule and time: always the same, and
    always before the next nominal time."""
    if not schedule.jitter:
        return nominal
    following = recurrence.next_after(schedule.timing, nominal, start_at=schedule.start_at)
    room = schedule.jitter if following is None else min(schedule.jitter, following - nominal)
    digest = blake2b(f"{schedule.id}:{nominal.isoformat()}".encode(), digest_size=8).digest()
    return nominal + timedelta(microseconds=int.from_bytes(digest) * (room // _TICK) >> 64)


def zone_data(schedule: Schedule) -> str:
    """The release of the zone data that the next time was computed with, if it depends on a zone."""
    return "" if schedule.timezone == "UTC" else recurrence.tzdata_version()


class _Due:
    """The due times of a schedule at `now`: from `first` to `last`, and up to `last_missed` past the grace.

    `first` is the time that was promised, even if the timing would not give it any more (new zone data)."""

    def __init__(self, schedule: Schedule, first: datetime, now: datetime) -> None:
        self.schedule = schedule
        self.now = now
        self.first = first
        self.before = first - _TICK
        self.last = self._last_due_by(now) or first
        self.last_missed = self._last_due_by(now - schedule.misfire_grace - _TICK)

    def judged(self, jumped: bool) -> tuple[Iterator[Fire], tuple[Skip, ...]]:
        """(those that are to fire, oldest first; those that were missed)"""
        match self.schedule.missed_run_policy:
            case MissedRunPolicy.CATCH_UP:
                return self._caught_up()
            case MissedRunPolicy.EXECUTE_ONCE if self.last_missed is not None:
                return self._made_up_once()
            case _:
                return self._on_time(jumped)

    def _on_time(self, jumped: bool) -> tuple[Iterator[Fire], tuple[Skip, ...]]:
        passed = self.last_missed or self.before
        if jumped:
            passed = max(passed, self.last - _TICK)
        return map(Fire, self._between(passed, self.last)), self._missed(passed)

    def _made_up_once(self) -> tuple[Iterator[Fire], tuple[Skip, ...]]:
        late = self.last == self.last_missed
        fire = Fire(self.last, RunTrigger.CATCH_UP if late else RunTrigger.SCHEDULED)
        return iter((fire,)), self._missed(self.last - _TICK)

    def _caught_up(self) -> tuple[Iterator[Fire], tuple[Skip, ...]]:
        missed = self.last_missed or self.before
        too_old = max(self.before, min(missed, self.now - self.schedule.catch_up_window - _TICK))
        trigger = {True: RunTrigger.CATCH_UP, False: RunTrigger.SCHEDULED}
        wanted = (Fire(at, trigger[at <= missed]) for at in self._between(too_old, self.last))
        return wanted, self._missed(too_old)

    def _missed(self, until: datetime) -> tuple[Skip, ...]:
        return self.skipped(until, RunReason.MISSED)

    def skipped(self, until: datetime, reason: RunReason) -> tuple[Skip, ...]:
        """Everything from the first to `until`: a row for each, or one row for a long stretch."""
        if until < self.first:
            return ()
        times = list(islice(self._between(self.before, until), ROWS_PER_OUTAGE + 1))
        if len(times) <= ROWS_PER_OUTAGE:
            return tuple(Skip(at, reason) for at in times)
        schedule = self.schedule
        others = recurrence.count(
            schedule.timing, self.first, until, start_at=schedule.start_at, end_at=schedule.end_at
        )
        return (Skip(self.first, reason, self._latest(until), 1 + others),)

    def _last_due_by(self, at: datetime) -> datetime | None:
        """The last nominal time whose jittered time is at or before `at`; only one can be still to come."""
        nominal = self._latest(at)
        if nominal is not None and jittered(self.schedule, nominal) > at:
            nominal = self._latest(nominal - _TICK)
        return nominal

    def _latest(self, until: datetime) -> datetime | None:
        if until < self.first:
            return None
        if (
            until - self.first < _SHORTEST
        ):  # a tick that is on time need not look: nothing fires so soon again
            return self.first
        schedule = self.schedule
        bounds = {"start_at": schedule.start_at, "end_at": schedule.end_at}
        following = recurrence.next_after(schedule.timing, self.first, **bounds)
        if following is None or following > until:  # most often: asked from the end it would take longer
            return self.first
        return recurrence.latest(schedule.timing, self.first, until, **bounds) or self.first

    def _between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        if after < self.first <= until:
            yield self.first
        if until <= self.first:
            return
        schedule = self.schedule
        yield from recurrence.between(
            schedule.timing,
            max(after, self.first),
            until,
            start_at=schedule.start_at,
            end_at=schedule.end_at,
        )


def _without_overlap(
    schedule: Schedule, wanted: Sequence[Fire], live: Sequence[Task]
) -> tuple[tuple[Fire, ...], tuple[Skip, ...], tuple[Task, ...]]:
    """(fires, those skipped for overlap, live tasks to cancel)"""
    made_up, regular = [], list(wanted)
    if schedule.missed_run_policy is MissedRunPolicy.CATCH_UP:
        made_up = [fire for fire in wanted if fire.trigger is RunTrigger.CATCH_UP]
        regular = [fire for fire in wanted if fire.trigger is not RunTrigger.CATCH_UP]
    match schedule.overlap_policy:
        case OverlapPolicy.ALLOW:
            kept = regular
        case OverlapPolicy.SKIP:
            kept = [] if live or made_up else regular[:1]
        case OverlapPolicy.CANCEL_PREVIOUS:
            kept = regular[-1:]
    cancels = live if kept and schedule.overlap_policy is OverlapPolicy.CANCEL_PREVIOUS else ()
    skips = tuple(Skip(fire.scheduled_at, RunReason.OVERLAP) for fire in regular if fire not in kept)
    return (*made_up, *kept), skips, tuple(cancels)


def _within(room: int | None, fires: tuple[Fire, ...]) -> tuple[tuple[Fire, ...], tuple[Skip, ...]]:
    """(those that there is room for, those that there is not)"""
    if room is None or len(fires) <= room:
        return fires, ()
    return fires[:room], tuple(Skip(fire.scheduled_at, RunReason.LIMIT) for fire in fires[room:])


def _completed(schedule: Schedule, reason: str) -> Schedule:
    return replace(
        schedule, status=ScheduleStatus.COMPLETED, next_run_at=None, due_at=None, completed_reason=reason
    )


def _why_no_more(schedule: Schedule, after: datetime) -> str:
    if schedule.end_at is not None and recurrence.next_after(schedule.timing, after) is not None:
        return f"its next time would be after its end_at, {schedule.end_at.isoformat()}"
    return "its timing has no further time"
