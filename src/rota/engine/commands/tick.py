"""The tick: what time does to schedules. And what is done when time goes back.

A clock that was set back leaves records that lie in the future. Schedules are planned anew from now, and tasks become
ready when they would have. Times that had their run keep it: its id is derived from the time. Rows of times that were
skipped and are now to come again are removed. Each of these works takes one page and says where the next begins (None:
that was the last).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ...domain import recurrence, schedule, task, workflow
from ...domain.model import (
    Run,
    RunStatus,
    Schedule,
    ScheduleStatus,
    Task,
    is_from_the_future,
)
from ...domain.recurrence import Timing
from ...domain.schedule import Decision, Fire, after, alike, backfill, definition, run, watching
from ...domain.workflow import Step
from ...stores.base import Tx
from ...stores.queries import (
    Cursor,
    DueSchedules,
    LostLeases,
    OutdatedZones,
    RunList,
    ScheduleList,
    StepList,
    UpcomingTasks,
)
from ..work import as_work
from .backfill import NOT_FILLED, Filled, Fillings
from .buffer import SCHEDULER, Buffers
from .chains import linked_causes
from .ending import Ending
from .shared import Starter, audit, live_tasks, next_page, room_for_tasks
from .workflows import EVERY_STEP

ROWS_PER_TICK = 1_000
ROWS_OF_ONE = 1_000
LEASES = 10_000


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one tick. `stopped` are the schedules that it paused or completed; `is_more_due`: it left some of
    what is due to the next. If it did nothing: when the next schedule is due (None: nothing is planned), and whether
    some are due already that someone else holds."""

    runs: list[Run] = []
    tasks: list[Task] = []
    schedules: list[Schedule] = []
    stopped: list[Schedule] = []
    at: datetime
    is_more_due: bool = False
    next_at: datetime | None = None
    is_locked: bool = False


@as_work
async def fire_due(tx: Tx, limit: int, *, jumped: bool = False) -> Tick:
    """Decide about the schedules that are due, at most `limit` of them and until there are `ROWS_PER_TICK` rows to
    write, and write it all in one commit. A time may have its row already: it has waited, or the clock went back."""
    due = await tx.find(DueSchedules(at=tx.now), limit, lock=True)
    if not due:
        return await _upcoming(tx, limit)
    firing = await _Firing.read(tx, due, jumped)
    is_more_due = len(due) == limit or len(firing.decisions) < len(due)
    return await firing.write(tx, is_more_due)


@as_work
async def fire_one(tx: Tx, id: str, *, jumped: bool = False) -> Tick:
    """As `fire_due`, one schedule by itself."""
    found = await tx.get(Schedule, id)
    if found is None or not found.is_due(tx.now):
        return Tick(at=tx.now)
    firing = await _Firing.read(tx, [found], jumped)
    return await firing.write(tx, is_more_due=False)


@as_work
async def due_now(tx: Tx, limit: int) -> list[Schedule]:
    return await tx.find(DueSchedules(at=tx.now), limit)


async def _upcoming(tx: Tx, limit: int) -> Tick:
    [first] = [found.due_at for found in await tx.find(DueSchedules(at=None), 1)] or [None]
    if first is None or first > tx.now:
        return Tick(at=tx.now, next_at=first)
    times = [found.due_at for found in await tx.find(DueSchedules(at=None), limit)]
    following = next((at for at in times if at is not None and at > tx.now), None)
    return Tick(at=tx.now, next_at=following, is_locked=True)


