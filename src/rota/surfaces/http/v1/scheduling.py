"""What `$schedule` and `$execute` ask of the engine: the task is looked at in the transaction that makes something
of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from ....domain import template as rules
from ....domain.model import (
    MissedRunPolicy,
    OverlapPolicy,
    Schedule,
    ScheduleStatus,
    Task,
    TemplateTarget,
)
from ....domain.recurrence import Cron, Interval, Once, Timing
from ....engine import commands
from ....engine.commands.shared import find_template
from ....stores.base import Tx
from ..problems import Problem
from ..service import Acting
from .schemas import FIELD_OF, CronV1, IntervalV1, OnceV1, TaskSchedulePatch

__all__ = ["execute_later", "schedule_template", "timing_of"]

LONGEST_NAME = 200


async def schedule_template(queue: Acting, template_id: str, body: OnceV1 | IntervalV1 | CronV1) -> Schedule:
    """Its name is made here: what is run, how, and what tells it from others."""
    id = queue._new_id()
    timing = _timing(body)
    status = ScheduleStatus.ACTIVE if body.enabled else ScheduleStatus.PAUSED
    fields = {
        "status": status,
        "missed_run_policy": MissedRunPolicy.EXECUTE_ONCE,
        "overlap_policy": OverlapPolicy.ALLOW,
    }

    async def work(tx: Tx) -> Schedule:
        template = await find_template(tx, queue.tenant, template_id)
        if isinstance(timing, Once):
            _check_future(timing.run_at, tx.now)
        key = f"{template.alias[:LONGEST_NAME].strip()}-{body.schedule_type}-{id[-12:]}"
        target = TemplateTarget(template_id=template.id)
        return await commands.create_schedule(id, queue.tenant, key, timing, target, fields, queue.actor)(tx)

    return await queue._commit(work)


async def execute_later(
    queue: Acting, template_id: str, parameters: dict[str, Any], schedule_at: datetime
) -> Task:
    id = queue._new_id()

    async def work(tx: Tx) -> Task:
        template = await find_template(tx, queue.tenant, template_id)
        rules.check_runs(template)
        asked = replace(rules.submission(template, parameters), schedule_at=schedule_at)
        return (await commands.submit_tasks([(id, asked)], queue.tenant, queue.actor)(tx))[0]

    return await queue._commit(work)


async def timing_of(queue: Acting, old: Schedule, body: TaskSchedulePatch) -> dict[str, Any]:
    """The options of `update_schedule` that the body gives for when it runs; none: that stays."""
    kinds = [kind for kind, field in FIELD_OF.items() if getattr(body, field) is not None]
    if not kinds and body.timezone is None:
        if body.schedule_type not in (None, kind_of(old.timing)):
            field = FIELD_OF[body.schedule_type]
            raise _wrong(field, f"{field} required for '{body.schedule_type}' schedules")
        return {}
    wanted = body.schedule_type or kind_of(old.timing)
    for kind in kinds:
        if kind != wanted:
            sentence = f"{FIELD_OF[kind]} is for '{kind}' schedules; this one is of type '{wanted}'"
            raise _wrong(FIELD_OF[kind], sentence)
    if body.timezone is not None and wanted != "cron":
        raise _wrong("timezone", f"timezone is for 'cron' schedules; this one is of type '{wanted}'")
    if body.run_at is not None:
        _check_future(body.run_at, await queue.now())
    return _options(body)


def kind_of(timing: Timing) -> str:
    match timing:
        case Once():
            return "once"
        case Interval():
            return "interval"
        case Cron():
            return "cron"
        case _:
            return "rrule"


def _options(body: TaskSchedulePatch) -> dict[str, Any]:
    options: dict[str, Any] = {"run_at": body.run_at, "cron": body.cron_expression, "timezone": body.timezone}
    if body.interval_seconds is not None:
        options["interval"] = timedelta(seconds=body.interval_seconds)
    return {name: value for name, value in options.items() if value is not None}


def _timing(body: OnceV1 | IntervalV1 | CronV1) -> Timing:
    match body:
        case OnceV1():
            return Once(body.run_at)
        case IntervalV1():
            return Interval(timedelta(seconds=body.interval_seconds))
        case CronV1():
            return Cron(body.cron_expression, "UTC" if body.timezone is None else body.timezone)


def _check_future(run_at: datetime, now: datetime) -> None:
    if run_at <= now:
        raise _wrong("run_at", "run_at must be in the future")


def _wrong(field: str, sentence: str) -> Problem:
    return Problem(422, "invalid", sentence, field=field)
