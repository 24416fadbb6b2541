"""Works on the limits of tasks: to set them, and to plan anew what waits under them.

A limit is stored with its tenant, which every submission reads anyway. A gate has a copy, which `replan_lines` brings
up to date. Each of these works takes one page and says where the next begins (None: that was the last).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...domain import gate
from ...domain.model import Gate, Limit, Task, TaskStatus, Tenant
from ...domain.task import with_gates
from ...stores.base import Tx, Work
from ...stores.queries import Cursor, GateList, TaskList
from .gates import Gates, Line, first_in_lines
from .shared import audit

LET_IN_AT_ONCE = 500
NO_LIMIT = Limit()


def limit_tasks(
    tenant: str, limits: Mapping[str, Limit | None], actor: str, *, are_declared: bool = False
) -> Work[dict[str, int]]:
    """Set these limits, by what they limit; None takes a limit away. `are_declared`: handlers have them. The answer:
    every limit whose waiting tasks have to be planned anew, each with the version that changed it. Limits of earlier
    calls are among them, since a process may have died before it planned."""

    async def work(tx: Tx) -> dict[str, int]:
        known = await tx.get(Tenant, tenant)
        old = known or Tenant(id=tenant, tenant=tenant, created_at=tx.now)
        new = old.limits
        for subject, limit in limits.items():
            new = gate.limited(new, subject, limit, is_declared=are_declared)
        changed = [subject for subject in limits if new.tasks.get(subject) != old.limits.tasks.get(subject)]
        unplanned = old.unplanned | dict.fromkeys(changed, old.version + 1)
        if new != old.limits:
            stored = tx.put(replace(old, limits=new, unplanned=unplanned))
            audit(tx, "limited", actor, known, stored, ", ".join(changed or limits))
        return unplanned

    return work


def limit_planned(tenant: str, subject: str, number: int) -> Work[None]:
    """Note that the waiting tasks of a limit have been planned anew, unless the limit was changed since."""

    async def work(tx: Tx) -> None:
        record = await tx.get(Tenant, tenant)
        if record is not None and record.unplanned.get(subject) == number:
            left = {other: at for other, at in record.unplanned.items() if other != subject}
            tx.put(replace(record, unplanned=left))

    return work


def gate_waiting(tenant: str, subject: str, after: Cursor | None, page: int) -> Work[Cursor | None]:
    """Give a limit's gate to tasks that were submitted before the limit was set. They ask there when a worker would
    start them. A task that has passed a later gate leaves that one. If more tasks have passed than the limit allows,
    the newest go back into the line. A task that has passed without a moment asks for one."""
    what, _, name = subject.partition(":")

    async def work(tx: Tx) -> Cursor | None:
        record = await tx.get(Tenant, tenant)
        if record is None or subject not in record.limits.tasks:
            return None
        waiting = TaskList(
            tenant=tenant,
            at=tx.now,
            status=TaskStatus.PENDING,
            queue=name if what == "queue" else None,
            kind=name if what == "kind" else None,
            after=after,
        )
        found = await tx.find(waiting, page)
        known = {task.id: with_gates(task, record.limits, tx.now) for task in found}
        same = await _in_overfull(tx, [task for task in found if known[task.id] is task])
        leaving = [task for task in found if _places(known[task.id]) != _places(task)]
        more = [task for task in found if task.planned_by and _places(known[task.id]) == _places(task)]
        more = [task for task in more if known[task.id].gates != task.gates]
        gates = await Gates.of(tx, [*leaving, *same, *more])
        known |= {task.id: gates.take_back(task) for task in same}
        gates.leave(leaving)
        for task in more:
            gates.recount(task.planned_by or "")
        known = {id: gate.asks_for_moment(task, record.limits, tx.now) for id, task in known.items()}
        gates.put(tx)
        for task in found:
            if known[task.id] is not task:
                tx.put(known[task.id], was=task)
        return Cursor(found[-1].created_at, found[-1].id) if len(found) == page else None

    return work


def _places(task: Task) -> tuple[int, str | None]:
    return task.passed, task.line


async def _in_overfull(tx: Tx, tasks: Sequence[Task]) -> list[Task]:
    """The tasks that have passed a gate with more tasks inside than its limit allows."""
    passed = {id for task in tasks for id in task.gates[: task.passed]}
    gates = await tx.get_many(Gate, passed) if passed else {}
    return [
        task
        for task in tasks
        if any(id in gates and gate.is_overfull(gates[id]) for id in task.gates[: task.passed])
    ]


def replan_lines(tenant: str, subject: str, after: str | None, page: int) -> Work[str | None]:
    """Give gates the limit as it is now, and let in whom it leaves room for."""

    async def work(tx: Tx) -> str | None:
        record = await tx.get(Tenant, tenant)
        limit = NO_LIMIT if record is None else record.limits.tasks.get(subject, NO_LIMIT)
        found = await tx.find(GateList(tenant=tenant, subject=subject, after=after), page)
        stored = await tx.get_many(Gate, [each.id for each in found], lock=True)
        left, last = LET_IN_AT_ONCE, after or ""
        lines: dict[str, Line] = {}
        changed: dict[str, Gate] = {}
        for id in sorted(stored):
            changed[id] = gate.with_limit(stored[id], limit, tx.now)
            wanted = min(gate.room(changed[id]), left)
            if wanted and stored[id].has_line:
                lines |= await first_in_lines(tx, [id], wanted)
                left -= len(lines[id].tasks)
            if not left:
                break  # there may be more in its line
            last = id
        gates = await Gates.after_change(tx, stored, changed, lines)
        gates.settle([])
        gates.put(tx)
        return last if not left or len(found) == page else None

    return work


def move_planned(tenant: str, after: str | None, page: int) -> Work[str | None]:
    """Give tasks other moments where limits have changed."""

    async def work(tx: Tx) -> str | None:
        found = await tx.find(GateList(tenant=tenant, after=after), page)
        moving = [each.id for each in found if each.moving is not None][:1]
        gates = await Gates.moving(tx, moving)
        gates.leave([])
        gates.put(tx)
        if moving:
            return after or ""
        return found[-1].id if len(found) == page else None

    return work
