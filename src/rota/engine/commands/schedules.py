"""Works on schedules and calendars: what people do to them. (What time does to them: `tick.py`.)

A living schedule's key is its own. To take the key of one that has completed is to retire it, which is a delete: its
ledger can still be read.

A schedule keeps a copy of the days and windows of its calendars. A change of a calendar brings the schedules that name
it up to date, in the same transaction. A work that gives a schedule a calendar locks the calendar, so that no schedule
keeps an old copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from ...domain import plan, schedule
from ...domain.checks import check_input, check_key
from ...domain.errors import NotFound, Refused
from ...domain.ids import derived_id
from ...domain.model import (
    Calendar,
    Limits,
    Run,
    RunReason,
    RunTrigger,
    Schedule,
    ScheduleStatus,
    Target,
    Task,
    Template,
    TemplateTarget,
)
from ...domain.recurrence import Covered, Timing
from ...domain.schedule import after, backfill, calendars, definition, run, spread, watching
from ...domain.template import check_runs, known_target, overlaid
from ...stores.base import Tx, Work
from ...stores.queries import RunList, ScheduleByKey, ScheduleList, SchedulesByKeys
from ..work import as_work
from .buffer import Buffers
from .chains import Chains, linked_causes
from .gates import put_new
from .serving import check_shell
from .shared import (
    audit,
    check_room_for_schedules,
    check_room_for_tasks,
    check_version,
    cursor_behind,
    find_calendar,
    find_every,
    find_schedule,
    find_template,
    limits_of,
    put_audited,
    sets_named,
    template_of,
    templates_of,
)

SCHEDULES_AT_ONCE = 10_000
CheckInput = Callable[[str, Any], None]
"""Refuses an input that the handler of a kind cannot take, if it knows the handler."""


@as_work
async def create_schedule(
    tx: Tx,
    id: str,
    tenant: str,
    key: str,
    timing: Timing,
    target: Target,
    fields: Mapping[str, Any],
    actor: str,
    check: CheckInput | None = None,
) -> Schedule:
    """`check` may refuse the input that its template will be run with."""
    limits = await limits_of(tx, tenant)
    again = await tx.get(Schedule, id)
    if again is not None:
        return again
    made = Declared(id=id, key=key, timing=timing, target=target, fields=fields)
    new = await _created(tx, tenant, made, limits, actor)
    await _check_template(tx, None, new, check)
    return await _write_one(tx, limits, Edit(None, new, "created"), actor)


@as_work
async def create_schedules(
    tx: Tx, tenant: str, made: Sequence[Declared], actor: str, check: CheckInput | None = None
) -> list[Schedule]:
    """Create all of them or none. An error names the schedule."""
    limits = await limits_of(tx, tenant)
    again = await tx.get_many(Schedule, [each.id for each in made])
    if again:
        return [again[each.id] for each in made]
    changes = []
    for each in made:
        with plan.naming("schedule", each.key), each.in_words():
            new = await _created(tx, tenant, each, limits, actor)
            await _check_template(tx, None, new, check)
        changes.append(Edit(None, new, "created"))
    return await _write(tx, limits, changes, actor)


@as_work
async def plan_new_schedule(
    tx: Tx,
    tenant: str,
    key: str,
    timing: Timing,
    target: Target,
    fields: Mapping[str, Any],
    actor: str,
    check: CheckInput | None = None,
) -> plan.Plan:
    """The plan of what `create_schedule` would do. Only read: nothing is written."""
    made = Declared(id=derived_id("plan", key), key=key, timing=timing, target=target, fields=fields)
    new = await _created(tx, tenant, made, await limits_of(tx, tenant), actor)
    await _check_template(tx, None, new, check)
    item = plan.Item(name=key, action=plan.Action.CREATED, old=None, new=new)
    return plan.Plan(tenant=tenant, at=tx.now, schedules=(item,))


async def _created(tx: Tx, tenant: str, made: Declared, limits: Limits, actor: str) -> Schedule:
    return definition.create(
        made.id,
        made.key,
        made.timing,
        await _known_target(tx, tenant, made.target),
        made.fields,
        tenant=tenant,
        now=tx.now,
        actor=actor,
        limits=limits,
        calendars=await _known_calendars(tx, tenant, made.fields),
    )


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that a program wants: its key, how to create it under a given id, and how to change the stored one, as
    in `edit_schedule`."""

    id: str
    key: str
    timing: Timing
    target: Target
    fields: Mapping[str, Any]
    changes: Callable[[Schedule, datetime], Mapping[str, Any]] = lambda old, now: {}
    in_words: Callable[[], AbstractContextManager[None]] = nullcontext


