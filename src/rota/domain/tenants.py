"""Tenants: their names, their limits, and what a suspended one may not do. Pure.

A tenant needs no record to be used; without one it has the default limits. While it is suspended nothing new begins:
no submission, trigger, replay, edit, resume or restore, and what its schedules would have fired is skipped
(suspended). What stops things stays possible (cancel, pause, delete), and tasks that were submitted before still run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from .checks import check_key, shown
from .errors import Invalid, Refused
from .model import Limits, Tenant, TenantStatus
from .options import LimitOptions, check_option, options_of

EVERY_TENANT = "*"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_NAME_RULE = "accepted are 1 to 63 letters, digits and _ . -, beginning with a letter, a digit or _"
_LIMITS = options_of(LimitOptions)
_ADVICE = {
    "schedules": "delete some, or raise the limit",
    "pending tasks": "wait until some have run, or raise the limit",
}


def check_name(value: object, field: str = "tenant") -> str:
    """The name of a new tenant: safe in a URL, as it stands."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise Invalid(field, f"{shown(value)} is not a valid name for a tenant", _NAME_RULE)
    return str.__str__(value)


def check_tenant(value: object, field: str = "tenant") -> str:
    """The name of a tenant that is used: any that could ever be given, but not `*`, which stands for all."""
    name = check_key(value, field)
    if name == EVERY_TENANT:
        raise Invalid(field, f"{EVERY_TENANT!r} stands for every tenant", "give the name of one")
    return name


def check_limits(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Limits by name, in stored form. `pending_tasks` may be None: no limit."""
    for name in changes:
        if name not in _LIMITS:
            raise Invalid(name, "there is no such limit", f"accepted are {', '.join(_LIMITS)}")
    return {name: check_option(name, _LIMITS[name], value) for name, value in changes.items()}


def make(name: str, changes: Mapping[str, Any], now: datetime) -> Tenant:
    """A new tenant."""
    name = check_name(name, "name")
    return Tenant(id=name, tenant=name, limits=replace(Limits(), **check_limits(changes)), created_at=now)


def with_limits(tenant: Tenant, changes: Mapping[str, Any]) -> Tenant:
    """Only what is named changes."""
    limits = replace(tenant.limits, **check_limits(changes))
    return tenant if limits == tenant.limits else replace(tenant, limits=limits)


def suspend(tenant: Tenant) -> Tenant:
    return _with_status(tenant, TenantStatus.SUSPENDED)


def resume(tenant: Tenant) -> Tenant:
    return _with_status(tenant, TenantStatus.ACTIVE)


def limits_of(tenant: Tenant) -> Limits:
    """The limits of a tenant that may act; a suspended one is refused."""
    if tenant.status is TenantStatus.SUSPENDED:
        raise Refused("tenant_suspended", tenant=tenant.id)
    return tenant.limits


def limit_reached(tenant: str, what: str, limit: int, wanted: int = 1) -> Refused:
    """`what` is "schedules" or "pending tasks"."""
    has = "has that many" if wanted == 1 else f"has no room for {wanted:,} more"
    noun = what.removesuffix("s") if limit == 1 else what
    return Refused("limit_reached", tenant=tenant, what=noun, limit=limit, has=has, advice=_ADVICE[what])


def as_facts(tenant: Tenant) -> dict[str, Any]:
    """A tenant as the audit shows it."""
    return {
        "id": tenant.id,
        "version": tenant.version,
        "status": str(tenant.status),
        "limits": {name: msgspec.to_builtins(getattr(tenant.limits, name)) for name in _LIMITS},
        "created_at": msgspec.to_builtins(tenant.created_at),
    }


def _with_status(tenant: Tenant, status: TenantStatus) -> Tenant:
    return tenant if tenant.status is status else replace(tenant, status=status)
