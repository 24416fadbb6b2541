"""`/api/tenants/{tenant}/task-executions` and `workflow-executions`: what runs now, and what it left."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request, Response

from ....domain.errors import Invalid, NotFound
from ....domain.model import Task
from ....domain.options import SubmitOptions, TaskFilters
from ...shapes import listed
from ..download import download, downloading
from ..fields import given_options
from ..openapi import documented
from ..reading import Router
from ..service import Acting, Cursor, Limit, OnceKey, Operator, Viewer, answer, of, place_of
from . import answers, schemas

router = Router(prefix="/api/tenants/{tenant}")

Id = Annotated[str, Path(description="The id of the execution.", min_length=1, max_length=255)]
ArtifactName = Annotated[
    str, Path(description="The name under which it was left; `result` is what the handler returned.")
]
StatusFilter = Literal["pending", "running", "completed", "failed", "cancelled", "expired", "archived"]


async def _filters(
    status: StatusFilter | None = None,
    kind: Annotated[str | None, Query(max_length=255)] = None,
    queue: Annotated[str | None, Query(max_length=255)] = None,
    schedule: Annotated[
        str | None, Query(max_length=255, description="The id of a schedule, or its name.")
    ] = None,
    tag: Annotated[str | None, Query(max_length=255)] = None,
) -> TaskFilters:
    return {"status": status, "kind": kind, "queue": queue, "schedule": schedule, "tag": tag}


Filters = Annotated[TaskFilters, Depends(_filters)]
_TASKS: dict[str, Any] = {"tags": ["task executions"]}
_WORKFLOWS: dict[str, Any] = {"tags": ["workflow executions"]}
_ARTIFACTS: dict[str, Any] = {"tags": ["artifacts"]}


@router.post("/task-executions", **documented(201, answers.CreatedExecutionAnswer, **_TASKS))
async def create(
    request: Request, queue: Operator, body: schemas.ExecutionBody, once: OnceKey = None
) -> Response:
    """Submit a task, to run now. It is durable when this answers."""
    of(request).check_known("kind", body.kind, is_workflow=False)
    task = await queue.submit(body.kind, body.input, **_options(body, once))
    return _created(request, task, queue.warnings)


@router.get("/task-executions", **documented(200, answers.ExecutionsAnswer, **_TASKS))
async def list_tasks(queue: Viewer, filters: Filters, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """The newest tasks that match, a page at a time."""
    filters["workflow"] = False
    page = await queue.list(limit=limit, cursor=cursor, **filters)
    return answer(listed(answers.ExecutionsAnswer, page, answers.execution))


@router.post("/task-executions/replay", **documented(200, answers.ReplayedAnswer, **_TASKS))
async def replay_many(queue: Operator, body: schemas.ReplayBody) -> Response:
    """Run all failed or cancelled tasks that match again, with fresh retries, in commits of 500. To repeat the request
    does no harm: what was replayed does not match any more."""
    filters = {name: getattr(body, name) for name in ("status", "kind", "queue", "schedule", "tag")}
    number = await queue.replay_many(
        since=body.since_seconds, dry_run=body.dry_run, workflow=False, **filters
    )
    return answer(answers.ReplayedAnswer(matching=number, replayed=0 if body.dry_run else number))


@router.get("/task-executions/{id}", **documented(200, answers.OneExecutionAnswer, **_TASKS))
async def get(queue: Viewer, id: Id) -> Response:
    """One task, and what it waits for."""
    return answer(await _one(queue, await queue.get(id)))


@router.post("/task-executions/{id}/cancel", **documented(200, answers.ExecutionAnswer, **_TASKS))
async def cancel(
    queue: Operator, id: Id, body: schemas.CancelBody | None = None, once: OnceKey = None
) -> Response:
    """Cancel it: at once if it is pending; if it is running, its handler is asked to stop."""
    queue.once(once, answers.execution)
    return answer(answers.execution(await queue.cancel(id, "" if body is None else body.reason)))


@router.post("/task-executions/{id}/replay", **documented(200, answers.ExecutionAnswer, **_TASKS))
async def replay(queue: Operator, id: Id, once: OnceKey = None) -> Response:
    """Run a failed or cancelled task again, with fresh retries."""
    queue.once(once, answers.execution)
    return answer(answers.execution(await queue.replay(id)))


@router.get("/task-executions/{id}/attempts", **documented(200, answers.AttemptsAnswer, **_TASKS))
async def attempts(queue: Viewer, id: Id) -> Response:
    """Each time that a worker took it, and how that ended."""
    return answer(answers.attempts(await queue.get(id)))


@router.get("/task-executions/{id}/logs", **documented(200, answers.LogsAnswer, **_TASKS))
async def logs(queue: Viewer, id: Id) -> Response:
    """What its handler logged."""
    return answer(listed(answers.LogsAnswer, (await queue.get(id)).logs))


@router.get("/task-executions/{id}/history", **documented(200, answers.HistoryAnswer, **_TASKS))
async def history(queue: Viewer, id: Id) -> Response:
    """What happened to it, oldest first."""
    return answer(listed(answers.HistoryAnswer, await queue.history(id)))


@router.get("/task-executions/{id}/artifacts", **documented(200, answers.FilesAnswer, **_ARTIFACTS))
async def list_files(queue: Viewer, id: Id) -> Response:
    """What a task or a workflow has left so far: its result, and what its handler left under a name."""
    return answer(listed(answers.FilesAnswer, await queue.artifacts(id)))


@router.get("/task-executions/{id}/artifacts/{name}", **downloading(**_ARTIFACTS))
async def get_file(request: Request, queue: Viewer, id: Id, name: ArtifactName) -> Response:
    """The bytes of one, streamed. `Range` asks for a part."""
    return await download(request, await queue.open_artifact(id, name))


@router.post("/workflow-executions", **documented(201, answers.CreatedExecutionAnswer, **_WORKFLOWS))
async def start(
    request: Request, queue: Operator, body: schemas.WorkflowBody, once: OnceKey = None
) -> Response:
    """Start a workflow now."""
    of(request).check_known("kind", body.kind, is_workflow=True)
    queue.once(once, lambda started: answers.execution(started[0]), 201)
    task = await queue.start_workflow(body.kind, body.input, **_options(body))
    return _created(request, task, queue.warnings)


@router.get("/workflow-executions", **documented(200, answers.ExecutionsAnswer, **_WORKFLOWS))
async def list_workflows(
    queue: Viewer, filters: Filters, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """The newest workflows that match, a page at a time."""
    filters["workflow"] = True
    page = await queue.list(limit=limit, cursor=cursor, **filters)
    return answer(listed(answers.ExecutionsAnswer, page, answers.execution))


@router.get("/workflow-executions/{id}", **documented(200, answers.OneExecutionAnswer, **_WORKFLOWS))
async def get_workflow(queue: Viewer, id: Id) -> Response:
    """One workflow, and what it waits for."""
    return answer(await _one(queue, await _workflow(queue, id)))


@router.post("/workflow-executions/{id}/cancel", **documented(200, answers.ExecutionAnswer, **_WORKFLOWS))
async def cancel_workflow(
    queue: Operator, id: Id, body: schemas.CancelBody | None = None, once: OnceKey = None
) -> Response:
    """Cancel it: at once if it is pending; if it is running, it is asked to stop."""
    await _workflow(queue, id)
    queue.once(once, answers.execution)
    return answer(answers.execution(await queue.cancel(id, "" if body is None else body.reason)))


@router.post("/workflow-executions/{id}/replay", **documented(200, answers.ExecutionAnswer, **_WORKFLOWS))
async def replay_workflow(
    queue: Operator, id: Id, body: schemas.ReplayWorkflowBody | None = None, once: OnceKey = None
) -> Response:
    """Run a failed or cancelled workflow again: from where it failed, or from a step on."""
    await _workflow(queue, id)
    queue.once(once, answers.execution)
    from_step = None if body is None else body.from_step
    return answer(answers.execution(await queue.replay(id, from_step=from_step)))


@router.post("/workflow-executions/{id}/signal", **documented(200, answers.ExecutionAnswer, **_WORKFLOWS))
async def signal(queue: Operator, id: Id, body: schemas.SignalBody, once: OnceKey = None) -> Response:
    """Send it a signal. When this answers it is kept until the workflow receives it, once."""
    await _workflow(queue, id)
    queue.once(once, answers.execution)
    return answer(answers.execution(await queue.signal(id, body.name, body.payload)))


@router.get("/workflow-executions/{id}/steps", **documented(200, answers.StepsAnswer, **_WORKFLOWS))
async def steps(queue: Viewer, id: Id) -> Response:
    """What it did, and what it waits for."""
    await _workflow(queue, id)
    return answer(listed(answers.StepsAnswer, await queue.steps(id)))


@router.get("/workflow-executions/{id}/attempts", **documented(200, answers.AttemptsAnswer, **_WORKFLOWS))
async def workflow_attempts(queue: Viewer, id: Id) -> Response:
    """Each time that a worker took it, and how that ended."""
    return answer(answers.attempts(await _workflow(queue, id)))


@router.get("/workflow-executions/{id}/logs", **documented(200, answers.LogsAnswer, **_WORKFLOWS))
async def workflow_logs(queue: Viewer, id: Id) -> Response:
    """What it logged."""
    return answer(listed(answers.LogsAnswer, (await _workflow(queue, id)).logs))


@router.get("/workflow-executions/{id}/history", **documented(200, answers.HistoryAnswer, **_WORKFLOWS))
async def workflow_history(queue: Viewer, id: Id) -> Response:
    """What happened to it, oldest first."""
    return answer(listed(answers.HistoryAnswer, (await _workflow(queue, id)).history))


async def _one(queue: Acting, found: Task) -> answers.OneExecutionAnswer:
    return answers.one_execution(found, await queue.waiting(found.id) if found.is_live else None)


async def _workflow(queue: Acting, id: str) -> Task:
    found = await queue.get(id)
    if not found.is_workflow:
        raise NotFound("workflow", id)
    return found


def _options(body: schemas.ExecutionBody | schemas.WorkflowBody, once: str | None = None) -> dict[str, Any]:
    """The options of `submit` that the body gives. For a task, a key in the header counts as one in the body: that is
    quicker than a receipt."""
    found = given_options(body, SubmitOptions)
    given = {name: value for name, value in found.items() if value is not None}
    if once is not None and given.setdefault("idempotency_key", once) != once:
        raise Invalid("idempotency_key", "it contradicts the header Idempotency-Key", "give one of them")
    return given


def _created(request: Request, task: Task, warnings: list[str]) -> Response:
    return answer(answers.created_execution(task, warnings), 201, place_of(request, task.id))
