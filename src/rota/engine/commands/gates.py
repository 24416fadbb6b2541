"""The gates of some tasks within a work: read and locked before anything is written, and written with the tasks.

Tasks ask when they are submitted, and when a worker would start them (`admit`); they leave when they end or wait again
(`settle`, or `leave_alike` where they only complete), and then those that are next in line are let in, in the same
commit. Nothing else moves a gate.

Gates are locked in one order, the greatest id first, so that no two works wait for each other: those of queues, then
those of kinds. A task in the line of a queue needs the gate of its kind, too, and that is locked afterwards. A task in
the line of a kind needs its queue next. If that was not locked, it is too late to do so: the task asks there at its
claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from ...domain import gate
from ...domain.model import Gate, Limits, Task, TaskStatus, Tenant
from ...domain.task import letting_in, with_gates
from ...stores.base import Tx
from ...stores.queries import PlannedTasks, TasksInLine
from ..work import as_work
from .shared import DEFAULT_LIMITS

MOVED_AT_ONCE = 500
"""How many tasks of a gate get other moments in one commit."""
AHEAD = 100
"""How many more of a line are read where some may have to step aside for the rate of their kind."""


class Line(NamedTuple):
    """The tasks that are next in a line. `is_whole`: there are no others in it, not even such that cannot be read."""

    tasks: list[Task]
    is_whole: bool


class Planned(NamedTuple):
    """The tasks that wait for moments of a gate, the first ones. `bound` are those that the rate of their kind binds,
    too."""

    tasks: list[Task]
    is_whole: bool
    bound: Collection[str]


class Gates:
    """Gates as they are now, and who is next in their lines."""

    def __init__(
        self,
        stored: dict[str, Gate],
        lines: dict[str, Line],
        now: datetime,
        unread: Collection[str] = (),
        completing: Sequence[Task] = (),
        limits: Mapping[str, Limits] = MappingProxyType({}),
        planned: Mapping[str, Planned] = MappingProxyType({}),
    ) -> None:
        self._stored = stored
        self._unread = unread
        self._now = dict(stored)
        self._lines = lines
        self._at = now
        self._completing = completing
        self._limits = limits
        self._planned = planned
        self._let_in: list[tuple[Task, Task | None]] = []
        self._gone: set[str] = set()
        self._expected: Sequence[Task] = ()
        self.admitted: dict[str, Task] = {}

    @classmethod
    async def of(
        cls, tx: Tx, tasks: Iterable[Task], completing: Sequence[Task] = (), *, again: Sequence[Task] = ()
    ) -> Gates:
        """Read the gates of these tasks. `tasks` are as they will be written; `completing` are others, as they are
        stored, which the caller completes. Where a task ends or waits again, the line that moves up is read, too. The
        limits of the tasks in `again` are read, since they may have changed since these tasks began."""
        limits = await _limits_of(tx, again)
        others = [task for task in tasks if task.gates]
        asking = [*others, *completing]
        if not asking:
            return cls({}, {}, tx.now, limits=limits)
        leaving = _left_by([*completing, *(task for task in others if gate.is_limited(task))])
        if not leaving:
            return cls(await _gates_of(tx, asking), {}, tx.now, limits=limits)
        queues = await _gates_of(tx, asking, gate.is_of_queue)
        lines = await _ahead(tx, queues, await _moving_lines(tx, queues, leaving))
        kinds = await _gates_of(tx, [*asking, *_all_of(lines)], gate.is_of_kind)
        of_kinds = await _moving_lines(tx, kinds, leaving)
        unread = {id for task in _all_of(of_kinds) for id in task.gates if gate.is_of_queue(id)}
        unread -= {id for task in asking for id in task.gates}
        planned = await _planned(tx, queues | kinds, [task for task in others if gate.is_limited(task)])
        return cls(queues | kinds, lines | of_kinds, tx.now, unread, completing, limits, planned)

    @classmethod
    async def moving(cls, tx: Tx, ids: Collection[str]) -> Gates:
        """Gates of which tasks get other moments."""
        stored = await tx.get_many(Gate, ids, lock=True)
        gates = cls(stored, {}, tx.now, planned=await _planned(tx, stored))
        gates._now = {id: gate.brought_back(each, tx.now) for id, each in stored.items()}
        return gates

    @classmethod
    async def after_change(
        cls, tx: Tx, stored: dict[str, Gate], changed: dict[str, Gate], lines: dict[str, Line]
    ) -> Gates:
        """Gates, some of them with another limit now, and the tasks in their lines that may be let in."""
        waiting = _all_of(lines)
        kinds = await _gates_of(tx, waiting, lambda each: gate.is_of_kind(each) and each not in stored)
        unread = {id for task in waiting for id in task.gates if gate.is_of_queue(id) and id not in stored}
        gates = cls(stored | kinds, lines, tx.now, unread)
        gates._now |= changed
        return gates

    def expect(self, tasks: Sequence[Task]) -> None:
        """New tasks, which `settle` admits after all others: `admitted` has them then."""
        self._expected = [task for task in tasks if task.gates]

    def admit(self, task: Task, *, may_step_aside: bool = True) -> Task:
        """The task after it has asked at its gates, as far as it is due and there is room."""
        while gate.has_to_ask(task, self._at) and task.line is None:
            if gate.has_missed(task, self._at):
                task = self._again(task)
                continue
            id = task.gates[task.passed]
            if id in self._unread:
                return task  # it asks there when a worker would start it
            asked = self._now.get(id)
            is_last = task.passed + 1 == len(task.gates)
            if asked is None:
                task = self._without_gate(task, id)
                continue
            task, *changed = gate.ask(
                task,
                asked,
                self._at,
                before=_rated_kind(self._now, task),
                is_last=is_last,
                may_step_aside=may_step_aside,
            )
            self._changed(changed)
        return task

    def _without_gate(self, task: Task, id: str) -> Task:
        """The task without a gate whose limit was taken away. If the limit is set again, it does not count this
        task."""
        task = replace(task, gates=tuple(other for other in task.gates if other != id))
        return self._again(task) if task.passed == len(task.gates) else task

    def _again(self, task: Task) -> Task:
        """It asks for another moment: to start at, or to ask further."""
        passed = [self._now[id] for id in task.gates[: task.passed] if id in self._now]
        if not passed:
            return replace(task, slot_until=None)
        if task.passed < len(task.gates):
            task, reserved = gate.reserve(replace(task, slot_until=None), passed[-1], self._at)
            self._changed([reserved])
            return task
        task, *taken = gate.take_moment(task, passed[-1], passed[0] if passed[1:] else None, self._at)
        self._changed(taken)
        return task

    def _changed(self, gates: Iterable[Gate | None]) -> None:
        for each in gates:
            if each is not None:
                self._now[each.id] = each

    def settle(self, tasks: Sequence[Task], woken: dict[str, Task] | None = None) -> list[Task]:
        """The tasks after they have left their gates: some have ended, others wait again. First the lines move up. Then
        the tasks that wait again ask anew, if they are due. `woken` are other tasks that change in this commit: one
        that is let in is written here, and taken out of `woken`."""
        moved = self.leave(tasks, woken)
        settled = [self._asks_again(task) if task.status is TaskStatus.PENDING else task for task in moved]
        self.admitted = {task.id: self.admit(task) for task in self._expected}
        return settled

    def _asks_again(self, task: Task) -> Task:
        """If its gates are others than when it began, it asks when a worker would start it."""
        limits = self._limits.get(task.tenant)
        known = task if limits is None else with_gates(task, limits, self._at)
        return self.admit(task) if known is task else known

    def leave(self, tasks: Sequence[Task], woken: dict[str, Task] | None = None) -> list[Task]:
        """As `settle`, but nobody asks anew."""
        woken = {} if woken is None else woken
        moved = [self._left(task) if gate.is_limited(task) else task for task in tasks]
        for id, number in _left_by(self._completing).items():
            if id in self._now:
                self._now[id] = gate.left_by(self._now[id], number, self._at)
        self._gone |= {task.id for task in tasks}
        for id in self._planned:
            self._move_planned(id, woken)
        for id in sorted(
            self._lines, reverse=True
        ):  # queues first: who passes a kind may need a queue's place
            self._move_up(id, woken)
        return moved

    def take_back(self, task: Task) -> Task:
        """Take a waiting task back into the line of the first gate with more tasks inside than its limit allows. It
        also gives back its places at later gates, and `leave` gives these to others."""
        passed = task.gates[: task.passed]
        full = next((id for id in passed if id in self._now and gate.is_overfull(self._now[id])), None)
        if full is None:
            return task
        for id in passed[passed.index(full) + 1 :]:
            self._now[id] = gate.leave(task, self._now[id], self._at)
        self._gone.add(task.id)
        back, self._now[full] = gate.back_in_line(task, self._now[full], self._at)
        return back

    def recount(self, id: str) -> None:
        """Another gate was put behind this one."""
        if id in self._now:
            self._now[id] = gate.recounted(self._now[id], self._at)

    def _move_planned(self, id: str, woken: dict[str, Task]) -> None:
        """Give sooner moments to tasks that wait for theirs, if many tasks left before them. Tasks that are let in
        afterwards come behind them."""
        planned, moving = self._planned[id], gate.with_moving(self._now[id], self._at)
        if moving.moving is None:
            return
        for waiting in planned.tasks:
            if waiting.id not in self._gone:
                changed = woken.pop(waiting.id, waiting)
                task, moving = gate.move(changed, moving, self._at, is_bound=waiting.id in planned.bound)
                if task is not waiting:
                    self._let_in.append((task, waiting if changed is waiting else None))
        self._now[id] = gate.all_moved(moving, self._at) if planned.is_whole else moving

    def _move_up(self, id: str, woken: dict[str, Task]) -> None:
        """Let in those that are next in the line of this gate, as far as there is room."""
        line = [waiting for waiting in self._lines[id].tasks if waiting.id not in self._gone]
        is_whole = self._lines[id].is_whole
        for number, waiting in enumerate(line, 1):
            if not gate.room(self._now[id]):
                return
            changed = woken.pop(waiting.id, None)
            asks = gate.let_in(waiting if changed is None else changed, self._at)
            others = number < len(line) or is_whole or not waiting.passed
            admitted = self.admit(asks, may_step_aside=others)
            self._let_in.append((admitted, waiting if changed is None else None))
        if is_whole:
            self._now[id] = gate.without_line(self._now[id], self._at)

    def put(self, tx: Tx) -> None:
        """Write what changed, but for the tasks that were given."""
        for id, new in self._now.items():
            if gate.has_changed(new, self._stored[id]):
                tx.put(new)
        for task, before in self._let_in:
            tx.put(task, was=before)

    def _left(self, task: Task) -> Task:
        for id in task.gates:
            if id in self._now:
                self._now[id] = gate.leave(task, self._now[id], self._at)
        return gate.without_places(task)


@as_work
async def limited_at_once(tx: Tx, tasks: Sequence[Task]) -> set[str]:
    """Those of these tasks that have passed a gate with a limit of how many are at work at once, by id."""
    gates = await tx.get_many(Gate, {id for task in tasks for id in task.gates})
    counting = {id for id, each in gates.items() if each.limit.concurrency is not None}
    return {task.id for task in tasks if not counting.isdisjoint(task.gates)}


async def leave_alike(tx: Tx, tasks: Sequence[Task]) -> bool:
    """These tasks complete, and nothing else changes. Where all that are next in their lines go in alike, one update
    lets them in: then it is done. If not, nothing was changed. Gates of kinds and of queues at once are left to
    `Gates`, since who is next in the line of a queue may need a kind that is to be locked before these. (On PostgreSQL
    a task in line takes 82 instead of 99 to 108 µs of processor time here: `bench/limits.py`.)"""
    if len({gate.is_of_queue(id) for task in tasks for id in task.gates}) != 1:
        return False
    stored = await _gates_of(tx, tasks)
    if not all(map(gate.lets_in_alike, stored.values())):
        return False
    left = _left_by(tasks)
    now = {id: gate.left_by(each, left[id], tx.now) for id, each in stored.items()}
    places = {id: room for id, each in now.items() if each.has_line and (room := gate.room(each))}
    let_in = await tx.update_lines(places, letting_in()) if places else []
    if let_in is None:
        return False
    number = Counter(task.gates[0] for task in let_in)
    for id, each in now.items():
        new = gate.entered_by(each, number[id], tx.now)
        if number[id] < places.get(id, 0):
            new = gate.without_line(new, tx.now)
        if gate.has_changed(new, stored[id]):
            tx.put(new)
    return True


async def put_new(tx: Tx, tasks: Mapping[str, Task]) -> dict[str, Task]:
    """Write new tasks, after they have asked at their gates."""
    gates = await Gates.of(tx, tasks.values())
    admitted = [gates.admit(task) for task in tasks.values()]
    gates.put(tx)
    return {task.id: tx.put(task) for task in admitted}


async def _limits_of(tx: Tx, tasks: Iterable[Task]) -> dict[str, Limits]:
    """The limits of their tenants, if they wait."""
    tenants = {task.tenant for task in tasks if task.status is TaskStatus.PENDING}
    stored = await tx.get_many(Tenant, tenants) if tenants else {}
    return {id: stored[id].limits if id in stored else DEFAULT_LIMITS for id in tenants}


async def _gates_of(
    tx: Tx, tasks: Sequence[Task], of: Callable[[str], bool] = lambda _: True, *, lock: bool = True
) -> dict[str, Gate]:
    """The gates of these tasks, or some of them. One that nobody has used, or not for long, has no record: it follows
    from the limit."""
    wanted = set(filter(of, {id for task in tasks for id in task.gates}))
    if not wanted:
        return {}
    stored = await tx.get_many(Gate, wanted, lock=lock)
    if stored.keys() == wanted:
        return stored
    tenants = await tx.get_many(Tenant, {task.tenant for task in tasks})
    for task in tasks:
        limits = tenants[task.tenant].limits if task.tenant in tenants else Limits()
        for new in gate.gates_of(task, limits, tx.now):
            if new.id in wanted:
                stored.setdefault(new.id, new)
    return stored


async def _ahead(tx: Tx, queues: Mapping[str, Gate], lines: dict[str, Line]) -> dict[str, Line]:
    """The lines of queues, with more of those in which someone may have to step aside."""
    waiting = _all_of(lines)
    if not any(task.passed for task in waiting):
        return lines
    gates = {**queues, **await _gates_of(tx, waiting, gate.is_of_kind, lock=False)}
    may_wait = [
        id for id, line in lines.items() if any(_steps_aside(gates, task, tx.now) for task in line.tasks)
    ]
    if not may_wait:
        return lines
    most = AHEAD + max(len(lines[id].tasks) for id in may_wait)
    return lines | await first_in_lines(tx, may_wait, most)


async def _planned(tx: Tx, stored: Mapping[str, Gate], leaving: Sequence[Task] = ()) -> dict[str, Planned]:
    """The tasks that wait for moments of these gates, if the moments of leaving tasks are given to them."""
    left = dict(stored)
    for task in leaving:
        for id in task.gates[: task.passed]:
            if id in left:
                left[id] = gate.leave(task, left[id], tx.now)
    found = {}
    for id in left:
        moving = gate.with_moving(left[id], tx.now).moving
        if moving is not None:
            query = PlannedTasks(gate=id, after=max(moving.after, tx.now))
            most = MOVED_AT_ONCE + len(leaving)  # some of those found leave
            tasks = await tx.find(query, most)
            found[id] = Planned(tasks, len(tasks) < most, await _bound(tx, tasks))
    return found


async def _bound(tx: Tx, tasks: Sequence[Task]) -> set[str]:
    kinds = {task.id: task.gates[0] for task in tasks if task.passed > 1}
    gates = await tx.get_many(Gate, set(kinds.values())) if kinds else {}
    return {id for id, kind in kinds.items() if kind in gates and gates[kind].limit.rate is not None}


def _all_of(lines: Mapping[str, Line]) -> list[Task]:
    return [task for line in lines.values() for task in line.tasks]


def _left_by(tasks: Iterable[Task]) -> Counter[str]:
    """The gates that these tasks leave, or the line of: how many of them do."""
    return Counter(id for task in tasks for id in (*task.gates[: task.passed], task.line) if id)


def _rated_kind(gates: Mapping[str, Gate], task: Task) -> Gate | None:
    """The gate of its kind, if the task has passed it and it has a rate."""
    found = gates.get(task.gates[0]) if task.passed else None
    return None if found is None or found.limit.rate is None else found


def _steps_aside(gates: Mapping[str, Gate], task: Task, now: datetime) -> bool:
    """Whether this task in a line would leave the place to the next, for the rate of its kind."""
    kind, last = _rated_kind(gates, task), gates.get(task.gates[-1])
    return kind is not None and last is not None and gate.is_early(last, kind, now)


async def _moving_lines(tx: Tx, stored: dict[str, Gate], leaving: Mapping[str, int]) -> dict[str, Line]:
    """The tasks that may be let in: as many as there will be places. Some of those that leave may be in the line."""
    places: dict[int, list[str]] = {}
    for id, number in sorted(leaving.items()):
        found = stored.get(id)
        if found is not None and found.has_line:
            places.setdefault(gate.room(found) + number, []).append(id)
    lines: dict[str, Line] = {}
    for most, ids in places.items():
        lines |= await first_in_lines(tx, ids, most)
    return lines


async def first_in_lines(tx: Tx, gates: Sequence[str], most: int) -> dict[str, Line]:
    """The first of each of these lines, at most so many. As many more are read as there are some that cannot be read:
    else those behind them would never be let in."""
    spare = 0
    while True:
        before = len(tx.unreadable)
        found = await tx.find(
            TasksInLine(gates=tuple(gates), most=most + spare, at=tx.now), (most + spare) * len(gates)
        )
        unreadable = len(tx.unreadable) - before
        if unreadable <= spare:
            break
        spare = unreadable
    lines: dict[str, list[Task]] = {id: [] for id in gates}
    for task in found:
        if task.line is not None:
            lines[task.line].append(task)
    return {id: Line(tasks[:most], len(tasks) < most and not unreadable) for id, tasks in lines.items()}