class _Firing(msgspec.Struct, frozen=True):
    """One tick: everything is read first, then decided, then put."""

    due: Sequence[Schedule]
    decisions: list[Decision]
    likes: list[int | None]
    live: Mapping[str, Sequence[Task]]
    starter: Starter
    left: _TasksLeft
    fillings: Fillings
    waited: Mapping[str, list[tuple[Run, Task | None]]]

    @classmethod
    async def read(cls, tx: Tx, due: Sequence[Schedule], jumped: bool) -> _Firing:
        live = await live_tasks(tx, [found for found in due if schedule.minds_overlap(found)])
        starter = await Starter.of(tx, due)
        left = await _TasksLeft.of(tx, starter)
        decisions, likes = left.decided_all(due, tx.now, live, jumped)
        waited = await _woken(tx, due, decisions)
        return cls(due, decisions, likes, live, starter, left, await Fillings.of(tx, due), waited)

    async def write(self, tx: Tx, is_more_due: bool) -> Tick:
        ids = [
            _run_ids(each, may_move=not self.live[found.id])
            for found, each in zip(self.due, self.decisions, strict=False)
        ]
        known = await tx.get_many(Run, [id for each in ids for id in each.values()])
        had = {row.schedule_id: dict[datetime, Run]() for row in known.values()}
        for row in known.values():
            had[row.schedule_id][row.scheduled_at] = row
        decided = zip(self.due, self.decisions, strict=False)  # of the rest nothing was decided
        decisions = [schedule.without(each, _had_run(had.get(due.id, {})), due) for due, each in decided]
        causes = await linked_causes(tx, self.due)
        starts: list[list[tuple[Run, Task | None]]] = []
        for due, each, of_each, like in zip(self.due, decisions, ids, self.likes, strict=False):
            as_other = None if like is None or known else self._start_alike(each, of_each, like, starts[like])
            own = as_other or self._starts(_caused(each, due), of_each, known)
            starts.append([*own, *self.waited.get(due.id, ())])
        for place, due in enumerate(self.due[: len(decisions)]):
            while self._is_held_up(due, decisions[place], starts[place]):
                decisions[place], fire = _next_in_line(decisions[place], tx.now)
                turn = _caused(replace(decisions[place], fires=(fire,)), due)
                starts[place] += self._starts(turn, ids[place], known)
        decisions = [_replacing(each, rows) for each, rows in zip(decisions, starts, strict=True)]
        cancelled = [each for decision in decisions for each in _cancelled(decision, tx.now)]
        awaited = [replace(live, awaited=True) for decision in decisions for live in decision.awaits]
        for found, decision in zip(self.due, decisions, strict=False):
            awaited += self.fillings.awaited(found, () if decision.cancels else self.live[found.id])
        filled = [self._filled(*each) for each in zip(decisions, starts, strict=True)]
        new = [started for rows in starts for _, started in rows if started is not None]
        new += [started for each in filled for started in each.starts]
        new_rows = [row for rows in starts for row, _ in rows] + [row for each in filled for row in each.rows]
        related = await Ending.of(
            tx,
            cancelled,
            SCHEDULER,
            new=new,
            marked=awaited,
            written={found.id for found in self.due},
            ended=[row for row in new_rows if after.has_ended(row)],
        )
        related.put(tx, cancelled)
        tick = Tick(runs=[], tasks=[], schedules=[], stopped=[], at=tx.now, is_more_due=is_more_due)
        put = _put_starts(tx, [each for rows in starts for each in rows], related)
        for before, decision, rows, fill in zip(self.due, decisions, starts, filled, strict=False):
            stored = [put[row.id] for row, _ in rows]
            self._put(tx, before, decision, stored, fill, had.get(before.id, {}), related, tick)
        again = {each.run_id for each in cancelled}  # these rows are written already
        ended = [row for row in causes.values() if row.id not in again]
        there = {*known, *(row.id for rows in self.waited.values() for row, _ in rows)}
        for row in after.with_effects(ended, [row for row in tick.runs if row.id not in there]):
            tx.put(row)
        return tick

    def _is_held_up(
        self, due: Schedule, decision: Decision, starts: Sequence[tuple[Run, Task | None]]
    ) -> bool:
        """Whether times wait behind those that were to start and did not, and for nothing else."""
        is_tried = bool(decision.until) and not any(started is not None for _, started in starts)
        return is_tried and bool(decision.schedule.buffered) and not self.live[due.id]

    def _filled(self, decision: Decision, starts: Sequence[tuple[Run, Task | None]]) -> Filled:
        found = decision.schedule
        if found.backfill is None:
            return NOT_FILLED
        if (
            decision.until is not None and found.backfill.is_open
        ):  # a time may be of both: it gets its row first
            return Filled(backfill=found.backfill, look_at=self.starter.now)
        is_live = bool(self.live[found.id]) or any(started is not None for _, started in starts)
        return self.fillings.moved_on(found, self.starter, self.left.room(found.tenant), is_live)

    def _start_alike(
        self,
        decision: Decision,
        ids: Mapping[datetime, str],
        like: int,
        started: list[tuple[Run, Task | None]],
    ) -> list[tuple[Run, Task | None]] | None:
        if len(started) != 1:
            return None
        found = decision.schedule
        id = ids[decision.fires[0].scheduled_at]
        as_other = alike.start_alike(id, found, self.due[like], started[0], self.starter.limits(found.tenant))
        return None if as_other is None else [as_other]

    def _starts(
        self, decision: Decision, ids: Mapping[datetime, str], known: Mapping[str, Run]
    ) -> list[tuple[Run, Task | None]]:
        """The runs that start. A time that has waited has a row already, and its trigger is kept. `ids` are those of
        the rows, by time."""
        starts = []
        for number, fire in enumerate(decision.fires, 1):
            id, at, after = ids[fire.scheduled_at], fire.scheduled_at, len(decision.fires) - number
            row = known.get(id)
            trigger = fire.trigger if row is None else row.trigger
            starts.append(
                self.starter.start(id, decision.schedule, at, trigger, SCHEDULER, after, waited=row)
            )
        return starts

    def _put(
        self,
        tx: Tx,
        before: Schedule,
        decision: Decision,
        starts: list[tuple[Run, Task | None]],
        filled: Filled,
        had: Mapping[datetime, Run],
        related: Ending,
        tick: Tick,
    ) -> None:
        """`starts` are as they are stored. `had` are the times that have their rows already: they were buffered, or a
        clock went back."""
        found = decision.schedule
        last_task = found.last_task_id
        uncounted = 0
        for row, started in starts:
            tick.runs.append(row)
            if started is None:
                uncounted += 1  # it did not run, so it uses up none of its max_runs
            else:
                tick.tasks.append(started)
                last_task = started.id
        caused = _caused(decision, before).schedule
        for fire in decision.buffers:
            row = run.buffered(caused, fire, tx.now)
            old = had.get(fire.scheduled_at)
            if old is not None:
                row = replace(row, version=old.version, target_id=old.target_id)
            tick.runs.append(tx.put(row))
        for skip in decision.skips:
            if skip.scheduled_at not in had:
                tick.runs.append(tx.put(run.skipped(caused, skip, tx.now)))
        counted = replace(
            schedule.with_fewer_runs(decision, uncounted), last_task_id=last_task, backfill=filled.backfill
        )
        counted = related.tell(tx, counted)
        if filled.look_at is not None:
            counted = backfill.awake(counted, filled.look_at)
        tick.runs.extend(tx.put(row) for row in filled.rows)
        tick.tasks.extend(tx.put(related.admitted(started)) for started in filled.starts)
        woke = before.status is ScheduleStatus.PAUSED and counted.status is ScheduleStatus.ACTIVE
        counted = watching.watched(counted, tx.now) if woke else counted
        anything_started = bool(starts or filled.starts)
        moved = tx.put(watching.started(counted, tx.now) if anything_started else counted, was=before)
        tick.schedules.append(moved)
        if woke:
            audit(tx, "resumed", SCHEDULER, before, moved, "its pause was to end by itself")
        elif moved.status is not before.status:
            tick.stopped.append(moved)
            detail = moved.completed_reason or moved.pause_note or ""
            audit(tx, str(moved.status), SCHEDULER, None, moved, detail)


