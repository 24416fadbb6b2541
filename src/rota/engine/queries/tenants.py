"""Questions about a tenant: its templates, calendars, keys, audit, alarms and limits; and about all tenants."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...domain.errors import NotFound
from ...domain.model import (
    Alarm,
    AlarmRules,
    Calendar,
    Limit,
    Limits,
    Template,
    Tenant,
)
from ...stores.base import Tx
from ...stores.queries import (
    AlarmList,
    Cursor,
    ScheduleList,
    TemplateList,
    TenantList,
)
from ..commands.shared import find_any_schedule, find_calendar, find_every, find_template
from ..commands.tenants import find_tenant
from ..work import as_work, tally_open

one_template, one_tenant = as_work(find_template), as_work(find_tenant)


@as_work
async def template_named(tx: Tx, tenant: str, name: str) -> str:
    """The id of the template that is called so, by id or alias; the name itself if there is none."""
    try:
        return (await find_template(tx, tenant, name)).id
    except NotFound:
        return name


_LAST = "\U0010ffff"
"""Behind every text that begins as what stands before it."""


class TenantUse(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, and how much there is of it now: living schedules, tasks that are pending or running. One that has
    no record of its own (`version` 0) is shown with the default limits."""

    tenant: Tenant
    schedules: int
    open_tasks: int


@as_work
async def templates_by_beginning(tx: Tx, tenant: str, beginning: str, limit: int) -> list[Template]:
    """The templates whose ids begin so; none, if this is the name or the id of one."""
    try:
        await find_template(tx, tenant, beginning)
    except NotFound:
        found = await tx.find(TemplateList(tenant=tenant, after=beginning + _LAST), limit)
        return [each for each in found if each.id.startswith(beginning)]
    return []


@as_work
async def tenants_in_use(tx: Tx) -> list[TenantUse]:
    """Every tenant that has a record, a living schedule or an open task; by name."""
    known = {tenant.id: tenant for tenant in await find_every(tx, TenantList())}
    schedules = await tx.tally(ScheduleList(tenant=None), "tenant")
    tasks = await tally_open(tx, "tenant")
    names = known.keys() | {name for (name,) in (*schedules, *tasks)}
    return [
        TenantUse(
            tenant=known.get(name) or Tenant(id=name, tenant=name, created_at=tx.now),
            schedules=schedules.get((name,), 0),
            open_tasks=tasks.get((name,), 0),
        )
        for name in sorted(names)
    ]


@as_work
async def alarm_page(
    tx: Tx,
    tenant: str,
    limit: int,
    schedule: str | None = None,
    *,
    is_open: bool = True,
    after: Cursor | None = None,
) -> list[Alarm]:
    """Alarms, newest first; of a schedule, by its key or id, deleted or not."""
    subject = None if schedule is None else (await find_any_schedule(tx, tenant, schedule)).id
    return await tx.find(AlarmList(tenant=tenant, subject_id=subject, is_open=is_open, after=after), limit)


@as_work
async def alarm_rules(tx: Tx, tenant: str) -> dict[str, AlarmRules]:
    record = await tx.get(Tenant, tenant)
    return {} if record is None else dict(record.alarm_rules)


@as_work
async def task_limits(tx: Tx, tenant: str, *, declared: bool | None = None) -> dict[str, Limit]:
    """The limits of its tasks, by what they limit; only those that handlers have, or only the others."""
    record = await tx.get(Tenant, tenant)
    limits = Limits() if record is None else record.limits
    return {
        subject: limit
        for subject, limit in limits.tasks.items()
        if declared is None or (subject in limits.declared) is declared
    }


@as_work
async def has_limits_to_set(tx: Tx, tenant: str, declared: Mapping[str, Limit | None]) -> bool:
    """Whether a worker with these handlers has to write: most do not, and start also while others hold a lock."""
    record = await tx.get(Tenant, tenant) or Tenant(id=tenant, tenant=tenant, created_at=tx.now)
    known = record.limits.declared
    return bool(record.unplanned) or any(limit or subject in known for subject, limit in declared.items())


@as_work
async def unplanned_limits(tx: Tx) -> dict[str, dict[str, int]]:
    """The limits under which tasks have not been planned to the end, by tenant; of most tenants, none."""
    tenants = await find_every(tx, TenantList())
    return {tenant.id: tenant.unplanned for tenant in tenants if tenant.unplanned}


@as_work
async def one_calendar(tx: Tx, tenant: str, name: str) -> Calendar:
    return await find_calendar(tx, tenant, name, lock=False)
