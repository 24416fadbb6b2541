"""What `rota doctor` says of workflows that will not go on by themselves."""

from __future__ import annotations

import re
from datetime import timedelta

import rota
from rota.domain.model import Task
from rota.engine.queries.workflows import check_workflows
from rota.stores.base import Tx
from worlds import HOUR, World


async def told(world: World) -> list[str]:
    """Without ids."""
    found = await world.store.read(check_workflows("default"))
    return [re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", sentence) for sentence in found]


async def waits(ctx: rota.Workflow) -> None:
    await ctx.receive("paid")


async def test_runs_that_no_live_worker_goes_on_with(world: World) -> None:
    world.app.workflow("order")(waits)
    await world.queue.start_workflow("order")
    async with world.running():
        await world.at(timedelta(seconds=5))
        assert await told(world) == []
    assert await told(world) == [], "no worker is alive: nothing is known"
    world.app.handlers.clear()
    world.app.workflow("order", version=3, accepts=2)(waits)
    async with world.running():
        await world.at(timedelta(seconds=10))
        assert await told(world) == [
            "runs of order began with version 1 of its code, and live workers accept 2 to 3 (1, ID first)"
        ]


async def test_signals_that_nobody_receives(world: World) -> None:
    world.app.workflow("order")(waits)
    run = await world.queue.start_workflow("order")
    async with world.running():
        await world.at(timedelta(seconds=5))
        await world.queue.signal(run.id, "payed", 40)
        assert await told(world) == [], "it may still come to that"
        await world.at(HOUR)
    assert await told(world) == [
        "order ID has not received 'payed' since 2026-01-01 00:00; it waits for receive:paid"
    ]


async def test_steps_that_do_not_end(world: World) -> None:
    @world.app.workflow("order")
    async def order(ctx: rota.Workflow) -> None:
        await ctx.child("elsewhere")

    @world.app.workflow("nap")
    async def nap(ctx: rota.Workflow) -> None:
        await ctx.sleep(HOUR)

    await world.queue.start_workflow("order")
    await world.queue.start_workflow("nap")
    async with world.running():
        await world.at(timedelta(seconds=5))
        assert await told(world) == []
    await world.at(2 * HOUR)
    assert await told(world) == ["sleep of nap ID was due at 2026-01-01 01:00 and has not ended"]
    [child] = await world.tasks(kind="elsewhere")

    async def lose(tx: Tx) -> None:
        found = await tx.get(Task, child.id)
        assert found is not None
        tx.delete(found)

    await world.store.transact(lose)
    assert "child:elsewhere of order ID waits for ID, which is gone" in await told(world)
