"""Works on schedules: what people do to them, and the tick."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ...domain import definition, recurrence, run, schedule, task
from ...domain.errors import NotFound, Refused
from ...domain.model import (
    Limits,
    OverlapPolicy,
    Run,
    RunTrigger,
    Schedule,
    ScheduleStatus,
    Target,
    Task,
    Template,
    TemplateTarget,
    Tenant,
)
from ...domain.recurrence import Timing
from ...domain.schedule import Decision
from ...stores.base import DueSchedules, LiveTasks, OutdatedZones, RunList, ScheduleByKey, Tx, Work
from .shared import DEFAULT_LIMITS, Endings, audit, find_schedule, limits_of

__all__ = [
    "Tick",
    "create_schedule",
    "delete_schedule",
    "edit_schedule",
    "fire_due",
    "pause_schedule",
    "purge_schedule",
    "refresh_zones",
    "restore_schedule",
    "resume_schedule",
    "trigger_schedule",
]

LIVE_AT_MOST = 10_000
SCHEDULER = "scheduler"


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
        await _give_up(tx, old, new)
        edited = tx.put(new)
        audit(tx, "updated", actor, old, edited)
        return edited

    return work


def pause_schedule(tenant: str, key: str, actor: str, note: str | None) -> Work[Schedule]:
    return _change(
        tenant, key, actor, "paused", lambda old, now: definition.pause(old, now, actor, note), note
    )


def resume_schedule(tenant: str, key: str, actor: str) -> Work[Schedule]:
    return _change(tenant, key, actor, "resumed", lambda old, now: definition.resume(old, now, actor))


def delete_schedule(tenant: str, key: str, actor: str) -> Work[Schedule]:
    return _change(tenant, key, actor, "deleted", lambda old, now: definition.delete(old, now, actor))


def restore_schedule(tenant: str, key: str, actor: str) -> Work[Schedule]:
    async def work(tx: Tx) -> Schedule:
        try:
            old = await find_schedule(tx, tenant, key, deleted=True)
        except NotFound:
            old = await find_schedule(tx, tenant, key)
        new = definition.restore(old, tx.now, actor)
        if await tx.find(ScheduleByKey(tenant=tenant, key=new.key), 1):
            raise Refused("key_taken", key=new.key)
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
        await _give_up(tx, old, new)
        changed = tx.put(new)
        audit(tx, action, actor, old, changed, detail or "")
        return changed

    return work


async def _give_up(tx: Tx, old: Schedule, new: Schedule) -> None:
    """A row in the ledger for every time that was due under the old plan and will not be fired under the new one."""
    if new.next_run_at == old.next_run_at:
        return
    rows = [run.skipped(old, skip, tx.now) for skip in schedule.given_up(old, tx.now)]
    known = await tx.get_many(Run, [row.id for row in rows]) if rows else {}
    for row in rows:
        if row.id not in known:
            tx.put(row)


def trigger_schedule(
    run_id: str, tenant: str, key: str, actor: str, input: Any = msgspec.UNSET
) -> Work[tuple[Run, Task]]:
    """Run it now, beside its times: neither the next time nor the count moves."""

    async def work(tx: Tx) -> tuple[Run, Task]:
        limits = await limits_of(tx, tenant)
        found = await find_schedule(tx, tenant, key)
        again = await tx.get(Run, run_id)
        if again is not None and again.target_id is not None:
            known = await tx.get(Task, again.target_id)
            if known is not None:
                return again, known
        templates = await _templates(tx, [found])
        if input is not msgspec.UNSET:
            found = replace(found, target=replace(found.target, input=input))
        row, started = run.start(
            run_id, found, tx.now, RunTrigger.MANUAL, _template(found, templates), tx.now, limits, actor
        )
        if started is None:
            raise Refused("bad_target", schedule=key, problem=row.error)
        return tx.put(row), tx.put(started)

    return work


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """What one tick did. If it did nothing: when the next schedule is due (None: nothing is planned)."""

    runs: list[Run] = []
    tasks: list[Task] = []
    schedules: list[Schedule] = []
    next_at: datetime | None = None


def fire_due(limit: int, *, jumped: bool = False) -> Work[Tick]:
    """Decide about every schedule that is due, at most `limit` of them, and write it all in one commit."""

    async def work(tx: Tx) -> Tick:
        due = await tx.find(DueSchedules(at=tx.now), limit, lock=True)
        if not due:
            upcoming = await tx.find(DueSchedules(at=None), 1)
            return Tick(next_at=next((found.due_at for found in upcoming), None))
        firing = await _Firing.read(tx, due, jumped)
        return await firing.write(tx)

    return work


class _Firing:
    """One tick: everything is read first, then decided, then put."""

    def __init__(self, decisions: list[Decision], templates: dict[str, Template], limits: dict[str, Limits]):
        self.decisions = decisions
        self.templates = templates
        self.limits = limits

    @classmethod
    async def read(cls, tx: Tx, due: Sequence[Schedule], jumped: bool) -> _Firing:
        judged = tuple(found.id for found in due if found.overlap_policy is not OverlapPolicy.ALLOW)
        live: dict[str, list[Task]] = defaultdict(list)
        for found in await tx.find(LiveTasks(schedule_ids=judged), LIVE_AT_MOST) if judged else []:
            if found.schedule_id is not None and found.as_of(tx.now).is_live:
                live[found.schedule_id].append(found)
        decisions = [_decided(found, tx.now, live[found.id], jumped) for found in due]
        tenants = await tx.get_many(Tenant, {found.tenant for found in due})
        limits = {name: tenant.limits for name, tenant in tenants.items()}
        return cls(decisions, await _templates(tx, due), limits)

    async def write(self, tx: Tx) -> Tick:
        cancelled = [
            task.cancel(victim, tx.now, SCHEDULER, "replaced by the next run")
            for decision in self.decisions
            for victim in decision.cancels
            if not victim.cancel_requested
        ]
        endings = await Endings.of(tx, cancelled)
        ids = [_run_ids(decision) for decision in self.decisions]
        known = await tx.get_many(Run, [id for of_one in ids for id in of_one])
        endings.put(tx, cancelled, SCHEDULER)
        tick = Tick(runs=[], tasks=[], schedules=[])
        for decision, of_one in zip(self.decisions, ids, strict=True):
            self._put(tx, decision, of_one, known, tick)
        return tick

    def _put(
        self, tx: Tx, decision: Decision, ids: Sequence[str], known: Mapping[str, Run], tick: Tick
    ) -> None:
        """`ids` are those of the fires, then of the skips."""
        found = decision.schedule
        limits = self.limits.get(found.tenant, DEFAULT_LIMITS)
        template = _template(found, self.templates)
        last_task = found.last_task_id
        again = 0
        for fire, id in zip(decision.fires, ids[: len(decision.fires)], strict=True):
            if id in known:
                again += 1  # a clock that went back: this time has had its run
                continue
            row, started = run.start(
                id, found, fire.scheduled_at, fire.trigger, template, tx.now, limits, SCHEDULER
            )
            tick.runs.append(tx.put(row))
            if started is not None:
                tick.tasks.append(tx.put(started))
                last_task = started.id
        for skip, id in zip(decision.skips, ids[len(decision.fires) :], strict=True):
            if id not in known:
                tick.runs.append(tx.put(run.skipped(found, skip, tx.now)))
        moved = tx.put(replace(found, last_task_id=last_task, run_count=found.run_count - again))
        tick.schedules.append(moved)
        if moved.status is not ScheduleStatus.ACTIVE:
            detail = moved.completed_reason or moved.pause_note or ""
            audit(tx, str(moved.status), SCHEDULER, None, moved, detail)


def _decided(found: Schedule, now: datetime, live: Sequence[Task], jumped: bool) -> Decision:
    """One bad schedule never holds up another: what cannot be decided is paused, and says so."""
    try:
        return schedule.decide(found, now, live, jumped=jumped)
    except Exception as problem:  # whatever is wrong with this record, the others of the tick go on
        note = f"paused because its next time cannot be computed: {problem}"
        return Decision(definition.pause(found, now, SCHEDULER, note))


def _run_ids(decision: Decision) -> list[str]:
    times = [fire.scheduled_at for fire in decision.fires] + [skip.scheduled_at for skip in decision.skips]
    return [run.run_id(decision.schedule, at) for at in times]


async def _templates(tx: Tx, due: Sequence[Schedule]) -> dict[str, Template]:
    ids = {found.target.template_id for found in due if isinstance(found.target, TemplateTarget)}
    return await tx.get_many(Template, ids) if ids else {}


def _template(found: Schedule, templates: Mapping[str, Template]) -> Template | None:
    if not isinstance(found.target, TemplateTarget):
        return None
    template = templates.get(found.target.template_id)
    return template if template is not None and template.tenant == found.tenant else None


def refresh_zones(limit: int) -> Work[tuple[int, list[Schedule]]]:
    """Recompute next times that came from another release of the zone data: (how many were looked at, those that
    moved). What is due already keeps its time; the tick that fires it plans with the new data."""

    async def work(tx: Tx) -> tuple[int, list[Schedule]]:
        current = recurrence.tzdata_version()
        outdated = await tx.find(OutdatedZones(zone_data=current), limit)
        moved = []
        for old in outdated:
            due = old.next_run_at is not None and old.next_run_at <= tx.now
            new = replace(old, zone_data=current) if due else schedule.planned(old, tx.now)
            stored = tx.put(new)
            if new.next_run_at != old.next_run_at:
                moved.append(stored)
        return len(outdated), moved

    return work
