"""Works on tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from ...domain import gate
from ...domain import task as life
from ...domain.errors import Refused
from ...domain.ids import derived_id
from ...domain.limits import check_input
from ...domain.model import LogLine, Task, Tenant
from ...domain.task import Defaults, Outcome, Submission
from ...stores.base import Tx, Work
from ...stores.queries import Cancelling, Cursor, ReadyTasks, TaskList, UpcomingTasks
from .gates import Gates, put_new
from .shared import DEFAULT_LIMITS, RelatedRuns, check_room_for_tasks, find_task, limits_of

__all__ = [
    "Claim",
    "Claimed",
    "Renewal",
    "Result",
    "archive_task",
    "cancel_listed",
    "cancel_task",
    "cancel_tasks",
    "claim_tasks",
    "expire_task",
    "next_to_claim",
    "renew_leases",
    "replay_task",
    "settle_tasks",
    "submit_tasks",
]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for. `kinds` maps each kind it can run to that handler's defaults; `is_running` says whether
    it has tasks already, which may have to be cancelled. What it has `begun` and not ended (a thread goes on after a
    timeout, a lease was lost) it does not get again: two attempts of one task would run at the same time."""

    worker_id: str
    lease_id: str
    lease: timedelta
    limit: int
    kinds: Mapping[str, Defaults]
    queues: tuple[str, ...] | None = None
    tenant: str | None = None
    is_running: bool = True
    begun: frozenset[str] = frozenset()


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What it gets: tasks, which of its running ones are to be cancelled, and as of when. `is_more_ready`: limits
    turned some away, and there may be others behind them."""

    tasks: list[Task]
    cancelling: list[str]
    at: datetime
    is_more_ready: bool = False


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """A worker wants to keep a task for `lease` from now, and says what its handler reported meanwhile."""

    task: Task
    lease: timedelta
    progress: Any = None
    logs: tuple[LogLine, ...] = ()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How a claimed task ended, with what its handler reported on the way. `task` is as the worker last saw it."""

    task: Task
    outcome: Outcome
    progress: Any = None
    logs: tuple[LogLine, ...] = ()


def submit_tasks(items: Sequence[tuple[str, Submission]], tenant: str, actor: str) -> Work[list[Task]]:
    """Admit tasks, each under the id given. The same id, or the same idempotency key and input, gives the task
    that is there already."""
    items = [(_submission_id(tenant, id, asked), asked) for id, asked in items]
    may_exist = any(asked.idempotency_key is not None for _, asked in items)

    async def work(tx: Tx) -> list[Task]:
        nonlocal may_exist
        limits = await limits_of(tx, tenant)
        known = dict(await tx.get_many(Task, {id for id, _ in items})) if may_exist else {}
        may_exist = True  # from the second time on: an answer may have been lost
        await check_room_for_tasks(tx, tenant, limits, len({id for id, _ in items} - known.keys()))
        new: dict[str, Task] = {}
        for id, asked in items:
            if id in known or id in new:
                _check_same(known.get(id) or new[id], asked)
            else:
                new[id] = life.admit(id, asked, tenant, tx.now, limits, actor)
        known |= await put_new(tx, new)
        return [known[id].as_of(tx.now) for id, _ in items]

    return work


def _submission_id(tenant: str, id: str, asked: Submission) -> str:
    return id if asked.idempotency_key is None else derived_id("key", tenant, asked.idempotency_key)


def _check_same(known: Task, asked: Submission) -> None:
    same_input = check_input(asked.input, DEFAULT_LIMITS) == known.input
    if asked.idempotency_key is not None and (known.kind != asked.kind or not same_input):
        raise Refused("idempotency_conflict", key=asked.idempotency_key, task=known.id)


