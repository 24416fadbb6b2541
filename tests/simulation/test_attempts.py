"""Two attempts of one task never run at the same time in one worker, and a lost one changes nothing."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota import TaskStatus
from rota.domain.errors import Refused, Unavailable
from rota.domain.model import Failure
from rota.domain.task import Completed, Failed
from rota.engine.commands import Result, settle_tasks
from rota.engine.observe.telemetry import LeaseLost
from rota.stores.base import PLAIN_COMMIT, CommitOptions, Work
from worlds import MINUTE, SECOND, START, Stubborn, World

AT_ONCE = rota.RetryPolicy(initial=timedelta(0))


async def test_a_retry_waits_until_the_attempt_before_it_has_ended(world: World) -> None:
    stubborn = Stubborn(world, seconds=40)
    world.app.task("long", timeout=1, max_retries=2, retry_policy=AT_ONCE)(stubborn.handle)
    world.app.task("other")(lambda: None)
    task = await world.queue.submit("long")
    async with world.running(concurrency=2):
        await world.at(20 * SECOND)
        waiting = await world.queue.get(task.id)
        assert (waiting.status, waiting.attempt) == (TaskStatus.PENDING, 1)
        assert "and still runs: this worker starts no other attempt before it has ended" in str(waiting.error)
        assert "and still runs" in waiting.history[-1].detail
        others = await world.queue.submit_many([("other", None)] * 3)  # they pass the one that waits
        assert [(await world.queue.wait(other.id)).status for other in others] == ["completed"] * 3
        assert world.clock.now() < START + 40 * SECOND
        done = await world.queue.wait(task.id)
    assert (done.status, done.attempt, stubborn.most) == (TaskStatus.FAILED, 3, 1)
    assert stubborn.began == [timedelta(0), 40 * SECOND, 80 * SECOND]


async def test_a_slot_stays_taken_until_the_handler_has_ended(world: World) -> None:
    stubborn = Stubborn(world, seconds=40)
    world.app.task("long", timeout=1, max_retries=0)(stubborn.handle)
    world.app.task("other")(lambda: None)
    await world.queue.submit("long")
    async with world.running(concurrency=1):
        await world.at(20 * SECOND)
        other = await world.queue.submit("other")
        assert (await world.queue.wait(other.id)).started_at == START + 40 * SECOND


async def test_a_replay_waits_for_it_too_and_another_worker_need_not(world: World) -> None:
    stubborn = Stubborn(world, seconds=40)
    world.app.task("long", timeout=1, max_retries=0)(stubborn.handle)
    task = await world.queue.submit("long")
    async with world.running(worker_id="first"):
        await world.at(10 * SECOND)
        await world.queue.replay(task.id)
        await world.at(20 * SECOND)
        assert stubborn.began == [timedelta(0)]
        async with world.running(worker_id="second"):
            await world.at(21 * SECOND)
            assert (await world.queue.get(task.id)).worker_id == "second"
    assert stubborn.began == [timedelta(0), 20 * SECOND]


async def test_a_claim_that_was_sent_before_the_first_attempt_began_starts_no_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker claims with a tick, and for a slot that becomes free meanwhile. The one claim may reach the store long
    after the other."""
    stubborn = Stubborn(world, seconds=40)
    world.app.task("long", timeout=1, max_retries=1, retry_policy=AT_ONCE)(stubborn.handle)
    world.app.task("other")(lambda: None)
    tasks = world.worker(concurrency=2).tasks
    await world.queue.submit("other")
    await tasks.claim()
    transact, reaches_store = world.store.transact, asyncio.Event()

    async def late(work: Work[Any], options: CommitOptions = PLAIN_COMMIT) -> Any:
        await reaches_store.wait()
        return await transact(work, options)

    monkeypatch.setattr(world.store, "transact", late)
    claiming = asyncio.create_task(tasks.claim_with_tick())
    await asyncio.sleep(0)
    monkeypatch.setattr(world.store, "transact", transact)
    task = await world.queue.submit("long")
    while not tasks.held or tasks.held[0].id != task.id:
        await asyncio.sleep(1)
        await tasks.run_once()
    await asyncio.sleep(10)
    await tasks.run_once()
    waiting = await world.queue.get(task.id)
    assert (waiting.status, waiting.retries) == (TaskStatus.PENDING, 1)
    reaches_store.set()
    await claiming
    await tasks.run_once()
    again = await world.queue.get(task.id)
    assert (again.status, again.attempt) == (TaskStatus.PENDING, 1)
    while (await world.queue.get(task.id)).is_live:
        await asyncio.sleep(10)
        await tasks.run_once()
    assert (stubborn.most, len(stubborn.began)) == (1, 2)
    tasks.close()


