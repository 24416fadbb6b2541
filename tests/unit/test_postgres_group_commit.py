"""Which works share a commit, and which run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from records import node, task
from rota.domain.model import Record, Task
from rota.stores.base import CommitOptions, RecordTypes, Tx, Work
from rota.stores.postgres.group_commit import GroupCommit
from rota.stores.postgres.rows import WRITERS
from rota.stores.postgres.transaction import DatabaseTransaction
from rota.stores.postgres.tx import PendingWrites


class Transactions:
    """Transactions that do nothing. Each stays open until `end` is set."""

    def __init__(self) -> None:
        self.open = 0
        self.most = 0
        self.began = asyncio.Semaphore(0)
        self.end = asyncio.Event()

    async def run(self, use: Callable[[Any], Awaitable[None]], *, wait_for_locks: bool = False) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        self.began.release()
        await use(_NothingDone())
        await self.end.wait()
        self.open -= 1


class _NothingDone:
    """A shared transaction, its parts, and a tx without writes."""

    def __init__(self) -> None:
        self.database = self.pending_writes = self
        self.failure = None

    def new_tx(self, *, is_alone: bool) -> SimpleNamespace:
        return SimpleNamespace(puts={}, deletes={}, written=set(), has_sent=False)

    async def add(self, tx: object) -> None:
        pass

    async def flush(self, *, commit: bool) -> None:
        pass


async def nothing(tx: Tx) -> None: ...


async def write(tx: Any) -> None:
    tx.puts["a"] = "a"
    tx.written.add(Task)


async def refuse(tx: Any) -> None:
    tx.puts["b"] = "b"
    tx.written.add(Task)
    raise ValueError


async def groups_of(lanes: list[str | None], begun: int) -> int:
    """How many transactions were open at once, when that many had begun."""
    transactions = Transactions()
    group_commit = GroupCommit(transactions.run, 8, lambda written: None)
    answers = asyncio.gather(*(group_commit.run(nothing, CommitOptions(lane=lane)) for lane in lanes))
    for _ in range(begun):
        await transactions.began.acquire()
    transactions.end.set()
    await answers
    await group_commit.finish()
    return transactions.most


async def test_works_that_come_together_share_a_commit() -> None:
    assert await groups_of([None] * 10, begun=1) == 1


async def test_works_of_one_lane_share_a_commit() -> None:
    assert await groups_of(["a", None, "a"], begun=1) == 1


async def test_works_of_two_lanes_run_side_by_side() -> None:
    assert await groups_of(["a", "b", None, "a"], begun=2) == 2


async def changes_told(*works: Work[None]) -> int:
    """How often those who wait are told of a change, when these works share a commit."""
    transactions = Transactions()
    transactions.end.set()
    told: list[None] = []
    group_commit = GroupCommit(transactions.run, 8, lambda written: told.append(None))
    await asyncio.gather(*(group_commit.run(work, CommitOptions()) for work in works), return_exceptions=True)
    await group_commit.finish()
    assert transactions.most == 1
    return len(told)


async def test_those_who_wait_are_told_if_any_work_of_a_group_wrote() -> None:
    assert await changes_told(nothing, write, nothing) == 1
    assert await changes_told(nothing, nothing) == 0
    assert await changes_told(nothing, refuse) == 0


async def test_others_are_told_whichever_work_of_the_group_concerns_them() -> None:
    """Nobody waits for a heartbeat, and one behind a task in the same group does not keep it secret."""
    heard: list[RecordTypes] = []

    async def write(*_: Any, commit: bool, told: RecordTypes) -> None:
        heard.append(told)

    groups: list[list[Record]] = [[task(), node()], [node(), task()], [node()]]
    for records in groups:
        pending: Any = PendingWrites(cast(DatabaseTransaction, SimpleNamespace(write=write)))
        for record in records:
            puts = {type(record): {record.id: record}}
            await pending.add(
                SimpleNamespace(puts=puts, deletes={}, replaced={}, updates=[], written={type(record)})
            )
        await pending.flush(commit=True)
    assert heard == [{Task}, {Task}, set()]


def test_rows_are_written_in_the_order_of_their_ids() -> None:
    """So that two transactions lock them in the same order, and none waits for the other."""
    writer, tasks = WRITERS[Task], [task(id) for id in "bca"]
    assert writer.rows(tasks, writer.histories(tasks)).ids == ["a", "b", "c"]
    assert writer.identities(tasks).ids == ["a", "b", "c"]
