"""Cancelling a workflow: what is in flight ends, every later call raises, and then what was done is undone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import rota
from records import task
from rota import OpenWait, TaskStatus
from rota.domain.model import StepKind
from rota.domain.workflow import Wait
from rota.engine.commands.workflows import Parting, wait_or_park
from simulation.faults import Fault, Node, Plan
from stores import put
from workflows.test_crashes import FaultAfterCommit, once
from worlds import MINUTE, SECOND, STORES, THOROUGH, World, play

UNDONE = ["charge", "stock", "page-1", "page-0"]


class Order:
    """Five things that can be undone, with waits between."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.did: list[str] = []
        self.undid: list[str] = []
        self.raised: list[str] = []
        world.app.workflow("order")(self.order)
        world.app.task("mail")(self.mail)

    async def act(self, name: str) -> str:
        await asyncio.sleep(5)
        self.did.append(name)
        return name

    async def undo(self, name: str) -> None:
        await asyncio.sleep(2)
        self.undid.append(name)

    async def mail(self) -> None:
        await asyncio.sleep(20)

    async def order(self, ctx: rota.Workflow) -> str:
        try:
            pages = [ctx.step(self.act, f"page-{n}", name="page", key=n, undo=self.undo) for n in range(2)]
            await asyncio.gather(*pages)
            await ctx.step(self.act, "stock", name="stock", undo=self.undo)
            await ctx.sleep(10)
            await ctx.step(self.act, "charge", name="charge", undo=self.undo)
            await ctx.child(self.mail)
            await ctx.receive("never")
        except asyncio.CancelledError:
            for call in (lambda: ctx.step(self.act, "late", name="late"), lambda: ctx.sleep(1)):
                try:
                    await call()
                except asyncio.CancelledError as error:
                    self.raised.append(str(error))
            raise
        return "done"


@pytest.mark.parametrize("second", range(0, 60, 3))
async def test_a_cancel_at_any_time_undoes_what_was_done(world: World, second: int) -> None:
    order = Order(world)
    async with world.running():
        task = await world.queue.start_workflow("order")
        await world.at(second * SECOND)
        asked = await world.queue.cancel(task.id, "changed my mind")
        done = await world.queue.wait(task.id, timeout=600)
    assert (done.status, done.error, done.cancel_reason) == (TaskStatus.CANCELLED, None, "changed my mind")
    assert sorted(order.undid) == sorted(order.did), "in flight, recorded, undone"
    assert order.undid == [name for name in UNDONE if name in order.undid] or second <= 5
    assert set(order.raised) <= {"the workflow is cancelled"}
    assert len(order.raised) == 2 or not asked.cancel_requested
    assert "late" not in order.did
    kinds = [step.kind for step in await world.queue.steps(task.id)]
    assert kinds.count(rota.StepKind.UNDO) == len(order.undid)
    assert all(not each.is_live for each in await world.tasks()), "a child outlived the workflow"


def test_compensation_that_is_interrupted_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Node, "store_class", FaultAfterCommit)
    struck = 0

    async def one(world: World, plan: Plan) -> None:
        nonlocal struck
        order = Order(world)
        stop = asyncio.Event()
        node = Node(world, plan, "node")
        running = asyncio.create_task(node.run(stop))
        task = await world.queue.start_workflow("order")
        await world.at(30 * SECOND)
        await world.queue.cancel(task.id)
        done = await world.queue.wait(task.id, timeout=3600)
        stop.set()
        await running
        struck += node.lives > 1
        assert (done.status, done.error) == (TaskStatus.CANCELLED, None)
        assert set(order.undid) == set(order.did)
        assert [name for name in UNDONE if name in order.undid] == list(dict.fromkeys(order.undid))

    for call in range(1, 40, 1 if THOROUGH else 3):
        plan = once(Fault.DIES_AFTER, call)
        play(partial(one, plan=plan), STORES["memory"], tmp_path)
    assert struck > (8 if THOROUGH else 2)


@pytest.mark.parametrize(("problem", "tries"), [(rota.PermanentError, 1), (ValueError, 4)])
async def test_an_undo_that_gives_up_is_said(world: World, problem: type[Exception], tries: int) -> None:
    undid: list[Any] = []

    async def no(output: Any) -> None:
        raise problem("the bank is closed")

    @world.app.workflow("order")
    async def order(ctx: rota.Workflow) -> None:
        await ctx.step(lambda: 1, name="stock", undo=undid.append)
        await ctx.step(lambda: 2, name="charge", undo=no)
        await ctx.step(lambda: 3, name="mail", undo=undid.append)
        await ctx.receive("never")

    async with world.running():
        task = await world.queue.start_workflow("order")
        await world.at(SECOND)
        asked = await world.queue.cancel(task.id)
        done = await world.queue.wait(task.id)
    assert (done.status, str(done.error), undid) == ("cancelled", "NotUndone: not undone: charge", [3, 1])
    assert done.attempt - asked.attempt == tries, "between two tries it is parked"
    steps = {step.key: step for step in await world.queue.steps(task.id)}
    assert (steps["undo:charge"].status, steps["undo:charge"].attempts) == ("failed", tries)
    assert "the bank is closed" in str(steps["undo:charge"].error)


