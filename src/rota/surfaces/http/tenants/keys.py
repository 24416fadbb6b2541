"""`/api/tenants/{tenant}/keys`: who may use this API."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response

from ....domain.model import Role
from ...shapes import Answer, PageAnswer, Time, listed, shaped
from ..openapi import documented
from ..reading import Router
from ..service import Admin, Cursor, Limit, OnceKey, answer
from . import schemas

router = Router(prefix="/api/tenants/{tenant}", tags=["keys"])

Id = Annotated[str, Path(description="The id of the key.", min_length=1, max_length=255)]


class KeyAnswer(Answer, frozen=True, kw_only=True):
    """An API key, without what it takes to use it."""

    id: str
    name: str
    role: Role
    tenant: str
    created_at: Time
    created_by: str
    revoked_at: Time | None
    revoked_by: str | None


class NewKeyAnswer(KeyAnswer, frozen=True, kw_only=True):
    """An API key that was just made. `key` is shown this once, and is null if the request is repeated."""

    key: str | None


class KeysAnswer(PageAnswer[KeyAnswer], frozen=True, kw_only=True):
    """A page of API keys."""


@router.post("/keys", **documented(201, NewKeyAnswer))
async def create(queue: Admin, body: schemas.KeyBody, once: OnceKey = None) -> Response:
    """Create a key of this tenant. `key` is shown this once, and is null if the request is repeated: what is stored
    cannot be turned back into it."""
    queue.once(once, lambda made: shaped(NewKeyAnswer, made, key=None), 201)
    made, shown = await queue.create_key(body.name, Role(body.role))
    return answer(shaped(NewKeyAnswer, made, key=shown), 201, {"Cache-Control": "no-store"})


@router.get("/keys", **documented(200, KeysAnswer))
async def list_all(queue: Admin, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """The newest keys of this tenant, a page at a time; revoked ones, too."""
    page = await queue.list_keys(limit=limit, cursor=cursor)
    return answer(listed(KeysAnswer, page))


@router.delete("/keys/{id}", **documented(200, KeyAnswer))
async def revoke(queue: Admin, id: Id) -> Response:
    """Revoke a key. It stops working here at once, and elsewhere within two seconds."""
    return answer(shaped(KeyAnswer, await queue.revoke_key(id)))
