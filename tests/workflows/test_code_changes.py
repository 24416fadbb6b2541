"""The code of a workflow changes while it runs: what fits goes on, what does not is refused before anything runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import rota
import rota.testing
from rota import TaskStatus
from worlds import HOUR, MINUTE, SECOND, World

Code = Callable[[rota.Workflow], Any]
ran: list[str] = []


def do(ctx: rota.Workflow, name: str) -> Any:
    async def act() -> str:
        ran.append(name)
        return name

    return ctx.step(act, name=name)


async def original(ctx: rota.Workflow) -> Any:
    got = [await do(ctx, "a"), await do(ctx, "b")]
    await ctx.sleep(HOUR)
    return [*got, await do(ctx, "c")]


async def renamed(ctx: rota.Workflow) -> Any:
    got = [await do(ctx, "a"), await do(ctx, "bee")]
    await ctx.sleep(HOUR)
    return [*got, await do(ctx, "c")]


async def inserted(ctx: rota.Workflow) -> Any:
    got = [await do(ctx, "a"), await do(ctx, "new"), await do(ctx, "b")]
    await ctx.sleep(HOUR)
    return [*got, await do(ctx, "c")]


async def removed(ctx: rota.Workflow) -> Any:
    got = [await do(ctx, "a")]
    await ctx.sleep(HOUR)
    return [*got, await do(ctx, "c")]


async def without_wait(ctx: rota.Workflow) -> Any:
    return [await do(ctx, "a"), await do(ctx, "b"), await do(ctx, "c")]


async def ends_sooner(ctx: rota.Workflow) -> Any:
    return [await do(ctx, "a")]


async def broken(ctx: rota.Workflow) -> Any:
    raise KeyError("typo")


async def reordered(ctx: rota.Workflow) -> Any:
    b = await do(ctx, "b")
    got = [await do(ctx, "a"), b]
    await ctx.sleep(HOUR)
    return [*got, await do(ctx, "c")]


async def at_once(ctx: rota.Workflow) -> Any:
    got = await asyncio.gather(do(ctx, "b"), do(ctx, "a"))
    await ctx.sleep(HOUR)
    return [*reversed(got), await do(ctx, "c")]


async def changed_later(ctx: rota.Workflow) -> Any:
    got = [await do(ctx, "a"), await do(ctx, "b")]
    await ctx.sleep(HOUR)
    return [*got, await do(ctx, "d"), await do(ctx, "e")]


async def versioned(ctx: rota.Workflow) -> Any:
    got = [await do(ctx, "a")]
    if ctx.version >= 2:
        got.append(await do(ctx, "new"))
    got.append(await do(ctx, "b"))
    await ctx.sleep(HOUR)
    return [*got, await do(ctx, "c")]


async def half_done(world: World) -> rota.Task:
    """A run that sleeps, with `a` and `b` behind it."""
    ran.clear()
    task = await world.queue.start_workflow("flow")
    async with deployed(world, original):
        await world.at(MINUTE)
    assert ran == ["a", "b"]
    ran.clear()
    return task


def deployed(world: World, code: Code, **options: Any) -> Any:
    world.app = rota.App()
    world.app.workflow("flow", **options)(code)
    return world.running()


@pytest.mark.parametrize(
    ("code", "recorded", "instead"),
    [
        (renamed, "'b'", "asks for 'bee'"),
        (inserted, "'b'", "asks for 'new'"),
        (removed, "'b'", "waits for nothing else"),
        (without_wait, "'sleep'", "asks for 'c'"),
        (ends_sooner, "'b', 'sleep'", "has ended"),
        (broken, "'a', 'b', 'sleep'", "raises KeyError: 'typo'"),
    ],
)
async def test_what_does_not_fit_is_refused_until_the_code_is_put_back(
    world: World, code: Code, recorded: str, instead: str
) -> None:
    task = await half_done(world)
    async with deployed(world, code):
        await world.at(3 * HOUR)
    stopped = await world.queue.get(task.id)
    assert (ran, stopped.status) == ([], TaskStatus.PENDING)
    assert stopped.error is not None
    assert stopped.error.type == "WorkflowChanged"
    assert recorded in stopped.error.message
    assert instead in stopped.error.message
    assert len(stopped.history) <= 5, "tried each minute, and said once"
    assert stopped.history[-1].detail.startswith("handed back: WorkflowChanged")
    async with deployed(world, original):
        done = await world.queue.wait(task.id)
    assert (done.output, done.error, ran) == (["a", "b", "c"], None, ["c"])
    assert done.retries == 0


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (reordered, ["a", "b", "c"]),
        (at_once, ["a", "b", "c"]),
        (changed_later, ["a", "b", "d", "e"]),
        (versioned, ["a", "b", "c"]),
    ],
)
async def test_what_fits_goes_on(world: World, code: Code, output: list[str]) -> None:
    task = await half_done(world)
    async with deployed(world, code, version=2):
        done = await world.queue.wait(task.id)
        assert (done.output, ran) == (output, output[2:])
        new = await world.queue.wait((await world.queue.start_workflow("flow")).id)
    assert (done.workflow_version, new.workflow_version) == (1, 2)
    assert len(new.output) == len(output) + (code is versioned)


async def test_old_and_new_workers_side_by_side(world: World) -> None:
    """Each run goes on with a worker that has its code; one that is too old hands it back, and nothing counts."""
    old, new = rota.App(), rota.App()
    seen: list[tuple[str, int]] = []

    def flow(name: str) -> Code:
        async def run(ctx: rota.Workflow) -> int:
            for _ in range(3):
                await ctx.sleep(60)
                seen.append((name, ctx.version))
            return ctx.version

        return run

    old.workflow("flow", version=1)(flow("old"))
    new.workflow("flow", version=2, accepts=2)(flow("new"))
    world.app = old
    async with world.running(worker_id="old"):
        first = await world.queue.start_workflow("flow")
        await world.at(30 * SECOND)
        world.app = new
        async with world.running(worker_id="new"):
            others = [await world.queue.start_workflow("flow") for _ in range(4)]
            done = [await world.queue.wait(each.id) for each in (first, *others)]
    assert all(each.status == "completed" and each.output == each.workflow_version for each in done)
    assert set(seen) <= {("old", 1), ("new", 2)}
    assert done[0].workflow_version == 1
    assert all(each.retries == 0 for each in done)


async def test_a_run_that_no_worker_accepts_waits_and_says_so(world: World) -> None:
    task = await half_done(world)
    async with deployed(world, original, version=3, accepts=2):
        await world.at(70 * MINUTE)
    waiting = await world.queue.get(task.id)
    assert waiting.status is TaskStatus.PENDING
    assert "began with version 1 of its code, and this worker has version 3 and accepts from 2 on" in str(
        waiting.error
    )
    async with deployed(world, original, version=3):
        done = await world.queue.wait(task.id)
    assert (done.output, done.error) == (["a", "b", "c"], None)


def test_a_workflow_takes_its_context_first() -> None:
    async def wrong(input: Any) -> None: ...

    async def none() -> None: ...

    def plain(ctx: rota.Workflow) -> Any: ...

    with pytest.raises(rota.Invalid, match="is not an async function"):
        rota.App().workflow("flow")(plain)
    functions: list[Any] = [wrong, none]
    for function in functions:
        with pytest.raises(rota.Invalid, match="has no parameter for its context"):
            rota.App().workflow("flow")(function)
    with pytest.raises(rota.Invalid, match="accepts"):
        rota.App().workflow("flow", version=1, accepts=2)


async def test_check_replay_says_whether_stored_runs_fit(world: World) -> None:
    task = await half_done(world)
    stored, steps = await world.queue.get(task.id), await world.queue.steps(task.id)
    app = rota.App()
    app.workflow("flow")(reordered)
    rota.testing.check_replay(app, stored, steps)
    other = rota.App()
    other.workflow("flow")(renamed)
    with pytest.raises(rota.Refused, match="recorded is 'b', 'sleep', but it asks for 'bee'") as caught:
        rota.testing.check_replay(other, stored, steps)
    assert caught.value.code == "workflow_changed"
    newer = rota.App()
    newer.workflow("flow", version=2, accepts=2)(original)
    with pytest.raises(rota.Refused, match="accepts from 2 on"):
        rota.testing.check_replay(newer, stored, steps)
    assert ran == [], "nothing is run"