async def test_undos_have_the_time_that_they_need(world: World) -> None:
    """The run's own time is up while they run, and while one waits for its next try."""
    undid: list[Any] = []

    async def slow(output: Any) -> None:
        await asyncio.sleep(40)
        undid.append(output)
        if undid.count(2) == 1:
            raise OSError("once more")

    @world.app.workflow("order", timeout=60)
    async def order(ctx: rota.Workflow) -> None:
        await ctx.step(lambda: 1, name="stock", undo=slow)
        await ctx.step(lambda: 2, name="charge", undo=slow)
        await ctx.step(asyncio.sleep, 55, name="long")
        await ctx.receive("never")

    async with world.running():
        task = await world.queue.start_workflow("order")
        await world.at(30 * SECOND)
        await world.queue.cancel(task.id)
        done = await world.queue.wait(task.id, timeout=600)
    assert (done.status, done.error, undid) == (TaskStatus.CANCELLED, None, [2, 2, 1])


async def test_a_workflow_that_gives_up_may_undo_by_itself(world: World) -> None:
    undid: list[Any] = []

    async def bad() -> None:
        raise rota.PermanentError("no money")

    @world.app.workflow("order")
    async def order(ctx: rota.Workflow) -> None:
        await ctx.step(lambda: 1, name="stock", undo=undid.append)
        try:
            await ctx.step(bad)
        except rota.StepFailed:
            await ctx.undo()
            raise

    async with world.running():
        task = await world.queue.start_workflow("order")
        done = await world.queue.wait(task.id)
    assert (done.status, undid) == (TaskStatus.FAILED, [1])
    assert "bad: PermanentError: no money" in str(done.error)
    with pytest.raises(rota.Refused, match=r"step 'stock' of task .* was undone"):
        await world.queue.replay(task.id, from_step="bad")


async def test_a_cancel_that_comes_before_the_start_ends_it_at_once(world: World) -> None:
    task = await world.queue.start_workflow("order")
    assert (await world.queue.cancel(task.id)).status is TaskStatus.CANCELLED


async def test_a_cancel_during_the_last_step_undoes_it_too(world: World) -> None:
    undid: list[str] = []

    @world.app.workflow("order")
    async def order(ctx: rota.Workflow) -> str:
        await ctx.step(asyncio.sleep, 10, "all", undo=undid.append)
        return "done"

    async with world.running():
        task = await world.queue.start_workflow("order")
        await world.at(5 * SECOND)
        await world.queue.cancel(task.id)
        done = await world.queue.wait(task.id)
    assert (done.status, done.output, undid) == (TaskStatus.CANCELLED, None, ["all"])


async def test_a_cancel_that_comes_too_late_changes_nothing(world: World) -> None:
    @world.app.workflow("order")
    async def order(ctx: rota.Workflow) -> str:
        return str(await ctx.step(lambda: "done", name="all"))

    async with world.running():
        task = await world.queue.wait((await world.queue.start_workflow("order")).id)
    with pytest.raises(rota.Refused, match="already completed"):
        await world.queue.cancel(task.id)


async def test_a_cancel_of_a_parked_run_that_waits_for_a_worker_is_kept(world: World) -> None:
    order = Order(world)
    async with world.running():
        task = await world.queue.start_workflow("order")
        await world.at(15 * SECOND)
    parked = await world.queue.get(task.id)
    assert (parked.status, parked.waits_for) == (TaskStatus.PENDING, (OpenWait(StepKind.SLEEP, "sleep"),))
    asked = await world.queue.cancel(task.id)
    assert (asked.status, asked.cancel_requested) == (TaskStatus.PENDING, True)
    assert (await world.queue.cancel(task.id)).cancel_requested, "asked again: nothing new"
    await world.at(MINUTE)
    async with world.running():
        done = await world.queue.wait(task.id)
    assert (done.status, order.undid) == (TaskStatus.CANCELLED, ["stock", "page-1", "page-0"])


async def test_overlap_policies_see_a_parked_run(world: World) -> None:
    @world.app.workflow("slow")
    async def slow(ctx: rota.Workflow) -> None:
        await ctx.sleep(timedelta(minutes=150))

    target = rota.WorkflowTarget(kind="slow")
    await world.queue.create_schedule("skips", target=target, cron="0 * * * *")
    await world.queue.create_schedule(
        "replaces", target=target, cron="0 * * * *", overlap_policy="cancel_previous"
    )
    async with world.running():
        await world.at(timedelta(hours=4, minutes=1))
    statuses = [str(run.status) for run in await world.ledger("skips")]
    assert statuses == ["completed", "skipped", "skipped", "running"]
    assert [str(run.status) for run in await world.ledger("replaces")] == ["cancelled"] * 3 + ["running"]


@pytest.mark.parametrize("knows", [False, True])
async def test_a_workflow_that_does_not_know_of_its_cancel_is_not_parked(world: World, knows: bool) -> None:
    """It was asked for just before: the code has to hear of it first, and not when its wait is over."""
    running = task("w", status="running", lease_id="l", worker_id="w", is_workflow=True, workflow_version=1)
    [held] = await put(world.store, replace(running, cancel_requested=True))
    waits = [Wait(key="sleep", kind=StepKind.SLEEP, delay=MINUTE)]
    waited = await world.store.transact(wait_or_park(held, waits, 0, [], Parting(is_cancelled=knows)))
    assert waited.is_parked is knows
    assert waited.task.cancel_requested
