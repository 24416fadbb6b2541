"""A job as server-sent events: `status` for every change that is seen, `end` when it is over, and then the stream
closes. Changes that follow each other quicker than `LEAST` are seen as one. Comments keep the connection alive, and
tell the server when the other side has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import msgspec

from ...domain.errors import NotFound, Unavailable
from ...domain.model import Task, TaskStatus
from ...engine.clock import sleep, wait_for_any
from . import answers_v1 as answers
from .service import Acting

__all__ = ["EVENT_STREAM", "followed"]

EVENT_STREAM = "text/event-stream"
HEARTBEAT = timedelta(seconds=15)
LEAST = timedelta(milliseconds=50)
"""Between two looks: a busy store hints at changes all the time, and most are of others."""

_ALIVE = b": still here\n\n"
_encode = msgspec.json.Encoder().encode


async def followed(queue: Acting, task: Task) -> AsyncIterator[bytes]:
    shown = b""
    sent_at = queue.clock.monotonic()
    while True:
        changed = asyncio.ensure_future(queue.store.wait(_until(task)))
        try:
            await sleep(timedelta(0))
            looked = await _look(queue, task)
            if looked is None:
                return
            task, data = looked, _encode(answers.job(looked))
            if data != shown:
                shown = data
                yield _event("status", task, data)
                sent_at = queue.clock.monotonic()
            if not task.is_live:
                yield _event("end", task, data)
                return
            silence = timedelta(seconds=queue.clock.monotonic() - sent_at)
            if silence >= HEARTBEAT:
                yield _ALIVE
                sent_at, silence = queue.clock.monotonic(), timedelta(0)
            await sleep(LEAST)
            await wait_for_any(changed, at_most=HEARTBEAT - silence)
        finally:
            changed.cancel()


def _until(task: Task) -> datetime | None:
    """A change is hinted, but an expiry comes about without one."""
    return task.expires_at if task.status is TaskStatus.PENDING else None


async def _look(queue: Acting, task: Task) -> Task | None:
    """How it is now; None: it is gone. While the store does not answer, it is as it was."""
    try:
        return await queue.get(task.id)
    except NotFound:
        return None
    except Unavailable:
        return task


def _event(name: str, task: Task, data: bytes) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (task.version, name.encode(), data)
