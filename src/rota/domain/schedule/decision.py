"""What a tick decides: `decide(schedule, now, live)`, pure, the heart of the product.

The due times are `next_run_at` and those that the timing gives after it, up to now. One that is late by more
than its grace is *missed*, and the missed-run policy says what becomes of it. The others fire, unless the
overlap policy forbids it. Every due time ends as a fire or as a skip; nothing is dropped, and a long outage is
one row, not thousands. Offset and jitter put off a time without making it late: lateness counts from `due_at`.

The grace is `misfire_grace`, kept to the letter. If none was given, it is the shorter of a minute and the
distance to the next time: of several due times only the latest can be within it.

| case | outcome |
| --- | --- |
| late by at most the grace | fires |
| missed, policy `skip` | skipped (missed) |
| missed, policy `execute_once` | the latest due time fires, once; the others are skipped (missed) |
| missed, policy `catch_up` | each fires, oldest first; those before the window are skipped (missed) |
| several within the grace, overlap `allow` | each fires |
| several within the grace, overlap `buffer_all` | each runs, one after the other |
| several within the grace, any other overlap policy | the latest fires; the others are skipped (missed) |
| several within the grace, and the clock jumped (a laptop slept) | the latest fires; the others are skipped (missed) |
| a live target, overlap `skip` | skipped (overlap); does not count as a run |
| a live target, overlap `allow` | fires beside it |
| a live target, overlap `buffer_one` | waits (buffered) until nothing is live; skipped (overlap) if one waits already |
| a live target, overlap `buffer_all` | waits (buffered) behind those that wait; skipped (overlap) if a hundred do |
| a live target, overlap `cancel_previous` | the live ones are asked to end (cancelled), then it fires |
| a live target, overlap `terminate_previous` | the live ones are ended (cancelled), then it fires |
| policy `catch_up`, overlap `buffer_one` or `buffer_all` | each runs, in line; while a hundred wait, it stays due |
| policy `catch_up`, any other overlap policy | each fires, whatever is live; nothing is cancelled |
| nothing is live, and times wait | the first of those that wait fires; what is due waits behind them |
| the tenant has no room for another pending task | skipped (limit); does not count as a run |
| the tenant is suspended | skipped (suspended), whatever the policies say |
| a calendar excludes it | skipped (excluded) when the next time comes that none does; does not count as a run |
| a calendar excludes it, `excluded_policy` `next` or `previous` | also moves to the nearest day that none excludes |
| it moves to where there is a time already | one time, one row |
| `max_runs` reached, or no time left | the schedule is completed, with the reason |
| paused until a time that has come | active again, from its first time after now; what waits goes on |
| paused, draft, deleted, completed | nothing |

`catch_up` asks for every run, so neither the overlap policy nor a clock that jumped takes any of them. A tick
starts at most a hundred of a schedule, and the next tick goes on from there.

A schedule that comes after others has no times of its own: the commit that ends a run gives it one (`after.py`), which
is then a due time as any other.

What waits begins with the commit that ends the last live target, or the pause (`engine/commands/buffer.py`). It counts
as a run, and takes its tenant's room, as soon as it waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import chain, islice

import msgspec
from msgspec.structs import replace

from .. import recurrence
from ..model import (
    MissedRunPolicy,
    OverlapPolicy,
    RunReason,
    RunTrigger,
    Schedule,
    ScheduleStatus,
    Task,
    is_from_the_future,
)
from ..recurrence import MICROSECOND, After, Interval, RRule, Several, Simple

FIRES_PER_DECISION = 100
MOST_BUFFERED = 100
HOLD = timedelta(minutes=1)
"""How long a tick leaves a schedule alone whose line is full, unless the line moves on before."""
ROWS_PER_OUTAGE = 100
LONGEST_GRACE = timedelta(seconds=60)
"""Of a schedule that was given none."""
_SHORTEST = timedelta(seconds=1)
_BUFFERING = (OverlapPolicy.BUFFER_ONE, OverlapPolicy.BUFFER_ALL)
_REPLACING = (OverlapPolicy.CANCEL_PREVIOUS, OverlapPolicy.TERMINATE_PREVIOUS)


class Fire(msgspec.Struct, frozen=True):
    """A due time that starts its target, or waits to do so. `has_waited`: it has its row, since it was buffered."""

    scheduled_at: datetime
    trigger: RunTrigger = RunTrigger.SCHEDULED
    has_waited: bool = False


class Skip(msgspec.Struct, frozen=True):
    """A due time that does not, or (`count` > 1) a whole stretch of them."""

    scheduled_at: datetime
    reason: RunReason
    until: datetime | None = None
    count: int = 1
    calendar: str | None = None


class Decision(msgspec.Struct, frozen=True):
    """The outcome of a tick for one schedule: the schedule afterwards, what happens to each due time, and the last due
    time (`until`). `buffers` wait from now on; `awaits` are the live tasks that they wait for. `cancels` are those to
    end: by force, or with the consent of their handlers."""

    schedule: Schedule
    fires: tuple[Fire, ...] = ()
    skips: tuple[Skip, ...] = ()
    buffers: tuple[Fire, ...] = ()
    awaits: tuple[Task, ...] = ()
    cancels: tuple[Task, ...] = ()
    by_force: bool = False
    until: datetime | None = None


def decide(
    schedule: Schedule, now: datetime, live: Sequence[Task], *, jumped: bool = False, room: int | None = None
) -> Decision:
    """Decide about every due time of the schedule. `live` are its pending and running tasks; `room` is how many tasks
    its tenant may still start (None: any number)."""
    first = schedule.next_run_at
    if schedule.status is ScheduleStatus.PAUSED and schedule.is_due(now):
        return Decision(resumed(schedule, now))
    if first is None or not schedule.is_due(now):
        return Decision(schedule)
    most = min(FIRES_PER_DECISION, _places(schedule, live))
    if not most:
        return _held(schedule, now, live)
    times, missed = _Due(schedule, first, now).judged(jumped)
    if schedule.max_runs is not None:
        most = min(most, schedule.max_runs - schedule.run_count)
    wanted = tuple(islice(times, max(most, 0)))
    fires, line, overlaps = _without_overlap(schedule, wanted, live)
    fires, line, excess = _within(room, fires, line)
    skips = (*missed, *overlaps, *excess)
    new = [fire for fire in (*fires, *line) if not fire.has_waited]
    done = [fire.scheduled_at for fire in wanted] + [skip.until or skip.scheduled_at for skip in skips]
    moved = replace(
        schedule,
        run_count=schedule.run_count + len(new),
        buffered=tuple(fire.scheduled_at for fire in line),
        last_run_at=now if fires else schedule.last_run_at,
        updated_at=now,
    )
    until = max(done, default=now)
    skips = (*_excluded(schedule, until), *skips)
    cancels = tuple(live) if fires and not excess and _replaces(schedule) else ()
    return Decision(
        planned(moved, until),
        fires,
        skips,
        buffers=tuple(fire for fire in line if not fire.has_waited),
        awaits=tuple(task for task in live if line and not task.awaited and not cancels),
        cancels=cancels,
        by_force=schedule.overlap_policy is OverlapPolicy.TERMINATE_PREVIOUS,
        until=until,
    )


def resumed(schedule: Schedule, now: datetime) -> Schedule:
    """Active from its first time after now; completed if there is none."""
    return replanned(
        replace(schedule, pause_note=None, pause_until=None, paused_by=None, paused_at=None), now
    )


def _places(schedule: Schedule, live: Sequence[Task]) -> int:
    """How many more times fit in: those that `catch_up` asks for and that find no place in line stay due."""
    if schedule.overlap_policy not in _BUFFERING or not _catches_up(schedule):
        return FIRES_PER_DECISION
    return max(0, MOST_BUFFERED - len(schedule.buffered)) + (not live)


def _held(schedule: Schedule, now: datetime, live: Sequence[Task]) -> Decision:
    later = replace(schedule, due_at=now + HOLD, updated_at=now)
    return Decision(later, awaits=tuple(task for task in live if not task.awaited))


def released(schedule: Schedule) -> Schedule:
    """Due again when it was, if it was held and half of those that wait are gone."""
    if schedule.next_run_at is None or schedule.due_at is None or not _catches_up(schedule):
        return schedule
    if len(schedule.buffered) > MOST_BUFFERED // 2:
        return schedule
    return replace(schedule, due_at=min(schedule.due_at, due_time(schedule, schedule.next_run_at)))


def with_fewer_runs(decision: Decision, number: int) -> Schedule:
    """The schedule after a decision, if so many of its fires started nothing: they do not count for `max_runs`."""
    schedule = decision.schedule
    if not number or decision.until is None:
        return schedule
    return planned(replace(schedule, run_count=schedule.run_count - number), decision.until)


def minds_overlap(schedule: Schedule) -> bool:
    """Whether it matters to `decide` what is live: `catch_up` asks for every run."""
    if schedule.overlap_policy in _BUFFERING or schedule.awaits_ends:
        return True
    return schedule.overlap_policy is not OverlapPolicy.ALLOW and not _catches_up(schedule)


def _catches_up(schedule: Schedule) -> bool:
    return schedule.missed_run_policy is MissedRunPolicy.CATCH_UP


def turned_away(schedule: Schedule, now: datetime) -> Decision:
    """The decision while the tenant is suspended: every due time is skipped, and the schedule moves on."""
    if schedule.status is ScheduleStatus.PAUSED and schedule.is_due(now):
        return Decision(resumed(schedule, now))
    if schedule.next_run_at is None or not schedule.is_due(now):
        return Decision(schedule)
    due = _Due(schedule, schedule.next_run_at, now)
    moved = planned(replace(schedule, updated_at=now), due.last)
    skips = due.skipped(due.last, RunReason.SUSPENDED)
    return Decision(moved, skips=(*_excluded(schedule, due.last), *skips))


def given_up(schedule: Schedule, now: datetime) -> tuple[Skip, ...]:
    """The times that are due and not handled when someone changes, pauses or deletes the schedule. They must not
    vanish, and a change runs nothing by itself: they are skipped (changed)."""
    excluded = _excluded(schedule, now)
    if schedule.next_run_at is None or not has_come(schedule, now):
        return excluded
    due = _Due(schedule, schedule.next_run_at, now)
    return (*excluded, *due.skipped(due.last, RunReason.CHANGED))


def _excluded(schedule: Schedule, until: datetime) -> tuple[Skip, ...]:
    """The times that calendars take away, from the first that has no row yet up to `until`: a row for each stretch
    that one calendar closes, or one row for very many."""
    first = schedule.excluded_from or schedule.next_run_at
    if not schedule.calendars or first is None or first > until:
        return ()
    promised = schedule.next_run_at or until
    openings = schedule.openings
    times = chain(
        openings.stretches(first - MICROSECOND, min(promised - MICROSECOND, until)),
        openings.stretches(promised, until),
    )
    stretches = [each for each in times if each.closed_by]
    if len(stretches) > ROWS_PER_OUTAGE:
        number = sum(each.number for each in stretches)
        stretches = [stretches[0]._replace(last=stretches[-1].last, number=number)]
    return tuple(
        Skip(
            each.first,
            RunReason.EXCLUDED,
            each.last if each.number > 1 else None,
            each.number,
            each.closed_by,
        )
        for each in stretches
    )


def planned(schedule: Schedule, after: datetime) -> Schedule:
    """The schedule with its next time after `after`; completed, with the reason, if there is none."""
    if schedule.has_reached_max_executions():
        return _completed(schedule, f"it has run {schedule.run_count} times, its max_runs")
    if isinstance(schedule.timing, After):
        return _awaiting(schedule, after)
    nominal = schedule.next_occurrence(after)
    if nominal is None:
        by_calendars = _loses_all_to_calendars(schedule, after)
        return _completed(schedule, _why_no_more(schedule, after), by_calendars=by_calendars)
    return replace(
        schedule,
        status=ScheduleStatus.ACTIVE,
        next_run_at=nominal,
        due_at=due_time(schedule, nominal),
        excluded_from=_first_excluded(schedule, after, nominal),
        completed_reason=None,
        ended_by_calendars=False,
        zone_data=zone_data(schedule),
    )


def _awaiting(schedule: Schedule, after: datetime) -> Schedule:
    """Of one that comes after others: a time that is to come stays, and one that was handled used up its causes."""
    if schedule.has_reached_end_date(after):
        return ended(schedule)
    at = schedule.next_run_at
    waiting = replace(
        schedule,
        status=ScheduleStatus.ACTIVE,
        completed_reason=None,
        ended_by_calendars=False,
        excluded_from=None,
    )
    if at is not None and at > after:
        return replace(waiting, due_at=due_time(schedule, at))
    causes = schedule.causes if at is None else ()
    return replace(waiting, next_run_at=None, due_at=None, causes=causes)


def ended(schedule: Schedule) -> Schedule:
    """Completed, because its end_at has passed."""
    assert schedule.end_at is not None
    return _completed(schedule, _past_end(schedule.end_at))


def _past_end(end_at: datetime) -> str:
    return f"its next time would be after its end_at, {end_at.isoformat()}"


def _first_excluded(schedule: Schedule, after: datetime, nominal: datetime) -> datetime | None:
    if not schedule.calendars:
        return None
    first = schedule.openings.nominal.next_after(after)
    return None if first is None or first >= nominal else first


def replanned(schedule: Schedule, now: datetime) -> Schedule:
    """Planned from now, whatever was planned before."""
    return planned(replace(brought_back(schedule, now), updated_at=now), now)


def brought_back(schedule: Schedule, now: datetime) -> Schedule:
    """If a clock wrote it that was ahead and has been set back since, what began with a creation in the future begins
    now. An interval keeps to its grid, so that a time that had its run is known by its id. Whoever writes a schedule
    asks for this first, since afterwards nothing shows that it was written ahead."""
    if not is_from_the_future(schedule.updated_at, now):
        return schedule
    timing = schedule.timing
    match timing:
        case After(_, _, delay):
            if schedule.next_run_at is not None:
                schedule = replace(schedule, next_run_at=min(schedule.next_run_at, now + delay + MICROSECOND))
        case Several(timings):
            timing = Several(tuple(_begun_again(part, schedule, now) for part in timings))
        case _:
            timing = _begun_again(timing, schedule, now)
    brought = replace(schedule, timing=timing, updated_at=now)
    return planned(brought, now) if schedule.status is ScheduleStatus.ACTIVE else brought


def _begun_again(timing: Simple, schedule: Schedule, now: datetime) -> Simple:
    ahead = schedule.created_at - now
    match timing:
        case Interval(every, anchor) if (
            anchor is not None and now < anchor <= schedule.updated_at + _SHORTEST + every
        ):
            return replace(timing, anchor=anchor + (now - anchor) // every * every)
        case RRule() if schedule.start_at is None and ahead > timedelta(0):
            return replace(timing, dtstart=(timing.dtstart - ahead).replace(microsecond=0))
    return timing


def without(decision: Decision, had: Collection[datetime], before: Schedule) -> Decision:
    """The decision about `before`, less the times that had their run already: the clock went back since. They use up no
    `max_runs`."""
    fires = tuple(fire for fire in decision.fires if fire.has_waited or fire.scheduled_at not in had)
    buffers = tuple(fire for fire in decision.buffers if fire.scheduled_at not in had)
    gone = len(decision.fires) + len(decision.buffers) - len(fires) - len(buffers)
    if not gone:
        return decision
    waiting = {*before.buffered, *(fire.scheduled_at for fire in buffers)}
    moved = replace(
        decision.schedule,
        run_count=decision.schedule.run_count - gone,
        buffered=tuple(at for at in decision.schedule.buffered if at in waiting),
        last_run_at=decision.schedule.last_run_at if fires else before.last_run_at,
    )
    planned_anew = planned(moved, decision.until or before.updated_at)
    return replace(decision, schedule=planned_anew, fires=fires, buffers=buffers)


def due_time(schedule: Schedule, nominal: datetime) -> datetime:
    """The nominal time, its offset, and a share of the jitter that is a hash of schedule and time: always the same,
    and never after the next nominal time."""
    if not schedule.most_put_off:
        return nominal
    room = room_after(schedule, nominal, schedule.most_put_off)
    offset = min(schedule.offset, room)
    if offset == room:
        return nominal + offset
    share = jitter_share(schedule.id, nominal.isoformat())
    return nominal + offset + timedelta(microseconds=share * ((room - offset) // MICROSECOND) >> 64)


def has_come(schedule: Schedule, now: datetime) -> bool:
    """Whether its next time is due and not handled. A tick may look at it before that, for a backfill, or after that,
    while its line is full."""
    if not schedule.enabled or schedule.next_run_at is None:
        return False
    return due_time(schedule, schedule.next_run_at) <= now


def put_off_anew(schedule: Schedule, now: datetime, *, was: Schedule) -> Schedule:
    """Due when its offset and jitter, which are others than they were, put its next time. One that was still to come
    and would have been due by now is left out: an edit runs nothing by itself."""
    if schedule.next_run_at is None:
        return schedule
    due = due_time(schedule, schedule.next_run_at)
    return planned(schedule, now) if due <= now and not has_come(was, now) else replace(schedule, due_at=due)


def room_after(schedule: Schedule, nominal: datetime, most: timedelta) -> timedelta:
    """How much of `most` a time may be put off by: never beyond the next one."""
    if schedule.calendars and schedule.openings.rolls:
        following = schedule.next_occurrence(nominal)
    else:
        following = recurrence.next_after(schedule.timing, nominal, start_at=schedule.start_at)
    return most if following is None else min(most, following - nominal)


def jitter_share(id: str, nominal: str) -> int:
    """How much of its jitter a schedule puts off a time by, in parts of 2 ** 64."""
    return int.from_bytes(blake2b(f"{id}:{nominal}".encode(), digest_size=8).digest())


def grace_at(schedule: Schedule, nominal: datetime) -> timedelta:
    """How late this time may be without being missed."""
    if schedule.misfire_grace is not None:
        return schedule.misfire_grace
    following = schedule.next_occurrence(nominal)
    return LONGEST_GRACE if following is None else min(LONGEST_GRACE, following - nominal)


def zone_data(schedule: Schedule) -> str:
    """The release of the zone data that the next time was computed with, if it depends on a zone."""
    zones = {getattr(part, "timezone", "UTC") for part in recurrence.parts_of(schedule.timing)}
    zones |= {each.timezone or "UTC" for each in schedule.calendars}
    return "" if zones <= {"UTC"} else recurrence.tzdata_version()


class _Due:
    """The due times of a schedule at `now`: from `first` to `last`, and up to `last_missed` past the grace.

    `first` is the time that was promised, even if the timing would not give it any more (new zone data)."""

    def __init__(self, schedule: Schedule, first: datetime, now: datetime) -> None:
        self.schedule = schedule
        self.now = now
        self.first = first
        self.before = first - MICROSECOND
        self.last = self._last_due_by(now) or first
        self.last_missed = self._last_missed(schedule.misfire_grace)

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
        if jumped or self.schedule.overlap_policy not in (OverlapPolicy.ALLOW, OverlapPolicy.BUFFER_ALL):
            passed = max(passed, self.last - MICROSECOND)
        return map(Fire, self._between(passed, self.last)), self._missed(passed)

    def _made_up_once(self) -> tuple[Iterator[Fire], tuple[Skip, ...]]:
        late = self.last == self.last_missed
        fire = Fire(self.last, RunTrigger.CATCH_UP if late else RunTrigger.SCHEDULED)
        return iter((fire,)), self._missed(self.last - MICROSECOND)

    def _caught_up(self) -> tuple[Iterator[Fire], tuple[Skip, ...]]:
        missed = self.last_missed or self.before
        too_old = max(self.before, min(missed, self.now - self.schedule.catch_up_window - MICROSECOND))
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
        others = self.schedule.openings.number(self.first, until)
        return (Skip(self.first, reason, self._latest(until), 1 + others),)

    def _last_missed(self, grace: timedelta | None) -> datetime | None:
        if grace is not None:
            return self._last_due_by(self.now - grace - MICROSECOND)
        late = self.now - due_time(self.schedule, self.last)
        return self.last if late > LONGEST_GRACE else self._latest(self.last - MICROSECOND)

    def _last_due_by(self, at: datetime) -> datetime | None:
        """The last nominal time that is due at or before `at`; only one can be still to come."""
        nominal = self._latest(at)
        if nominal is not None and due_time(self.schedule, nominal) > at:
            nominal = self._latest(nominal - MICROSECOND)
        return nominal

    def _latest(self, until: datetime) -> datetime | None:
        if until < self.first:
            return None
        if (
            until - self.first < _SHORTEST
        ):  # a tick that is on time need not look: nothing fires so soon again
            return self.first
        following = self.schedule.next_occurrence(self.first)
        if following is None or following > until:  # most often: asked from the end it would take longer
            return self.first
        return self.schedule.latest_occurrence(self.first, until) or self.first

    def _between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        if after < self.first <= until:
            yield self.first
        if until > self.first:
            yield from self.schedule.openings.between(max(after, self.first), until)


_Sorted = tuple[tuple[Fire, ...], tuple[Fire, ...], tuple[Skip, ...]]


def _without_overlap(schedule: Schedule, wanted: tuple[Fire, ...], live: Sequence[Task]) -> _Sorted:
    """The times that fire, the times that wait, and the times that are skipped for overlap."""
    waiting = tuple(Fire(at, has_waited=True) for at in schedule.buffered)
    if schedule.overlap_policy in _BUFFERING:
        return _lined_up(schedule, waiting, wanted, live)
    if live and schedule.overlap_policy is OverlapPolicy.SKIP and not _catches_up(schedule):
        return (), waiting, _overlapping(wanted)
    return wanted, waiting, ()


def _lined_up(
    schedule: Schedule, waiting: tuple[Fire, ...], wanted: tuple[Fire, ...], live: Sequence[Task]
) -> _Sorted:
    """Times fire one after the other. No time overtakes one that waits, and a time that waits is never skipped."""
    one = schedule.overlap_policy is OverlapPolicy.BUFFER_ONE and not _catches_up(schedule)
    line = (*waiting, *(fire for fire in wanted if fire.scheduled_at not in schedule.buffered))
    fires = () if live else line[:1]
    places = max(1 if one else MOST_BUFFERED, len(waiting) - len(fires))
    line = line[len(fires) :]
    return fires, line[:places], _overlapping(line[places:])


def _overlapping(fires: tuple[Fire, ...]) -> tuple[Skip, ...]:
    return tuple(Skip(fire.scheduled_at, RunReason.OVERLAP) for fire in fires)


def _replaces(schedule: Schedule) -> bool:
    return schedule.overlap_policy in _REPLACING and not _catches_up(schedule)


def _within(room: int | None, fires: tuple[Fire, ...], line: tuple[Fire, ...]) -> _Sorted:
    """The times that fire, the times that wait, and the times for which there is no room. A time that has waited took
    its room before."""
    new = [fire for fire in (*fires, *line) if not fire.has_waited]
    if room is None or len(new) <= room:
        return fires, line, ()
    refused = {fire.scheduled_at for fire in new[max(room, 0) :]}
    return (
        tuple(fire for fire in fires if fire.scheduled_at not in refused),
        tuple(fire for fire in line if fire.scheduled_at not in refused),
        tuple(Skip(at, RunReason.LIMIT) for at in sorted(refused)),
    )


def _completed(schedule: Schedule, reason: str, *, by_calendars: bool = False) -> Schedule:
    return replace(
        schedule,
        status=ScheduleStatus.COMPLETED,
        next_run_at=None,
        due_at=None,
        excluded_from=None,
        completed_reason=reason,
        ended_by_calendars=by_calendars,
    )


def _loses_all_to_calendars(schedule: Schedule, after: datetime) -> bool:
    """Whether a schedule that has no time after `after` would have one without its calendars."""
    if not schedule.calendars:
        return False
    return recurrence.next_after(schedule.timing, after, end_at=schedule.end_at) is not None


def _why_no_more(schedule: Schedule, after: datetime) -> str:
    if (unknown := recurrence.unknown_zone(schedule.timing)) is not None:
        return f"its time zone, {unknown}, is not known here; give it one that is"
    if _loses_all_to_calendars(schedule, after):
        lost = next((each for each in schedule.calendars if each.has_unknown_zone), None)
        why = "" if lost is None else f": the time zone of {lost.name}, {lost.timezone}, is not known here"
        return f"its calendars leave none of its times{why}"
    if schedule.end_at is not None and recurrence.next_after(schedule.timing, after) is not None:
        return _past_end(schedule.end_at)
    return "its timing has no further time"