async def test_threads_of_one_task_never_run_side_by_side() -> None:
    """In real time: virtual time stands still while a thread works, so there a thread is never late."""
    gate, app, running, most = threading.Event(), rota.App(), [0], [0]

    @app.task("hang", max_retries=1000, timeout=0.05, retry_policy=AT_ONCE)
    def hang() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        gate.wait(30)
        running[0] -= 1

    async with rota.connect("memory:") as queue:
        worker = rota.Worker(queue, app, concurrency=5)
        working = asyncio.create_task(worker.run(handle_signals=False))
        hung = await queue.submit("hang")
        while not (await queue.get(hung.id)).retries:
            await queue.store.wait(None)
        await worker.tasks.run_once()  # nothing is claimed, though slots are free
        waiting = await queue.get(hung.id)
        assert (waiting.status, waiting.attempt) == (TaskStatus.PENDING, 1)
        assert "and still runs" in str(waiting.error)
        gate.set()
        done = await queue.wait(hung.id, 60)
        worker.stop()
        await working
    assert (done.status, most) == (TaskStatus.COMPLETED, [1])
    assert done.attempt >= 2  # a busy machine needs longer than the timeout to start a thread


class Lost:
    """A worker whose task was taken back while its handler ran: nothing was renewed for longer than the lease."""

    def __init__(self, world: World) -> None:
        self.told: list[Any] = []
        self._world = world
        self.worker = world.worker(
            lease=10,
            scheduler=False,
            on_success=lambda task, output: self.told.append(output),
            on_error=lambda task, error: self.told.append(error),
        )

    async def begin(self) -> None:
        await self.worker.tasks.run_once()
        await asyncio.sleep(0)  # the handler begins

    async def lose(self) -> None:
        assert self.worker.janitor is not None
        await asyncio.sleep(11)
        await self.worker.janitor.run_once()
        await asyncio.sleep(3)  # it has its grace
        await self.worker.janitor.run_once()

    async def round(self) -> None:
        await self.worker.tasks.run_once()
        await asyncio.sleep(0.1)


async def test_a_worker_gets_its_own_lost_task_again_only_when_its_handler_has_ended(world: World) -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    @world.app.task("slow")
    async def slow(context: rota.Context) -> int:
        await gates[context.attempt - 1].wait()
        return context.attempt

    task = await world.queue.submit("slow")
    lost = Lost(world)
    await lost.begin()
    await lost.lose()
    await lost.round()
    assert (await world.queue.get(task.id)).status is TaskStatus.PENDING
    gates[0].set()
    await asyncio.sleep(0.1)
    await lost.round()
    await lost.round()
    assert (await world.queue.get(task.id)).attempt == 2
    gates[1].set()
    await asyncio.sleep(0.1)
    await lost.round()
    done = await world.queue.get(task.id)
    assert (done.status, done.output, lost.told) == (TaskStatus.COMPLETED, 2, [2])
    lost.worker.tasks.close()


async def test_a_batch_may_hold_two_results_of_a_task_that_was_lost_and_claimed_again(world: World) -> None:
    @world.app.task("quick")
    async def quick(context: rota.Context) -> int:
        return context.attempt

    task = await world.queue.submit("quick")
    lost = Lost(world)
    await lost.begin()  # its result is there, and nobody settles it
    first = await world.queue.get(task.id)
    await lost.lose()
    await lost.worker.tasks.claim()
    second = await world.queue.get(task.id)
    assert (first.attempt, second.attempt) == (1, 2)
    failed = Failed(failure=Failure(type="Old", message="of the first attempt"))
    results = [Result(task=first, outcome=failed), Result(task=second, outcome=Completed(2))]
    refused, settled = await world.store.transact(settle_tasks(results))
    assert isinstance(refused, Refused)
    assert isinstance(settled, rota.Task)
    assert (settled.status, settled.output, settled.error) == (TaskStatus.COMPLETED, 2, None)
    assert await world.queue.get(task.id) == settled
    await lost.round()  # the worker's own batch has both as well
    assert await world.queue.get(task.id) == settled
    lost.worker.tasks.close()


@pytest.mark.parametrize("noticed", ["renewing", "settling"])
@pytest.mark.parametrize("ending", ["returns", "raises"])
async def test_no_hook_is_called_after_a_lost_lease(world: World, noticed: str, ending: str) -> None:
    gate = asyncio.Event()

    @world.app.task("slow", max_retries=0)
    async def slow() -> str:
        with suppress(asyncio.CancelledError):
            await gate.wait()
        if ending == "raises":
            raise ValueError("too late")
        return "too late"

    task = await world.queue.submit("slow")
    lost = Lost(world)
    await lost.begin()
    await lost.lose()
    if noticed == "renewing":
        await lost.worker.tasks.leases.run_once()
    gate.set()
    await asyncio.sleep(0.1)
    await lost.round()
    await lost.round()
    assert [type(signal) for signal in world.signals].count(LeaseLost) == 1
    error = (await world.queue.get(task.id)).error
    assert error is not None
    assert error.type == "LeaseLost"
    assert lost.told == []
    lost.worker.tasks.close()


