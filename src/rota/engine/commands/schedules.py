"""Works on schedules: what people do to them. (What time does to them: `tick.py`.)"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ...domain import definition, run, schedule
from ...domain.errors import NotFound, Refused
from ...domain.limits import check_input
from ...domain.model import Run, RunTrigger, Schedule, Target, Task, Template, TemplateTarget
from ...domain.recurrence import Timing
from ...stores.base import Tx, Work
from ...stores.queries import RunList, ScheduleByKey
from .shared import audit, check_room_for_schedule, check_room_for_tasks, find_schedule, limits_of

__all__ = [
    "create_schedule",
    "delete_schedule",
    "edit_schedule",
    "given_up",
    "pause_schedule",
    "purge_schedule",
    "restore_schedule",
    "resume_schedule",
    "template_of",
    "templates_of",
    "trigger_schedule",
]


def create_schedule(
    id: str, tenant: str, key: str, timing: Timing, target: Target, fields: Mapping[str, Any], actor: str
) -> Work[Schedule]:
    async def work(tx: Tx) -> Schedule:
        limits = await limits_of(tx, tenant)
        again = await tx.get(Schedule, id)
        if again is not None:
            return again
        if await tx.find(ScheduleByKey(tenant=tenant, key=key), 1):
            raise Refused("key_taken", key=key)
        await check_room_for_schedule(tx, tenant, limits)
        new = definition.create(
            id, key, timing, target, fields, tenant=tenant, now=tx.now, actor=actor, limits=limits
        )
        created = tx.put(new)
        audit(tx, "created", actor, None, created)
        return created

    return work


def edit_schedule(
    tenant: str,
    key: str,
    changes: Callable[[Schedule, datetime], Mapping[str, Any]],
    actor: str,
    version: int | None = None,
) -> Work[Schedule]:
    """Change some fields: those that `changes`, which is pure, names when it is shown the schedule as it is. With
    `version`, only if nobody else changed it since."""

    async def work(tx: Tx) -> Schedule:
        limits = await limits_of(tx, tenant)
        old = await find_schedule(tx, tenant, key)
        if version is not None and version != old.version:
            raise Refused("stale_version", record="schedule", id=key, found=old.version, expected=version)
        new = definition.edit(old, changes(old, tx.now), tx.now, actor, limits)
        if new is old:
            return old
        if new.key != old.key and await tx.find(ScheduleByKey(tenant=tenant, key=new.key), 1):
            raise Refused("key_taken", key=new.key)
        rows = await given_up(tx, [(old, new)])
        edited = tx.put(new)
        for row in rows:
            tx.put(row)
        audit(tx, "updated", actor, old, edited)
        return edited

    return work


def pause_schedule(tenant: str, key: str, actor: str, note: str | None) -> Work[Schedule]:
    return _change(
        tenant, key, actor, "paused", lambda old, now: definition.pause(old, now, actor, note), note
    )


def resume_schedule(tenant: str, key: str, actor: str) -> Work[Schedule]:
    change = _change(tenant, key, actor, "resumed", lambda old, now: definition.resume(old, now, actor))

    async def work(tx: Tx) -> Schedule:
        await limits_of(tx, tenant)
        return await change(tx)

    return work


def delete_schedule(tenant: str, key: str, actor: str) -> Work[Schedule]:
    return _change(tenant, key, actor, "deleted", lambda old, now: definition.delete(old, now, actor))


def restore_schedule(tenant: str, key: str, actor: str) -> Work[Schedule]:
    async def work(tx: Tx) -> Schedule:
        limits = await limits_of(tx, tenant)
        try:
            old = await find_schedule(tx, tenant, key, deleted=True)
        except NotFound:
            old = await find_schedule(tx, tenant, key)
        new = definition.restore(old, tx.now, actor)
        if await tx.find(ScheduleByKey(tenant=tenant, key=new.key), 1):
            raise Refused("key_taken", key=new.key)
        await check_room_for_schedule(tx, tenant, limits)
        restored = tx.put(new)
        audit(tx, "restored", actor, old, restored)
        return restored

    return work


def purge_schedule(schedule_id: str, actor: str, limit: int = 1000) -> Work[bool]:
    """Remove a deleted schedule and its ledger for good, `limit` rows at a time; whether it is gone now."""

    async def work(tx: Tx) -> bool:
        gone = await tx.get(Schedule, schedule_id)
        if gone is None:
            return True
        rows = await tx.find(RunList(schedule_id=schedule_id), limit)
        for row in rows:
            tx.delete(row)
        if len(rows) == limit:
            return False
        tx.delete(gone)
        audit(tx, "purged", actor, gone, None)
        return True

    return work


def _change(
    tenant: str,
    key: str,
    actor: str,
    action: str,
    rule: Callable[[Schedule, datetime], Schedule],
    detail: str | None = None,
) -> Work[Schedule]:
    async def work(tx: Tx) -> Schedule:
        old = await find_schedule(tx, tenant, key)
        new = rule(old, tx.now)
        if new is old:
            return old
        rows = await given_up(tx, [(old, new)])
        changed = tx.put(new)
        for row in rows:
            tx.put(row)
        audit(tx, action, actor, old, changed, detail or "")
        return changed

    return work


async def given_up(tx: Tx, changes: Sequence[tuple[Schedule, Schedule]]) -> list[Run]:
    """A row for the ledger for every time that was due under the old plans and will not be fired under the new ones."""
    rows = [
        run.skipped(old, skip, tx.now)
        for old, new in changes
        if new.next_run_at != old.next_run_at
        for skip in schedule.given_up(old, tx.now)
    ]
    known = await tx.get_many(Run, [row.id for row in rows]) if rows else {}
    return [row for row in rows if row.id not in known]


def trigger_schedule(
    run_id: str, tenant: str, key: str, actor: str, input: Any = msgspec.UNSET
) -> Work[tuple[Run, Task]]:
    """Run it now, beside its times: neither the next time nor the count moves."""

    async def work(tx: Tx) -> tuple[Run, Task]:
        limits = await limits_of(tx, tenant)
        found = await find_schedule(tx, tenant, key)
        if input is not msgspec.UNSET:
            check_input(input, limits)
        again = await tx.get(Run, run_id)
        if again is not None and again.target_id is not None:
            known = await tx.get(Task, again.target_id)
            if known is not None:
                return again, known
        await check_room_for_tasks(tx, tenant, limits)
        templates = await templates_of(tx, [found])
        asked = found if input is msgspec.UNSET else replace(found, target=replace(found.target, input=input))
        template = template_of(asked, templates)
        row, started = run.start(run_id, asked, tx.now, RunTrigger.MANUAL, template, tx.now, limits, actor)
        if started is None:
            raise Refused("bad_target", schedule=key, problem=row.error)
        audit(tx, "triggered", actor, found, found, f"task {started.id}", act=row.id)
        return tx.put(row), tx.put(started).as_of(tx.now)

    return work


async def templates_of(tx: Tx, due: Sequence[Schedule]) -> dict[str, Template]:
    ids = {found.target.template_id for found in due if isinstance(found.target, TemplateTarget)}
    return await tx.get_many(Template, ids) if ids else {}


def template_of(found: Schedule, templates: Mapping[str, Template]) -> Template | None:
    if not isinstance(found.target, TemplateTarget):
        return None
    template = templates.get(found.target.template_id)
    return template if template is not None and template.tenant == found.tenant else None
