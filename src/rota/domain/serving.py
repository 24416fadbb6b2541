"""Who serves what: which nodes are alive, who handles a kind, and what a task waits for.

A node is alive until it has been silent for `MISSED` of its heartbeats; one that stops as it should is not known any
more. Whether anybody handles a kind is judged by the live workers of a tenant alone. Where workers are known and none
is alive, nobody does. Where none is known, nothing is: workers may just not have been started yet.

    explain(task, now, nodes, paused, limited, holding)

says in plain English what a task waits for. `nodes` are all nodes of the store, dead ones too; `paused` is the record
of the task's queue, if that is paused; `limited` is the limit that keeps it waiting, in words; `holding` are other
paused queues, in which tasks wait that this limit has let in. The answer is a text that carries a `reason`:

    limited         it waits in the line of a limit, or for its moment under a rate
    dependency      it is a workflow that waits for a child, a signal, or a time of its own
    not_due         its time has not come
    queue_paused    its queue is paused
    no_worker       no live worker handles its kind in its queue
    busy            the workers that do have no slot free, or take others first
    ready           a worker should take it any moment
    worker_silent   it is running, and its worker has been silent for too long
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, Literal

from msgspec.structs import replace

from .ids import derived_id
from .model import FOREVER, NodeState, PausedQueue, Task, TaskStatus
from .runtimes import SHELL_KIND
from .schedule.why import length
from .tenants import EVERY_TENANT

MISSED = 3
KEPT = timedelta(hours=1)
"""For so long a dead node is shown: someone may want to know what became of it."""
MISSED_ROLES = ("worker", "scheduler")


def is_alive(node: NodeState, now: datetime) -> bool:
    return now - node.seen_at <= MISSED * node.heartbeat


def is_on_time(node: NodeState, now: datetime) -> bool:
    """Whether none of its heartbeats is late. One that is may still be alive: for what may be done twice, and not left
    out."""
    return now - node.seen_at <= 3 * node.heartbeat / 2


def forgotten(nodes: Sequence[NodeState], now: datetime) -> list[NodeState]:
    """The nodes that have been dead for so long that their records can go. The last worker of a tenant and the last
    scheduler stay until there is another: else it would be forgotten that they died."""
    last = {(role, node.tenant): node.id for node in sorted(nodes, key=_seen_at) for role in node.roles}
    missed = {id for (role, _), id in last.items() if role in MISSED_ROLES}
    return [
        node
        for node in nodes
        if node.id not in missed and now - node.seen_at > max(KEPT, 2 * MISSED * node.heartbeat)
    ]


def _seen_at(node: NodeState) -> datetime:
    return node.seen_at


def living(nodes: Iterable[NodeState], now: datetime) -> list[NodeState]:
    return [node for node in nodes if is_alive(node, now)]


def seen_by(nodes: Iterable[NodeState], tenant: str) -> list[NodeState]:
    """The nodes that a tenant may see: those that work for it, or for all."""
    return [node for node in nodes if node.tenant in (tenant, EVERY_TENANT)]


def as_told_to(tenant: str, nodes: Iterable[NodeState]) -> list[NodeState]:
    """The nodes as a tenant may see them. A node of all tenants does not show what it runs: tasks of others are among
    it."""
    return [node if node.tenant == tenant else replace(node, running=None) for node in nodes]


def busy_slots(nodes: Iterable[NodeState]) -> int:
    """How many slots were taken when the nodes were seen last, as far as that is told."""
    return sum(sum((node.running or {}).values()) for node in nodes)


def workers_of(nodes: Iterable[NodeState], tenant: str) -> list[NodeState]:
    return [node for node in seen_by(nodes, tenant) if "worker" in node.roles]


def handlers_of(nodes: Iterable[NodeState], tenant: str, kind: str, queue: str) -> list[NodeState]:
    """The workers that take tasks of this kind from this queue."""
    return [
        node
        for node in workers_of(nodes, tenant)
        if kind in node.kinds and (node.queues is None or queue in node.queues)
    ]


def is_unhandled(nodes: Iterable[NodeState], now: datetime, tenant: str, kind: str, queue: str) -> bool:
    """Whether workers are known, and none that lives takes tasks of this kind from this queue."""
    known = workers_of(nodes, tenant)
    return bool(known) and not handlers_of(living(known, now), tenant, kind, queue)


def nobody_handles(
    nodes: Iterable[NodeState], now: datetime, tenant: str, kind: str, queue: str
) -> str | None:
    """That no node handles the kind, in one sentence. None: someone does, or no worker is known."""
    known = workers_of(nodes, tenant)
    if not is_unhandled(known, now, tenant, kind, queue):
        return None
    workers = living(known, now)
    if not workers:
        last = max(known, key=_seen_at)
        return f"no worker is alive; the last one, {last.id}, was seen {length(now - last.seen_at)} ago"
    elsewhere = [node for node in workers if kind in node.kinds]
    if elsewhere:
        served = sorted({name for node in elsewhere for name in node.queues or ()})
        return f"nobody handles `{kind}` in queue {queue}; its workers serve {', '.join(served)}"
    close = get_close_matches(kind, sorted({known for node in workers for known in node.kinds}), n=1)
    return f"nobody handles `{kind}`{f'; did you mean `{close[0]}`?' if close else ''}"


def runs_no_shell(nodes: Iterable[NodeState], tenant: str) -> bool:
    """Whether there are workers, and none of them may run shell commands. `nodes` are alive."""
    workers = workers_of(nodes, tenant)
    return bool(workers) and not any(SHELL_KIND in node.kinds for node in workers)


def silent_scheduler(nodes: Sequence[NodeState], now: datetime) -> NodeState | None:
    """The scheduler that was seen last, if all of them are silent: none has said that it stopped."""
    schedulers = [node for node in nodes if "scheduler" in node.roles]
    if not schedulers or living(schedulers, now):
        return None
    return max(schedulers, key=_seen_at)


PROMPT = timedelta(seconds=5)
"""A worker that has a slot free takes a task sooner than that."""


WaitReason = Literal[
    "limited", "dependency", "not_due", "queue_paused", "no_worker", "busy", "ready", "worker_silent"
]


class Waiting(str):
    """Why a task does not run, or seems not to. `reason` is for programs."""

    reason: WaitReason

    def __new__(cls, text: str, reason: WaitReason) -> Waiting:
        waiting = super().__new__(cls, text)
        waiting.reason = reason
        return waiting


def paused_id(tenant: str, queue: str) -> str:
    """The id of the record that a queue has while it is paused."""
    return derived_id("queue", tenant, queue)


def pause(tenant: str, queue: str, now: datetime, actor: str, note: str) -> PausedQueue:
    return PausedQueue(
        id=paused_id(tenant, queue), tenant=tenant, queue=queue, note=note, paused_at=now, paused_by=actor
    )


def as_facts(paused: PausedQueue) -> dict[str, Any]:
    """A paused queue as the audit shows it."""
    return {"queue": paused.queue, "version": paused.version, "note": paused.note}


def explain(
    task: Task,
    now: datetime,
    nodes: Sequence[NodeState],
    paused: PausedQueue | None,
    limited: str | None = None,
    holding: Sequence[PausedQueue] = (),
) -> Waiting | None:
    """None: it has ended, or runs as it should."""
    task = task.as_of(now)
    if task.status is TaskStatus.RUNNING:
        return _of_running(task, now, nodes)
    if task.status is not TaskStatus.PENDING:
        return None
    unhandled = nobody_handles(nodes, now, task.tenant, task.kind, task.queue)
    aside = f"; {unhandled}" if unhandled else ""
    if limited is not None:
        held = "".join(f"; one that was let in cannot start: {_paused(each, now)}" for each in holding)
        own = f"; {_paused(paused, now)}" if paused is not None else ""
        return Waiting(f"it {limited}{held}{own}{aside}", "limited")
    if task.available_at > now and task.waits_for:
        return Waiting(f"it waits for {waited_for(task, now)}{aside}", "dependency")
    if task.available_at > now:
        return Waiting(f"it is due in {length(task.available_at - now)}{aside}", "not_due")
    if paused is not None:
        return Waiting(_paused(paused, now), "queue_paused")
    if unhandled:
        return Waiting(unhandled, "no_worker")
    workers = handlers_of(living(nodes, now), task.tenant, task.kind, task.queue)
    if not workers:
        return Waiting("no worker is known; start one with `rota worker module:app`", "no_worker")
    return _for_a_slot(now - task.available_at, workers)


def _of_running(task: Task, now: datetime, nodes: Sequence[NodeState]) -> Waiting | None:
    node = next((node for node in nodes if node.id == task.worker_id), None)
    if node is None or is_alive(node, now):
        return None
    silent = f"its worker {node.id} has been silent for {length(now - node.seen_at)}"
    return Waiting(f"{silent}; the task is taken back when its lease has run out", "worker_silent")


def waited_for(task: Task, now: datetime) -> str:
    """The things that a parked workflow waits for, in words."""
    is_bounded = task.available_at < FOREVER
    return (
        " or ".join(wait.words for wait in task.waits_for)
        + f", at most {length(task.available_at - now)} more" * is_bounded
    )


def _paused(paused: PausedQueue, now: datetime) -> str:
    note = f" ({paused.note})" if paused.note else ""
    since = length(now - paused.paused_at)
    return f"queue {paused.queue} was paused by {paused.paused_by} {since} ago{note}"


def _for_a_slot(waited: timedelta, workers: Sequence[NodeState]) -> Waiting:
    slots = sum(node.slots for node in workers)
    taken = busy_slots(workers)
    who = "the only worker" if len(workers) == 1 else f"the {len(workers)} workers"
    if taken >= slots:
        return Waiting(f"all {slots} slots of {who} for its kind were taken when last seen", "busy")
    if waited < PROMPT:
        return Waiting("a worker should take it any moment", "ready")
    return Waiting(f"it has been ready for {length(waited)}; {who} for its kind took others first", "busy")