def _put_starts(
    tx: Tx, starts: Sequence[tuple[Run, Task | None]], related: Ending
) -> dict[str, tuple[Run, Task | None]]:
    """Write runs and the tasks that they start: as they are stored, by the id of the run. They are written in the order
    in which tasks of the same moment are claimed, so that what is claimed together lies together. (On SQLite a claim
    writes 4.5 instead of 8.4 kB for a task.)"""
    in_order = sorted(starts, key=lambda each: "" if each[1] is None else each[1].id)
    return {
        row.id: (tx.put(row), None if started is None else tx.put(related.admitted(started)))
        for row, started in in_order
    }


class _TasksLeft(msgspec.Struct, frozen=True):
    """The number of tasks that the tenants of a tick may still start: none if they are suspended, else what their
    limits leave."""

    _suspended: set[str]
    _left: dict[str, int | None]

    @classmethod
    async def of(cls, tx: Tx, starter: Starter) -> _TasksLeft:
        suspended = {tenant for tenant in starter.tenants if starter.is_suspended(tenant)}
        acting = starter.tenants.keys() - suspended
        return cls(suspended, {each: await room_for_tasks(tx, each, starter.limits(each)) for each in acting})

    def decided_all(
        self, due: Sequence[Schedule], now: datetime, live: Mapping[str, Sequence[Task]], jumped: bool
    ) -> tuple[list[Decision], list[int | None]]:
        """The decisions of a tick, until there are enough rows to write; and for each the place of another whose it is,
        too: the last of the same timing that was decided by itself."""
        decisions: list[Decision] = []
        likes: list[int | None] = []
        last: dict[Timing, int] = {}
        rows = 0
        for place, found in enumerate(due):
            if rows >= ROWS_PER_TICK:
                break
            is_free = self._is_free(found.tenant) and found.backfill is None and not live[found.id]
            like = last.get(found.timing) if is_free else None
            decided = None if like is None else alike.decide_alike(found, due[like], decisions[like])
            likes.append(None if decided is None else like)
            decisions.append(decided or self.decided(found, now, live[found.id], jumped))
            if is_free and decided is None:
                last[found.timing] = place
            rows += backfill.TIMES_PER_TICK if found.awaits_ends else 0
            rows += len(decisions[-1].fires) + len(decisions[-1].buffers) + len(decisions[-1].skips)
        return decisions, likes

    def decided(self, found: Schedule, now: datetime, live: Sequence[Task], jumped: bool) -> Decision:
        """One bad schedule never holds up another: what cannot be decided is paused, and says so."""
        try:
            return self._decided(found, now, live, jumped)
        except Exception as problem:  # whatever is wrong with this record, the others of the tick go on
            note = f"paused because its next time cannot be computed: {problem}"
            return Decision(definition.pause(found, now, SCHEDULER, note))

    def _is_free(self, tenant: str) -> bool:
        """Whether it may start any number."""
        return tenant not in self._suspended and self._left.get(tenant) is None

    def room(self, tenant: str) -> int | None:
        return self._left.get(tenant)

    def _decided(self, found: Schedule, now: datetime, live: Sequence[Task], jumped: bool) -> Decision:
        found = backfill.own_times(found) if found.backfill is not None else found
        if found.tenant in self._suspended:
            return schedule.turned_away(found, now)
        room = self._left.get(found.tenant)
        decision = schedule.decide(found, now, live, jumped=jumped, room=room)
        if room is not None:
            self._left[found.tenant] = room - len(decision.fires) - len(decision.buffers)
        return decision


