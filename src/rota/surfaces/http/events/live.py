"""`/api/tenants/{tenant}/events`: what changes, as server-sent events, while it changes.

`id` is a cursor: sent back as `Last-Event-ID`, the stream goes on where it was, and what happened meanwhile comes
first. It comes at least once: what happened in the ten seconds before may come again, under the same id. If more
happened than can be told, or it is too long ago, one event says so: `resync`, read the listings anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request, Response

from ....domain.errors import NotFound
from ....domain.model import Role
from ....engine.changes import OVERLAP, Notice, cursor, time_of_cursor
from ....engine.clock import Clock, sleep, wait_for_any
from ....engine.queries import task_query
from ..openapi import streaming
from ..problems import Problem, wrong
from ..reading import Router
from ..service import Acting, Viewer, of
from .broadcast import Broadcasts, Listener, resync

HEARTBEAT = timedelta(seconds=15)
CHECKED_EVERY = timedelta(minutes=1)
RECONNECT_AFTER = timedelta(seconds=2)
LONGEST_AGO = timedelta(days=1)
AT_ONCE = 100
LAST_WORDS_WITHIN = timedelta(seconds=1)

FOR_VIEWERS = ("task", "step", "run", "schedule", "template", "calendar", "alarm")
FOR_ADMINS = ("key", "tenant")
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """Sends what a listener hears, until one of the two goes away. `is_allowed` is asked again now and then."""

    def __init__(
        self,
        listener: Listener,
        leave: Callable[[], None],
        is_allowed: Callable[[], Awaitable[bool]],
        clock: Clock,
        first: bytes,
    ) -> None:
        super().__init__(status_code=200)
        self._listener = listener
        self._leave = leave
        self._is_allowed = is_allowed
        self._clock = clock
        self._first = first

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        jobs: list[asyncio.Task[Any]] = []
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            jobs = [
                asyncio.create_task(self._send_all(send)),
                asyncio.create_task(_gone(receive)),
                asyncio.create_task(self._listener.has_ended.wait()),
            ]
            done = await wait_for_any(*jobs, at_most=None)
        finally:
            self._leave()
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
        if jobs[1] not in done:
            await self._say_goodbye(jobs[0], send)

    async def _send_all(self, send: Any) -> None:
        """Returns when the caller is no longer allowed to listen."""
        await _send(send, self._first)
        check_at = self._later(CHECKED_EVERY)
        hearing = asyncio.create_task(self._listener.next(AT_ONCE))
        try:
            while True:
                if await wait_for_any(hearing, at_most=HEARTBEAT):
                    await _send(send, b"".join(frame.text for frame in hearing.result()))
                    hearing = asyncio.create_task(self._listener.next(AT_ONCE))
                else:
                    await _send(send, self._heartbeat())
                if self._clock.monotonic() >= check_at:
                    if not await self._is_allowed():
                        return
                    check_at = self._later(CHECKED_EVERY)
        finally:
            hearing.cancel()

    def _later(self, by: timedelta) -> float:
        return self._clock.monotonic() + by.total_seconds()

    def _heartbeat(self) -> bytes:
        """A comment, and how far the listener has come, for when nothing happened to be told."""
        assert self._listener.at is not None
        return b": alive\n" + (_position(self._listener.at) if self._listener.has_all else b"\n")

    async def _say_goodbye(self, sending: asyncio.Task[Any], send: Any) -> None:
        """End the response properly, if the client takes it; and if sending failed, let that be known."""
        try:
            async with asyncio.timeout(LAST_WORDS_WITHIN.total_seconds()):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error


async def _send(send: Any, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await sleep(timedelta(0))  # a socket that takes everything at once never waits: others have their turn


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _position(at: datetime) -> bytes:
    """An id without data: no event, but browsers remember it."""
    return b"id: %b\n\n" % cursor(at).encode()


def broadcasts_of(api: FastAPI) -> Broadcasts:
    if not hasattr(api.state, "broadcasts"):
        api.state.broadcasts = Broadcasts(api.state.rota.clock)
    broadcasts: Broadcasts = api.state.broadcasts
    return broadcasts


router = Router(prefix="/api/tenants/{tenant}", tags=["live"])

LastId = Annotated[str | None, Header(alias="Last-Event-ID", description="Go on behind this event.")]
Types = Annotated[
    str | None,
    Query(max_length=100, description=f"Only these, by commas: {', '.join(FOR_VIEWERS + FOR_ADMINS)}."),
]


@router.get("/events", **streaming("A stream of events that does not end."))
async def events(
    request: Request,
    queue: Viewer,
    types: Types = None,
    task: Annotated[str | None, Query(max_length=255, description="The id of a task.")] = None,
    schedule: Annotated[str | None, Query(max_length=255, description="A schedule's id or name.")] = None,
    last_event_id: LastId = None,
    last_event_id_in_query: Annotated[
        str | None, Query(alias="lastEventId", description="For clients that cannot set the header.")
    ] = None,
) -> Response:
    """Follow what happens: `task.created`, `step.completed`, `run.skipped`, `schedule.paused`, … Each event's data is
    the record as it is now, with `change`: what happened, when, and who did it."""
    chosen, role = _chosen(types, queue)
    given = last_event_id or last_event_id_in_query
    behind, is_too_old = await _behind(queue, given)
    wants = await _wants(queue, chosen, task, schedule)
    listener = Listener(wants, behind)
    broadcasts, account = broadcasts_of(request.app), queue.caller.key_id or queue.caller.actor
    await broadcasts.join(queue.store, queue.tenant, account, listener)
    assert listener.at is not None
    first = b"retry: %d\n\n" % (RECONNECT_AFTER // timedelta(milliseconds=1))
    if is_too_old:
        first += resync(
            listener.at, "too_old", f"{given} is too long ago to go on from; read the listings anew"
        )
    elif listener.has_all:
        first += _position(listener.at)
    leave = partial(broadcasts.leave, queue.tenant, account, listener)
    is_allowed = partial(_is_allowed, request, queue.tenant, role)
    return EventStream(listener, leave, is_allowed, of(request).clock, first)


def _chosen(types: str | None, queue: Acting) -> tuple[frozenset[str], Role]:
    """The types of events to tell, and the role that they need."""
    is_admin = queue.caller.role is Role.ADMIN
    if types is None:
        return frozenset(FOR_VIEWERS + FOR_ADMINS if is_admin else FOR_VIEWERS), queue.caller.role
    chosen = frozenset(each.strip() for each in types.split(","))
    unknown = sorted(chosen - set(FOR_VIEWERS + FOR_ADMINS))
    if unknown:
        accepted = ", ".join(FOR_VIEWERS + FOR_ADMINS)
        raise wrong("types", f"types: there is nothing called {unknown[0]!r:.60}; accepted are {accepted}")
    needs_admin = chosen & set(FOR_ADMINS)
    if needs_admin and not is_admin:
        sentence = f"to hear of {' and '.join(sorted(needs_admin))} changes needs the role admin"
        raise Problem(403, "role_needed", sentence)
    return chosen, Role.ADMIN if needs_admin else Role.VIEWER


async def _behind(queue: Acting, given: str | None) -> tuple[datetime | None, bool]:
    """The time to go on from, and whether it is too long ago, or not yet."""
    if not given:
        return None, False
    behind = time_of_cursor(given)
    if behind is None:
        raise wrong("Last-Event-ID", f"Last-Event-ID: {given!r:.60} is not the id of an event")
    now = await queue.now()
    is_known = now - LONGEST_AGO <= behind <= now + OVERLAP
    return (behind, False) if is_known else (None, True)


async def _wants(
    queue: Acting, chosen: frozenset[str], task: str | None, schedule: str | None
) -> Callable[[Notice], bool]:
    task_id = None if task is None else (await queue.get(task)).id
    schedule_id = None
    if schedule is not None:
        schedule_id = (await queue.store.read(task_query(queue.tenant, schedule=schedule))).schedule_id

    def wants(notice: Notice) -> bool:
        if notice.type not in chosen or (task_id is not None and notice.task_id != task_id):
            return False
        return schedule_id is None or notice.schedule_id == schedule_id

    return wants


async def _is_allowed(request: Request, tenant: str, role: Role) -> bool:
    """Whether the caller still may listen. If the store does not answer now, the next check will tell."""
    try:
        await (await of(request).access()).allow(request, tenant, role)
    except NotFound:
        return False
    except Problem as problem:
        return problem.status not in (401, 403)
    except Exception:  # the store is away
        return True
    return True