class FailingOnce:
    """A store that fails the first renewal, or tells that someone holds the row."""

    def __init__(self, world: World, *, is_busy: bool) -> None:
        self._transact = world.store.transact
        self._clock = world.clock
        self._is_busy = is_busy
        self.tried: list[timedelta] = []

    async def __call__(self, work: Work[Any], options: CommitOptions = PLAIN_COMMIT) -> Any:
        if options.own_transaction:
            self.tried.append(self._clock.now() - START)
            if len(self.tried) == 1:
                await asyncio.sleep(0)  # as any answer, it takes its time
                raise Unavailable("injected", is_busy=self._is_busy)
        return await self._transact(work, options)


@pytest.mark.parametrize("is_busy", [False, True], ids=["away", "busy"])
@pytest.mark.parametrize("reported_at", [0, 9.5], ids=["on its own", "with the lease"])
async def test_what_a_failed_renewal_carried_is_kept_and_tried_again_soon(
    world: World, monkeypatch: pytest.MonkeyPatch, is_busy: bool, reported_at: float
) -> None:
    failing = FailingOnce(world, is_busy=is_busy)
    monkeypatch.setattr(world.store, "transact", failing)

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        await asyncio.sleep(reported_at)
        context.log("one")
        context.progress(7)
        await asyncio.sleep(60)

    task = await world.queue.submit("work")
    async with world.running(lease=30):
        while len(failing.tried) < 2:
            await asyncio.sleep(0.1)
        assert failing.tried[1] - failing.tried[0] < 5 * SECOND
        await asyncio.sleep(0.1)
        soon = await world.queue.get(task.id)
        assert (soon.progress, [line.message for line in soon.logs]) == (7, ["one"])
        done = await world.queue.wait(task.id)
    assert (done.progress, [line.message for line in done.logs]) == (7, ["one"])
    assert done.completed_at is not None
    assert done.completed_at < START + 2 * MINUTE


async def test_what_a_failed_renewal_carried_comes_before_what_was_reported_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailingOnce(world, is_busy=False)
    monkeypatch.setattr(world.store, "transact", failing)

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        context.log("one")
        context.progress(1)
        storing = asyncio.ensure_future(context.log("two")._flush())
        await asyncio.sleep(0)  # the renewal has taken them
        context.log("three")
        context.progress(2)
        await asyncio.gather(storing, return_exceptions=True)
        assert len(failing.tried) == 1

    task = await world.queue.submit("work")
    async with world.running(lease=30):
        done = await world.queue.wait(task.id)
    assert ([line.message for line in done.logs], done.progress) == (["one", "two", "three"], 2)


async def test_a_result_that_waited_for_a_renewal_is_settled_when_that_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = world.store.transact

    async def slow_to_renew(work: Work[Any], options: CommitOptions = PLAIN_COMMIT) -> Any:
        if options.own_transaction:
            await asyncio.sleep(3)
        return await transact(work, options)

    monkeypatch.setattr(world.store, "transact", slow_to_renew)
    storing: list[asyncio.Future[None]] = []

    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        storing.append(asyncio.ensure_future(context.log("one")._flush()))
        await asyncio.sleep(1)  # the renewal is under way

    task = await world.queue.submit("work")
    async with world.running(lease=30):
        done = await world.queue.wait(task.id, timeout=60)
    assert [line.message for line in done.logs] == ["one"]
    assert done.completed_at is not None
    assert done.completed_at < START + 4 * SECOND
    await asyncio.gather(*storing)


@pytest.mark.parametrize("is_busy", [False, True], ids=["away", "busy"])
async def test_a_failed_renewal_is_tried_again_before_a_third_of_the_lease_has_passed(
    world: World, monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    failing = FailingOnce(world, is_busy=is_busy)
    monkeypatch.setattr(world.store, "transact", failing)

    @world.app.task("work")
    async def work() -> None:
        await asyncio.sleep(60)

    await world.queue.submit("work")
    async with world.running(lease=30):
        while len(failing.tried) < 2:
            await asyncio.sleep(0.1)
    assert failing.tried[0] == 10 * SECOND
    assert failing.tried[1] < 15 * SECOND