async def _woken(
    tx: Tx, due: Sequence[Schedule], decisions: list[Decision]
) -> dict[str, list[tuple[Run, Task | None]]]:
    """The times that waited, where a pause ends by itself, move on as at the end of a run: the rows that change and
    what they start, by schedule. The decisions are put right."""
    decided = enumerate(zip(due, decisions, strict=False))  # of the rest nothing was decided
    woken = {place: each for place, (found, each) in decided if found.status is ScheduleStatus.PAUSED}
    buffers = await Buffers.of(tx, [each.schedule for each in woken.values()])
    waited = {}
    for place, decision in woken.items():
        move = buffers.moved_on(decision.schedule, tx.now)
        decisions[place] = replace(decision, schedule=move.schedule, awaits=tuple(move.marked))
        started = {task.run_id: task for task in move.starts}
        waited[move.schedule.id] = [(row, started.get(row.id)) for row in move.rows]
    return waited


def _next_in_line(decision: Decision, now: datetime) -> tuple[Decision, Fire]:
    """The first that waits fires in place of one that has not started."""
    first, *line = decision.schedule.buffered
    new = next((each for each in decision.buffers if each.scheduled_at == first), None)
    fire = new or Fire(first, has_waited=True)
    moved = replace(decision.schedule, buffered=tuple(line), last_run_at=now)
    left = tuple(each for each in decision.buffers if each is not new)
    return replace(decision, schedule=moved, fires=(*decision.fires, fire), buffers=left), fire


