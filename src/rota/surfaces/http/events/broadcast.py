"""A tenant's changes are looked up once, and told to all its listeners.

A broadcast looks when the store hints at a change, at most five times a second, never for more than a fifth of the
time, and only while someone listens. A listener joins at a look and misses nothing from there on. A listener that
resumes gets the changes that it missed from the same snapshot: nothing is lost or doubled in between. Each listener has
a queue of its own. If the queue grows too long, the listener is dropped, and can resume.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import msgspec

from ....domain.errors import Unavailable
from ....domain.model import Alarm, ApiKey, Run, Schedule, Task
from ....domain.workflow import Step
from ....engine.changes import LIMIT, ChangeFollower, Look, Notice, cursor
from ....engine.clock import Clock, sleep
from ....engine.loops import keep_running
from ....stores.base import Store
from ... import redaction
from ...shapes import shaped
from ..fields import camel_keys
from ..problems import Problem
from ..tenants import answers
from ..tenants.alarms import AlarmAnswer
from ..tenants.keys import KeyAnswer

AT_MOST_EVERY = timedelta(milliseconds=200)
REST = 4
"""After a look, a broadcast waits so many times as long as the look took."""

BACKLOG = 1000
"""A listener with more than this in its queue, when more comes, is too slow."""

JOIN_WITHIN = timedelta(seconds=10)
PER_KEY = 100
PER_PROCESS = 1000
_encode = msgspec.json.Encoder().encode


def resync(at: datetime, reason: str, detail: str) -> bytes:
    """The event that says: read the listings anew."""
    return _event(cursor(at), "resync", {"reason": reason, "detail": detail})


def _event(id: str, name: str, data: Any) -> bytes:
    """An event as text: `id`, `event`, `data` in one line of JSON."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (
        id.encode(),
        name.encode(),
        _encode(redaction.document(data)),
    )


def _data_of(notice: Notice) -> dict[str, Any]:
    """The record as the API answers it, with the name of its schedule and the change itself."""
    match notice.record:
        case Task() as task:
            shape: dict[str, Any] = msgspec.to_builtins(answers.execution(task))
        case Step() as step:
            told = shaped(answers.StepAnswer, step)
            shape = {"id": step.id, "taskId": step.task_id, **msgspec.to_builtins(told)}
        case Run() as run:
            shape = msgspec.to_builtins(shaped(answers.RunAnswer, run))
        case Schedule() as schedule:
            shape = msgspec.to_builtins(answers.schedule(schedule))
        case Alarm() as alarm:
            shape = msgspec.to_builtins(shaped(AlarmAnswer, alarm))
        case ApiKey() as key:
            shape = msgspec.to_builtins(shaped(KeyAnswer, key))
        case _:
            facts = notice.event and (notice.event.after or notice.event.before)
            shape = {"id": notice.id, **camel_keys(facts or {})}
    if notice.type in ("task", "run"):
        shape["scheduleName"] = notice.schedule and notice.schedule.key
    if notice.line is not None:
        shape["change"] = shaped(answers.ChangeAnswer, notice.line)
    elif notice.event is not None:
        shape["change"] = shaped(answers.EventAnswer, notice.event)
    return shape


class Frame:
    """A notice as it is sent; None: there were too many to tell. Its text is made once, when the first listener wants
    it."""

    def __init__(self, notice: Notice | None, at: datetime) -> None:
        self.notice = notice
        self._at = at

    @cached_property
    def text(self) -> bytes:
        if self.notice is None:
            detail = f"more than {LIMIT:,} changes are to be told; read the listings anew"
            return resync(self._at, "too_many", detail)
        return _event(self.notice.cursor, self.notice.name, _data_of(self.notice))


def _frames(at: datetime, notices: list[Notice], too_many: bool) -> list[Frame]:
    return [Frame(None, at)] if too_many else [Frame(notice, at) for notice in notices]


class Listener:
    """One stream. `behind`: where it left off. `at`: everything up to here is told, once the queue is empty."""

    def __init__(self, wants: Callable[[Notice], bool], behind: datetime | None = None) -> None:
        self._wants = wants
        self._queue: deque[Frame] = deque()
        self._rings = asyncio.Event()
        self.behind = behind
        self.at: datetime | None = None
        self.has_ended = asyncio.Event()

    def tell(self, at: datetime, frames: Iterable[Frame]) -> None:
        if len(self._queue) > BACKLOG:
            self.end()
        elif not self.has_ended.is_set():
            self._queue.extend(each for each in frames if each.notice is None or self._wants(each.notice))
            self.at = at
        if self._queue:
            self._rings.set()

    async def next(self, at_most: int) -> list[Frame]:
        await self._rings.wait()
        taken = [self._queue.popleft() for _ in range(min(at_most, len(self._queue)))]
        if not self._queue:
            self._rings.clear()
        return taken

    @property
    def has_all(self) -> bool:
        return not self._queue

    def end(self) -> None:
        self._queue.clear()
        self.has_ended.set()


