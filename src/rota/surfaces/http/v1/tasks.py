"""`/api/v1/tasks`: stored tasks, and scheduling as an operation on them.

What `$schedule` and `$execute` make, they make in the transaction that looks at the task."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Body, Path, Request, Response
from msgspec import structs

from ....domain import template as rules
from ....domain.checks import check_key
from ....domain.errors import Invalid, NotFound
from ....domain.model import (
    MissedRunPolicy,
    OverlapPolicy,
    Role,
    Runtime,
    Schedule,
    ScheduleStatus,
    Task,
    Template,
    TemplateTarget,
)
from ....domain.options import TemplateOptions
from ....domain.recurrence import Cron, Interval, Once, Timing
from ....engine import commands
from ....engine.commands.shared import find_template
from ....engine.work import as_work
from ....stores.base import Tx
from ...python.client import all_pages
from ..fields import given_options
from ..openapi import documented
from ..problems import wrong
from ..reading import Router
from ..service import Acting, IfMatch, OnceKey, OwnAdmin, OwnOperator, OwnViewer, answer, of, wanted_version
from ..tenants.templates import check_shell_allowed
from . import answers, schemas
from .jobs import Number, Size, check_reach, template_page

router = Router(prefix="/api/v1")

Id = Annotated[str, Path(description="The id of the task, or its name.", min_length=1, max_length=255)]
ScheduleId = Annotated[str, Path(description="The id of the schedule.", min_length=1, max_length=255)]
ScheduleBody = Annotated[schemas.ScheduleV1, Body(openapi_examples=schemas.SCHEDULE_EXAMPLES)]
AT_ONCE = 1000
LONGEST_NAME = 200
_TASKS: dict[str, Any] = {"tags": ["v1 tasks"]}
_SCHEDULES: dict[str, Any] = {"tags": ["v1 schedules"]}


@router.post("/tasks", **documented(201, answers.TemplateAnswer, **_TASKS))
async def create(
    request: Request, queue: OwnAdmin, body: schemas.TemplateBody, once: OnceKey = None
) -> Response:
    """Store a task. `python` ones run registered functions, and nothing else; `shell` ones are accepted where shell
    commands are allowed."""
    _check_runs(request, body, Runtime(body.task_type))
    queue.once(once, answers.template, 201)
    fields = _fields(body, Runtime(body.task_type))
    made = await queue.create_template(fields.pop("alias", None), fields.pop("kind", None), **fields)
    return _one(made, 201, {"Location": f"{request.url.path}/{made.id}"})


@router.get("/tasks", **documented(200, answers.TemplatesAnswer, **_TASKS))
async def list_all(queue: OwnViewer, number: Number = 1, size: Size = 20) -> Response:
    """The stored tasks, newest first."""
    check_reach(number, size)
    found, total = await queue.store.read(template_page(queue.tenant, number, size))
    items = map(answers.template, found)
    return answer(answers.page(answers.TemplatesAnswer, items, total, number, size))


@router.get("/tasks/{id}", **documented(200, answers.TemplateAnswer, **_TASKS))
async def get(queue: OwnViewer, id: Id) -> Response:
    """One stored task."""
    return _one(await queue.get_template(id))


@router.put("/tasks/{id}", **documented(200, answers.TemplateAnswer, **_TASKS))
async def replace(
    request: Request, queue: OwnAdmin, id: Id, body: schemas.TemplatePut, if_match: IfMatch = None
) -> Response:
    """Make the task say this, and nothing else: what is left out has its default."""
    runtime = Runtime(body.task_type)
    _check_runs(request, body, runtime)
    version = wanted_version(if_match, body.version)
    return _one(await queue.update_template(id, version=version, replace=True, **_fields(body, runtime)))


@router.patch("/tasks/{id}", **documented(200, answers.TemplateAnswer, **_TASKS))
async def change(
    request: Request, queue: OwnAdmin, id: Id, body: schemas.TemplatePatch, if_match: IfMatch = None
) -> Response:
    """Change what is named; the rest stays."""
    is_given = "task_type" in body.model_fields_set
    runtime = Runtime(body.task_type) if is_given else (await queue.get_template(id)).runtime
    _check_runs(request, body, runtime)
    version = wanted_version(if_match, body.version)
    return _one(await queue.update_template(id, version=version, **_fields(body, runtime)))


@router.delete("/tasks/{id}", **documented(204, **_TASKS))
async def delete(queue: OwnAdmin, id: Id) -> Response:
    """Delete the task and its schedules. Its jobs stay."""
    await queue.delete_template(id)
    return Response(status_code=204)


@router.post("/tasks/{id}/$execute", **documented(202, answers.StartedAnswer, **_TASKS))
async def execute(
    request: Request,
    queue: OwnOperator,
    id: Id,
    body: schemas.ExecuteBody | None = None,
    once: OnceKey = None,
) -> Response:
    """Run it now, or not before `schedule_at`. The answer names the job."""
    queue.once(once, answers.started, 202)
    if body is None or body.schedule_at is None:
        task = await queue.execute_template(id, None if body is None else body.parameters)
    else:
        task = await queue._commit(_execute_later(queue, queue._new_id(), id, body))
    return answer(answers.started(task), 202, {"Location": f"{_root(request)}/jobs/{task.id}"})


@router.post("/tasks/{id}/$schedule", **documented(201, answers.TaskScheduleAnswer, **_SCHEDULES))
async def schedule(
    request: Request, queue: OwnAdmin, id: Id, body: ScheduleBody, once: OnceKey = None
) -> Response:
    """Run the task at a time, at an interval, or by a cron line. A run that was missed is made up for once; runs may
    overlap."""
    queue.once(once, answers.schedule, 201)
    made = await queue._commit(_schedule_template(queue, queue._new_id(), id, _timing(body), body))
    place = f"{_root(request)}/tasks/{id}/$schedules/{made.id}"
    return answer(answers.schedule(made), 201, {"Location": place})


@router.get(
    "/tasks/{id}/$schedules", **documented(200, answers.TaskScheduleAnswer, is_list=True, **_SCHEDULES)
)
async def schedules(queue: OwnViewer, id: Id) -> Response:
    """All schedules of the task, newest first."""
    template = await queue.get_template(id)
    pages = all_pages(queue.list_schedules, template_id=template.id, limit=AT_ONCE)
    return answer([answers.schedule(each) async for page in pages for each in page])


@router.get(
    "/tasks/{id}/$schedules/{schedule_id}", **documented(200, answers.TaskScheduleAnswer, **_SCHEDULES)
)
async def get_schedule(queue: OwnViewer, id: Id, schedule_id: ScheduleId) -> Response:
    """One schedule of the task."""
    return answer(answers.schedule(await _under(queue, id, schedule_id)))


@router.patch(
    "/tasks/{id}/$schedules/{schedule_id}", **documented(200, answers.TaskScheduleAnswer, **_SCHEDULES)
)
async def change_schedule(
    queue: OwnOperator, id: Id, schedule_id: ScheduleId, body: schemas.TaskSchedulePatch
) -> Response:
    """Enable or disable it; or, as an admin, give it another time. One that has run for the last time is enabled again
    only with a new time."""
    found = await _under(queue, id, schedule_id)
    timing = await _timing_of(queue, found, body)
    if timing:
        queue.caller.check_role(Role.ADMIN, "another time")
        if body.enabled is not None:
            timing["status"] = "active" if body.enabled else "paused"
        found = await queue.update_schedule(found.id, **timing)
    elif body.enabled is not None and not (found.deleted_at or body.enabled == found.enabled):
        found = await (queue.resume_schedule if body.enabled else queue.pause_schedule)(found.id)
    return answer(answers.schedule(found))


@router.delete("/tasks/{id}/$schedules/{schedule_id}", **documented(204, **_SCHEDULES))
async def delete_schedule(queue: OwnAdmin, id: Id, schedule_id: ScheduleId) -> Response:
    """Delete a schedule of the task."""
    await queue.delete_schedule((await _under(queue, id, schedule_id)).id)
    return Response(status_code=204)


async def _under(queue: Acting, id: str, schedule_id: str) -> Schedule:
    """A schedule of this task; that of another one is not there."""
    template = await queue.get_template(id)
    found = await queue.get_schedule(schedule_id)
    if not isinstance(found.target, TemplateTarget) or found.target.template_id != template.id:
        raise NotFound("schedule", schedule_id)
    return found


def _check_runs(
    request: Request, body: schemas.TemplateBody | schemas.TemplatePatch, runtime: Runtime
) -> None:
    """Where the functions are known, a task names one of them. A workflow is none: it is started as one. A shell
    command needs workers that may run it."""
    app = of(request).app
    check_shell_allowed(request, runtime, "task_type")
    if app is None or runtime is not Runtime.PYTHON or not body.command:
        return
    kinds = sorted(each.kind for each in app.handlers.values() if not each.is_workflow)
    if body.command in kinds:
        return
    known = ", ".join(kinds[:100]) or "none"
    problem = f"no function is registered as {body.command!r}"
    raise Invalid("command", problem, f"registered are: {known}")


def _fields(body: schemas.TemplateBody | schemas.TemplatePatch, runtime: Runtime) -> dict[str, Any]:
    """The fields of a template that the body gives. The command of a python one is its kind."""
    given: dict[str, Any] = {**given_options(body, TemplateOptions), "runtime": runtime}
    if runtime is Runtime.PYTHON and "command" in body.model_fields_set:
        given["kind"] = body.command
    for word in ("name", "alias"):
        if word in body.model_fields_set:
            given["alias"] = check_key(getattr(body, word), word)
    for name in ("command", "parameters", "parameters_schema"):
        if name in body.model_fields_set:
            given[name] = getattr(body, name)
    return given


def _one(template: Template, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return answer(answers.template(template), status, {"ETag": f'"{template.version}"', **(headers or {})})


def _root(request: Request) -> str:
    """The address of this API, also if the application is mounted somewhere."""
    return request.url.path.partition("/tasks/")[0]


@as_work
async def _schedule_template(
    tx: Tx,
    queue: Acting,
    id: str,
    template_id: str,
    timing: Timing,
    body: schemas.OnceV1 | schemas.IntervalV1 | schemas.CronV1,
) -> Schedule:
    """Make a schedule of the template. Its name is made here: what is run, how, and what tells it from others."""
    template = await find_template(tx, queue.tenant, template_id)
    if isinstance(timing, Once):
        _check_future(timing.run_at, tx.now)
    key = f"{template.alias[:LONGEST_NAME].strip()}-{body.schedule_type}-{id[-12:]}"
    target = TemplateTarget(template_id=template.id, input=body.parameters or None)
    fields = {
        "status": ScheduleStatus.ACTIVE if body.enabled else ScheduleStatus.PAUSED,
        "missed_run_policy": MissedRunPolicy.EXECUTE_ONCE,
        "overlap_policy": OverlapPolicy.ALLOW,
    }
    made = commands.create_schedule(
        id, queue.tenant, key, timing, target, fields, queue.actor, check=queue._check_input
    )
    return await made(tx)


@as_work
async def _execute_later(tx: Tx, queue: Acting, id: str, template_id: str, body: schemas.ExecuteBody) -> Task:
    template = await find_template(tx, queue.tenant, template_id)
    rules.check_runs(template)
    asked = structs.replace(rules.submission(template, body.parameters), schedule_at=body.schedule_at)
    queue._check_input(asked.kind, asked.input)
    return (await commands.submit_tasks([(id, asked)], queue.tenant, queue.actor)(tx))[0]


async def _timing_of(queue: Acting, old: Schedule, body: schemas.TaskSchedulePatch) -> dict[str, Any]:
    """The options of `update_schedule` that the body gives for when it runs; none: that stays."""
    kinds = [kind for kind, field in schemas.FIELD_OF.items() if getattr(body, field) is not None]
    if not kinds and body.timezone is None:
        if body.schedule_type not in (None, answers.timing_type(old.timing)):
            field = schemas.FIELD_OF[body.schedule_type]
            raise wrong(field, f"{field} required for '{body.schedule_type}' schedules")
        return {}
    wanted = body.schedule_type or answers.timing_type(old.timing)
    for kind in kinds:
        if kind != wanted:
            sentence = f"{schemas.FIELD_OF[kind]} is for '{kind}' schedules; this one is of type '{wanted}'"
            raise wrong(schemas.FIELD_OF[kind], sentence)
    if body.timezone is not None and wanted != "cron":
        raise wrong("timezone", f"timezone is for 'cron' schedules; this one is of type '{wanted}'")
    if body.run_at is not None:
        _check_future(body.run_at, await queue.now())
    return _options(body)


def _options(body: schemas.TaskSchedulePatch) -> dict[str, Any]:
    options: dict[str, Any] = {"run_at": body.run_at, "cron": body.cron_expression, "timezone": body.timezone}
    if body.interval_seconds is not None:
        options["interval"] = timedelta(seconds=body.interval_seconds)
    return {name: value for name, value in options.items() if value is not None}


def _timing(body: schemas.OnceV1 | schemas.IntervalV1 | schemas.CronV1) -> Timing:
    match body:
        case schemas.OnceV1():
            return Once(body.run_at)
        case schemas.IntervalV1():
            return Interval(timedelta(seconds=body.interval_seconds))
        case schemas.CronV1():
            return Cron(body.cron_expression, "UTC" if body.timezone is None else body.timezone)


def _check_future(run_at: datetime, now: datetime) -> None:
    if run_at <= now:
        raise wrong("run_at", "run_at must be in the future")
