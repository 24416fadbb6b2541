"""Signals, parks and the ends of children, raced at every interleaving: no wake-up is lost, and no signal comes twice.

Works on the memory store are atomic. Here they are not: like on a database, a work reads at one moment and commits at
another, and versions are checked by its writes. The test decides who goes next, at each of these moments, and tries
the orders one by one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rota
from rota import testing
from rota.domain.errors import Conflict
from rota.stores.base import Store
from rota.stores.memory.store import MemoryStore, MemoryTx
from rota.stores.works import drive
from worlds import EVERY_STORE, THOROUGH, World, play, seeds

MOST = 3 if THOROUGH else 2
"""How often someone else than the first goes next. Each lost wake-up that was ever seen needed one or two; four take
five minutes, and found no more."""
RACED = {"wait_or_park", "send_signal", "settle_tasks", "_change"}
"""`_change` is that of `cancel_task`."""


class Order:
    """Who goes next, at each choice: the first of those who wait, unless the plan says another."""

    def __init__(self, plan: list[int]) -> None:
        self.plan = plan
        self.choices: list[tuple[int, int]] = []

    def next(self, options: int) -> int:
        at = len(self.choices)
        chosen = self.plan[at] if at < len(self.plan) else 0
        self.choices.append((chosen, options))
        return chosen

    def following(self, most: int) -> list[int] | None:
        """The plan of the next order, of all there are with at most so many choices that are not the first."""
        choices = list(self.choices)
        while choices:
            chosen, options = choices.pop()
            before = [each for each, _ in choices]
            if chosen + 1 < options and sum(each > 0 for each in before) < most:
                return [*before, chosen + 1]
        return None


class SlowStore(MemoryStore):
    """Reads at one moment, and commits at another."""

    def __init__(self, clock: testing.LoopClock) -> None:
        super().__init__(clock)
        self.waiting: list[asyncio.Future[None]] = []
        self.conflicts = 0

    async def transact(self, work: Any, /, *options: Any) -> Any:
        if work.__qualname__.partition(".")[0] not in RACED:
            return await super().transact(work, *options)
        while True:
            await self._turn()
            tx = MemoryTx(self.state, self._clock.now())
            answer = drive(work, tx)
            await self._turn()
            try:
                self._commit(tx)
            except Conflict:
                self.conflicts += 1
                continue
            return answer

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        await turn

    async def go(self, order: Order) -> None:
        """One after the other, in this order, until nobody waits."""
        await testing.settle()
        while self.waiting:
            self.waiting.pop(order.next(len(self.waiting))).set_result(None)
            await testing.settle()


Act = Callable[[rota.Queue, str], Coroutine[Any, Any, Any]]


async def kid(input: Any) -> Any:
    return {"kid": input}


async def both(ctx: rota.Workflow) -> Any:
    got = await asyncio.gather(ctx.receive("a"), ctx.child("kid", 1))
    return [*got, await ctx.receive("b")]


async def twice(ctx: rota.Workflow) -> Any:
    return [await ctx.receive("a"), await ctx.receive("a")]


async def race(ctx: rota.Workflow) -> Any:
    label, value = await ctx.first(child=ctx.child("kid", 1), signal=ctx.receive("a"))
    other = await (ctx.receive("a", timeout=5) if label == "child" else ctx.sleep(1))
    return [label, value, other]


async def children(ctx: rota.Workflow) -> Any:
    return await asyncio.gather(*[ctx.child("kid", n, key=n) for n in range(2)])


reserved: list[Any] = []
undone: list[Any] = []


class Begun:
    """When the workflow has begun: before, there would be nothing to undo."""

    event = asyncio.Event()


async def reserve(sku: str) -> str:
    Begun.event.set()
    reserved.append(sku)
    return sku


async def reserve_slowly(sku: str) -> str:
    await reserve(sku)
    await asyncio.sleep(1)
    return sku


async def short(ctx: rota.Workflow) -> None:
    await ctx.step(reserve_slowly, "sku", undo=undone.append)


async def cancelled(ctx: rota.Workflow) -> Any:
    await ctx.step(reserve, "sku", undo=undone.append)
    return await ctx.child("kid", await ctx.receive("a"))


def send(name: str, payload: Any) -> Act:
    return lambda queue, id: queue.signal(id, name, payload)


async def cancel(queue: rota.Queue, id: str) -> None:
    await Begun.event.wait()
    await queue.cancel(id)


async def cancel_a_second_later(queue: rota.Queue, id: str) -> None:
    await Begun.event.wait()
    await asyncio.sleep(1)
    await queue.cancel(id)


class Race(NamedTuple):
    """A workflow, what is done to it meanwhile, and how it must end."""

    flow: Any
    acts: list[Act]
    is_right: Callable[[rota.Task], bool]
    workers: int = 1


RACES = {
    "signals and a child": Race(
        both, [send("a", 1), send("b", 2)], lambda done: done.output == [1, {"kid": 1}, 2]
    ),
    "the same signal twice": Race(
        twice, [send("a", 1), send("a", 2)], lambda done: sorted(done.output) == [1, 2]
    ),
    "a child or a signal": Race(
        race,
        [send("a", 1)],
        lambda done: done.output in (["child", {"kid": 1}, 1], ["signal", 1, None]),
    ),
    "two children": Race(children, [], lambda done: done.output == [{"kid": 0}, {"kid": 1}], workers=3),
    "a cancel and a signal": Race(
        cancelled,
        [cancel, send("a", 2)],
        lambda done: undone == reserved if done.status == "cancelled" else done.output == {"kid": 2},
    ),
    "a cancel and the end": Race(
        short,
        [cancel_a_second_later],
        lambda done: undone == (reserved if done.status == "cancelled" else []),
    ),
}


def check_cancels(race: Race, answers: list[Any], done: rota.Task) -> None:
    """A cancel that was acknowledged is done, or refused: the run had ended."""
    for act, answer in zip(race.acts, answers, strict=True):
        if act in (cancel, cancel_a_second_later) and not isinstance(answer, Exception):
            assert done.status == "cancelled", (done.status, done.history)


def orders(most: int) -> Iterator[Order]:
    plan: list[int] | None = []
    while plan is not None:
        order = Order(plan)
        yield order
        plan = order.following(most)


@pytest.mark.long
@pytest.mark.parametrize("name", RACES)
def test_every_order_comes_to_the_same_end(name: str, tmp_path: Path) -> None:
    flow, acts, is_right, workers = RACES[name]
    seen = conflicts = 0

    async def one(world: World) -> None:
        nonlocal conflicts
        undone.clear()
        Begun.event = asyncio.Event()
        reserved.clear()
        store = world.store
        assert isinstance(store, SlowStore)
        world.app.workflow("flow")(flow)
        world.app.task("kid")(kid)
        async with AsyncExitStack() as running:
            for _ in range(workers):
                await running.enter_async_context(world.running(scheduler=False, concurrency=1))
            task = await world.queue.start_workflow("flow")
            acting = [asyncio.create_task(act(world.queue, task.id)) for act in acts]
            for _ in range(4):
                await store.go(order)
                await testing.advance(timedelta(seconds=2))
            await store.go(order)
            answers = await asyncio.gather(*acting, return_exceptions=True)
            assert all(isinstance(each, rota.Refused) for each in answers if isinstance(each, Exception))
            done = await world.queue.get(task.id)
            check_cancels(RACES[name], answers, done)
            assert not done.is_live, f"lost a wake-up: waits for {done.waits_for}"
            assert is_right(done), (done.status, done.output, done.error, undone)
            assert done.retries == 0
            assert not done.live_children or done.status == "cancelled"
        conflicts += store.conflicts

    for order in orders(MOST):  # noqa: B007  `one` reads it
        seen += 1
        play(one, lambda folder, clock: SlowStore(clock), tmp_path)
    assert seen > 3
    assert conflicts, "nobody met another: the race proves nothing"


class UnevenStore:
    """Passes everything on. Each commit begins late and is answered late, by chance."""

    def __init__(self, inner: Store, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def transact(self, work: Any, *options: Any) -> Any:
        await asyncio.sleep(self._chance.random() / 100)
        answer = await self._inner.transact(work, *options)
        await asyncio.sleep(self._chance.random() / 100)
        return answer


@pytest.mark.parametrize(
    "store", [name for name in EVERY_STORE if THOROUGH or name not in ("memory", "folder")]
)
@pytest.mark.parametrize("seed", seeds(few=1, every=20))
def test_orders_by_chance_on_every_store(seed: int, store: str, tmp_path: Path) -> None:
    """The works of one race, of all workers and all who act, meet as the store lets them."""

    async def one(world: World) -> None:
        flow, acts, is_right, workers = RACES[name]
        undone.clear()
        reserved.clear()
        Begun.event = asyncio.Event()
        world.queue.store = UnevenStore(world.store, random.Random(f"{seed} {name}"))
        world.app.workflow("flow")(flow)
        world.app.task("kid")(kid)
        async with AsyncExitStack() as running:
            for _ in range(workers + 1):
                await running.enter_async_context(world.running(scheduler=False, concurrency=1))
            task = await world.queue.start_workflow("flow")
            acting = [asyncio.create_task(act(world.queue, task.id)) for act in acts]
            done = await world.queue.wait(task.id, timeout=60)
            answers = await asyncio.gather(*acting, return_exceptions=True)
        assert all(isinstance(each, rota.Refused) for each in answers if isinstance(each, Exception))
        assert is_right(done), (done.status, done.output, done.error, undone)
        check_cancels(RACES[name], answers, done)
        assert done.retries == 0

    for name in RACES:
        folder = tmp_path / name
        folder.mkdir()
        play(one, EVERY_STORE[store], folder)
