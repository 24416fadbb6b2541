"""Many who wait for tasks share their looks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rota
from rota.domain.errors import Corrupt, NotFound
from rota.surfaces.python.calls.tasks import SharedLooks


class Slow:
    """Reads wait to be let go, are counted, and fail as often as they are told to."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.reads = 0
        self.problems: list[Exception] = []
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, work: Any) -> Any:
        self.reads += 1
        await self.go_on.wait()
        if self.problems:
            raise self.problems.pop(0)
        return await self._store.read(work)


async def waiting(queue: rota.Queue, ids: list[str]) -> list[asyncio.Task[rota.Task]]:
    """Each waits; the first reads, and the others have asked."""
    looks = SharedLooks()
    tasks = [asyncio.create_task(looks.look(queue.store, "default", id)) for id in ids]
    await asyncio.sleep(0)
    return tasks


async def submitted(queue: rota.Queue) -> tuple[Slow, list[str]]:
    ids = [task.id for task in await queue.submit_many([("work", n) for n in range(5)])]
    slow = Slow(queue.store)
    queue.store = slow
    return slow, ids


async def test_whoever_asks_during_a_read_is_in_the_next() -> None:
    async with rota.connect("memory:") as queue:
        slow, ids = await submitted(queue)
        looks = await waiting(queue, [*ids, ids[0]])
        slow.go_on.set()
        assert [(await look).id for look in looks] == [*ids, ids[0]]
        assert slow.reads == 2


async def test_one_who_is_stopped_or_asks_for_nothing_harms_no_other() -> None:
    async with rota.connect("memory:") as queue:
        slow, ids = await submitted(queue)
        looks = await waiting(queue, [ids[0], "nobody", *ids])
        looks[0].cancel()
        await asyncio.sleep(0)
        looks[2].cancel()
        slow.go_on.set()
        with pytest.raises(NotFound, match="nobody"):
            await looks[1]
        assert [(await look).id for look in looks[3:]] == ids[1:]


async def test_a_record_that_cannot_be_read_is_the_trouble_of_who_asked_for_it() -> None:
    async with rota.connect("memory:") as queue:
        slow, ids = await submitted(queue)
        looks = await waiting(queue, ids)
        slow.problems = [rota.Unavailable("away"), Corrupt("one of them")]
        slow.go_on.set()
        with pytest.raises(rota.Unavailable):
            await looks[0]
        assert [(await look).id for look in looks[1:]] == ids[1:]