def claim_tasks(ask: Claim) -> Work[Claimed]:
    """Take the tasks that are ready, best first, and learn what to cancel."""
    kinds = tuple(sorted(ask.kinds))

    async def work(tx: Tx) -> Claimed:
        cancelling = await tx.find(Cancelling(worker_id=ask.worker_id), 1000) if ask.is_running else []
        ready = await _ready(tx, ask, kinds) if ask.limit > 0 and kinds else []
        asking = await _with_late_gates(tx, ask, [task for task in ready if _has_to_ask(task, ask, tx.now)])
        gates = await Gates.of(tx, asking.values())
        admitted = [gates.admit(asking[task.id]) if task.id in asking else task for task in ready]
        gates.put(tx)
        claimed = [_claimed(tx, task, ask) for task in admitted if task.is_available_at(tx.now)]
        turned_away = [tx.put(task) for task in admitted if not task.is_available_at(tx.now)]
        return Claimed(
            tasks=claimed,
            cancelling=[task.id for task in cancelling],
            at=tx.now,
            is_more_ready=bool(turned_away) and len(ready) >= ask.limit,
        )

    return work


def _claimed(tx: Tx, task: Task, ask: Claim) -> Task:
    claimed = life.claim(
        task,
        worker_id=ask.worker_id,
        lease_id=ask.lease_id,
        lease=ask.lease,
        defaults=ask.kinds[task.kind],
        now=tx.now,
    )
    return tx.put(claimed)


def _has_to_ask(task: Task, ask: Claim, now: datetime) -> bool:
    """Most have asked when they were submitted."""
    return gate.has_to_ask(task, now) or (not task.gates and ask.kinds[task.kind].limit is not None)


async def _with_late_gates(tx: Tx, ask: Claim, tasks: Sequence[Task]) -> dict[str, Task]:
    """The tasks; those that were submitted before the limit of their kind was known get their gates now."""
    late = {task.tenant for task in tasks if not task.gates}
    tenants = await tx.get_many(Tenant, late) if late else {}
    found = {}
    for task in tasks:
        limits = tenants[task.tenant].limits if task.tenant in tenants else DEFAULT_LIMITS
        found[task.id] = task if task.gates else life.with_gates(task, limits, tx.now)
    return found


async def _ready(tx: Tx, ask: Claim, kinds: tuple[str, ...]) -> list[Task]:
    query = ReadyTasks(at=tx.now, queues=ask.queues, kinds=kinds, tenant=ask.tenant)
    found = await tx.find(query, ask.limit, lock=True)
    if ask.begun.isdisjoint(task.id for task in found):
        return found
    found = await tx.find(query, ask.limit + len(ask.begun), lock=True)
    return [task for task in found if task.id not in ask.begun][: ask.limit]


def next_to_claim(ask: Claim, after: datetime) -> Work[datetime | None]:
    """When the next task will be available to whoever claimed what was ready at `after`."""
    kinds = tuple(sorted(ask.kinds))

    async def work(tx: Tx) -> datetime | None:
        query = UpcomingTasks(after=after, queues=ask.queues, kinds=kinds, tenant=ask.tenant)
        return next((task.available_at for task in await tx.find(query, 1)), None)

    return work


def renew_leases(renewals: Sequence[Renewal]) -> Work[list[Task | Refused]]:
    """Keep what a worker holds; for each, the task as it is now, or why it is no longer the worker's."""

    async def work(tx: Tx) -> list[Task | Refused]:
        stored = await tx.get_many(Task, {renewal.task.id for renewal in renewals})
        answers = [_renewed(stored.get(renewal.task.id), renewal, tx.now) for renewal in renewals]
        return [tx.put(answer) if isinstance(answer, Task) else answer for answer in answers]

    return work


def _renewed(task: Task | None, renewal: Renewal, now: datetime) -> Task | Refused:
    if task is None:
        return Refused("lease_lost", task=renewal.task.id)
    try:
        return life.renew(
            task,
            lease_id=renewal.task.lease_id or "",
            lease=renewal.lease,
            now=now,
            progress=renewal.progress,
            logs=renewal.logs,
        )
    except Refused as refused:
        return refused