@as_work
async def declare_schedules(tx: Tx, tenant: str, declared: Sequence[Declared], actor: str) -> list[Schedule]:
    """Create those that are not there, and bring the others up to date: all of them or none. An error names the
    schedule."""
    limits = await limits_of(tx, tenant)
    changes = []
    for each in declared:
        with plan.naming("schedule", each.key), each.in_words():
            changes.append(await _declared(tx, tenant, each, actor, limits))
    return await _write(tx, limits, changes, actor)


async def _declared(tx: Tx, tenant: str, each: Declared, actor: str, limits: Limits) -> Edit:
    found = await tx.find(ScheduleByKey(tenant=tenant, key=each.key), 1)
    if found:
        [old] = found
        changes = await _known_changes(tx, old, each.changes(old, tx.now))
        differing = {name: value for name, value in changes.items() if getattr(old, name) != value}
        return Edit(old, definition.edit(old, differing, tx.now, actor, limits), "updated")
    return Edit(None, await _created(tx, tenant, each, limits, actor), "created")


class Edit(msgspec.Struct, frozen=True):
    """A schedule as it is (None: it is new) and as it will be."""

    old: Schedule | None
    new: Schedule
    action: str
    detail: str = ""

    @property
    def takes_key(self) -> bool:
        old, new = self.old, self.new
        had_it = old is not None and old.deleted_at is None and old.key == new.key
        return new.deleted_at is None and not had_it


async def _write(tx: Tx, limits: Limits | None, changes: Sequence[Edit], actor: str) -> list[Schedule]:
    """Write the changes, and retire the completed schedules whose keys they take."""
    return await write_edits(tx, limits, changes, actor, retired=await _retired(tx, changes, actor))


async def _write_one(tx: Tx, limits: Limits | None, change: Edit, actor: str) -> Schedule:
    [written] = await _write(tx, limits, [change], actor)
    return written


async def write_edits(
    tx: Tx,
    limits: Limits | None,
    changes: Sequence[Edit],
    actor: str,
    *,
    retired: Sequence[Edit] = (),
    ready: Callable[[int], None] = lambda _: None,
) -> list[Schedule]:
    """Read what is left to read, then write: the schedules, the times given up, those that are retired, and a line of
    the audit for each. Times that wait go on if the schedule was only at rest. Without `limits` nothing becomes active
    that was not. `ready` is called with the number of schedules that are ready."""
    moving = [each for each in changes if each.new is not each.old]
    chains = await Chains.of(tx, [(each.old, each.new) for each in (*moving, *retired)])
    moving = [replace(each, new=chains.written[each.new.id]) for each in moving]
    if limits is not None and moving:
        wanted = sum(each.new.is_open and not (each.old is not None and each.old.is_open) for each in moving)
        await check_room_for_schedules(tx, moving[0].new.tenant, limits, wanted)
    rows = await given_up(tx, [(each.old, each.new) for each in moving if each.old is not None])
    causes = await linked_causes(tx, [each.old for each in moving if each.old is not None])
    changed = [(each.old, each.new) for each in (*moving, *retired) if each.old is not None]
    buffers = await Buffers.of(tx, [new if new.buffered else old for old, new in changed])
    dropped = [buffers.dropped(old, RunReason.CHANGED, tx.now) for old, new in changed if not new.buffered]
    moves = {each.new.id: buffers.moved_on(each.new, tx.now) for each in moving}
    await put_new(tx, {task.id: task for move in moves.values() for task in move.starts})
    marked = chains.marked
    for move in (*moves.values(), *dropped):
        marked |= {task.id: task for task in move.marked}
        for row in move.rows:
            tx.put(row)
    for task in marked.values():
        tx.put(task)
    for each in retired:
        put_audited(tx, each.action, actor, each.old, each.new, each.detail)
    for linked in chains.written.keys() - moves.keys() - {each.new.id for each in retired}:
        tx.put(chains.written[linked])
    written = []
    for each in changes:
        if each.new is each.old:
            written.append(each.new)
            continue
        new = backfill.awake(moves[each.new.id].schedule, tx.now)
        written.append(put_audited(tx, each.action, actor, each.old, new, each.detail))
        ready(len(written))
    for row in (*rows, *after.with_effects(causes.values(), rows)):
        tx.put(row)
    return written


