"""`/api/v1/artifacts`: what came of each execution that completed or failed: a result, or an error with its traceback,
and the files that it left. An artifact has the id of its job."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from ....domain.errors import NotFound
from ....domain.model import Artifact, Task, TaskStatus
from ....stores.base import Tx, Work
from ....stores.queries import ArtifactList, TaskList
from ..download import download, downloading
from ..openapi import documented
from ..reading import Router
from ..service import OwnViewer, answer
from ..tenants.artifacts import ArtifactName
from . import answers
from .jobs import Number, NumberedPage, Size, check_reach

__all__ = ["router"]

router = Router(prefix="/api/v1", tags=["v1 artifacts"])

Id = Annotated[
    str, Path(description="The id of the artifact: that of its job.", min_length=1, max_length=255)
]
FILES_AT_MOST = 10_000


def artifact_page(tenant: str, number: int, size: int) -> Work[NumberedPage]:
    """Jobs that have an artifact, newest first, each with what it left."""

    async def work(tx: Tx) -> NumberedPage:
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
        return NumberedPage([(task, left[task.id]) for task in shown], total)

    return work


@router.get("/artifacts", **documented(200, answers.JobArtifactsAnswer))
async def list_all(queue: OwnViewer, number: Number = 1, size: Size = 20) -> Response:
    """What came of executions, newest first."""
    check_reach(number, size)
    found = await queue.store.read(artifact_page(queue.tenant, number, size))
    items = (answers.job_artifact(task, left) for task, left in found.items)
    return answer(answers.page(answers.JobArtifactsAnswer, items, found.total, number, size))


@router.get("/artifacts/{id}", **documented(200, answers.JobArtifactAnswer))
async def get(queue: OwnViewer, id: Id) -> Response:
    """What came of one."""
    task = await queue.get(id)
    if not answers.has_artifact(task):
        raise NotFound("artifact", id)
    return answer(answers.job_artifact(task, await queue.artifacts(id)))


@router.get("/artifacts/{id}/$files/{name}", **downloading())
async def get_file(request: Request, queue: OwnViewer, id: Id, name: ArtifactName) -> Response:
    """The bytes of a file that it left, streamed. `Range` asks for a part."""
    return await download(request, await queue.open_artifact(id, name))
