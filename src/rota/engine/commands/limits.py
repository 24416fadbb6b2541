"""Works on the limits of tasks: to set them, and to plan anew what waits under them.

A limit is stored with its tenant, which every submission reads anyway. A gate has a copy, which `replan_lines` brings
up to date. Each of these works takes one page and says where the next begins (None: that was the last).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from ...domain import gate
from ...domain.model import Gate, Limit, TaskStatus, Tenant
from ...domain.task import with_gates
from ...stores.base import Tx, Work
from ...stores.queries import Cursor, GateList, TaskList, UpcomingTasks
from .gates import Gates, Line, first_in_lines
from .shared import DEFAULT_LIMITS, audit

__all__ = ["gate_waiting", "limit_tasks", "replan_lines", "replan_moments"]

LET_IN_AT_ONCE = 500
NO_LIMIT = Limit()


def limit_tasks(
    tenant: str, limits: Mapping[str, Limit | None], actor: str, *, are_declared: bool = False
) -> Work[list[str]]:
    """Set these limits, by what they limit, and take away those that are None: which of them are new. `are_declared`:
    handlers have them."""

    async def work(tx: Tx) -> list[str]:
        known = await tx.get(Tenant, tenant)
        old = known or Tenant(id=tenant, tenant=tenant, created_at=tx.now)
        new = old.limits
        for subject, limit in limits.items():
            new = gate.limited(new, subject, limit, is_declared=are_declared)
        changed = [subject for subject in limits if new.tasks.get(subject) != old.limits.tasks.get(subject)]
        if new != old.limits:
            stored = tx.put(replace(old, limits=new))
            audit(tx, "limited", actor, known, stored, ", ".join(changed or limits))
        return changed

    return work


def gate_waiting(tenant: str, subject: str, after: Cursor | None, page: int) -> Work[Cursor | None]:
    """Tasks that were submitted before the limit was set get its gate: they ask when a worker would start them. Those
    that have passed another that comes after it leave that."""
    what, _, name = subject.partition(":")

    async def work(tx: Tx) -> Cursor | None:
        record = await tx.get(Tenant, tenant)
        waiting = TaskList(
            tenant=tenant,
            at=tx.now,
            status=TaskStatus.PENDING,
            queue=name if what == "queue" else None,
            kind=name if what == "kind" else None,
            after=after,
        )
        found = await tx.find(waiting, page)
        limits = DEFAULT_LIMITS if record is None else record.limits
        changes = [(task, with_gates(task, limits, tx.now)) for task in found]
        moving = [(task, new) for task, new in changes if new is not task]
        leaving = [task for task, new in moving if (new.passed, new.line) != (task.passed, task.line)]
        gates = await Gates.of(tx, leaving)
        gates.leave(leaving)
        gates.put(tx)
        for task, new in moving:
            tx.put(new, was=task)
        return Cursor(found[-1].created_at, found[-1].id) if len(found) == page else None

    return work


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


def replan_moments(tenant: str, subject: str, after: datetime | None, page: int) -> Work[datetime | None]:
    """Tasks that have a moment under an old rate get one under the rate as it is now, if that is sooner; else they ask
    again when they are due."""
    what, _, name = subject.partition(":")

    async def work(tx: Tx) -> datetime | None:
        query = UpcomingTasks(
            after=after or tx.now,
            queues=(name,) if what == "queue" else None,
            kinds=(name,) if what == "kind" else None,
            tenant=tenant,
        )
        found = await tx.find(query, page)
        having = [task for task in found if task.slot_until is not None]
        ids = {id for task in having for id in task.gates[: task.passed] if id.startswith(what)}
        gates = await tx.get_many(Gate, ids, lock=True)
        changed = dict(gates)
        moved = []
        for task in having:
            own = next((id for id in task.gates[: task.passed] if id in changed), None)
            if own is not None:
                sooner, given = gate.sooner(task, changed[own], tx.now)
                changed[own] = given
                moved.append(sooner)
        for id, given in changed.items():
            if given is not gates[id]:
                tx.put(given)
        for task in moved:
            tx.put(task)
        return found[-1].available_at if len(found) == page else None

    return work