async def _retired(tx: Tx, changes: Sequence[Edit], actor: str) -> list[Edit]:
    """The completed schedules whose keys are taken, deleted. The key of any other is refused."""
    takers = {each.new.key: each.new for each in changes if each.takes_key}
    if not takers:
        return []
    tenant = changes[0].new.tenant
    retired = []
    for holder in await tx.find(SchedulesByKeys(tenant=tenant, keys=tuple(takers)), len(takers)):
        if holder.status is not ScheduleStatus.COMPLETED:
            raise Refused("key_taken", key=holder.key)
        gone = definition.delete(holder, tx.now, actor)
        retired.append(
            Edit(holder, gone, "deleted", f"its key was taken by schedule {takers[holder.key].id}")
        )
    return retired


async def _known_target(tx: Tx, tenant: str, target: Target, old: Target | None = None) -> Target:
    """With the id of the template that it names by id or alias, if it names one."""
    if not isinstance(target, TemplateTarget):
        return target
    name = check_key(target.template_id, "template_id")
    try:
        found = await find_template(tx, tenant, name)
    except NotFound:
        return known_target(None, replace(target, template_id=name), old)
    return known_target(found, target, old)


async def _check_template(
    tx: Tx, old: Schedule | None, new: Schedule, check: CheckInput | None = None
) -> None:
    """As for a template that is executed. Who declares schedules may be the worker that is about to run them, so there
    nothing is checked."""
    if isinstance(new.target, TemplateTarget) and (old is None or old.target != new.target):
        template = await find_template(tx, new.tenant, new.target.template_id)
        await check_shell(tx, template)
        if check is not None:
            check(template.kind, overlaid(template, new.target.input))


