"""The order in which works lock gates. Where transactions overlap, another order for each would be a deadlock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

import rota
from rota.domain.model import Gate, Task
from rota.domain.task import Update
from rota.stores.base import BufferedTx
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


def test_those_behind_tasks_that_complete_are_let_in_by_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a limit is of a kind, or of a queue, and has no rate. With both, they are let in one by one."""
    answers: list[list[Task] | None] = []
    update_lines = BufferedTx.update_lines

    async def noted(self: BufferedTx, lines: Mapping[str, int], update: Update, /) -> Any:
        answers.append(await update_lines(self, lines, update))
        return answers[-1]

    async def scenario(is_of_kind: bool, is_of_queue: bool) -> int:
        app = rota.App()
        limit = rota.Limit(concurrency=2, key="n") if is_of_kind else None
        app.task("a", limit=limit)(lambda n: None)
        async with rota.connect("memory:") as queue:
            await queue.declare_limits(app)
            if is_of_queue:
                await queue.limit_queue("default", concurrency=2)
            tasks = await queue.submit_many([("a", {"n": n % 3}) for n in range(30)])
            async with rota.Worker(queue, app):
                for task in tasks:
                    await queue.wait(task.id, timeout=60)
            gates = cast("list[Gate]", (await queue.store.snapshot())["gate"])
        assert {(gate.inside, gate.has_line) for gate in gates} == {(0, False)}
        let_in = sum(len(answer) for answer in answers if answer is not None)
        answers.clear()
        return let_in

    monkeypatch.setattr(BufferedTx, "update_lines", noted)
    assert asyncio.run(scenario(True, False)) == 24
    assert asyncio.run(scenario(False, True)) == 28
    assert asyncio.run(scenario(True, True)) == 0
