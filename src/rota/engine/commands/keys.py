"""Works on API keys. The secret is made before, as ids are; it is never stored."""

from __future__ import annotations

import secrets

from ...domain import keys
from ...domain.errors import NotFound, Refused
from ...domain.model import ApiKey
from ...stores.base import Tx, Work
from ...stores.queries import ApiKeyList
from .shared import audit

__all__ = ["create_key", "new_secret", "revoke_key"]

KEYS_AT_ONCE = 1000


def new_secret() -> str:
    """32 random bytes, url-safe."""
    return secrets.token_urlsafe(32)


def create_key(id: str, secret: str, tenant: str, name: str, role: str, actor: str) -> Work[ApiKey]:
    """Store a key; `tenant` is `*` for one to every tenant."""

    async def work(tx: Tx) -> ApiKey:
        again = await tx.get(ApiKey, id)
        if again is not None:
            return again
        made = keys.make(id, secret, tenant=tenant, name=name, role=role, now=tx.now, actor=actor)
        created = tx.put(made)
        audit(tx, "created", actor, None, created, created.name)
        return created

    return work


def revoke_key(tenant: str | None, id: str, actor: str) -> Work[ApiKey]:
    """End a key of the tenant (None: of any), given by its id, or by its name if only one that is good has it.
    Revoking what is revoked changes nothing."""

    async def work(tx: Tx) -> ApiKey:
        old = await tx.get(ApiKey, id)
        if old is None or (tenant is not None and old.tenant != tenant):
            old = await _by_name(tx, tenant, id)
        new = keys.revoke(old, tx.now, actor)
        if new is old:
            return old
        revoked = tx.put(new)
        audit(tx, "revoked", actor, old, revoked, revoked.name)
        return revoked

    return work


async def _by_name(tx: Tx, tenant: str | None, name: str) -> ApiKey:
    found: list[ApiKey] = []
    after = None
    while True:
        page = await tx.find(ApiKeyList(tenant=tenant, after=after), KEYS_AT_ONCE)
        found += [key for key in page if key.name == name]
        if len(page) < KEYS_AT_ONCE:
            break
        after = page[-1].id
    good = [key for key in found if key.revoked_at is None]
    if len(good) > 1:
        raise Refused("key_ambiguous", count=len(good), name=name)
    if not found:
        raise NotFound("key", name)
    return (good or found)[0]
