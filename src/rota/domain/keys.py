"""API keys: how a token is made, taken apart and compared. Pure: secrets are made elsewhere.

    rota_<id of the record, 32 hex digits>_<secret>

The token is shown once. Stored is the SHA-256 of the secret: it has 256 random bits, so that a slow hash would add
nothing. A key of the tenant `*` is good for every tenant; no tenant can be called that.

A session is what a browser holds instead of the key that someone signed in with:

    rota-session_<id of the key>_<id>_<when they signed in>_<when this one was made>_<HMAC under the digest>

It ends with its key, by itself after `SESSION`, and is replaced by a new one with the same id after `ROTATED`. Every
server that has the store can check it, and nothing is stored for it until someone signs out: then its key remembers
that it is over, for as long as a copy could be held.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from .checks import check_choice, check_key, storable
from .errors import Invalid
from .model import ApiKey, Role, facts_of
from .tenants import EVERY_TENANT, check_tenant

LONGEST_NAME = 100
_TOKEN = re.compile(r"rota_([0-9a-f]{32})_([A-Za-z0-9_-]{1,255})")
_NOBODY = "0" * 64

SESSION = timedelta(hours=12)
"""A session ends if its owner stays away for so long."""
ROTATED = timedelta(hours=1)
LONGEST_SESSION = timedelta(days=30)
SKEW = timedelta(minutes=5)
"""How far the clocks of two servers may be apart."""
MOST_SIGNED_OUT = 1000
"""A key remembers so many sessions that are over. Beyond that, all that began before now are."""
_SESSION = re.compile(
    r"rota-session_([0-9a-f]{32})_([0-9a-f]{32})_([0-9]{1,11})_([0-9]{1,11})_([0-9a-f]{64})"
)


class SignIn(NamedTuple):
    """Someone who signed in: with which key, when, and when what they hold was made."""

    key_id: str
    id: str
    began: int
    made: int
    proof: str


def make(
    id: str, secret: str, *, tenant: str, name: object, role: object, now: datetime, actor: str
) -> ApiKey:
    """The record of a new key. `secret` is 32 random bytes, url-safe."""
    return ApiKey(
        id=id,
        tenant=tenant if tenant == EVERY_TENANT else check_tenant(tenant),
        name=check_name(name),
        role=check_choice("role", role, Role),
        digest=_digest(secret),
        created_at=now,
        created_by=actor,
    )


def check_name(value: object) -> str:
    """Short enough to stand in a history, with `key:` before it."""
    name = check_key(value, "name")
    if len(name) > LONGEST_NAME:
        raise Invalid("name", f"{len(name)} characters are too many", f"the most is {LONGEST_NAME}")
    return name


def token(id: str, secret: str) -> str:
    """The text that its owner sends."""
    return f"rota_{UUID(id).hex}_{secret}"


def parse(token: object) -> tuple[str, str] | None:
    """(id of the record, secret), or None if it is no token at all."""
    found = _TOKEN.fullmatch(token) if isinstance(token, str) else None
    return None if found is None else (str(UUID(found[1])), found[2])


def matches(key: ApiKey | None, secret: str) -> bool:
    """Whether the secret is this key's, and the key is still good. No key at all costs the same comparison."""
    same = compare_digest(_digest(secret), _NOBODY if key is None else key.digest)
    return same and key is not None and key.revoked_at is None


def revoke(key: ApiKey, now: datetime, actor: str) -> ApiKey:
    """No good from now on. Revoking what is revoked changes nothing."""
    return key if key.revoked_at is not None else replace(key, revoked_at=now, revoked_by=actor)


def session(key: ApiKey, now: datetime, id: str, before: SignIn | None = None) -> str:
    """The text that a browser holds from now on: of someone who signs in, under a new id; or in place of the one
    before."""
    made = int(now.timestamp())
    id, began = (UUID(id).hex, made) if before is None else (before.id, before.began)
    return f"rota-session_{UUID(key.id).hex}_{id}_{began}_{made}_{_proof(key, id, began, made)}"


def parse_session(text: object) -> SignIn | None:
    found = _SESSION.fullmatch(text) if isinstance(text, str) else None
    return (
        None
        if found is None
        else SignIn(str(UUID(found[1])), found[2], int(found[3]), int(found[4]), found[5])
    )


def is_open(session: SignIn, key: ApiKey | None, now: datetime) -> bool:
    """Whether this key made it, is still good, and it has not ended."""
    if key is None or key.revoked_at is not None or session.id in key.signed_out:
        return False
    if key.sessions_from is not None and session.began <= key.sessions_from.timestamp():
        return False
    at = now.timestamp()
    is_in_time = session.made - SKEW.total_seconds() <= at < session.made + SESSION.total_seconds()
    proof = _proof(key, session.id, session.began, session.made)
    is_short = at < session.began + LONGEST_SESSION.total_seconds()
    return compare_digest(session.proof, proof) and is_in_time and is_short


def sign_out(key: ApiKey, session: SignIn, now: datetime) -> ApiKey:
    """The key, which knows that this session of it is over: a copy of the session is refused, too."""
    if not is_open(session, key, now):
        return key
    kept = {id: until for id, until in key.signed_out.items() if until > now}
    if len(kept) >= MOST_SIGNED_OUT:
        return replace(key, signed_out={}, sessions_from=now)
    return replace(key, signed_out={**kept, session.id: now + SESSION + 2 * SKEW})


def _proof(key: ApiKey, id: str, began: int, made: int) -> str:
    return hmac(key.digest.encode(), f"session {key.id} {id} {began} {made}".encode(), "sha256").hex()


def as_facts(key: ApiKey) -> dict[str, Any]:
    """A key as the audit and the surfaces show it: never its digest."""
    return facts_of(key, "digest", "signed_out", "sessions_from")


def _digest(secret: str) -> str:
    return sha256(storable(secret).encode()).hexdigest()
