"""`/api/tenants/{tenant}/nodes` and `/queues`: who serves what, and which queues are paused."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from ..access import ALL_TENANTS
from ..openapi import documented
from ..reading import Router
from ..service import OnceKey, Operator, Viewer, answer
from . import answers, schemas

__all__ = ["router"]

router = Router(prefix="/api/tenants/{tenant}", tags=["workers and queues"])

Name = Annotated[str, Path(description="The name of the queue.", min_length=1, max_length=255)]


@router.get("/nodes", **documented(200, answers.NodesAnswer))
async def list_nodes(queue: Viewer) -> Response:
    """The nodes that work for this tenant, silent ones too. What a node of all tenants runs is told only to whoever may
    see all of them."""
    found, now = await queue.nodes(dead=True), await queue.now()
    sees_all = queue.caller.tenant == ALL_TENANTS
    items = [answers.node(each, now, with_running=sees_all or each.tenant == queue.tenant) for each in found]
    return answer(answers.NodesAnswer(items=items))


@router.get("/queues", **documented(200, answers.QueuesAnswer))
async def list_queues(queue: Viewer) -> Response:
    """Every queue that has open tasks, is paused, or is served by name."""
    now = await queue.now()
    return answer(
        answers.QueuesAnswer(items=[answers.queue_use(each, now) for each in await queue.list_queues()])
    )


@router.post("/queues/{name}/pause", **documented(200, answers.PausedQueueAnswer))
async def pause(
    request: Request, queue: Operator, name: Name, body: schemas.PauseBody | None = None, once: OnceKey = None
) -> Response:
    """Let no worker take tasks of this queue until it is resumed. What runs goes on, and tasks can be submitted. `GET
    …/queues` says how many still run."""
    await queue.once(request, once, lambda paused: (200, answers.paused_queue(paused)))
    return answer(answers.paused_queue(await queue.pause_queue(name, (body and body.note) or "")))


@router.post("/queues/{name}/resume", **documented(200, answers.ResumedQueueAnswer))
async def resume(request: Request, queue: Operator, name: Name, once: OnceKey = None) -> Response:
    """Let workers take tasks of this queue again."""
    await queue.once(request, once, lambda was_paused: (200, answers.resumed_queue(name, was_paused)))
    return answer(answers.resumed_queue(name, await queue.resume_queue(name)))
