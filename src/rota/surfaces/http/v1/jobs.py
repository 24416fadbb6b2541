"""`/api/v1/jobs`: executions, each with what came of it, and followed live.

A job as server-sent events: `status` for every change that is seen, `end` when it is over, and then the stream
closes. Changes that follow each other quicker than `LEAST` are seen as one. Comments keep the connection alive, and
tell the server when the other side has gone.

Numbered pages over listings that are walked from the newest on. What lies before a page is passed over, so how
far a number may reach is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path, Query, Response
from fastapi.responses import StreamingResponse
from msgspec.structs import replace

from ....domain.errors import NotFound, Unavailable
from ....domain.model import Task, TaskStatus
from ....engine.clock import sleep, wait_for_any
from ....stores.base import Tx, Work
from ....stores.queries import Cursor, TaskList, TemplateList
from ... import redaction
from ..openapi import documented, streaming
from ..problems import Problem
from ..reading import Router
from ..service import Acting, OwnOperator, OwnViewer, answer
from . import answers

__all__ = [
    "EVENT_STREAM",
    "Number",
    "Size",
    "check_reach",
    "followed",
    "job_page",
    "router",
    "template_page",
]

EVENT_STREAM = "text/event-stream"
HEARTBEAT = timedelta(seconds=15)
LEAST = timedelta(milliseconds=50)
"""Between two looks: a busy store hints at changes all the time, and most are of others."""

_ALIVE = b": still here\n\n"
_encode = msgspec.json.Encoder().encode


async def followed(queue: Acting, task: Task) -> AsyncIterator[bytes]:
    shown = b""
    sent_at = queue.clock.monotonic()
    while True:
        changed = asyncio.ensure_future(queue.store.wait(_until(task)))
        try:
            await sleep(timedelta(0))
            looked = await _look(queue, task)
            if looked is None:
                return
            task, data = looked, _encode(redaction.document(answers.job(looked)))
            if data != shown:
                shown = data
                yield _event("status", task, data)
                sent_at = queue.clock.monotonic()
            if not task.is_live:
                yield _event("end", task, data)
                return
            silence = timedelta(seconds=queue.clock.monotonic() - sent_at)
            if silence >= HEARTBEAT:
                yield _ALIVE
                sent_at, silence = queue.clock.monotonic(), timedelta(0)
            await sleep(LEAST)
            await wait_for_any(changed, at_most=HEARTBEAT - silence)
        finally:
            changed.cancel()


def _until(task: Task) -> datetime | None:
    """A change is hinted, but an expiry comes about without one."""
    return task.expires_at if task.status is TaskStatus.PENDING else None


async def _look(queue: Acting, task: Task) -> Task | None:
    """The task as it is now, or None if it is gone. While the store does not answer, it is as it was."""
    try:
        return await queue.get(task.id)
    except NotFound:
        return None
    except Unavailable:
        return task


def _event(name: str, task: Task, data: bytes) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (task.version, name.encode(), data)


FURTHEST = 10_000
AT_ONCE = 1000

Number = Annotated[int, Query(alias="page", ge=1, description=f"Within the first {FURTHEST:,}.")]
Size = Annotated[int, Query(ge=1, le=100, description="How many to a page.")]


class NumberedPage(msgspec.Struct, frozen=True):
    """A page, and how many there are in all."""

    items: list[Any]
    total: int


def check_reach(number: int, size: int) -> None:
    if number * size > FURTHEST:
        last = FURTHEST // size
        sentence = (
            f"page: with a size of {size}, page {number} is past the first {FURTHEST:,}; the last is {last}"
        )
        raise Problem(422, "invalid", sentence, field="page")


def job_page(tenant: str, status: TaskStatus | None, number: int, size: int) -> Work[NumberedPage]:
    async def work(tx: Tx) -> NumberedPage:
        query = TaskList(tenant=tenant, at=tx.now, status=status)
        found = await _walked(tx, query, number, size, lambda task: Cursor(task.created_at, task.id))
        tasks: list[Task] = found.items
        return NumberedPage([task.as_of(tx.now) for task in tasks], found.total)

    return work


def template_page(tenant: str, number: int, size: int) -> Work[NumberedPage]:
    async def work(tx: Tx) -> NumberedPage:
        return await _walked(tx, TemplateList(tenant=tenant), number, size, attrgetter("id"))

    return work


async def _walked(tx: Tx, query: Any, number: int, size: int, place: Any) -> NumberedPage:
    total = await tx.count(query)
    before = (number - 1) * size
    if before >= total:
        return NumberedPage([], total)
    while before:
        passed = await tx.find(query, min(before, AT_ONCE))
        if not passed:
            return NumberedPage([], total)
        before -= len(passed)
        query = replace(query, after=place(passed[-1]))
    return NumberedPage(await tx.find(query, size), total)


router = Router(prefix="/api/v1", tags=["v1 jobs"])

Id = Annotated[str, Path(description="The id of the job.", min_length=1, max_length=255)]
StatusFilter = Annotated[
    Literal["pending", "running", "completed", "failed", "canceled", "cancelled", "expired"] | None, Query()
]


@router.get("/jobs", **documented(200, answers.JobsAnswer))
async def list_all(
    queue: OwnViewer, number: Number = 1, size: Size = 20, status: StatusFilter = None
) -> Response:
    """What was executed, newest first."""
    check_reach(number, size)
    wanted = None if status is None else TaskStatus("cancelled" if status == "canceled" else status)
    found = await queue.store.read(job_page(queue.tenant, wanted, number, size))
    items = map(answers.job, found.items)
    return answer(answers.page(answers.JobsAnswer, items, found.total, number, size))


@router.get("/jobs/{id}", **documented(200, answers.JobAnswer))
async def get(queue: OwnViewer, id: Id) -> Response:
    """One job."""
    return answer(answers.job(await queue.get(id)))


@router.delete("/jobs/{id}", **documented(200, answers.JobAnswer))
async def cancel(queue: OwnOperator, id: Id) -> Response:
    """Cancel it: at once if it is pending; if it is running, its function is asked to stop."""
    return answer(answers.job(await queue.cancel(id)))


_EVENTS = "`status` events, one for every change, each with the job as JSON; then `end`."


@router.get("/jobs/{id}/$stream", **streaming(_EVENTS))
async def stream(queue: OwnViewer, id: Id) -> Response:
    """Follow it until it ends."""
    found = await queue.get(id)
    return StreamingResponse(
        followed(queue, found), media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"}
    )
