"""Tenants, keys, and the record of what people did."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from .alarm import AlarmRules
from .gate import Limit
from .shared import Record, Value


class TenantStatus(StrEnum):
    ACTIVE = "active"
    SUSPENDED = "suspended"


class Role(StrEnum):
    """The rights of a key: to look; run, pause, trigger and submit; or everything."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Limits(Value, frozen=True, kw_only=True):
    """The limits of one tenant. `pending_tasks`: None is no limit; to count costs time on every submission. `tasks` has
    the limits of its tasks by what they limit ("kind:mail", "queue:mail"); `declared` names the ones that handlers
    declare."""

    schedules: int = 10_000
    pending_tasks: int | None = None
    minimum_interval: timedelta = timedelta(seconds=1)
    input_bytes: int = 1024 * 1024
    tasks: dict[str, Limit] = msgspec.field(default_factory=dict)
    declared: tuple[str, ...] = ()


class Tenant(Record, frozen=True, kw_only=True, tag_field="record", tag="tenant.1"):
    """Who owns records. `id` is its name; a tenant without a record has the default limits. `alarm_rules` hold for the
    schedules whose target has the tag. `unplanned` are limits of tasks that were changed, each with the version that it
    was changed in: what waits may not be planned anew yet."""

    status: TenantStatus = TenantStatus.ACTIVE
    limits: Limits = Limits()
    alarm_rules: dict[str, AlarmRules] = msgspec.field(default_factory=dict)
    unplanned: dict[str, int] = msgspec.field(default_factory=dict)
    created_at: datetime


class ApiKey(Record, frozen=True, kw_only=True, tag_field="record", tag="key.1"):
    """Who may do what over HTTP. The key itself is shown once, to its creator; `digest` is the SHA-256 of its secret
    part. `tenant` is `*` for a key to every tenant. Sessions of it that someone signed out of are in `signed_out`, each
    with the time when it would have ended; those that began before `sessions_from` are over, too."""

    name: str
    role: Role
    digest: str
    created_at: datetime
    created_by: str
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    signed_out: dict[str, datetime] = msgspec.field(default_factory=dict)
    sessions_from: datetime | None = None


class Receipt(Record, frozen=True, kw_only=True, tag_field="record", tag="receipt.1"):
    """The answer to a request that carried an Idempotency-Key, kept so that it is answered the same again."""

    at: datetime
    fingerprint: str
    status: int
    answer: Any = None


class Event(Record, frozen=True, kw_only=True, tag_field="record", tag="event.1"):
    """An act of someone on a schedule, template, tenant, key or queue: append-only."""

    at: datetime
    actor: str
    action: str
    subject_type: str
    subject_id: str
    detail: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
