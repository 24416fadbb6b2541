"""What crosses on its way: a result and a renewal, a commit and its lost answer, two hands that plan."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota.domain.errors import Unavailable
from rota.domain.model import TaskStatus
from rota.engine.observe.telemetry import LeaseLost
from rota.stores.base import PLAIN_COMMIT, CommitOptions, Work
from worlds import SECOND, START, World


@pytest.mark.parametrize("long", [99, 100, 200])
async def test_a_delayed_task_is_on_time_whichever_hand_saw_that_there_was_no_more(
    world: World, long: int
) -> None:
    """Exactly one share of long tasks: each hand finds that the other has the slots, and one of them must plan."""
    end = asyncio.Event()
    started: list[Any] = []

    @world.app.task("long")
    async def wait() -> None:
        await end.wait()

    @world.app.task("late")
    async def late() -> None:
        started.append(world.clock.now())
        end.set()

    due = START + 5 * SECOND
    await world.queue.submit("late", schedule_at=due)
    await world.queue.submit_many([("long", None)] * long)
    async with world.running(concurrency=2 * long, scheduler=False, janitor=False):
        await end.wait()
    assert started == [due]


class Crossing:
    """Holds up the first renewal until its task's handler has ended, in a store that could take both at once."""

    def __init__(self, world: World) -> None:
        self._transact = world.store.transact
        self._is_first = True
        self.ended = asyncio.Event()

    async def __call__(self, work: Work[Any], options: CommitOptions = PLAIN_COMMIT) -> Any:
        if options.own_transaction and self._is_first:
            self._is_first = False
            await self.ended.wait()
            await asyncio.sleep(0)
            await asyncio.sleep(0.1)
        return await self._transact(work, options)


async def test_what_a_handler_reported_is_kept_though_it_ended_while_that_was_on_its_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossing = Crossing(world)
    monkeypatch.setattr(world.store, "transact", crossing)

    @world.app.task("work")
    async def work(context: rota.Context) -> str:
        context.log("one")
        context.progress(7)
        await asyncio.sleep(3)  # it is on its way after one
        crossing.ended.set()
        return "done"

    task = await world.queue.submit("work")
    async with world.running(lease=30):
        done = await world.queue.wait(task.id)
    assert (done.output, done.progress, [line.message for line in done.logs]) == ("done", 7, ["one"])
    assert not [signal for signal in world.signals if isinstance(signal, LeaseLost)]


async def test_of_two_renewals_that_cross_the_later_one_does_not_let_the_result_pass_the_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossing = Crossing(world)
    monkeypatch.setattr(world.store, "transact", crossing)

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        context.log("one")
        await asyncio.sleep(3)  # it is on its way after one
        await context.log("two")
        crossing.ended.set()

    task = await world.queue.submit("work")
    async with world.running(lease=30):
        done = await world.queue.wait(task.id)
    assert sorted(line.message for line in done.logs) == ["one", "two"]
    assert not [signal for signal in world.signals if isinstance(signal, LeaseLost)]


async def test_a_result_of_which_the_answer_was_lost_is_known_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = world.store.transact
    lost: list[str] = []

    async def losing(work: Work[Any], options: CommitOptions = PLAIN_COMMIT) -> Any:
        answer = await transact(work, options)
        if options.fail_if_locked and not options.own_transaction and not lost:
            lost.append("a settlement")
            raise Unavailable("the connection was cut after the commit")
        return answer

    monkeypatch.setattr(world.store, "transact", losing)
    told: list[Any] = []
    world.app.on_success(lambda task, output: told.append(("success", output)))
    world.app.on_error(lambda task, error: told.append(("error", error)))

    @world.app.task("work")
    async def work() -> int:
        return 42

    @world.app.task("fails", max_retries=0)
    async def fails() -> None:
        raise ValueError("no")

    tasks = [await world.queue.submit("work"), await world.queue.submit("fails")]
    async with world.running():
        done, failed = [await world.queue.wait(task.id) for task in tasks]
        await asyncio.sleep(60)
    assert lost
    assert (done.status, done.output, done.attempt) == (TaskStatus.COMPLETED, 42, 1)
    assert (failed.status, failed.attempt) == (TaskStatus.FAILED, 1)
    assert [word for word, _ in sorted(told, key=str)] == ["error", "success"]
    assert not [signal for signal in world.signals if isinstance(signal, LeaseLost)]


async def test_a_cancelled_task_is_no_success(world: World) -> None:
    told: list[Any] = []
    world.app.on_success(lambda task, output: told.append(task.status))

    @world.app.task("long")
    async def long() -> None:
        await asyncio.Event().wait()

    task = await world.queue.submit("long")
    async with world.running():
        await asyncio.sleep(1)
        await world.queue.cancel(task.id)
        done = await world.queue.wait(task.id)
    assert done.status is TaskStatus.CANCELLED
    assert told == []
    assert done.completed_at is not None
    assert done.completed_at - START < timedelta(minutes=1)


class FailingLate:
    """A store that fails the first renewal, five seconds after it was asked."""

    def __init__(self, world: World) -> None:
        self._transact = world.store.transact
        self.failed = asyncio.Event()

    async def __call__(self, work: Work[Any], options: CommitOptions = PLAIN_COMMIT) -> Any:
        if options.own_transaction and not self.failed.is_set():
            await asyncio.sleep(5)
            self.failed.set()
            raise Unavailable("injected")
        return await self._transact(work, options)


async def test_what_was_reported_while_a_renewal_failed_is_newer_than_what_that_carried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailingLate(world)
    monkeypatch.setattr(world.store, "transact", failing)

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        context.log("one")
        context.progress(1)
        await asyncio.sleep(3)  # that is on its way
        context.log("two")
        context.progress(2)
        await failing.failed.wait()

    task = await world.queue.submit("work")
    async with world.running(lease=30):
        done = await world.queue.wait(task.id)
    assert (done.progress, [line.message for line in done.logs]) == (2, ["one", "two"])
