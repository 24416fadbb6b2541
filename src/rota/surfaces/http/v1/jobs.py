"""`/api/v1/jobs`: executions, each with what came of it, and followed live; and `/api/v1/artifacts`: what came of those
that completed or failed, and the files that they left. An artifact has the id of its job.

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
from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from msgspec.structs import replace

from ....domain.errors import NotFound, Unavailable
from ....domain.model import Artifact, Task, TaskStatus, Template
from ....engine.clock import sleep, wait_for_any
from ....engine.work import as_work
from ....stores.base import Tx
from ....stores.queries import ArtifactList, Cursor, TaskList, TemplateList
from ... import redaction
from ..download import download, downloading
from ..openapi import documented, streaming
from ..problems import wrong
from ..reading import Router
from ..service import Acting, OwnOperator, OwnViewer, answer
from ..tenants.executions import ArtifactName
from . import answers

HEARTBEAT = timedelta(seconds=15)
LEAST = timedelta(milliseconds=50)
"""Between two looks: a busy store hints at changes all the time, and most are of others."""

_ALIVE = b": still here\n\n"
_encode = msgspec.json.Encoder().encode


async def _followed(queue: Acting, task: Task) -> AsyncIterator[bytes]:
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
FILES_AT_MOST = 10_000

Number = Annotated[int, Query(alias="page", ge=1, description=f"Within the first {FURTHEST:,}.")]
Size = Annotated[int, Query(ge=1, le=100, description="How many to a page.")]


def check_reach(number: int, size: int) -> None:
    if number * size > FURTHEST:
        last = FURTHEST // size
        reach = f"page {number} is past the first {FURTHEST:,}; the last is {last}"
        raise wrong("page", f"page: with a size of {size}, {reach}")


@as_work
async def _job_page(
    tx: Tx, tenant: str, status: TaskStatus | None, number: int, size: int
) -> tuple[list[Task], int]:
    query = TaskList(tenant=tenant, at=tx.now, status=status)
    tasks, total = await _walked(tx, query, number, size, lambda task: Cursor(task.created_at, task.id))
    return [task.as_of(tx.now) for task in tasks], total


@as_work
async def template_page(tx: Tx, tenant: str, number: int, size: int) -> tuple[list[Template], int]:
    return await _walked(tx, TemplateList(tenant=tenant), number, size, attrgetter("id"))


async def _walked(tx: Tx, query: Any, number: int, size: int, place: Any) -> tuple[list[Any], int]:
    """The records of a page, and how many there are in all."""
    total = await tx.count(query)
    before = (number - 1) * size
    if before >= total:
        return [], total
    while before:
        passed = await tx.find(query, min(before, AT_ONCE))
        if not passed:
            return [], total
        before -= len(passed)
        query = replace(query, after=place(passed[-1]))
    return await tx.find(query, size), total


@as_work
async def _artifact_page(
    tx: Tx, tenant: str, number: int, size: int
) -> tuple[list[tuple[Task, list[Artifact]]], int]:
    """Jobs that have an artifact, newest first, each with what it left; and how many there are in all."""
    total, found = 0, list[Task]()
    for status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
        query = TaskList(tenant=tenant, at=tx.now, status=status)
        total += await tx.count(query)
        found += await tx.find(query, number * size)
    found.sort(key=lambda task: (task.created_at, task.id), reverse=True)
    shown = found[(number - 1) * size : number * size]
    ids = tuple(task.id for task in shown)
    left: dict[str, list[Artifact]] = {id: [] for id in ids}
    for each in await tx.find(ArtifactList(task_ids=ids), FILES_AT_MOST) if ids else ():
        left[each.task_id].append(each)
    return [(task, left[task.id]) for task in shown], total


router = Router(prefix="/api/v1")

Id = Annotated[str, Path(description="The id of the job.", min_length=1, max_length=255)]
ArtifactId = Annotated[
    str, Path(description="The id of the artifact: that of its job.", min_length=1, max_length=255)
]
StatusFilter = Annotated[
    Literal["pending", "running", "completed", "failed", "canceled", "cancelled", "expired"] | None, Query()
]
_JOBS: dict[str, Any] = {"tags": ["v1 jobs"]}
_ARTIFACTS: dict[str, Any] = {"tags": ["v1 artifacts"]}


@router.get("/jobs", **documented(200, answers.JobsAnswer, **_JOBS))
async def list_all(
    queue: OwnViewer, number: Number = 1, size: Size = 20, status: StatusFilter = None
) -> Response:
    """What was executed, newest first."""
    check_reach(number, size)
    wanted = None if status is None else TaskStatus("cancelled" if status == "canceled" else status)
    tasks, total = await queue.store.read(_job_page(queue.tenant, wanted, number, size))
    return answer(answers.page(answers.JobsAnswer, map(answers.job, tasks), total, number, size))


@router.get("/jobs/{id}", **documented(200, answers.JobAnswer, **_JOBS))
async def get(queue: OwnViewer, id: Id) -> Response:
    """One job."""
    return answer(answers.job(await queue.get(id)))


@router.delete("/jobs/{id}", **documented(200, answers.JobAnswer, **_JOBS))
async def cancel(queue: OwnOperator, id: Id) -> Response:
    """Cancel it: at once if it is pending; if it is running, its function is asked to stop."""
    return answer(answers.job(await queue.cancel(id)))


_EVENTS = "`status` events, one for every change, each with the job as JSON; then `end`."


@router.get("/jobs/{id}/$stream", **streaming(_EVENTS, **_JOBS))
async def stream(queue: OwnViewer, id: Id) -> Response:
    """Follow it until it ends."""
    found = await queue.get(id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_followed(queue, found), media_type="text/event-stream", headers=headers)


@router.get("/artifacts", **documented(200, answers.JobArtifactsAnswer, **_ARTIFACTS))
async def list_artifacts(queue: OwnViewer, number: Number = 1, size: Size = 20) -> Response:
    """What came of executions, newest first."""
    check_reach(number, size)
    found, total = await queue.store.read(_artifact_page(queue.tenant, number, size))
    items = (answers.job_artifact(task, left) for task, left in found)
    return answer(answers.page(answers.JobArtifactsAnswer, items, total, number, size))


@router.get("/artifacts/{id}", **documented(200, answers.JobArtifactAnswer, **_ARTIFACTS))
async def get_artifact(queue: OwnViewer, id: ArtifactId) -> Response:
    """What came of one."""
    task = await queue.get(id)
    if not answers.has_artifact(task):
        raise NotFound("artifact", id)
    return answer(answers.job_artifact(task, await queue.artifacts(id)))


@router.get("/artifacts/{id}/$files/{name}", **downloading(**_ARTIFACTS))
async def get_file(request: Request, queue: OwnViewer, id: ArtifactId, name: ArtifactName) -> Response:
    """The bytes of a file that it left, streamed. `Range` asks for a part."""
    return await download(request, await queue.open_artifact(id, name))
