"""`/api/tenants/{tenant}/templates`: stored definitions of what to run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request, Response

from ....domain.errors import Invalid
from ....domain.model import Runtime, Template
from ....domain.options import TemplateOptions
from ....domain.plan import of_command
from ...shapes import PageAnswer, listed, shaped
from ..fields import given_options
from ..openapi import documented
from ..reading import Router
from ..service import (
    Admin,
    Cursor,
    IfMatch,
    Limit,
    OnceKey,
    Operator,
    Viewer,
    answer,
    of,
    place_of,
    wanted_version,
)
from . import answers, schemas

router = Router(prefix="/api/tenants/{tenant}", tags=["templates"])

Id = Annotated[str, Path(description="The id of the template, or its alias.", min_length=1, max_length=255)]
_OWN_FORM = ("alias", "kind", "runtime", "command", "parameters", "parameters_schema")


class StoredTemplateAnswer(answers.RunnableAnswer, frozen=True, kw_only=True):
    """A template. `command` is what its runtime runs: a simple one as a text or a list, any other by its fields."""

    alias: str
    runtime: Runtime
    command: str | list[str] | dict[str, Any]
    parameters: dict[str, Any]
    parameters_schema: dict[str, Any] | None
    ttl_seconds: float | None
    enabled: bool


class StoredTemplatesAnswer(PageAnswer[StoredTemplateAnswer], frozen=True, kw_only=True):
    """A page of templates."""


def template(record: Template) -> StoredTemplateAnswer:
    return shaped(StoredTemplateAnswer, record, command=of_command(record.command))


@router.post("/templates", **documented(201, StoredTemplateAnswer))
async def create(
    request: Request, queue: Admin, body: schemas.StoredTemplateBody, once: OnceKey = None
) -> Response:
    """Store what to run: a kind of task, a shell command where that is allowed, or an HTTP request."""
    check_shell_allowed(request, body.runtime, "runtime")
    queue.once(once, template, 201)
    fields = _fields(body)
    made = await queue.create_template(fields.pop("alias", None), fields.pop("kind", None), **fields)
    return _one(made, 201, place_of(request, made.id))


@router.get("/templates", **documented(200, StoredTemplatesAnswer))
async def list_all(queue: Viewer, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """The newest templates, a page at a time."""
    page = await queue.list_templates(limit=limit, cursor=cursor)
    return answer(listed(StoredTemplatesAnswer, page, template))


@router.get("/templates/{id}", **documented(200, StoredTemplateAnswer))
async def get(queue: Viewer, id: Id) -> Response:
    """One template."""
    return _one(await queue.get_template(id))


@router.patch("/templates/{id}", **documented(200, StoredTemplateAnswer))
async def change(
    request: Request, queue: Admin, id: Id, body: schemas.StoredTemplatePatch, if_match: IfMatch = None
) -> Response:
    """Change what is named; the rest stays. Tasks that were started keep what they were started with."""
    if body.command is not None or body.runtime is not None:
        check_shell_allowed(request, body.runtime or (await queue.get_template(id)).runtime, "runtime")
    version = wanted_version(if_match, body.version)
    return _one(await queue.update_template(id, version=version, **_fields(body)))


@router.delete("/templates/{id}", **documented(204))
async def delete(queue: Admin, id: Id) -> Response:
    """Delete the template and its schedules. Its tasks stay."""
    await queue.delete_template(id)
    return Response(status_code=204)


@router.post("/templates/{id}/execute", **documented(201, answers.ExecutionAnswer))
async def execute(
    queue: Operator, id: Id, body: schemas.ExecuteTemplateBody | None = None, once: OnceKey = None
) -> Response:
    """Run it now, with this input laid over its parameters."""
    queue.once(once, answers.execution, 201)
    task = await queue.execute_template(id, None if body is None else body.input)
    return answer(answers.execution(task), 201)


def check_shell_allowed(request: Request, runtime: str | None, field: str) -> None:
    """Shell commands need workers that may run them."""
    if runtime == Runtime.SHELL and not of(request).allow_shell:
        problem = "shell commands are off: the workers of this server run none"
        raise Invalid(field, problem, "start them and the server with --allow-shell")


def _fields(body: schemas.StoredTemplateBody | schemas.StoredTemplatePatch) -> dict[str, Any]:
    given = given_options(body, TemplateOptions)
    return given | {name: getattr(body, name) for name in _OWN_FORM if name in body.model_fields_set}


def _one(found: Template, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return answer(template(found), status, {"ETag": f'"{found.version}"', **(headers or {})})
