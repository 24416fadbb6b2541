"""`/api/tenants/{tenant}/task-executions/{id}/artifacts`: what a task left."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from ...shapes import listed
from ..download import download, downloading
from ..openapi import documented
from ..reading import Router
from ..service import Viewer, answer
from . import answers
from .executions import Id

__all__ = ["ArtifactName", "router"]

router = Router(prefix="/api/tenants/{tenant}", tags=["artifacts"])

ArtifactName = Annotated[
    str, Path(description="The name under which it was left; `result` is what the handler returned.")
]


@router.get("/task-executions/{id}/artifacts", **documented(200, answers.FilesAnswer))
async def list_files(queue: Viewer, id: Id) -> Response:
    """What a task or a workflow has left so far: its result, and what its handler left under a name."""
    return answer(listed(answers.FilesAnswer, await queue.artifacts(id)))


@router.get("/task-executions/{id}/artifacts/{name}", **downloading())
async def get_file(request: Request, queue: Viewer, id: Id, name: ArtifactName) -> Response:
    """The bytes of one, streamed. `Range` asks for a part."""
    return await download(request, await queue.open_artifact(id, name))
