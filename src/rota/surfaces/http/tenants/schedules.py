"""`/api/tenants/{tenant}/schedules`: create, read, change, pause, resume, trigger and delete them.

A bulk change is applied to each schedule that matches at that moment, each in a transaction of its own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request, Response
from msgspec import UNSET

from ....domain import recurrence
from ....domain.checks import check_metadata
from ....domain.errors import Invalid, Refused
from ....domain.model import RunStatus, Schedule, Target, TaskTarget, TemplateTarget, WorkflowTarget
from ....domain.options import ScheduleFilters, ScheduleOptions, TaskOptions
from ....domain.schedule.definition import DEFAULTS, FIELDS
from ...python.client import all_pages
from ...shapes import listed, shaped
from ..fields import Body, Time, given_options
from ..openapi import documented
from ..reading import Router
from ..service import (
    Acting,
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
from . import answers, schemas, timing_answers
from .answers import BackfillAnswer

AT_ONCE = 500

router = Router(prefix="/api/tenants/{tenant}", tags=["schedules"])

Id = Annotated[str, Path(description="The id of the schedule, or its name.", min_length=1, max_length=255)]
StatusFilter = Literal["draft", "active", "paused", "inactive", "completed"]


@router.post("/schedules", **documented(201, answers.CreatedScheduleAnswer))
async def create(
    request: Request, queue: Admin, body: schemas.ScheduleBody, once: OnceKey = None
) -> Response:
    """Create a schedule. It first fires at its first time after now."""
    _check_known(request, body)
    queue.once(once, answers.schedule, 201)
    created = await queue.create_schedule(body.name, **_options(body))
    headers = {"ETag": f'"{created.version}"', **place_of(request, created.id)}
    return answer(answers.created_schedule(created, queue.warnings), 201, headers)


@router.get("/schedules", **documented(200, answers.SchedulesAnswer))
async def list_all(
    queue: Viewer,
    status: StatusFilter | None = None,
    target: Annotated[str | None, Query(max_length=255, description="The kind of what it runs.")] = None,
    template: Annotated[
        str | None,
        Query(
            alias="templateId",
            max_length=255,
            description="The id of the template that it runs, or its alias.",
        ),
    ] = None,
    tag: Annotated[str | None, Query(max_length=255)] = None,
    timezone: Annotated[str | None, Query(max_length=255, description="The zone of its times.")] = None,
    q: Annotated[
        str | None, Query(max_length=255, description="A part of name, description, kind or a tag.")
    ] = None,
    deleted: Annotated[bool, Query(description="Deleted ones, too.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """The newest schedules that match, a page at a time."""
    filters: ScheduleFilters = {"status": status, "kind": target, "tag": tag, "timezone": timezone, "text": q}
    filters |= {"template_id": template, "deleted": deleted}
    page = await queue.list_schedules(limit=limit, cursor=cursor, **filters)
    return answer(listed(answers.SchedulesAnswer, page, answers.schedule))


@router.post("/preview", **documented(200, timing_answers.PreviewAnswer))
@router.post("/schedules/preview", include_in_schema=False)
async def preview_unsaved(queue: Viewer, body: schemas.PreviewBody) -> Response:
    """The next times of a timing that is not saved."""
    bounds = {"start_at": body.start_at, "end_at": body.end_at}
    given = _timing(body.schedule_type) | {name: at for name, at in bounds.items() if at is not None}
    timing, found, warnings = await queue.preview_timing(n=body.n, **given)
    changes = recurrence.clock_changes(timing, await queue.now())
    return answer(timing_answers.occurrences(timing, found, warnings, changes))


@router.post("/bulk/schedules/{action}", **documented(200, answers.BulkAnswer))
async def bulk(
    queue: Admin, action: Literal["pause", "resume", "delete"], body: schemas.BulkBody
) -> Response:
    """Pause, resume or delete every schedule that matches. What cannot be changed so is counted and left."""
    filters = {"status": body.status, "kind": body.target, "tag": body.tag, "text": body.q}
    filters |= {"template_id": body.template_id, "timezone": body.timezone}
    if not body.all and all(value is None for value in filters.values()):
        accepted = "give status, target, templateId, tag, timezone or q, or all: true"
        raise Invalid("status", "no filter was given", accepted)
    pages = all_pages(queue.list_schedules, limit=AT_ONCE, **filters)
    # All of them before the first is changed: a change may move one out of the filter.
    matching = [each.id async for page in pages for each in page]
    changed = 0
    for id in matching:
        try:
            await _change(queue, action, id, body.note)
            changed += 1
        except Refused:  # as a completed one refuses to be resumed
            continue
    return answer(answers.BulkAnswer(changed=changed, left=len(matching) - changed))


async def _change(queue: Acting, action: str, id: str, note: str | None) -> None:
    match action:
        case "pause":
            await queue.pause_schedule(id, note)
        case "resume":
            await queue.resume_schedule(id)
        case _:
            await queue.delete_schedule(id)


@router.get("/schedules/{id}", **documented(200, answers.ScheduleAnswer))
async def get(queue: Viewer, id: Id) -> Response:
    """One schedule."""
    return _one(await queue.get_schedule(id))


@router.put("/schedules/{id}", **documented(200, answers.ScheduleAnswer))
async def replace(
    request: Request, queue: Admin, id: Id, body: schemas.SchedulePut, if_match: IfMatch = None
) -> Response:
    """Make the schedule say this, and nothing else: what is left out has its default."""
    version = wanted_version(if_match, body.version)
    _check_known(request, body)
    old = await queue.get_schedule(id)
    missed = "execute_once" if isinstance(body.schedule_type, schemas.Once | schemas.AfterOthers) else "skip"
    options = {**DEFAULTS, "missed_run_policy": missed, **_options(body, old), "key": body.name}
    return _one(await queue.update_schedule(id, version=version, **options))


@router.patch("/schedules/{id}", **documented(200, answers.ScheduleAnswer))
async def change(
    request: Request, queue: Admin, id: Id, body: schemas.SchedulePatch, if_match: IfMatch = None
) -> Response:
    """Change what is named; the rest stays."""
    version = wanted_version(if_match, body.version)
    _check_known(request, body)
    options = _options(body, await queue.get_schedule(id))
    if body.name is not None:
        options["key"] = body.name
    return _one(await queue.update_schedule(id, version=version, **options))


@router.delete("/schedules/{id}", **documented(204))
async def delete(
    queue: Admin, id: Id, hard: Annotated[bool, Query(description="Remove it for good.")] = False
) -> Response:
    """Delete it: hidden, stopped, its history kept, restorable. With `hard` it is removed for good."""
    await queue.delete_schedule(id, hard=hard)
    return Response(status_code=204)


@router.post("/schedules/{id}/restore", **documented(200, answers.ScheduleAnswer))
async def restore(queue: Admin, id: Id, once: OnceKey = None) -> Response:
    """Undo a delete."""
    queue.once(once, answers.schedule)
    return _one(await queue.restore_schedule(id))


@router.post("/schedules/{id}/pause", **documented(200, answers.ScheduleAnswer))
async def pause(
    queue: Operator, id: Id, body: schemas.PauseBody | None = None, once: OnceKey = None
) -> Response:
    """Stop firing until it is resumed, or until a time."""
    queue.once(once, answers.schedule)
    asked = schemas.PauseBody() if body is None else body
    return _one(await queue.pause_schedule(id, asked.note, until=asked.until))


@router.post("/schedules/{id}/resume", **documented(200, answers.ScheduleAnswer))
async def resume(queue: Operator, id: Id, once: OnceKey = None) -> Response:
    """Fire again, from the first time after now."""
    queue.once(once, answers.schedule)
    return _one(await queue.resume_schedule(id))


@router.post("/schedules/{id}/backfill", **documented(200, BackfillAnswer))
async def backfill(queue: Operator, id: Id, body: schemas.BackfillBody, once: OnceKey = None) -> Response:
    """Run the times of the past that have not run."""
    queue.once(once, lambda made: shaped(BackfillAnswer, made))
    made = await queue.backfill(
        id,
        body.start,
        body.end,
        overlap_policy=body.overlap_policy,
        at_most=body.at_most,
        dry_run=body.dry_run,
    )
    return answer(shaped(BackfillAnswer, made))


@router.delete("/schedules/{id}/backfill", **documented(200, BackfillAnswer))
async def cancel_backfill(queue: Operator, id: Id) -> Response:
    """Start no more of its backfill. What was started goes on."""
    return answer(shaped(BackfillAnswer, await queue.cancel_backfill(id)))


@router.post("/schedules/{id}/trigger", **documented(201, answers.ExecutionAnswer))
async def trigger(
    queue: Operator, id: Id, body: schemas.TriggerBody | None = None, once: OnceKey = None
) -> Response:
    """Run it now, beside its times. The answer is the execution that this starts."""
    queue.once(once, lambda started: answers.execution(started[1]), 201)
    given = body is not None and "input" in body.model_fields_set
    task = await queue.trigger_schedule(id, body.input if body is not None and given else UNSET)
    return answer(answers.execution(task), 201)


@router.get("/schedules/{id}/runs", **documented(200, answers.RunsAnswer))
async def runs(
    queue: Viewer,
    id: Id,
    status: RunStatus | None = None,
    since: Annotated[Time | None, Query()] = None,
    until: Annotated[Time | None, Query()] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """The ledger: every expected time and what became of it, latest first."""
    page = await queue.runs(id, status=status, since=since, until=until, limit=limit, cursor=cursor)
    return answer(listed(answers.RunsAnswer, page))


@router.get("/schedules/{id}/preview", **documented(200, timing_answers.PreviewAnswer))
async def preview(queue: Viewer, id: Id, n: Annotated[int, Query(ge=1, le=1000)] = 5) -> Response:
    """The next times."""
    schedule = await queue.get_schedule(id)
    found = await queue.preview(schedule.id, n)
    now = await queue.now()
    changes = schedule.clock_changes(now)
    warnings = recurrence.warnings(schedule.timing, now, changes)
    return answer(timing_answers.occurrences(schedule.timing, found, warnings, changes))


@router.get("/schedules/{id}/why", **documented(200, answers.WhyAnswer))
async def why(queue: Viewer, id: Id, at: Annotated[Time, Query()]) -> Response:
    """What became of an expected time, and why, in words."""
    found = await queue.why(id, at)
    return answer(shaped(answers.WhyAnswer, found, explanation=str(found)))


@router.get("/schedules/{id}/history", **documented(200, answers.ChangesAnswer))
async def history(queue: Viewer, id: Id) -> Response:
    """Who changed what, and when, oldest first."""
    return answer(listed(answers.ChangesAnswer, await queue.schedule_history(id)))


def _one(schedule: Schedule) -> Response:
    return answer(answers.schedule(schedule), 200, {"ETag": f'"{schedule.version}"'})


Given = schemas.ScheduleBody | schemas.SchedulePut | schemas.SchedulePatch


def _options(body: Given, old: Schedule | None = None) -> dict[str, Any]:
    """The options of `create_schedule` and `update_schedule` that the body gives."""
    given = {
        name: value
        for name, value in given_options(body, ScheduleOptions).items()
        if name in FIELDS and name != "status" and (value is not None or FIELDS[name].clearable)
    }
    if body.schedule_type is not None:
        given |= _timing(body.schedule_type, keep_zone=isinstance(body, schemas.SchedulePatch))
    if body.target is not None:
        given["target"] = _target(body.target)
    status = _status(body, old)
    return given if status is None else {**given, "status": status}


def _check_known(request: Request, body: Given) -> None:
    match body.target:
        case schemas.WorkflowTargetBody(workflow_kind=kind):
            of(request).check_known("target.workflow_kind", kind, is_workflow=True)
        case schemas.TaskTargetBody(task_kind=kind):
            of(request).check_known("target.task_kind", kind, is_workflow=False)


def _status(body: Given, old: Schedule | None) -> str | None:
    """The status that `status` or `enabled` asks for. An answer that is sent back has both: the changed one counts."""
    if body.enabled is None or body.status is None:
        return body.status if body.enabled is None else _switched(body.enabled)
    if body.enabled == (body.status == "active"):
        return body.status
    if old is not None and body.status == old.status:
        return _switched(body.enabled)
    if old is not None and body.enabled == old.enabled:
        return body.status
    raise Invalid("enabled", "it contradicts status", "give one of them")


def _switched(enabled: bool) -> str:
    return "active" if enabled else "paused"


def _timing(given: Body, *, keep_zone: bool = False) -> dict[str, Any]:
    match given:
        case schemas.Once():
            return {"run_at": given.run_at}
        case schemas.Recurring():
            options: dict[str, Any] = {"cron": given.cron}
        case schemas.Every():
            options = {"interval": timedelta(seconds=given.every_seconds)}
        case schemas.Rule():
            options = {"rrule": given.rule}
        case schemas.SeveralTimings():
            options = {"timings": [_part(number, part) for number, part in enumerate(given.timings)]}
        case schemas.AfterOthers():
            delay = timedelta(seconds=given.delay_seconds)
            options = {"after": given.schedules, "after_on": given.on, "after_delay": delay}
        case _:
            raise AssertionError(given)
    options |= _choices(given, keep=keep_zone)
    zone = getattr(given, "timezone", None)
    has_zone = isinstance(given, (schemas.Recurring, schemas.Rule)) and not _begins_with_zone(given)
    if zone is not None or (has_zone and not keep_zone):
        options["timezone"] = "UTC" if zone is None else zone
    end_at = getattr(given, "end_at", None)
    return options if end_at is None else {**options, "end_at": end_at}


def _begins_with_zone(given: Body) -> bool:
    return isinstance(given, schemas.Recurring) and given.cron.strip().upper().startswith(("TZ=", "CRON_TZ="))


def _choices(given: Body, *, keep: bool) -> dict[str, Any]:
    """The choices for days and daylight saving. A choice that the body leaves out is cleared, if the body replaces the
    schedule."""
    names = [name for name in ("day_match", "dst_gap", "dst_fold") if name in type(given).model_fields]
    found = {name: getattr(given, name) for name in names}
    return {name: value for name, value in found.items() if value is not None or not keep}


def _part(number: int, given: Body) -> dict[str, Any]:
    if getattr(given, "end_at", None) is not None:
        problem = "it is for the schedule, not for one of its timings"
        raise Invalid(f"timings[{number}].end_at", problem, "give it beside them")
    return {name: value for name, value in _timing(given).items() if value is not None}


def _target(given: Body) -> Target:
    values = {name: value for name, value in given_options(given, TaskOptions).items() if value is not None}
    if "metadata" in values:
        check_metadata(values["metadata"], "target.metadata")
    if "tags" in values:
        values["tags"] = tuple(values["tags"])
    match given:
        case schemas.WorkflowTargetBody():
            return WorkflowTarget(kind=given.workflow_kind, input=given.input, **values)
        case schemas.TaskTargetBody():
            return TaskTarget(kind=given.task_kind, input=given.input, **values)
        case schemas.TemplateTargetBody():
            return TemplateTarget(template_id=given.template_id, input=given.input)
        case _:
            raise AssertionError(given)
