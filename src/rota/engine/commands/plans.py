"""Works on plans: reading what one is made of, and applying it in one transaction, if it still holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from ...domain.errors import Refused
from ...domain.model import Calendar, Event
from ...domain.plan import Action, Item, Plan, Stored, as_applied, naming
from ...stores.base import Tx
from ...stores.queries import CalendarList, Cursor, EventList, ScheduleList, TemplateList
from ..work import as_work
from .schedules import Edit, write_edits
from .serving import check_shell
from .shared import cursor_behind, find_every, find_schedule, limits_of, put_audited, templates_of

MakePlan = Callable[[Stored, datetime], Plan]
"""Pure: what is stored, and the time of the plan."""
AT_ONCE = 10_000
LONGEST = timedelta(days=1)
TOLD = 5
_PLANNED = ("schedule", "template", "calendar")
_ACTIONS = {
    Action.CREATED: "created",
    Action.CHANGED: "updated",
    Action.UNCHANGED: "adopted",
    Action.REMOVED: "paused",
}


@as_work
async def read_stored(tx: Tx, tenant: str, keys: Sequence[str] | None = None) -> tuple[Stored, datetime]:
    """All that a plan may touch, or these schedules and the templates that they run; and the time."""
    return await (_stored(tx, tenant) if keys is None else _named(tx, tenant, keys)), tx.now


async def _named(tx: Tx, tenant: str, keys: Sequence[str]) -> Stored:
    found = [await find_schedule(tx, tenant, key) for key in keys]
    names = {name for each in found for name in (*each.exclude, *each.only)}
    calendars = await tx.find(CalendarList(tenant=tenant), AT_ONCE) if names else []
    return Stored(
        tenant=tenant,
        schedules={each.key: each for each in found},
        templates=await templates_of(tx, found),
        calendars=tuple(each for each in calendars if each.name in names),
    )


@as_work
async def apply_plan(
    tx: Tx,
    tenant: str,
    make: MakePlan,
    actor: str,
    at: datetime,
    token: str | None = None,
    ready: Callable[[int], None] = lambda _: None,
) -> Plan:
    """Do what a plan says, of the time `at`: all of it, or nothing. With the token of one that was made before, only if
    it still says the same; or if nothing is left to do, as after an answer that was lost. `ready` is called with the
    number of schedules that are ready to be written."""
    check_plan_age(at, tx.now)
    stored = await _stored(tx, tenant, lock=True)
    plan = make(stored, at)
    if token is not None and token != plan.token and plan.changes:
        raise Refused("plan_outdated", changed=await _changed_since(tx, tenant, at))
    planned = []
    for each in plan.schedules:
        with naming("schedule", each.name):
            new = as_applied(each, plan.at, tx.now)
        if new is not None and new is not each.old:
            planned.append(Edit(each.old, new, _ACTIONS[each.action], new.pause_note or ""))
    for template in plan.templates:
        had = None if template.old is None else template.old.command
        if template.new is not None and template.new.command != had:
            await check_shell(tx, template.new)
    await write_edits(tx, stored.limits, planned, actor, ready=ready)
    items: tuple[Item[Any], ...] = (*plan.calendars, *plan.templates)
    for item in items:
        if item.new is not None and item.new is not item.old:
            put_audited(tx, _ACTIONS[item.action], actor, item.old, item.new)
    return plan


def check_plan_age(at: datetime, now: datetime) -> None:
    """Refuse a plan that was not made today."""
    if not now - LONGEST <= at <= now + timedelta(seconds=2):
        raise Refused("plan_outdated", changed=f"it was made at {at:%Y-%m-%d %H:%M} UTC, not today")


async def _stored(tx: Tx, tenant: str, *, lock: bool = False) -> Stored:
    """With `lock`, no calendar changes until the commit."""
    limits = await limits_of(tx, tenant)
    calendars = await tx.find(CalendarList(tenant=tenant), AT_ONCE)
    if lock and calendars:
        calendars = list((await tx.get_many(Calendar, [each.id for each in calendars], lock=True)).values())
    schedules = await find_every(tx, ScheduleList(tenant=tenant), AT_ONCE, cursor_behind)
    templates = await find_every(tx, TemplateList(tenant=tenant), AT_ONCE)
    return Stored(
        tenant=tenant,
        schedules={each.key: each for each in schedules},
        templates={each.id: each for each in templates},
        calendars=tuple(sorted(calendars, key=lambda each: each.name)),
        limits=limits,
    )


async def _changed_since(tx: Tx, tenant: str, at: datetime) -> str:
    """Who did what since then, in words."""
    events = await tx.find(EventList(tenant=tenant, after=Cursor(at, "")), AT_ONCE)
    lines = dict.fromkeys(_in_words(each) for each in events if each.subject_type in _PLANNED)
    if not lines:
        return "what it would change is not as it was"
    told = ", ".join(list(lines)[:TOLD])
    return told if len(lines) <= TOLD else f"{told}, and {len(lines) - TOLD:,} more changes"


def _in_words(event: Event) -> str:
    facts = event.after or event.before or {}
    name = facts.get("key") or facts.get("alias") or facts.get("name") or event.subject_id
    return f"{event.subject_type} {name!r} was {event.action} by {event.actor} at {event.at:%H:%M:%S} UTC"
