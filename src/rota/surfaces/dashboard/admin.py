"""For admins: who may use the API and these pages, and what people did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fastapi import Response

from ...domain.errors import Invalid, NotFound, Refused
from ..http.service import of
from ..python.arguments import cursor_text
from .visit import Visit

__all__ = ["ask_to_revoke", "audit", "keys", "make_key", "revoke_key"]

LIMIT = 200
LOOKS_BACK = timedelta(days=7)
ROLES = {
    "viewer": "sees everything",
    "operator": "also pauses, triggers, cancels and submits",
    "admin": "also creates, edits and deletes, and makes keys",
}


async def keys(visit: Visit) -> Response:
    return await _keys(visit)


async def _keys(visit: Visit, made: str | None = None, problem: str | None = None) -> Response:
    page = await visit.queue.list_keys(limit=LIMIT)
    return visit.show(
        "keys.html",
        200 if problem is None else 422,
        page=page,
        made=made,
        problem=problem,
        roles=ROLES,
        now=await visit.queue.now(),
        own=visit.queue.caller.key_id,
    )


async def make_key(visit: Visit) -> Response:
    """The key is part of this one answer, and of no other."""
    try:
        key, shown = await visit.queue.create_key(visit.given("name") or "", visit.given("role") or "")
    except Refused as refused:
        return await _keys(visit, problem=str(refused))
    (await of(visit.request).access()).forget(key.id)
    return await _keys(visit, made=shown)


async def ask_to_revoke(visit: Visit) -> Response:
    id = visit.part("id")
    key = next((each for each in await visit.queue.list_keys(limit=LIMIT) if each.id == id), None)
    if key is None:
        raise NotFound("key", id)
    return visit.ask(
        f"Revoke the key of {key.name}",
        "Whoever uses it is refused from now on, and signed out wherever they are: here at once, on other servers"
        " within two seconds. That cannot be undone; make a new key instead.",
        to=visit.url("keys", id, "revoke"),
        back=visit.url("keys"),
        verb="Revoke",
        is_danger=True,
        nav="keys",
    )


async def revoke_key(visit: Visit) -> Response:
    id = visit.part("id")
    if visit.queue.caller.key_id == id:
        raise Invalid("id", "this is the key that you are signed in with", "revoke it with another one")
    revoked = await visit.queue.revoke_key(id)
    (await of(visit.request).access()).forget(revoked.id)
    return visit.go(visit.url("keys"))


async def audit(visit: Visit) -> Response:
    """From a day on, the latest first."""
    now = await visit.queue.now()
    since = _day(visit.asked("since"), now)
    cursor = visit.asked("cursor") or cursor_text(since, "")
    page = await visit.queue.events(visit.asked("subject"), limit=LIMIT, cursor=cursor)
    return visit.show(
        "audit.html", events=page[::-1], next_cursor=page.next_cursor, since=since.date(), now=now
    )


def _day(text: str | None, now: datetime) -> datetime:
    if text is None:
        return (now - LOOKS_BACK).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        day = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid("since", f"{text!r:.60} is not a day", "give one such as 2026-12-31") from None
    return day if day.tzinfo is not None else day.replace(tzinfo=UTC)
