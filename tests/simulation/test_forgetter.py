"""Forgetting is apart from returning lost tasks: trouble with what is old holds up nothing that lives."""

from __future__ import annotations

from datetime import timedelta
from functools import wraps
from typing import Any

import pytest

import rota
from records import event
from rota.domain.errors import Corrupt, StoreError, Unavailable
from rota.domain.model import Event
from rota.engine.observe.telemetry import LoopFailed
from rota.stores.base import Work
from rota.stores.queries import FinishedTasks
from stores import get, put
from worlds import START, World

DAY = timedelta(days=1)


class Torn:
    """A transaction in which ended tasks cannot be read."""

    def __init__(self, tx: Any, problem: StoreError) -> None:
        self._tx = tx
        self._problem = problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def find(self, query: Any, limit: int, **options: Any) -> Any:
        if isinstance(query, FinishedTasks):
            raise self._problem
        return await self._tx.find(query, limit, **options)


def tear(world: World, problem: StoreError, monkeypatch: pytest.MonkeyPatch) -> None:
    transact = world.store.transact

    async def torn(work: Work[Any], *options: Any) -> Any:
        @wraps(work)
        async def in_part(tx: Any) -> Any:
            return await work(Torn(tx, problem))

        return await transact(in_part, *options)

    monkeypatch.setattr(world.store, "transact", torn)


@pytest.mark.parametrize("problem", [Corrupt("archive/1 cannot be read"), Unavailable("archive/1: denied")])
async def test_a_dead_workers_task_comes_back_though_the_old_cannot_be_read(
    world: World, problem: StoreError, monkeypatch: pytest.MonkeyPatch
) -> None:
    @world.app.task("work")
    async def work(context: rota.Context) -> int:
        return context.attempt

    tear(world, problem, monkeypatch)
    await put(world.store, event(id="old", at=START - 2 * DAY))
    task = await world.queue.submit("work")
    dead = world.worker(lease=30, scheduler=False, janitor=False)
    await dead.tasks.claim()
    dead.tasks.abandon_handlers()
    async with world.running(lease=30, retention=rota.Retention(tasks=DAY, events=DAY)):
        done = await world.queue.wait(task.id)
    dead.tasks.close()
    assert (done.output, done.attempt) == (2, 2)
    assert done.completed_at is not None
    assert done.completed_at - START < timedelta(seconds=45), "no outage was seen in it"
    assert await get(world.store, Event, "old") is None, "what can be read is forgotten all the same"
    failed = [signal for signal in world.signals if isinstance(signal, LoopFailed)]
    assert {(signal.role, signal.error) for signal in failed} == {("forgetter", problem)}
