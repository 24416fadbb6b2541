"""Answers that all who look at a page share: asked once, never waited for longer than a page may take."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.domain.errors import Unavailable
from rota.engine.clock import SystemClock
from rota.surfaces.http.service import Service

NAME = ("queues", "default")


class Stopwatch(SystemClock):
    """Stands at `seconds`."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


async def test_a_slow_answer_is_asked_for_once_and_found_by_whoever_asks_again() -> None:
    service, ready, asked = Service("memory:", rate=1.0), asyncio.Event(), 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await ready.wait()
        return asked

    assert await asyncio.gather(*(service.shared_soon(NAME, ask) for _ in range(3))) == [None, None, None]
    ready.set()
    assert await service.shared(NAME, ask, timedelta(0)) == 1
    assert await service.shared_soon(NAME, ask) == 1
    service.forget(*NAME)
    assert await service.shared_soon(NAME, ask) == 2


async def test_what_was_asked_before_a_change_is_not_kept_after_it() -> None:
    service, ready = Service("memory:", rate=1.0), asyncio.Event()

    async def old() -> str:
        await ready.wait()
        return "old"

    async def new() -> str:
        return "new"

    waiting = asyncio.create_task(service.shared(NAME, old, timedelta(minutes=1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    service.forget(*NAME)
    ready.set()
    assert await waiting == "old"
    assert await service.shared(NAME, new, timedelta(minutes=1)) == "new"


async def test_a_question_that_fails_is_asked_again() -> None:
    service = Service("memory:", rate=1.0)

    async def fails() -> None:
        raise Unavailable("the store is away")

    for _ in range(2):
        with pytest.raises(Unavailable):
            await service.shared_soon(NAME, fails)


async def test_a_page_that_must_not_wait_is_shown_the_last_answer_for_a_while() -> None:
    clock, slow = Stopwatch(), asyncio.Event()
    service = Service("memory:", rate=1.0, clock=clock)

    async def ask() -> str:
        return "old"

    async def ask_slowly() -> str:
        await slow.wait()
        return "new"

    assert await service.shared_soon(NAME, ask, timedelta(seconds=2)) == "old"
    clock.seconds += 3
    assert await service.shared_soon(NAME, ask_slowly) == "old"
    clock.seconds += 60
    assert await service.shared_soon(NAME, ask_slowly) is None
    slow.set()
    assert await service.shared_soon(NAME, ask_slowly) == "new"