def _had_run(rows: Mapping[datetime, Run]) -> set[datetime]:
    """Without those that were skipped, and are due again since the clock went back."""
    return {at for at, row in rows.items() if row.status is not RunStatus.SKIPPED or row.until is not None}


def _caused(decision: Decision, before: Schedule) -> Decision:
    """For the rows: with the causes that the decision has used up."""
    if not before.causes:
        return decision
    return replace(decision, schedule=replace(decision.schedule, causes=before.causes))


def _replacing(decision: Decision, starts: Sequence[tuple[Run, Task | None]]) -> Decision:
    """What starts nothing replaces nothing: its target cannot work, or it had its run before the clock went back."""
    if not decision.cancels or any(started is not None for _, started in starts):
        return decision
    return replace(decision, cancels=())


def _cancelled(decision: Decision, now: datetime) -> list[Task]:
    why = "replaced by the next run"
    if decision.by_force:
        return [task.terminate(victim, now, SCHEDULER, why) for victim in decision.cancels]
    asked = [victim for victim in decision.cancels if not victim.cancel_requested]
    return [task.cancel(victim, now, SCHEDULER, why) for victim in asked]


def _run_ids(decision: Decision, *, may_move: bool) -> dict[datetime, str]:
    """The ids of the rows, by time. The line may move on if what fires does not start."""
    times = [fire.scheduled_at for fire in (*decision.fires, *decision.buffers)]
    times += [skip.scheduled_at for skip in decision.skips]
    times += decision.schedule.buffered if may_move else ()
    return {at: run.run_id(decision.schedule, at) for at in times}


@as_work
async def refresh_zones(tx: Tx, limit: int) -> tuple[int, list[Schedule]]:
    """Recompute next times that came from another release of the zone data: (how many were looked at, those that
    moved). What is due already keeps its time; the tick that fires it plans with the new data."""
    current = recurrence.tzdata_version()
    outdated = await tx.find(OutdatedZones(zone_data=current), limit)
    moved = []
    for old in outdated:
        due = old.next_run_at is not None and old.next_run_at <= tx.now
        new = replace(old, zone_data=current) if due else schedule.planned(old, tx.now)
        if old.excluded_from is not None and old.excluded_from <= tx.now:
            new = replace(new, excluded_from=old.excluded_from)  # it has no row yet
        new = backfill.awake(new, tx.now)
        if new.status is ScheduleStatus.COMPLETED:
            new = replace(new, updated_at=tx.now)
        stored = tx.put(new)
        if new.next_run_at != old.next_run_at:
            moved.append(stored)
    return len(outdated), moved


