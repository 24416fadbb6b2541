"""Answers that all who look at a page share: asked once, never waited for longer than a page may take."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import Unavailable
from rota.engine.clock import SystemClock
from rota.surfaces.http import service as http_service
from rota.surfaces.http.service import Service

NAME = ("queues", "default")
AT_ONCE, WHENEVER = timedelta(0), timedelta(hours=1)


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    return Pages(monkeypatch)


class Pages:
    """How long pages wait: until there is an answer, however slow this machine is, or not at all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.wait(WHENEVER)

    def wait(self, soon: timedelta) -> None:
        self._patch.setattr(http_service, "SOON", soon)


class Stopwatch(SystemClock):
    """Stands at `seconds`."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


async def test_a_slow_answer_is_asked_for_once_and_found_by_whoever_asks_again(pages: Pages) -> None:
    clock, ready, asked = Stopwatch(), asyncio.Event(), 0
    service = Service("memory:", rate=1.0, clock=clock)

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await ready.wait()
        clock.seconds += 1  # the answer is kept for longer than that
        return asked

    pages.wait(AT_ONCE)
    assert await asyncio.gather(*(service.shared_soon(NAME, ask) for _ in range(3))) == [None, None, None]
    ready.set()
    assert await service.shared(NAME, ask, WHENEVER) == 1
    pages.wait(WHENEVER)
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


async def test_a_question_that_fails_when_nobody_waits_any_more_is_no_trouble(pages: Pages) -> None:
    service, away = Service("memory:", rate=1.0), asyncio.Event()
    loop, troubles = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, about: troubles.append(about))

    async def fails() -> None:
        await away.wait()
        raise Unavailable("the store is away")

    pages.wait(AT_ONCE)
    assert await service.shared_soon(NAME, fails) is None
    away.set()
    with pytest.raises(Unavailable):
        await service.shared(NAME, fails, AT_ONCE)
    gc.collect()  # what nobody has asked for is told then
    assert not troubles


async def test_a_page_that_must_not_wait_is_shown_the_last_answer_for_a_while(pages: Pages) -> None:
    clock, slow = Stopwatch(), asyncio.Event()
    service = Service("memory:", rate=1.0, clock=clock)

    async def ask() -> str:
        return "old"

    async def ask_slowly() -> str:
        await slow.wait()
        return "new"

    assert await service.shared_soon(NAME, ask, timedelta(seconds=2)) == "old"
    clock.seconds += 3
    pages.wait(AT_ONCE)
    assert await service.shared_soon(NAME, ask_slowly) == "old"
    clock.seconds += 60
    assert await service.shared_soon(NAME, ask_slowly) is None
    slow.set()
    pages.wait(WHENEVER)
    assert await service.shared_soon(NAME, ask_slowly) == "new"
