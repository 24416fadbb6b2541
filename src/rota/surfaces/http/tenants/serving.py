"""`/api/tenants/{tenant}/nodes`, `/queues` and `/limits`: who serves what, and what is paused or limited."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Path, Response

from ....domain.gate import of_queue
from ....domain.model import Limit
from ....domain.serving import is_alive
from ....engine.queries.serving import QueueUse
from ...shapes import Answer, ItemsAnswer, Time, listed, shaped, task_limits
from ..openapi import documented
from ..reading import Router
from ..service import OnceKey, Operator, Viewer, answer
from . import schemas

router = Router(prefix="/api/tenants/{tenant}", tags=["workers and queues"])

Name = Annotated[str, Path(description="The name of the queue.", min_length=1, max_length=255)]


class NodeAnswer(Answer, frozen=True, kw_only=True):
    """A process that runs roles. `tenant` is whose tasks it takes, `*`: everyone's; `queues` null: it serves all;
    `running` counts by kind what it ran when it was seen last."""

    id: str
    alive: bool
    tenant: str
    host: str
    pid: int
    release: str
    roles: tuple[str, ...]
    kinds: tuple[str, ...]
    queues: tuple[str, ...] | None
    slots: int
    running: dict[str, int] | None
    started_at: Time
    seen_at: Time
    heartbeat_seconds: float


class NodesAnswer(ItemsAnswer[NodeAnswer], frozen=True, kw_only=True):
    """All nodes of a tenant."""


class PausedQueueAnswer(Answer, frozen=True, kw_only=True):
    """Who paused a queue, when and why."""

    queue: str
    note: str
    paused_at: Time
    paused_by: str


class QueueAnswer(Answer, frozen=True, kw_only=True):
    """A queue and what is in it; `oldest_seconds` is for how long the first of its tasks could have run,
    `ended_per_minute` how many ended in a minute, over the last five."""

    name: str
    pending: int
    running: int
    workers: int
    oldest_at: Time | None
    oldest_seconds: float | None
    ended_per_minute: float
    paused: PausedQueueAnswer | None


class QueuesAnswer(ItemsAnswer[QueueAnswer], frozen=True, kw_only=True):
    """All queues of a tenant."""


class ResumedQueueAnswer(Answer, frozen=True, kw_only=True):
    """Whether the queue was paused before."""

    queue: str
    was_paused: bool


class TaskLimitAnswer(Answer, frozen=True, kw_only=True):
    """How many tasks of a kind or a queue may be at work at once, and how many may begin in a while; with `key`, for
    each value that this field of their input has. `declared`: the handler has it, and it goes with its code."""

    kind: str | None
    queue: str | None
    concurrency: int | None
    rate: str | None
    key: str | None
    declared: bool


class TaskLimitsAnswer(ItemsAnswer[TaskLimitAnswer], frozen=True, kw_only=True):
    """All limits of the tasks of a tenant."""


class QueueLimitAnswer(Answer, frozen=True, kw_only=True):
    """How many tasks of a queue may be at work at once, and how many may begin in a while; null: any number."""

    queue: str
    concurrency: int | None
    rate: str | None


def queue_limit(name: str, limit: Limit | None) -> QueueLimitAnswer:
    limit = limit or Limit()
    return QueueLimitAnswer(queue=name, concurrency=limit.concurrency, rate=limit.rate)


def resumed_queue(name: str, was_paused: bool) -> ResumedQueueAnswer:
    return ResumedQueueAnswer(queue=name, was_paused=was_paused)


def queue_use(record: QueueUse, now: datetime) -> QueueAnswer:
    oldest = None if record.oldest_at is None else (now - record.oldest_at).total_seconds()
    return shaped(QueueAnswer, record, oldest_seconds=oldest)


@router.get("/nodes", **documented(200, NodesAnswer))
async def list_nodes(queue: Viewer) -> Response:
    """The nodes that work for this tenant, silent ones too. What a node of all tenants runs is told only to callers who
    may see all of them."""
    found, now = await queue.nodes(dead=True), await queue.now()
    return answer(
        listed(NodesAnswer, found, lambda each: shaped(NodeAnswer, each, alive=is_alive(each, now)))
    )


@router.get("/queues", **documented(200, QueuesAnswer))
async def list_queues(queue: Viewer) -> Response:
    """Every queue that has open tasks, is paused, or is served by name."""
    now = await queue.now()
    return answer(listed(QueuesAnswer, await queue.list_queues(), lambda each: queue_use(each, now)))


@router.post("/queues/{name}/pause", **documented(200, PausedQueueAnswer))
async def pause(
    queue: Operator, name: Name, body: schemas.PauseBody | None = None, once: OnceKey = None
) -> Response:
    """Let no worker take tasks of this queue until it is resumed. What runs goes on, and tasks can be submitted. `GET
    …/queues` says how many still run."""
    queue.once(once, lambda paused: shaped(PausedQueueAnswer, paused))
    paused = await queue.pause_queue(name, (body and body.note) or "")
    return answer(shaped(PausedQueueAnswer, paused))


@router.post("/queues/{name}/resume", **documented(200, ResumedQueueAnswer))
async def resume(queue: Operator, name: Name, once: OnceKey = None) -> Response:
    """Let workers take tasks of this queue again."""
    queue.once(once, lambda was_paused: resumed_queue(name, was_paused))
    return answer(resumed_queue(name, await queue.resume_queue(name)))


@router.get("/limits", **documented(200, TaskLimitsAnswer))
async def list_limits(queue: Viewer) -> Response:
    """The limits of tasks, by kind and by queue."""
    found = task_limits(await queue.task_limits(), await queue.task_limits(declared=True))
    return answer(listed(TaskLimitsAnswer, found, lambda each: TaskLimitAnswer(**each)))


@router.get("/queues/{name}/limit", **documented(200, QueueLimitAnswer))
async def show_limit(queue: Viewer, name: Name) -> Response:
    """The limit of the queue."""
    return answer(queue_limit(name, (await queue.task_limits()).get(of_queue(name))))


@router.put("/queues/{name}/limit", **documented(200, QueueLimitAnswer))
async def set_limit(queue: Operator, name: Name, body: schemas.QueueLimitBody) -> Response:
    """Limit the tasks of the queue, on all workers together. Tasks that wait are planned anew. Without any number the
    limit is taken away."""
    limit = await queue.limit_queue(name, concurrency=body.concurrency, rate=body.rate)
    return answer(queue_limit(name, limit))
