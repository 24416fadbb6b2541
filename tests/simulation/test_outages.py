"""The store goes away and comes back: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.engine.commands import Claimed
from rota.engine.observe.telemetry import LeaseLost
from rota.engine.roles.janitor import AFTER_OUTAGE, Janitor
from worlds import SECOND, START, STORES, World, play, seeds


class Outage:
    """From `begin` to `end` whoever asks the store gets no answer."""

    def __init__(self, world: World) -> None:
        self.is_on = False
        for name in ("transact", "read"):
            setattr(world.store, name, self._passed_on(getattr(world.store, name)))

    def _passed_on(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def asked(work: Any, /, *options: Any) -> Any:
            if self.is_on:
                raise rota.Unavailable("injected: away")
            return await call(work, *options)

        return asked


@pytest.mark.parametrize(
    ("lease", "begin", "length"),
    [(30, 5, 50), (30, 9.9, 19), (10, 8, 5.8), (10, 3.2, 6), (10, 5, 120), (2, 5, 1.2)],
)
def test_an_outage_repeats_nothing(lease: float, begin: float, length: float, tmp_path: Path) -> None:
    async def one(world: World) -> None:
        outage = Outage(world)
        starts: Counter[int] = Counter()

        @world.app.task("work")
        async def work(n: int, seconds: float) -> None:
            starts[n] += 1
            await asyncio.sleep(seconds)

        short = [("work", {"n": n, "seconds": 15}) for n in range(8)]
        await world.queue.submit_many([*short, *(("work", {"n": n, "seconds": 200}) for n in range(8, 12))])
        async with world.running(lease=lease, concurrency=6), world.running(lease=lease, concurrency=6):
            await world.at(begin * SECOND)
            outage.is_on = True
            await world.at((begin + length) * SECOND)
            outage.is_on = False
            await world.at(300 * SECOND)
        assert {task.status for task in await world.tasks()} == {"completed"}
        assert set(starts.values()) == {1}
        assert not [signal for signal in world.signals if isinstance(signal, LeaseLost)]

    for _ in seeds(few=1, every=5):
        play(one, STORES["memory"], tmp_path)


def test_an_outage_while_the_janitor_holds_off_is_another(tmp_path: Path) -> None:
    """Whoever holds a lease has as long after the second as after the first."""

    async def one(world: World) -> None:
        world.app.task("work")(asyncio.Event().wait)
        held_up = world.worker(lease=30, scheduler=False, janitor=False)
        task = await world.queue.submit("work")
        await held_up.tasks.run_once()
        outage = Outage(world)
        janitor = Janitor(world.store, world.clock, world.signals.append)
        for begin, end in ((20, 21), (25, 60)):
            await world.at(begin * SECOND)
            outage.is_on = True
            with pytest.raises(rota.Unavailable):
                await janitor.run_once()
            await world.at(end * SECOND)
            outage.is_on = False
            await janitor.run_once()
        while world.clock.now() < START + 60 * SECOND + AFTER_OUTAGE - SECOND:
            await janitor.run_once()
            assert (await world.queue.get(task.id)).status == "running"
            await asyncio.sleep(1)
        await world.at(60 * SECOND + AFTER_OUTAGE)
        await janitor.look_twice()
        assert (await world.queue.get(task.id)).status == "pending"
        held_up.tasks.abandon_handlers()
        held_up.tasks.close()

    play(one, STORES["memory"], tmp_path)


def test_what_is_really_lost_comes_back_after_an_outage(tmp_path: Path) -> None:
    async def one(world: World) -> None:
        outage = Outage(world)

        @world.app.task("work")
        async def work(context: rota.Context) -> None:
            if context.attempt == 1:
                await asyncio.Event().wait()

        dead = world.worker(lease=30, scheduler=False, janitor=False)
        await world.queue.submit("work")
        await dead.tasks.run_once()
        async with world.running(lease=30):
            await world.at(5 * SECOND)
            outage.is_on = True
            await world.at(50 * SECOND)
            outage.is_on = False
            await world.at(110 * SECOND)
        dead.tasks.abandon_handlers()
        dead.tasks.close()
        [task] = await world.tasks()
        assert (task.status, task.attempt) == ("completed", 2)

    play(one, STORES["memory"], tmp_path)


def lose_answers_to_claims(
    world: World, number: int, then: Callable[[], Awaitable[object]] | None = None
) -> None:
    """The next claims are done, and not answered. `then` is awaited after each."""
    transact, left = type(world.store).transact.__get__(world.store), number

    async def losing(work: Any, /, *options: Any) -> Any:
        nonlocal left
        answer = await transact(work, *options)
        if isinstance(answer, Claimed) and left:
            left -= 1
            if then is not None:
                await then()
            raise rota.Unavailable("injected: the answer is lost")
        return answer

    setattr(world.store, "transact", losing)  # noqa: B010  to mypy, a method is not to be replaced


def test_a_claim_whose_answer_is_lost_holds_up_its_tasks_for_a_moment_only(tmp_path: Path) -> None:
    """Also if the claim that would find them is not answered either."""

    async def one(world: World) -> None:
        began: list[timedelta] = []

        @world.app.task("work")
        async def work() -> None:
            began.append(world.clock.now() - START)
            await asyncio.sleep(60)

        await world.queue.submit_many([("work", None)] * 5)
        lose_answers_to_claims(world, 2)
        async with world.running(concurrency=3):
            await world.at(200 * SECOND)
        done = await world.tasks()
        assert {(task.status, task.attempt) for task in done} == {("completed", 1)}
        assert len(began) == 5
        assert max(began[:3]) < SECOND
        assert not [signal for signal in world.signals if isinstance(signal, LeaseLost)]

    play(one, STORES["memory"], tmp_path)


def test_a_claim_that_is_answered_late_is_kept_from_then_on(tmp_path: Path) -> None:
    """Little is left of its lease when it is found: it is renewed at once, and not after a third of a whole one."""

    async def one(world: World) -> None:
        starts = 0

        @world.app.task("work")
        async def work() -> None:
            nonlocal starts
            starts += 1
            await asyncio.sleep(60)

        async def is_over() -> None:
            if world.clock.now() > START + 26 * SECOND:
                lose_answers_to_claims(world, 0)

        await world.queue.submit("work")
        lose_answers_to_claims(world, 1000, is_over)
        async with world.running(lease=30):
            await world.at(30 * SECOND)
            [task] = await world.tasks()
            assert task.lease_expires_at is not None
            assert task.lease_expires_at > START + 50 * SECOND
            await world.at(200 * SECOND)
        [task] = await world.tasks()
        assert (task.status, task.attempt, starts) == ("completed", 1, 1)

    play(one, STORES["memory"], tmp_path)


def test_a_task_that_was_cancelled_before_its_worker_knew_of_it_never_begins(tmp_path: Path) -> None:
    async def one(world: World) -> None:
        began: list[int] = []

        @world.app.task("work")
        async def work(n: int) -> None:
            began.append(n)

        ids = [(await world.queue.submit("work", {"n": n})).id for n in range(2)]
        lose_answers_to_claims(world, 1, lambda: world.queue.cancel(ids[0]))
        async with world.running():
            await world.at(10 * SECOND)
        assert [(await world.queue.get(id)).status for id in ids] == ["cancelled", "completed"]
        assert began == [1]

    play(one, STORES["memory"], tmp_path)


@pytest.mark.parametrize("seconds", [0, 20], ids=["idle", "at work"])
def test_a_worker_that_ends_hands_back_what_it_has_not_heard_of(tmp_path: Path, seconds: int) -> None:
    """It begins nothing any more, and nobody has to wait until the lease has run out."""

    async def one(world: World) -> None:
        began: list[str] = []

        @world.app.task("work")
        async def work(name: str) -> None:
            began.append(name)
            await asyncio.sleep(seconds)

        worker = world.worker(scheduler=False, janitor=False)
        if seconds:
            await world.queue.submit("work", {"name": "before"})
        running = asyncio.create_task(worker.run(handle_signals=False))
        await world.at(SECOND)
        late = await world.queue.submit("work", {"name": "late"})

        async def stop() -> None:
            worker.stop()

        lose_answers_to_claims(world, 1, stop)
        await running
        assert began == (["before"] if seconds else [])
        task = await world.queue.get(late.id)
        assert (task.status, task.attempt) == ("pending", 0)
        assert world.clock.now() - START < (seconds + 2) * SECOND

    play(one, STORES["memory"], tmp_path)
