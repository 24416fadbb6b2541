"""Works on tenants and their API keys.

A tenant that is used without a record gets its record with the first change. The secret of a key is made before the
work, as ids are; it is never stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from ...domain import keys, tenants
from ...domain.errors import NotFound, Refused
from ...domain.model import ApiKey, Tenant
from ...stores.base import Tx, Work
from ...stores.queries import ApiKeyList, ScheduleList, TaskList, TemplateList
from ..work import as_work
from .shared import find_every, put_audited

DEFAULT_TENANT = "default"


@as_work
async def create_tenant(tx: Tx, name: str, limits: Mapping[str, Any], actor: str) -> Tenant:
    """Create it. If it is there already, and just so, that is as good."""
    new = tenants.make(name, limits, tx.now)
    old = await tx.get(Tenant, new.id)
    if old is not None:
        if (old.limits, old.status) != (new.limits, new.status):
            raise Refused("tenant_exists", tenant=new.id)
        return old
    return put_audited(tx, "created", actor, None, new)


def set_limits(name: str, changes: Mapping[str, Any], actor: str) -> Work[Tenant]:
    """Change the limits that are named. What is there already stays, even if it is more than it may be now."""
    return _change(name, actor, "limited", lambda tenant: tenants.with_limits(tenant, changes))


def suspend_tenant(name: str, actor: str, note: str = "") -> Work[Tenant]:
    return _change(name, actor, "suspended", tenants.suspend, note)


def resume_tenant(name: str, actor: str) -> Work[Tenant]:
    return _change(name, actor, "resumed", tenants.resume)


@as_work
async def _change(
    tx: Tx, name: str, actor: str, action: str, rule: Callable[[Tenant], Tenant], detail: str = ""
) -> Tenant:
    old = await find_tenant(tx, name)
    new = rule(old)
    if new is old:
        return old
    return put_audited(tx, action, actor, None if old.version == 0 else old, new, detail)


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


CANDIDATES = 5


def new_secret() -> str:
    """32 random bytes, url-safe."""
    return secrets.token_urlsafe(32)


@as_work
async def create_key(tx: Tx, id: str, secret: str, tenant: str, name: str, role: str, actor: str) -> ApiKey:
    """Store a key; `tenant` is `*` for one to every tenant."""
    again = await tx.get(ApiKey, id)
    if again is not None:
        return again
    made = keys.make(id, secret, tenant=tenant, name=name, role=role, now=tx.now, actor=actor)
    return put_audited(tx, "created", actor, None, made, made.name)


@as_work
async def revoke_key(tx: Tx, tenant: str | None, id: str, actor: str) -> ApiKey:
    """End a key of the tenant (None: of any), given by its id, or by its name if only one that is good has it.
    Revoking what is revoked changes nothing."""
    old = await tx.get(ApiKey, id)
    if old is None or (tenant is not None and old.tenant != tenant):
        old = await _by_name(tx, tenant, id)
    new = keys.revoke(old, tx.now, actor)
    if new is old:
        return old
    return put_audited(tx, "revoked", actor, old, new, new.name)


@as_work
async def sign_out(tx: Tx, session: keys.SignIn) -> None:
    """End a session of a key, on every server. One that is over stays so."""
    key = await tx.get(ApiKey, session.key_id)
    new = None if key is None else keys.sign_out(key, session, tx.now)
    if new is not None and new is not key:
        tx.put(new)


async def _by_name(tx: Tx, tenant: str | None, name: str) -> ApiKey:
    """The key with this name, or with an id that begins so."""
    keys = await find_every(tx, ApiKeyList(tenant=tenant))
    found = [key for key in keys if key.name == name] or [key for key in keys if key.id.startswith(name)]
    good = [key for key in found if key.revoked_at is None]
    if len(good) > 1:
        candidates = ", ".join(f"{key.id} ({key.name}, {key.role})" for key in good[:CANDIDATES])
        raise Refused("key_ambiguous", count=len(good), name=name, candidates=candidates)
    if not found:
        raise NotFound("key", name)
    return (good or found)[0]
