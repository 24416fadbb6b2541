"""A crash at every store call of a workflow that has everything in it: the result is the same, and what was recorded is
not done again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rota
from rota import TaskStatus
from rota.domain.workflow import Step
from rota.stores.base import Tx
from simulation.faults import Fault, FaultyStore, Node, Plan
from worlds import EVERY_STORE, MINUTE, STORES, THOROUGH, World, play, seeds

EXPECTED = {
    "stock": 7,
    "pages": [0, 10, 20],
    "group": ["left", "right"],
    "bill": {"sum": 7, "nested": ["n", 1]},
    "mapped": [0, 1, 4],
    "first": ["paid", {"by": "card"}],
    "again": ["late", None],
    "tried": 3,
}


class Rich:
    """A workflow with steps, gather, a TaskGroup, nested children, waits, a race, a signal, a failing
    step and an undo."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ran: Counter[str] = Counter()
        self.again: list[str] = []
        app = world.app
        # as many workers may die in a row as chance wills: four in a row, with nothing done, end a run as LeaseLost
        app.workflow("rich", max_retries=100)(self.rich)
        app.workflow("bill", max_retries=100)(self.bill)
        app.task("square", max_retries=100)(self.square)

    async def is_recorded(self, ctx: rota.Workflow) -> bool:
        """The idempotency key of a step is its id."""
        id = ctx.idempotency_key

        async def step(tx: Tx) -> bool:
            found = await tx.get(Step, id)
            return found is not None and found.is_over

        return await self.world.store.read(step)

    async def did(self, ctx: rota.Workflow, key: str, value: Any) -> Any:
        name = f"{ctx.task.id}:{key}"
        self.ran[name] += 1
        if await self.is_recorded(ctx):
            self.again.append(name)
        return value

    async def square(self, input: int) -> int:
        return input * input

    async def rich(self, ctx: rota.Workflow, input: dict[str, Any]) -> Any:
        tries = self.ran

        async def flaky() -> int:
            await self.did(ctx, "flaky", None)
            if tries[f"{ctx.task.id}:flaky"] < 3:
                raise ValueError("not yet")
            return 3

        found: dict[str, Any] = {}
        release = partial(self.did, ctx, "release")
        found["stock"] = await ctx.step(self.did, ctx, "reserve", 7, name="reserve", undo=release)
        pages = [ctx.step(self.did, ctx, f"render[{n}]", n * 10, name="render", key=n) for n in range(3)]
        found["pages"] = await asyncio.gather(*pages)
        async with asyncio.TaskGroup() as group:
            left = group.create_task(ctx.step(self.did, ctx, "left", "left", name="left"))
            right = group.create_task(self.branch(ctx))
        found["group"] = [left.result(), right.result()]
        found["bill"] = await ctx.child(self.bill, sum=found["stock"])
        found["mapped"] = await ctx.map("square", [0, 1, 2], key=str, limit=2)
        found["first"] = list(await ctx.first(paid=ctx.receive("paid"), late=ctx.sleep(timedelta(days=1))))
        found["again"] = list(await ctx.first(paid=ctx.receive("paid"), late=ctx.sleep(5)))
        found["tried"] = await ctx.step(flaky, retry_policy=rota.RetryPolicy(initial=timedelta(seconds=1)))
        await ctx.undo()
        return found

    async def branch(self, ctx: rota.Workflow) -> str:
        await ctx.sleep(20)
        return str(await ctx.step(self.did, ctx, "right", "right", name="right"))

    async def bill(self, ctx: rota.Workflow, sum: int) -> Any:
        nested = await ctx.step(self.did, ctx, "nested", "n", name="nested")
        return {"sum": sum, "nested": [nested, await ctx.child("square", 1)]}


