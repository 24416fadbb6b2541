"""Someone else holds a row: what needs that row waits for it, and nothing else does."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import rota
from rota.domain.model import Task
from rota.engine.observe.telemetry import LeaseLost, LoopFailed
from rota.stores.base import Work
from worlds import SECOND, World

LOCK_PATIENCE = 3.0


class Undone(Exception):
    """What was tried is not to be written."""


class Holder:
    """Holds the row of one task, from `hold` to `release`: who would write it waits, for a while or for good."""

    def __init__(self, world: World, patience: float = LOCK_PATIENCE) -> None:
        self.held: set[str] = set()
        self.asked = 0
        self._released = asyncio.Event()
        self._transact = world.store.transact
        self._patience = patience
        vars(world.store)["transact"] = self.transact

    def hold(self, *ids: str) -> None:
        self.held = set(ids)
        self._released.clear()

    def release(self) -> None:
        """Who waits for it has it next."""
        self.held = set()
        self._released.set()

    async def transact(self, work: Work[Any], /, *options: Any) -> Any:
        self.asked += 1
        while await self._in_the_way(work):
            try:
                await asyncio.wait_for(self._released.wait(), self._patience)
            except TimeoutError:
                raise rota.Unavailable("injected: a row is held", is_busy=True) from None
        return await self._transact(self._skipping(work), *options)

    async def _in_the_way(self, work: Work[Any]) -> bool:
        """Whether the work would write a row that is held: it is run, and what it wrote is looked at and undone."""
        if not self.held:
            return False
        written: set[str] = set()

        async def tried(tx: Any) -> None:
            await self._skipping(work)(tx)
            written.update(tx.puts.get(Task, ()))
            raise Undone

        with suppress(Undone):
            await self._transact(tried)
        return bool(written & self.held)

    def _skipping(self, work: Work[Any]) -> Work[Any]:
        """With a lock, rows that are held are left out."""

        async def skipping(tx: Any) -> Any:
            find = tx.find

            async def free(query: Any, /, limit: int, *, lock: bool = False) -> list[Any]:
                found = await find(query, limit, lock=lock)
                return [each for each in found if not (lock and each.id in self.held)]

            tx.find = free
            return await work(tx)

        return skipping


async def test_a_held_row_costs_no_lease_and_holds_up_no_other(world: World) -> None:
    starts: Counter[int] = Counter()
    holder = Holder(world)

    @world.app.task("work")
    async def work(n: int, seconds: float) -> None:
        starts[n] += 1
        await asyncio.sleep(seconds)

    short = await world.queue.submit_many([("work", {"n": n, "seconds": 8}) for n in range(4)])
    long = await world.queue.submit_many([("work", {"n": n, "seconds": 60}) for n in range(4, 8)])
    async with world.running(lease=30), world.running(lease=30):
        await world.at(5 * SECOND)
        holder.hold(short[0].id)
        await world.at(25 * SECOND)
        assert [str((await world.queue.get(each.id)).status) for each in short] == ["running"] + [
            "completed"
        ] * 3
        await world.at(70 * SECOND)
        assert {(await world.queue.get(each.id)).status for each in long} == {"completed"}
        holder.release()
        await world.at(75 * SECOND)
    assert {task.status for task in await world.tasks()} == {"completed"}
    assert set(starts.values()) == {1}
    assert not [signal for signal in world.signals if isinstance(signal, LeaseLost | LoopFailed)]


async def test_a_held_row_of_a_running_task_costs_only_its_own_lease(world: World) -> None:
    starts: Counter[int] = Counter()
    holder = Holder(world)

    @world.app.task("work")
    async def work(n: int) -> None:
        starts[n] += 1
        await asyncio.sleep(100)

    tasks = await world.queue.submit_many([("work", {"n": n}) for n in range(40)])
    async with world.running(lease=30, janitor=False), world.running(lease=30, concurrency=1):
        await world.at(5 * SECOND)
        holder.hold(tasks[7].id)
        await world.at(90 * SECOND)
        holder.release()
        await world.at(130 * SECOND)
    others = [task for task in await world.tasks() if task.id != tasks[7].id]
    assert {(task.status, task.attempt) for task in others} == {("completed", 1)}


async def test_what_is_due_and_held_by_someone_is_asked_for_now_and_then(world: World) -> None:
    """A schedule, a lease that ran out, an expiry. What nobody holds beside them is fired and swept in time."""
    holder = Holder(world)
    world.app.task("work")(lambda: None)
    held = await world.schedule("held", interval=10, overlap_policy="allow")
    await world.schedule("free", interval=1, overlap_policy="allow")
    expiring = await world.queue.submit("unknown", ttl=10)
    beside_it = await world.queue.submit("unknown", ttl=10)
    holder.hold(held.id, expiring.id)
    async with world.running():
        await world.at(10.5 * SECOND)
        asked = holder.asked
        await world.at(20.5 * SECOND)
        assert holder.asked - asked < 200
        assert all(run.started_at == run.scheduled_at for run in await world.ledger("free"))
        assert not await world.ledger("held")
        assert (await world.queue.get(beside_it.id)).history[-1].status == "expired"
        holder.release()
        await world.at(22 * SECOND)
    assert await world.ledger("held")
    assert (await world.queue.get(expiring.id)).history[-1].status == "expired"
