"""Questions about tenants, their keys and templates, and what was done to them; each a work for `store.read`."""

from __future__ import annotations

import msgspec

from ..domain.model import ApiKey, Event, Template, Tenant
from ..stores.base import Tx, Work
from ..stores.queries import ApiKeyList, Cursor, EventList, OpenTasks, ScheduleList, TemplateList, TenantList
from .commands.shared import find_template
from .commands.tenants import find_tenant

__all__ = [
    "TenantUse",
    "event_page",
    "key_page",
    "one_template",
    "one_tenant",
    "template_page",
    "tenants_in_use",
]

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