async def _known_changes(tx: Tx, old: Schedule, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    known = dict(changes)
    if "target" in changes:
        known["target"] = await _known_target(tx, old.tenant, changes["target"], old.target)
    if "exclude" in changes or "only" in changes:
        known["calendars"] = await _known_calendars(tx, old.tenant, changes, old)
    return known


async def _known_calendars(
    tx: Tx, tenant: str, fields: Mapping[str, Any], old: Schedule | None = None
) -> tuple[Covered, ...]:
    """The sets that the schedule will name as calendars, with what they cover; refused if one of them is new to it and
    not there."""
    known = await sets_named(tx, tenant, calendars.names_in(fields, old))
    return calendars.known_sets(fields, known, old)


@as_work
async def edit_schedule(
    tx: Tx,
    tenant: str,
    key: str,
    changes: Callable[[Schedule, datetime], Mapping[str, Any]],
    actor: str,
    version: int | None = None,
    check: CheckInput | None = None,
) -> Schedule:
    """Change some fields. `changes` is a pure function: it is given the stored schedule and answers with the new
    values. With `version`, the change is made only if the schedule still has that version."""
    limits = await limits_of(tx, tenant)
    old = await find_schedule(tx, tenant, key)
    check_version("schedule", key, old.version, version)
    wanted = await _known_changes(tx, old, changes(old, tx.now))
    new = definition.edit(old, wanted, tx.now, actor, limits)
    await _check_template(tx, old, new, check)
    return await _write_one(tx, limits, Edit(old, new, "updated"), actor)


@as_work
async def spread_schedules(
    tx: Tx, moves: Sequence[spread.Moved], at: datetime, over: timedelta, actor: str
) -> int:
    """Give these their offsets, if they still fire in the minute `at`; and say how many have them."""
    offsets = {each.id: each.offset for each in moves}
    found = (await tx.get_many(Schedule, list(offsets))).values()
    there = sum(each.offset == offsets[each.id] for each in found)
    moving = [each for each in found if each.offset != offsets[each.id] and spread.can_move(each, at, over)]
    if moving:
        limits = await limits_of(tx, moving[0].tenant)
        edited = [
            definition.edit(each, {"offset": offsets[each.id]}, tx.now, actor, limits) for each in moving
        ]
        changes = [Edit(old, new, "updated", "spread") for old, new in zip(moving, edited, strict=True)]
        await _write(tx, limits, changes, actor)
    return there + len(moving)


@as_work
async def plan_edit(
    tx: Tx, tenant: str, key: str, changes: Callable[[Schedule, datetime], Mapping[str, Any]], actor: str
) -> plan.Plan:
    """The plan of what `edit_schedule` would do. Only read: nothing is written."""
    limits = await limits_of(tx, tenant)
    old = await find_schedule(tx, tenant, key)
    wanted = await _known_changes(tx, old, changes(old, tx.now))
    stored = plan.Stored(tenant=tenant, schedules={old.key: old}, limits=limits)
    return plan.make_edits({old.key: wanted}, stored, tx.now, actor)


@as_work
async def pause_schedule(
    tx: Tx, tenant: str, key: str, actor: str, note: str | None, until: datetime | None = None
) -> Schedule:
    old = await find_schedule(tx, tenant, key)
    new = definition.pause(old, tx.now, actor, note, until)
    return await _write_one(tx, None, Edit(old, new, "paused", note or ""), actor)


@as_work
async def resume_schedule(tx: Tx, tenant: str, key: str, actor: str) -> Schedule:
    await limits_of(tx, tenant)
    old = await find_schedule(tx, tenant, key)
    return await _write_one(tx, None, Edit(old, definition.resume(old, tx.now, actor), "resumed"), actor)


@as_work
async def delete_schedule(tx: Tx, tenant: str, key: str, actor: str) -> Schedule:
    old = await find_schedule(tx, tenant, key)
    return await _write_one(tx, None, Edit(old, definition.delete(old, tx.now, actor), "deleted"), actor)


@as_work
async def restore_schedule(tx: Tx, tenant: str, key: str, actor: str) -> Schedule:
    limits = await limits_of(tx, tenant)
    try:
        old = await find_schedule(tx, tenant, key, deleted=True)
    except NotFound:
        old = await find_schedule(tx, tenant, key)
    new = definition.restore(old, tx.now, actor)
    if isinstance(new.target, TemplateTarget) and await tx.get(Template, new.target.template_id) is None:
        raise Refused("template_deleted", schedule=new.key, template=new.target.template_id)
    return await _write_one(tx, limits, Edit(old, new, "restored"), actor)


@as_work
async def purge_schedule(tx: Tx, schedule_id: str, actor: str, limit: int) -> int:
    """Remove a deleted schedule and its ledger for good, `limit` rows at a time; how many rows went. It is gone when
    they are fewer."""
    gone = await tx.get(Schedule, schedule_id)
    if gone is None:
        return 0
    rows = await tx.find(RunList(schedule_id=schedule_id), limit)
    for row in rows:
        tx.delete(row)
    if len(rows) < limit:
        tx.delete(gone)
        audit(tx, "purged", actor, gone, None)
    return len(rows)


async def given_up(tx: Tx, changes: Sequence[tuple[Schedule, Schedule]]) -> list[Run]:
    """A row for the ledger for every time that was due under the old plans and will not be fired under the new ones."""
    rows = [
        run.skipped(old, skip, tx.now)
        for old, new in changes
        if (new.next_run_at, new.excluded_from) != (old.next_run_at, old.excluded_from)
        for skip in schedule.given_up(old, tx.now)
    ]
    known = await tx.get_many(Run, [row.id for row in rows])
    return [row for row in rows if row.id not in known]


@as_work
async def trigger_schedule(
    tx: Tx,
    run_id: str,
    tenant: str,
    key: str,
    actor: str,
    input: Any = msgspec.UNSET,
    *,
    check: Callable[[str, Any], None] = lambda *_: None,
) -> tuple[Run, Task]:
    """Run it now, beside its times: neither the next time nor the count moves. `check` may refuse the task's input."""
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
    if template is not None:
        check_runs(template)
    if started is None:
        raise Refused("bad_target", schedule=key, problem=row.error)
    check(started.kind, started.input)
    new = await put_new(tx, {started.id: started})
    audit(tx, "triggered", actor, found, found, f"task {started.id}", act=row.id)
    if (looked_at := watching.started(found, tx.now)) is not found:
        tx.put(looked_at)
    return tx.put(row), new[started.id].as_of(tx.now)


@as_work
async def create_calendar(tx: Tx, tenant: str, name: str, fields: Mapping[str, Any], actor: str) -> Calendar:
    await limits_of(tx, tenant)
    new = calendars.create(name, fields, tenant=tenant, now=tx.now, actor=actor)
    old = await tx.get(Calendar, new.id)
    if old is not None and calendars.edit(old, fields, tx.now, actor) is old:
        return old  # the same again, or an answer was lost
    if old is not None:
        raise Refused("calendar_exists", calendar=name)
    return put_audited(tx, "created", actor, None, new)


@as_work
async def edit_calendar(
    tx: Tx, tenant: str, name: str, changes: Mapping[str, Any], actor: str, version: int | None = None
) -> Calendar:
    """Change the fields that are named, and plan the schedules that name it anew. With `version`, only if nobody else
    changed it since."""
    await limits_of(tx, tenant)
    old = await find_calendar(tx, tenant, name)
    check_version("calendar", name, old.version, version)
    new = calendars.edit(old, changes, tx.now, actor)
    if new is old:
        return old
    await _govern(tx, new, actor)
    return put_audited(tx, "updated", actor, old, new)


async def _govern(tx: Tx, calendar: Calendar, actor: str) -> None:
    """Plan the schedules that name this calendar by its present days and windows. What was due and is not fired is
    recorded, as after any change."""
    mine = await _naming(tx, calendar, deleted=True)
    known = await sets_named(
        tx, calendar.tenant, [name for each in mine for name in (*each.exclude, *each.only)]
    )
    others = [each for each in known if each.name != calendar.name]
    covers = (*others, calendar.covers)
    said = f"calendar {calendar.name} was changed"
    edits = [
        Edit(old, definition.governed(old, calendars.covering(old, covers), tx.now), "replanned", said)
        for old in mine
    ]
    await write_edits(tx, None, edits, actor)


async def _naming(tx: Tx, calendar: Calendar, *, deleted: bool = False) -> list[Schedule]:
    every = ScheduleList(tenant=calendar.tenant, deleted=deleted)
    schedules = await find_every(tx, every, SCHEDULES_AT_ONCE, cursor_behind)
    return [each for each in schedules if calendar.name in (*each.exclude, *each.only)]


def delete_calendar(tenant: str, name: str, actor: str) -> Work[None]:
    """Remove it; refused while a schedule names it."""
    was_there = False

    async def work(tx: Tx) -> None:
        nonlocal was_there
        if was_there and await tx.get(Calendar, calendars.calendar_id(tenant, name)) is None:
            return  # an answer was lost
        old = await find_calendar(tx, tenant, name)
        was_there = True
        for each in await _naming(tx, old):
            if each.status is not ScheduleStatus.COMPLETED:
                raise Refused("calendar_in_use", calendar=name, schedule=each.key)
        tx.delete(old)
        audit(tx, "deleted", actor, old, None)

    return work
