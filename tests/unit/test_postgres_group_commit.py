"""Which works share a commit, and which run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rota.stores.base import CommitOptions, Tx
from rota.stores.postgres.group_commit import Groups, Turn


class Lender:
    """Lends turns that do nothing, and keeps each until it is let go."""

    def __init__(self) -> None:
        self.out = 0
        self.most = 0
        self.lent = asyncio.Semaphore(0)
        self.let_go = asyncio.Event()

    async def lend(self, use: Callable[[Turn], Awaitable[None]], *, patient: bool = False) -> None:
        self.out += 1
        self.most = max(self.most, self.out)
        self.lent.release()
        nothing_done: Any = _NothingDone()
        await use(nothing_done)
        await self.let_go.wait()
        self.out -= 1


class _NothingDone:
    def __init__(self) -> None:
        self.line = self.unwritten = self
        self.failure = None
        self.puts: dict[Any, Any] = {}
        self.deletes: dict[Any, Any] = {}

    def new_tx(self, unwritten: object) -> _NothingDone:
        return self

    async def flush(self, *, last: bool) -> None:
        pass


async def nothing(tx: Tx) -> None: ...


async def groups_of(lanes: list[str | None], turns: int) -> int:
    """How many turns were out at once, when that many had been lent."""
    lender = Lender()
    groups = Groups(lender.lend, 8, lambda: None)
    answers = asyncio.gather(*(groups.run(nothing, CommitOptions(lane=lane)) for lane in lanes))
    for _ in range(turns):
        await lender.lent.acquire()
    lender.let_go.set()
    await answers
    await groups.finish()
    return lender.most


async def test_works_that_come_together_share_a_commit() -> None:
    assert await groups_of([None] * 10, turns=1) == 1


async def test_works_of_one_lane_share_a_commit() -> None:
    assert await groups_of(["a", None, "a"], turns=1) == 1


async def test_works_of_two_lanes_run_side_by_side() -> None:
    assert await groups_of(["a", "b", None, "a"], turns=2) == 2
