"""Keys and the audit, for admins: who may use the API and these pages, and what people did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fastapi import Response

from ...domain.errors import Invalid, NotFound, Refused
from ...domain.model import Event
from ..python.arguments import cursor_text
from .forms import moment
from .texts import deed, person
from .visit import Visit

LIMIT = 200
LOOKED_AT = 5000
SUBJECTS = ("schedule", "template", "calendar", "queue", "key", "tenant")
LOOKS_BACK = timedelta(days=7)
ROLES = {
    "viewer": "sees everything",
    "operator": "also pauses, triggers, cancels and submits",
    "admin": "also creates, edits and deletes, and makes keys",
}


async def keys(visit: Visit, made: str | None = None, problem: str | None = None) -> Response:
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
        _, shown = await visit.queue.create_key(visit.given("name") or "", visit.given("role") or "")
    except Refused as refused:
        return await keys(visit, problem=str(refused))
    return await keys(visit, made=shown)


async def ask_to_revoke(visit: Visit) -> Response:
    id = visit.part("id")
    key = next((each for each in await visit.queue.list_keys(limit=LIMIT) if each.id == id), None)
    if key is None:
        raise NotFound("key", id)
    return visit.ask(
        f"Revoke the key of {key.name}",
        "Whoever uses it is refused from now on, and signed out wherever they are: here at once, on other servers"
        " within two seconds. That cannot be undone; make a new key instead.",
        back=visit.url("keys"),
        verb="Revoke",
        is_danger=True,
    )


async def revoke_key(visit: Visit) -> Response:
    id = visit.part("id")
    if visit.queue.caller.key_id == id:
        raise Invalid("id", "this is the key that you are signed in with", "revoke it with another one")
    await visit.queue.revoke_key(id)
    return visit.go(visit.url("keys"))


async def audit(visit: Visit) -> Response:
    """The events from a day on that match, the latest first, among the first `LOOKED_AT` of them."""
    now = await visit.queue.now()
    since = _day(visit.asked("since"), now)
    cursor: str | None = visit.asked("cursor") or cursor_text(since, "")
    found: list[Event] = []
    looked_at = 0
    while cursor is not None and len(found) < LIMIT and looked_at < LOOKED_AT:
        page = await visit.queue.events(limit=LIMIT, cursor=cursor)
        found += [event for event in page if _matches(visit, event)]
        cursor, looked_at = page.next_cursor, looked_at + len(page)
    return visit.show(
        "audit.html",
        events=found[::-1],
        next_cursor=cursor,
        since=since.date(),
        now=now,
        subjects=SUBJECTS,
        is_filtered=any(visit.asked(name) for name in ("who", "what", "action", "name")),
    )


def _matches(visit: Visit, event: Event) -> bool:
    """Whether this is what the filters ask for: who by a part of their name, the rest in full. A deed can be given as
    it is shown, or as the API has it."""
    facts = event.after or event.before or {}
    names = (event.subject_id, *(facts.get(name) for name in ("key", "name", "alias", "queue")))
    who, name = visit.asked("who"), visit.asked("name")
    return (
        (who is None or any(who.casefold() in each.casefold() for each in (event.actor, person(event.actor))))
        and visit.asked("what") in (None, event.subject_type)
        and visit.asked("action") in (None, event.action, deed(event.action))
        and (name is None or name in names)
    )


def _day(text: str | None, now: datetime) -> datetime:
    if text is None:
        return (now - LOOKS_BACK).replace(hour=0, minute=0, second=0, microsecond=0)
    return moment("since", text, UTC, example="2026-12-31")
