"""The store is locked for longer than a lease, and whoever waits for it gets it in the worst order: nothing that has
been done is done again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import rota
from rota.engine.commands import sweep
from rota.engine.observe.telemetry import LeaseLost
from rota.engine.roles.janitor import GRACE, Janitor
from rota.stores.base import Work
from worlds import SECOND, World


class Locked:
    """From `lock` to `release` whoever writes waits. Then sweeps come first, and each has its commit to itself."""

    def __init__(self, world: World) -> None:
        self._transact = world.store.transact
        self._waiting: list[tuple[bool, asyncio.Event]] = []
        self._is_locked = False
        vars(world.store)["transact"] = self.transact

    def lock(self) -> None:
        self._is_locked = True

    async def release(self) -> None:
        self._is_locked = False
        waiting, self._waiting = self._waiting, []
        for _, free in sorted(waiting, key=lambda each: not each[0]):
            free.set()
            await asyncio.sleep(0.01)

    async def transact(self, work: Work[Any], /, *options: Any) -> Any:
        if self._is_locked:
            free = asyncio.Event()
            self._waiting.append(("sweep" in work.__qualname__, free))
            await free.wait()
        return await self._transact(work, *options)


@pytest.mark.parametrize(("lease", "length"), [(30, 45), (30, 120), (3, 5), (2, 1.9)])
async def test_a_lock_that_outlasts_the_lease_repeats_nothing(
    world: World, lease: float, length: float
) -> None:
    locked = Locked(world)
    starts: Counter[int] = Counter()

    @world.app.task("work")
    async def work(n: int, seconds: float) -> None:
        starts[n] += 1
        await asyncio.sleep(seconds)

    short = [("work", {"n": n, "seconds": 4}) for n in range(8)]
    await world.queue.submit_many([*short, *(("work", {"n": n, "seconds": 100}) for n in range(8, 12))])
    async with world.running(lease=lease), world.running(lease=lease, concurrency=6):
        for begin in (3, 3 + length + 1):  # and once again, a second after the first
            await world.at(begin * SECOND)
            locked.lock()
            await world.at((begin + length) * SECOND)
            await locked.release()
        await world.at(300 * SECOND)
    assert {task.status for task in await world.tasks()} == {"completed"}
    assert set(starts.values()) == {1}
    assert not [signal for signal in world.signals if isinstance(signal, LeaseLost)]


async def test_what_is_really_lost_comes_back_a_little_after_its_lease(world: World) -> None:
    began: list[Any] = []

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        began.append(world.clock.now())
        if context.attempt == 1:
            await asyncio.Event().wait()

    dead = world.worker(lease=30, scheduler=False, janitor=False)
    await world.queue.submit("work")
    await dead.tasks.run_once()
    async with world.running(lease=30):
        await world.at(60 * SECOND)
    assert 30 * SECOND <= began[1] - began[0] <= 35 * SECOND
    [task] = await world.tasks()
    assert (task.status, task.attempt) == ("completed", 2)
    dead.tasks.abandon_handlers()
    dead.tasks.close()


@pytest.mark.parametrize(("stalled", "is_begun"), [(29, True), (31, False), (90, False)])
async def test_a_worker_that_stalled_after_its_claim_begins_nothing_that_another_may_have(
    world: World, stalled: float, is_begun: bool
) -> None:
    begun: list[str] = []

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        begun.append(context.task.worker_id or "")
        await asyncio.sleep(200)

    task = await world.queue.submit("work")
    transact = world.store.transact

    async def stalling(work: Work[Any], /, *options: Any) -> Any:
        answer = await transact(work, *options)
        if "claim_tasks" in work.__qualname__:
            await asyncio.sleep(stalled)
        return answer

    slow = world.worker(lease=30, scheduler=False, janitor=False, worker_id="slow")
    vars(world.store)["transact"] = stalling
    claiming = asyncio.create_task(slow.tasks.run_once())
    await asyncio.sleep(0.01)
    vars(world.store)["transact"] = transact
    async with world.running(lease=30, worker_id="other"):
        await world.at((stalled + 10) * SECOND)
        await claiming
        assert ("slow" in begun) is is_begun
        slow.tasks.abandon_handlers()
        await slow.tasks.run_once()
        assert (await world.queue.wait(task.id)).status == "completed"
    assert begun.count("other") == 1
    slow.tasks.close()


async def test_a_sweep_that_waited_too_long_for_the_store_returns_nothing(world: World) -> None:
    world.app.task("work")(asyncio.Event().wait)
    dead = world.worker(lease=30, scheduler=False, janitor=False)
    await world.queue.submit("work")
    await dead.tasks.run_once()
    await world.at(60 * SECOND)
    now = await world.store.now()
    late = await world.store.transact(sweep(10, ran_out_by=now, valid_until=now - SECOND))
    assert late.returned == []
    in_time = await world.store.transact(sweep(10, ran_out_by=now, valid_until=now + SECOND))
    assert len(in_time.returned) == 1
    dead.tasks.abandon_handlers()
    dead.tasks.close()


async def test_a_janitor_that_has_to_wait_for_as_long_as_the_grace_judges_anew(world: World) -> None:
    world.app.task("work")(asyncio.Event().wait)
    held_up = world.worker(lease=30, scheduler=False, janitor=False)
    task = await world.queue.submit("work")
    await held_up.tasks.run_once()
    locked = Locked(world)
    janitor = Janitor(world.store, world.clock, world.signals.append)
    await world.at(40 * SECOND)
    await janitor.run_once()  # the lease has run out
    await asyncio.sleep(GRACE.total_seconds())
    locked.lock()
    sweeping = asyncio.create_task(janitor.run_once())
    await asyncio.sleep((GRACE + SECOND).total_seconds())
    await locked.release()
    await sweeping
    assert (await world.queue.get(task.id)).status == "running", "its holder had to wait, too"
    await janitor.look_twice()
    assert (await world.queue.get(task.id)).status == "pending"
    held_up.tasks.abandon_handlers()
    held_up.tasks.close()


async def test_a_lease_that_ran_out_is_not_lost_before_its_grace_has_passed(world: World) -> None:
    """However often the janitor looks meanwhile."""
    world.app.task("work")(asyncio.Event().wait)
    held_up = world.worker(lease=30, scheduler=False, janitor=False)
    task = await world.queue.submit("work")
    await held_up.tasks.run_once()
    janitor = Janitor(world.store, world.clock, world.signals.append)
    await world.at(40 * SECOND)
    for _ in range(4):
        await janitor.run_once()
        assert (await world.queue.get(task.id)).status == "running"
        await asyncio.sleep(GRACE.total_seconds() / 4)
    await janitor.run_once()
    assert (await world.queue.get(task.id)).status == "pending"
    held_up.tasks.abandon_handlers()
    held_up.tasks.close()