async def scenario(world: World, plans: list[Plan], key: str = "") -> tuple[Rich, list[Node]]:
    rich = Rich(world)
    stop = asyncio.Event()
    nodes = [Node(world, plan, f"node{key}-{n}") for n, plan in enumerate(plans)]
    running = [asyncio.create_task(node.run(stop)) for node in nodes]
    task = await world.queue.start_workflow("rich", {})
    await world.at(MINUTE)
    await world.queue.signal(task.id, "paid", {"by": "card"})
    done = await world.queue.wait(task.id, timeout=3600)
    stop.set()
    await asyncio.gather(*running)
    assert (done.status, done.error) == (TaskStatus.COMPLETED, None)
    assert done.output == EXPECTED
    assert rich.again == [], "a step ran that was recorded"
    assert rich.ran[f"{task.id}:release"]
    troubles = sum(line.type in ("lease_lost", "retried", "released") for line in done.history)
    assert len(done.history) == 3 + 2 * troubles, "waits write no history"
    steps = await world.queue.steps(task.id)
    numbers = [step.number for step in steps if step.number is not None]
    assert numbers == sorted(set(numbers)), "each answer has a place of its own"
    for other in await world.tasks():
        assert not other.is_live, f"left behind: {other.kind}"
        assert not other.live_children
    return rich, nodes


def once(fault: Fault, call: int) -> Plan:
    return lambda number: fault if number == call else None


class FaultAfterCommit(FaultyStore):
    """Counts only commits that a workflow depends on: looks that find nothing are many, and change nothing."""

    async def transact(self, work: Any, *options: Any) -> Any:
        answer = await self._inner.transact(work, *options)
        name = work.__qualname__.partition(".")[0]
        found = name == "claim_tasks" and answer.tasks
        if not found and name not in ("record_steps", "wait_or_park", "settle_tasks", "restart_workflow"):
            return answer
        self.calls += 1
        match self._plan(self.calls):
            case Fault.AFTER:
                raise rota.Unavailable("injected: answer lost")
            case Fault.DIES_AFTER:
                return await self._die()
        return answer


@pytest.mark.parametrize("store", EVERY_STORE if THOROUGH else ["memory"])
@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.DIES_AFTER])
def test_one_fault_after_every_commit(
    fault: Fault, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Node, "store_class", FaultAfterCommit)
    last = 1000

    async def one(world: World) -> None:
        nonlocal last
        rich, (node,) = await scenario(world, [once(fault, call)])
        if call > node.calls:
            last = node.calls  # the fault never struck: that was all
        elif node.lives == 1:
            twice = {name for name, count in rich.ran.items() if count > 1 and not name.endswith(":flaky")}
            assert not twice or fault is Fault.AFTER

    call = 0
    while call < last:
        call += 1 if THOROUGH else 4 if fault is Fault.DIES_AFTER else 5
        folder = tmp_path / str(call)
        folder.mkdir()
        play(one, EVERY_STORE[store], folder)
    assert last > 30


@pytest.mark.parametrize("store", EVERY_STORE if THOROUGH else [*STORES, "postgres"])
@pytest.mark.parametrize("seed", seeds(few=1, every=8))
def test_many_faults_by_seed(seed: int, store: str, tmp_path: Path) -> None:
    chance = random.Random(seed)

    def plan(number: int) -> Fault | None:
        return chance.choice(list(Fault)) if chance.random() < 0.1 and number < 200 else None

    async def many(world: World) -> None:
        _, nodes = await scenario(world, [plan, plan])
        assert sum(node.lives for node in nodes) > 2, "no node died: the seed proves nothing"

    play(many, EVERY_STORE[store], tmp_path)


def test_no_answer_to_a_signal_is_no_second_signal(tmp_path: Path) -> None:
    async def one(world: World) -> None:
        got: list[Any] = []

        @world.app.workflow("listens")
        async def listens(ctx: rota.Workflow) -> list[Any]:
            while (found := await ctx.receive("word")) != "end":
                got.append(found)
            return [len(got)]

        task = await world.queue.start_workflow("listens")
        async with world.running():
            queue = rota.Queue(FaultyStore(world.store, once(Fault.AFTER, 1)), clock=world.clock)
            await queue.signal(task.id, "word", 1)
            for _ in range(3):
                await world.queue.signal(task.id, "word", 2, idempotency_key="two")
                await world.at(world.clock.now() + MINUTE)
            await world.queue.signal(task.id, "word", "end")
            await world.queue.wait(task.id)
        received = [step.output for step in await world.queue.steps(task.id)]
        assert received == [1, 2, "end"]

    play(one, STORES["memory"], tmp_path)
