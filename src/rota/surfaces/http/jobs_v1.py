"""`/api/v1/jobs`: executions, each with what came of it, and followed live."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query, Response
from fastapi.responses import StreamingResponse

from ...domain.model import TaskStatus
from . import answers_v1 as answers
from .documents import documented
from .pages_v1 import Number, Size, check_reach, job_page
from .reading import Router
from .service import OwnOperator, OwnViewer, answer
from .streams_v1 import EVENT_STREAM, followed

__all__ = ["router"]

router = Router(tags=["v1 jobs"])

Id = Annotated[str, Path(description="The id of the job.", min_length=1, max_length=255)]
StatusFilter = Annotated[
    Literal["pending", "running", "completed", "failed", "canceled", "cancelled", "expired"] | None, Query()
]


@router.get("/jobs", **documented(200, answers_with=answers.JobsAnswer))
async def list_all(
    queue: OwnViewer, number: Number = 1, size: Size = 20, status: StatusFilter = None
) -> Response:
    """What was executed, newest first."""
    check_reach(number, size)
    wanted = None if status is None else TaskStatus("cancelled" if status == "canceled" else status)
    found = await queue.store.read(job_page(queue.tenant, wanted, number, size))
    return answer(answers.page([answers.job(each) for each in found.items], found.total, number, size))


@router.get("/jobs/{id}", **documented(200, answers_with=answers.JobAnswer))
async def get(queue: OwnViewer, id: Id) -> Response:
    """One job."""
    return answer(answers.job(await queue.get(id)))


@router.delete("/jobs/{id}", **documented(200, answers_with=answers.JobAnswer))
async def cancel(queue: OwnOperator, id: Id) -> Response:
    """Cancel it: at once if it is pending; if it is running, its function is asked to stop."""
    return answer(answers.job(await queue.cancel(id)))


def _streaming() -> dict[str, Any]:
    arguments = documented(200)
    arguments["responses"][200] = {
        "description": "`status` events, one for every change, each with the job as JSON; then `end`.",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    }
    return arguments


@router.get("/jobs/{id}/$stream", **_streaming())
async def stream(queue: OwnViewer, id: Id) -> Response:
    """Follow it until it ends."""
    found = await queue.get(id)
    return StreamingResponse(
        followed(queue, found), media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"}
    )
