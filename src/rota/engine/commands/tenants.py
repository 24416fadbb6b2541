"""Works on tenants. One that is used without a record gets its record with the first change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...domain import tenants
from ...domain.errors import NotFound, Refused
from ...domain.model import Tenant
from ...stores.base import Tx, Work
from ...stores.queries import ApiKeyList, ScheduleList, TaskList, TemplateList
from .shared import audit

__all__ = ["create_tenant", "find_tenant", "resume_tenant", "set_limits", "suspend_tenant"]

DEFAULT_TENANT = "default"


def create_tenant(name: str, limits: Mapping[str, Any], actor: str) -> Work[Tenant]:
    """Create it. If it is there already, and just so, that is as good."""

    async def work(tx: Tx) -> Tenant:
        new = tenants.make(name, limits, tx.now)
        old = await tx.get(Tenant, new.id)
        if old is not None:
            if (old.limits, old.status) != (new.limits, new.status):
                raise Refused("tenant_exists", tenant=new.id)
            return old
        created = tx.put(new)
        audit(tx, "created", actor, None, created)
        return created

    return work


def set_limits(name: str, changes: Mapping[str, Any], actor: str) -> Work[Tenant]:
    """Change the limits that are named. What is there already stays, even if it is more than it may be now."""
    return _change(name, actor, "limited", lambda tenant: tenants.with_limits(tenant, changes))


def suspend_tenant(name: str, actor: str, note: str = "") -> Work[Tenant]:
    return _change(name, actor, "suspended", tenants.suspend, note)


def resume_tenant(name: str, actor: str) -> Work[Tenant]:
    return _change(name, actor, "resumed", tenants.resume)


def _change(
    name: str, actor: str, action: str, rule: Callable[[Tenant], Tenant], detail: str = ""
) -> Work[Tenant]:
    async def work(tx: Tx) -> Tenant:
        old = await find_tenant(tx, name)
        new = rule(old)
        if new is old:
            return old
        changed = tx.put(new)
        audit(tx, action, actor, None if old.version == 0 else old, changed, detail)
        return changed

    return work


async def find_tenant(tx: Tx, name: str) -> Tenant:
    """Its record, or what stands for one: a tenant that anything belongs to is there, and so is the default one."""
    record = await tx.get(Tenant, name)
    if record is not None:
        return record
    if name != DEFAULT_TENANT and not await _is_used(tx, name):
        raise NotFound("tenant", name)
    return Tenant(id=name, tenant=name, created_at=tx.now)


async def _is_used(tx: Tx, name: str) -> bool:
    return bool(
        await tx.find(ScheduleList(tenant=name, deleted=True), 1)
        or await tx.find(TaskList(tenant=name, at=tx.now), 1)
        or await tx.find(TemplateList(tenant=name), 1)
        or (name != tenants.EVERY_TENANT and await tx.find(ApiKeyList(tenant=name), 1))
    )
