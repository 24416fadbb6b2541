"""A line of 10,000 tasks of one key: what ends costs as little as without it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from records import gate, task
from rota.domain.model import Gate, Limit, Task, TaskStatus
from rota.domain.task import Completed
from rota.engine.commands import Result, cancel_tasks, settle_tasks
from rota.stores.base import Work
from rota.stores.memory.store import MemoryStore
from rota.stores.queries import TaskList
from stores import START, TestClock, get, put

LENGTH = 10_000
PAGE = 200


class Counted:
    """A transaction that counts the records it gives and takes."""

    def __init__(self, tx: Any) -> None:
        self._tx = tx
        self.records = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def find(self, query: Any, limit: int, **options: Any) -> Any:
        found = await self._tx.find(query, limit, **options)
        self.records += len(found)
        return found

    async def get_many(self, type: Any, ids: Any, **options: Any) -> Any:
        found = await self._tx.get_many(type, ids, **options)
        self.records += len(found)
        return found

    def put(self, record: Any, **options: Any) -> Any:
        self.records += 1
        return self._tx.put(record, **options)


@pytest.fixture
def store(runner: asyncio.Runner) -> Iterator[MemoryStore]:
    store = MemoryStore(TestClock(runner.get_loop()))
    runner.run(store.open())
    runner.run(put(store, *line()))
    yield store
    runner.run(store.close())


def line() -> list[Any]:
    inside = task(
        "inside",
        gates=("g",),
        passed=1,
        status=TaskStatus.RUNNING,
        lease_id="lease",
        lease_expires_at=START + timedelta(minutes=1),
    )
    waiting = [task(f"t{number:06}", gates=("g",), line="g") for number in range(LENGTH)]
    return [gate("g", limit=Limit(concurrency=1), inside=1, has_line=True), inside, *waiting]


async def counted(store: MemoryStore, work: Work[Any]) -> int:
    async def counting(tx: Any) -> int:
        seen = Counted(tx)
        await work(seen)
        return seen.records

    return await store.transact(counting)


async def test_an_end_and_a_page_of_a_mass_cancel_touch_no_others(store: MemoryStore) -> None:
    inside = await get(store, Task, "inside")
    assert inside is not None
    assert await counted(store, settle_tasks([Result(task=inside, outcome=Completed())])) < 10
    first, second = await get(store, Task, "t000000"), await get(store, Task, "t000001")
    assert first is not None
    assert second is not None
    assert (first.passed, first.line, second.passed, second.line) == (1, None, 0, "g")
    waiting = TaskList(tenant="default", at=START, status=TaskStatus.PENDING)
    assert await counted(store, cancel_tasks(waiting, PAGE, "me", "")) < 4 * PAGE
    left = await get(store, Gate, "g")
    assert left is not None
    assert (left.inside, left.has_line) == (1, True)
