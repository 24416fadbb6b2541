"""`/api/tenants/{tenant}/plan`, `/apply` and `/export`: what a declaration would change, doing it, and all there is as
a declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response

from ....domain.errors import Invalid
from ....domain.model import TaskTarget, WorkflowTarget
from ....domain.plan import naming, schedule_options
from ... import plans
from ...shapes import Answer
from ..openapi import documented
from ..reading import Router
from ..service import Admin, OnceKey, Viewer, answer, of
from . import schemas
from .templates import check_shell_allowed

router = Router(prefix="/api/tenants/{tenant}", tags=["plans"])


class DeclarationAnswer(Answer, frozen=True, kw_only=True):
    """All schedules, templates and calendars, as a file would declare them."""

    calendars: dict[str, dict[str, Any]]
    templates: dict[str, dict[str, Any]]
    schedules: dict[str, dict[str, Any]]


@router.post("/plan", **documented(200, plans.PlanAnswer))
async def plan(request: Request, queue: Viewer, body: schemas.PlanBody) -> Response:
    """What would change if this were applied: created, changed and removed, and which times within the next 14 days
    appear, vanish or move. Nothing is written."""
    document = _document(request, body)
    return answer(plans.answer(await queue.plan(document, prune=body.prune, force=body.force)))


@router.post("/apply", **documented(200, plans.PlanAnswer))
async def apply(request: Request, queue: Admin, body: schemas.ApplyBody, once: OnceKey = None) -> Response:
    """Do it, in one transaction: with the `at` and `token` of a plan only if that still holds. It runs nothing by
    itself."""
    if (body.at is None) != (body.token is None):
        raise Invalid(
            "token", "one of at and token is missing", "give both, as the plan has them, or neither"
        )
    known = None if body.at is None or body.token is None else (body.at, body.token)
    document = _document(request, body)
    queue.once(once, plans.answer)
    return answer(plans.answer(await queue.apply(document, known, prune=body.prune, force=body.force)))


@router.get("/export", **documented(200, DeclarationAnswer))
async def export(queue: Viewer) -> Response:
    """All schedules, templates and calendars, as a body of `/plan` declares them."""
    return answer(DeclarationAnswer(**await queue.export()))


def _document(request: Request, body: schemas.PlanBody) -> dict[str, Any]:
    check_declared(request, body.templates, body.schedules)
    return {"schedules": body.schedules, "templates": body.templates, "calendars": body.calendars}


def check_declared(
    request: Request, templates: Mapping[str, Mapping[str, Any]], schedules: Mapping[str, Mapping[str, Any]]
) -> None:
    """Refuse a declaration that names something which this server refuses elsewhere, too."""
    for alias, options in templates.items():
        is_shell = "shell" in options or options.get("runtime") == "shell"
        with naming("template", alias):
            check_shell_allowed(request, "shell" if is_shell else None, "runtime")
    for key, options in schedules.items():
        with naming("schedule", key):
            match schedule_options(options).get("target"):
                case WorkflowTarget(kind=kind):
                    of(request).check_known("workflow", kind, is_workflow=True)
                case TaskTarget(kind=kind):
                    of(request).check_known("task_type", kind, is_workflow=False)