@as_work
async def lies_anything_ahead(tx: Tx, limit: int) -> bool:
    """A quick look, at those that are next: after a step back they are likely to be among what it left behind."""
    found: list[Schedule | Task] = [*await tx.find(DueSchedules(at=None), limit)]
    found += await tx.find(UpcomingTasks(after=tx.now), limit)
    found += await tx.find(LostLeases(at=None), limit)
    return any(is_from_the_future(record.updated_at, tx.now) for record in found)


@as_work
async def replan_schedules(tx: Tx, after: Cursor | None, limit: int) -> tuple[Cursor | None, list[Schedule]]:
    """(where the next page begins, the schedules that were planned anew)"""
    page = await tx.find(ScheduleList(tenant=None, status=ScheduleStatus.ACTIVE, after=after), limit)
    ahead = [found for found in page if is_from_the_future(found.updated_at, tx.now)]
    rows = [await _skipped_too_soon(tx, found) for found in ahead]
    planned = [
        _replan(tx, old, too_soon, spanning) for old, (too_soon, spanning) in zip(ahead, rows, strict=True)
    ]
    is_cut_short = any(each is None for each in planned)  # some had more rows than one work takes
    return after if is_cut_short else next_page(page, limit), [each for each in planned if each is not None]


async def _skipped_too_soon(tx: Tx, of: Schedule) -> tuple[list[Run], list[Run]]:
    """(rows of times after now that were skipped; the row of a stretch that reaches beyond now, if there is one). Rows
    that have a task, which expired, stay: their times get another."""
    skipped = RunStatus.SKIPPED
    too_soon = await tx.find(RunList(schedule_id=of.id, status=skipped, since=tx.now), ROWS_OF_ONE)
    last = await tx.find(RunList(schedule_id=of.id, status=skipped, until=tx.now), 1)
    return (
        [row for row in too_soon if row.scheduled_at > tx.now and row.target_id is None],
        [row for row in last if row.until is not None and row.until > tx.now],
    )


def _replan(tx: Tx, old: Schedule, too_soon: list[Run], spanning: list[Run]) -> Schedule | None:
    for row in too_soon:
        tx.delete(row)
    if len(too_soon) == ROWS_OF_ONE:
        return None
    for row in spanning:
        tx.put(run.cut_short(row, old, tx.now))
    new = tx.put(backfill.awake(schedule.replanned(old, tx.now), tx.now))
    audit(tx, "replanned", SCHEDULER, old, new, "the clock was set back: planned anew from now")
    return new


@as_work
async def bring_back_tasks(tx: Tx, after: datetime | None, limit: int) -> tuple[datetime | None, list[Task]]:
    """(where the next page begins, the tasks that became ready sooner)"""
    begin = tx.now if after is None else after
    page = await tx.find(UpcomingTasks(after=begin), limit)
    moved = await _bring_back(tx, page)
    if len(page) < limit:
        return None, moved
    return (begin if moved else page[-1].available_at), moved


@as_work
async def bring_back_leases(tx: Tx) -> list[Task]:
    """A worker that died while the clock was ahead is not waited for any longer than usual."""
    return await _bring_back(tx, await tx.find(LostLeases(at=None), LEASES))


async def _bring_back(tx: Tx, found: list[Task]) -> list[Task]:
    ahead = [each for each in found if is_from_the_future(each.updated_at, tx.now)]
    steps: dict[str, list[Step]] = {each.id: [] for each in ahead if each.waits_for}
    for step in await tx.find(StepList(task_ids=tuple(steps)), EVERY_STEP) if steps else ():
        steps[step.task_id].append(step)
    moved: list[Task] = []
    for old in ahead:
        if old.id in steps:
            new, changed = workflow.brought_back(old, steps[old.id], tx.now)
            for step in changed:
                tx.put(step)
        else:
            new = task.brought_back(old, tx.now)
        if new is not old:
            moved.append(tx.put(new))
    return moved
