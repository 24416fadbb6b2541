"""The order in which works lock gates. Where transactions overlap, another order for each would be a deadlock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

import rota
from rota.domain.model import Gate
from rota.stores.memory.store import MemoryTx


def test_a_work_locks_all_gates_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end of `a` lets in a `b`, whose kind has a gate of its own."""
    locked: dict[int, list[str]] = {}
    get_many = MemoryTx.get_many

    async def noted(self: MemoryTx, type: Any, ids: Iterable[str], /, *, lock: bool = False) -> Any:
        wanted = sorted(ids, reverse=True)  # as stores do
        if type is Gate and lock:
            locked.setdefault(id(self), []).extend(wanted)
            kept.append(self)  # so that no other gets its id
        return await get_many(self, type, wanted, lock=lock)

    async def scenario() -> None:
        app = rota.App()
        for kind in ("a", "b", "c", "d"):
            app.task(kind, limit=rota.Limit(rate="1000/s"))(lambda: None)
        async with rota.connect("memory:") as queue:
            await queue.declare_limits(app)
            await queue.limit_queue("default", concurrency=1)
            tasks = await queue.submit_many([(kind, None) for kind in "abcd" * 3])
            async with rota.Worker(queue, app):
                for task in tasks:
                    await queue.wait(task.id, timeout=60)

    kept: list[MemoryTx] = []
    monkeypatch.setattr(MemoryTx, "get_many", noted)
    asyncio.run(scenario())
    several = [ids for ids in locked.values() if len(ids) > 2]
    assert several, "some work needed gates of tasks in line"
    assert [ids for ids in several if ids != sorted(set(ids), reverse=True)] == []
