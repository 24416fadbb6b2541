"""Questions about a tenant: its templates, calendars, keys, audit, alarms and limits; and about all tenants."""

from __future__ import annotations

import msgspec

from ...domain.errors import NotFound
from ...domain.model import (
    Alarm,
    AlarmRules,
    ApiKey,
    Calendar,
    Event,
    Limit,
    Template,
    Tenant,
)
from ...stores.base import Tx, Work
from ...stores.queries import (
    AlarmList,
    ApiKeyList,
    CalendarList,
    Cursor,
    EventList,
    GateList,
    OpenTasks,
    ScheduleList,
    TemplateList,
    TenantList,
)
from ..commands.shared import find_any_schedule, find_calendar, find_template
from ..commands.tenants import find_tenant

__all__ = [
    "TenantUse",
    "alarm_page",
    "alarm_rules",
    "all_calendars",
    "are_gates_under",
    "event_page",
    "key_page",
    "one_calendar",
    "one_template",
    "one_tenant",
    "task_limits",
    "template_named",
    "template_page",
    "tenants_in_use",
]

CALENDARS_AT_MOST = 10_000
GATES_AT_ONCE = 1000


def template_named(tenant: str, name: str) -> Work[str]:
    """The id of the template that is called so, by id or alias; the name itself if there is none."""

    async def work(tx: Tx) -> str:
        try:
            return (await find_template(tx, tenant, name)).id
        except NotFound:
            return name

    return work


TENANTS_AT_ONCE = 1000


class TenantUse(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, and how much there is of it now: living schedules, tasks that are pending or running. One that has
    no record of its own (`version` 0) is shown with the default limits."""

    tenant: Tenant
    schedules: int
    open_tasks: int


def one_template(tenant: str, id: str) -> Work[Template]:
    async def work(tx: Tx) -> Template:
        return await find_template(tx, tenant, id)

    return work


def template_page(tenant: str, limit: int, after: str | None = None) -> Work[list[Template]]:
    """The newest first; `after` is the id of the last one seen."""

    async def work(tx: Tx) -> list[Template]:
        return await tx.find(TemplateList(tenant=tenant, after=after), limit)

    return work


def key_page(tenant: str | None, limit: int, after: str | None = None) -> Work[list[ApiKey]]:
    """The newest first, revoked ones too; of the tenant (None: of any, and those to every tenant)."""

    async def work(tx: Tx) -> list[ApiKey]:
        return await tx.find(ApiKeyList(tenant=tenant, after=after), limit)

    return work


def one_tenant(name: str) -> Work[Tenant]:
    """Its record, or what stands for one that is only used."""

    async def work(tx: Tx) -> Tenant:
        return await find_tenant(tx, name)

    return work


def tenants_in_use() -> Work[list[TenantUse]]:
    """Every tenant that has a record, a living schedule or an open task; by name."""

    async def work(tx: Tx) -> list[TenantUse]:
        known = {tenant.id: tenant for tenant in await _every_tenant(tx)}
        schedules = await tx.tally(ScheduleList(tenant=None), "tenant")
        tasks = await tx.tally(OpenTasks(), "tenant")
        names = known.keys() | {name for (name,) in (*schedules, *tasks)}
        return [
            TenantUse(
                tenant=known.get(name) or Tenant(id=name, tenant=name, created_at=tx.now),
                schedules=schedules.get((name,), 0),
                open_tasks=tasks.get((name,), 0),
            )
            for name in sorted(names)
        ]

    return work


async def _every_tenant(tx: Tx) -> list[Tenant]:
    found: list[Tenant] = []
    while True:
        after = found[-1].id if found else None
        page = await tx.find(TenantList(after=after), TENANTS_AT_ONCE)
        found += page
        if len(page) < TENANTS_AT_ONCE:
            return found


def event_page(
    tenant: str, limit: int, subject_id: str | None = None, after: Cursor | None = None
) -> Work[list[Event]]:
    """What people did, oldest first."""

    async def work(tx: Tx) -> list[Event]:
        return await tx.find(EventList(tenant=tenant, subject_id=subject_id, after=after), limit)

    return work


def alarm_page(
    tenant: str, limit: int, schedule: str | None = None, *, is_open: bool = True, after: Cursor | None = None
) -> Work[list[Alarm]]:
    """Alarms, newest first; of a schedule, by its key or id, deleted or not."""

    async def work(tx: Tx) -> list[Alarm]:
        subject = None if schedule is None else (await find_any_schedule(tx, tenant, schedule)).id
        return await tx.find(
            AlarmList(tenant=tenant, subject_id=subject, is_open=is_open, after=after), limit
        )

    return work


def alarm_rules(tenant: str) -> Work[dict[str, AlarmRules]]:
    async def work(tx: Tx) -> dict[str, AlarmRules]:
        record = await tx.get(Tenant, tenant)
        return {} if record is None else dict(record.alarm_rules)

    return work


def task_limits(tenant: str) -> Work[dict[str, Limit]]:
    """The limits of its tasks, by what they limit."""

    async def work(tx: Tx) -> dict[str, Limit]:
        record = await tx.get(Tenant, tenant)
        return {} if record is None else record.limits.tasks

    return work


def are_gates_under(tenant: str, subject: str, limit: Limit) -> Work[bool]:
    """Whether every gate of the subject has this limit."""

    async def work(tx: Tx) -> bool:
        after = None
        while page := await tx.find(GateList(tenant=tenant, subject=subject, after=after), GATES_AT_ONCE):
            if any(found.limit != limit for found in page):
                return False
            after = page[-1].id
        return True

    return work


def one_calendar(tenant: str, name: str) -> Work[Calendar]:
    async def work(tx: Tx) -> Calendar:
        return await find_calendar(tx, tenant, name, lock=False)

    return work


def all_calendars(tenant: str) -> Work[list[Calendar]]:
    """By name."""

    async def work(tx: Tx) -> list[Calendar]:
        return await tx.find(CalendarList(tenant=tenant), CALENDARS_AT_MOST)

    return work