def settle_tasks(results: Sequence[Result]) -> Work[list[Task | Refused]]:
    """Write down how tasks ended; for each, the task as it is now, or why the answer came too late."""

    async def work(tx: Tx) -> list[Task | Refused]:
        stored = await tx.get_many(Task, [result.task.id for result in results])
        answers = [_settled(stored.get(result.task.id), result, tx.now) for result in results]
        settled = [each for each in answers if isinstance(each, Task) and each is not stored[each.id]]
        related = await RelatedRuns.of(tx, settled)
        by_id = {task.id: task for task in related.put(tx, settled, "worker")}
        return [by_id.get(answer.id, answer) if isinstance(answer, Task) else answer for answer in answers]

    return work


def _settled(task: Task | None, result: Result, now: datetime) -> Task | Refused:
    if task is None:
        return Refused("lease_lost", task=result.task.id)
    try:
        return _ended_by(result, task, now)
    except Refused as refused:
        return task if _is_stored(result, task) else refused


def _ended_by(result: Result, task: Task, now: datetime) -> Task:
    return life.settle(
        task,
        result.outcome,
        lease_id=result.task.lease_id or "",
        now=now,
        progress=result.progress,
        logs=result.logs,
    )


def _is_stored(result: Result, task: Task) -> bool:
    """Whether this very result was written before, and only the answer to that was lost."""
    try:
        written = _ended_by(result, result.task, task.updated_at)
    except Refused:
        return False
    given: dict[str, Any] = {"version": task.version}
    if task.gates:  # they may have given it another time since
        given["available_at"] = task.available_at
    return replace(gate.without_places(written), **given) == gate.without_places(task)


def cancel_task(tenant: str, id: str, actor: str, reason: str) -> Work[Task]:
    return _change(tenant, id, actor, lambda task, now: life.cancel(task, now, actor, reason))


def expire_task(tenant: str, id: str, actor: str) -> Work[Task]:
    return _change(tenant, id, actor, lambda task, now: life.expire(task, now, actor))


def replay_task(tenant: str, id: str, actor: str) -> Work[Task]:
    change = _change(tenant, id, actor, lambda task, now: life.replay(task, now, actor))

    async def work(tx: Tx) -> Task:
        await check_room_for_tasks(tx, tenant, await limits_of(tx, tenant))
        return await change(tx)

    return work


def archive_task(tenant: str, id: str, actor: str) -> Work[Task]:
    return _change(tenant, id, actor, lambda task, now: life.archive(task, now, actor))


def _change(tenant: str, id: str, actor: str, rule: Callable[[Task, datetime], Task]) -> Work[Task]:
    async def work(tx: Tx) -> Task:
        task = await find_task(tx, tenant, id)
        changed = rule(task, tx.now)
        if changed is task:
            return task
        related = await RelatedRuns.of(tx, [changed])
        return related.put(tx, [changed], actor)[0]

    return work


def cancel_listed(tenant: str, ids: Sequence[str], actor: str, reason: str) -> Work[list[Task]]:
    """Cancel those of the tasks named that are live; the others are passed over."""

    async def work(tx: Tx) -> list[Task]:
        found = await tx.get_many(Task, ids)
        live = [t for t in found.values() if t.tenant == tenant and t.as_of(tx.now).is_live]
        cancelled = [life.cancel(task, tx.now, actor, reason) for task in live if not task.cancel_requested]
        related = await RelatedRuns.of(tx, cancelled)
        return related.put(tx, cancelled, actor)

    return work


def cancel_tasks(query: TaskList, limit: int, actor: str, reason: str) -> Work[tuple[int, Cursor | None]]:
    """Cancel the live tasks on one page of a listing: (how many, where the next page begins, if there is one)."""

    async def work(tx: Tx) -> tuple[int, Cursor | None]:
        found = await tx.find(query, limit)
        cancelled = [life.cancel(task, tx.now, actor, reason) for task in found if not task.cancel_requested]
        related = await RelatedRuns.of(tx, cancelled)
        related.put(tx, cancelled, actor)
        last = found[-1] if len(found) == limit else None
        return len(cancelled), None if last is None else Cursor(last.created_at, last.id)

    return work
