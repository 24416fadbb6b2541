"""The calls of a queue that are about tenants and their keys. Those on tenants reach beyond the queue's own: a program
that has the store has them all."""

from __future__ import annotations

from typing import Unpack

from ....domain import keys
from ....domain.checks import check_choice, check_key, check_text
from ....domain.model import ApiKey, Event, Role, Tenant
from ....domain.options import LimitOptions
from ....domain.tenants import EVERY_TENANT, check_tenant
from ....engine import commands, queries
from ....engine.queries import TenantUse
from ....stores.queries import ApiKeyList, EventList
from .. import arguments
from .base import LIMIT, Calls, Page, check_limit, page_of


class TenantCalls(Calls):
    """Who may use the store, how much of it, and with which keys."""

    async def create_key(
        self, name: str, role: Role | str, *, every_tenant: bool = False
    ) -> tuple[ApiKey, str]:
        """Make a key for the HTTP API: its record, and the key itself, which is not stored and never shown again.

        `role` is viewer, operator or admin. With `every_tenant` the key is good for all of them."""
        keys.check_name(name)
        check_choice("role", role, Role)
        id, secret = self._new_id(), commands.new_secret()
        tenant = EVERY_TENANT if every_tenant else self.tenant
        made = await self._commit(commands.create_key(id, secret, tenant, name, role, self.actor))
        return made, keys.token(id, secret)

    async def list_keys(
        self, *, every_tenant: bool = False, limit: int = LIMIT, cursor: str | None = None
    ) -> Page[ApiKey]:
        """The newest keys, revoked ones too. With `every_tenant`: those of all tenants."""
        after = None if cursor is None else check_text("cursor", cursor)
        tenant = None if every_tenant else self.tenant
        found = await self.store.read(
            queries.find(ApiKeyList(tenant=tenant, after=after), check_limit(limit))
        )
        return page_of(found, limit)

    async def revoke_key(self, key_id: str, *, every_tenant: bool = False) -> ApiKey:
        """End a key, by its id, or by its name if only one has it. With `every_tenant`: whosever it is."""
        tenant = None if every_tenant else self.tenant
        return await self._commit(commands.revoke_key(tenant, check_key(key_id, "key_id"), self.actor))

    async def create_tenant(self, name: str, **limits: Unpack[LimitOptions]) -> Tenant:
        """Create a tenant. A tenant need not be created to be used; one that is not has the default limits."""
        return await self._commit(commands.create_tenant(name, limits, self.actor))

    async def get_tenant(self, name: str) -> Tenant:
        return await self.store.read(queries.one_tenant(check_tenant(name, "name")))

    async def list_tenants(self) -> list[TenantUse]:
        """Every tenant that has a record, a schedule or an open task, with how many it has of them; by name."""
        return await self.store.read(queries.tenants_in_use())

    async def set_limits(self, name: str, **limits: Unpack[LimitOptions]) -> Tenant:
        """Change the limits that are named, as in `create_tenant`; `pending_tasks=None` takes that one away."""
        return await self._commit(commands.set_limits(check_tenant(name, "name"), limits, self.actor))

    async def suspend_tenant(self, name: str, note: str = "") -> Tenant:
        """Let nothing new begin there: submissions, triggers and edits are refused, and what its schedules would have
        fired is skipped. Tasks that were submitted before still run."""
        work = commands.suspend_tenant(check_tenant(name, "name"), self.actor, check_text("note", note))
        return await self._commit(work)

    async def resume_tenant(self, name: str) -> Tenant:
        """End the suspension. What was skipped meanwhile is not made up for."""
        return await self._commit(commands.resume_tenant(check_tenant(name, "name"), self.actor))

    async def events(
        self, subject_id: str | None = None, *, limit: int = LIMIT, cursor: str | None = None
    ) -> Page[Event]:
        """The audit, oldest first: who did what to which schedule, template, tenant or key, before and after."""
        if subject_id is not None:
            check_key(subject_id, "subject_id")
        after = arguments.parsed_cursor(cursor)
        query = EventList(tenant=self.tenant, subject_id=subject_id, after=after)
        found = await self.store.read(queries.find(query, check_limit(limit)))
        return page_of(found, limit, lambda event: event.at)