class TenantBroadcast:
    """One tenant's changes, and their listeners. It is a loop: `keep_running` runs it."""

    def __init__(self, store: Store, tenant: str, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._follower = ChangeFollower(store, tenant, LIMIT)
        self._not_before = clock.monotonic()
        self._joining: dict[Listener, asyncio.Future[None]] = {}
        self._wake = asyncio.Event()
        self.listeners: set[Listener] = set()
        self.running = asyncio.create_task(self._run(), name="rota-live")

    @property
    def is_deserted(self) -> bool:
        return not self.listeners and not self._joining

    async def join(self, listener: Listener) -> None:
        """Return when every later change will be told."""
        joined = asyncio.get_running_loop().create_future()
        self._joining[listener] = joined
        self._wake.set()
        try:
            async with asyncio.timeout(JOIN_WITHIN.total_seconds()):
                await joined
        except TimeoutError:
            raise Unavailable("the store did not answer in time") from None
        finally:
            self._joining.pop(listener, None)

    async def run_once(self) -> timedelta | None:
        await sleep(timedelta(seconds=max(0.0, self._not_before - self._clock.monotonic())))
        joining = self._next_to_join()
        behind = next((each.behind for each in joining if each.behind is not None), None)
        began = self._clock.monotonic()
        try:
            look = await self._follower.look(behind)
        except Exception as error:
            self._fail(error)
            raise
        ended = self._clock.monotonic()
        self._not_before = ended + max(AT_MOST_EVERY.total_seconds(), REST * (ended - began))
        self._tell(look, joining)
        if any(not joined.done() for joined in self._joining.values()):
            return timedelta(0)
        return look.again_in

    def _next_to_join(self) -> list[Listener]:
        """All listeners that begin now, and one that resumes: a look can read the missed changes of one."""
        waiting = [each for each, joined in self._joining.items() if not joined.done()]
        resuming = [each for each in waiting if each.behind is not None]
        return [each for each in waiting if each.behind is None] + resuming[:1]

    def _tell(self, look: Look, joining: list[Listener]) -> None:
        frames = _frames(look.at, look.notices, look.too_many)
        for listener in self.listeners:
            listener.tell(look.at, frames)
        for listener in joining:
            joined = self._joining.get(listener)
            if joined is None or joined.done():
                continue  # it has given up
            missed = look.missed if listener.behind is not None else None
            told = [] if missed is None else _frames(look.at, missed.notices, missed.too_many)
            listener.tell(look.at, told)
            self.listeners.add(listener)
            joined.set_result(None)

    def _fail(self, error: Exception) -> None:
        for joined in self._joining.values():
            if not joined.done():
                joined.set_exception(error)

    async def _run(self) -> None:
        await keep_running(
            self, self._store, stop=asyncio.Event(), on_error=lambda error, delay: None, wake=self._wake
        )


class Broadcasts:
    """The broadcasts of a process: one for each tenant with listeners."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_tenant: dict[str, TenantBroadcast] = {}
        self._by_key: Counter[str] = Counter()
        self._stopping: set[asyncio.Task[None]] = set()

    @property
    def listening(self) -> int:
        return self._by_key.total()

    async def join(self, store: Store, tenant: str, key: str, listener: Listener) -> None:
        """`key` has a limit of its own."""
        self._check_room(key)
        self._by_key[key] += 1
        broadcast = self._by_tenant.get(tenant)
        if broadcast is None:
            broadcast = self._by_tenant[tenant] = TenantBroadcast(store, tenant, self._clock)
        try:
            await broadcast.join(listener)
        except BaseException:
            self.leave(tenant, key, listener)
            raise

    def leave(self, tenant: str, key: str, listener: Listener) -> None:
        self._by_key[key] -= 1
        if self._by_key[key] <= 0:
            del self._by_key[key]
        broadcast = self._by_tenant.get(tenant)
        if broadcast is not None:
            broadcast.listeners.discard(listener)
            if broadcast.is_deserted:
                del self._by_tenant[tenant]
                self._stop(broadcast)

    def end(self) -> None:
        """End every stream: the server stops."""
        for broadcast in self._by_tenant.values():
            for listener in broadcast.listeners:
                listener.end()

    async def close(self) -> None:
        self.end()
        for broadcast in self._by_tenant.values():
            self._stop(broadcast)
        self._by_tenant.clear()
        await asyncio.gather(*self._stopping, return_exceptions=True)

    def _stop(self, broadcast: TenantBroadcast) -> None:
        broadcast.running.cancel()
        self._stopping.add(broadcast.running)
        broadcast.running.add_done_callback(self._stopping.discard)

    def _check_room(self, key: str) -> None:
        wait = {"Retry-After": "5"}
        if self._by_key[key] >= PER_KEY:
            sentence = f"this key has {PER_KEY} event streams open; close one, or use one for more"
            raise Problem(429, "too_many_streams", sentence, headers=wait)
        if self.listening >= PER_PROCESS:
            sentence = f"this server has {PER_PROCESS:,} event streams open; ask again later"
            raise Problem(503, "too_many_streams", sentence, headers=wait)
