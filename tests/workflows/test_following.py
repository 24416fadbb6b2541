"""Who follows a workflow hears of every step, once."""

from __future__ import annotations

import rota
from rota.domain.workflow import Step
from rota.surfaces.cli.commands.tail import Tail
from worlds import MINUTE, World


async def test_tail_follows_the_steps_of_a_workflow(world: World) -> None:
    tries: list[int] = []

    def charge() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("busy")

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        await ctx.step(charge, retry_policy=rota.RetryPolicy(initial=MINUTE, jitter=0))
        await ctx.sleep(MINUTE)

    tail = Tail(world.queue, {"kind": "flow"})
    await tail.begin()
    seen: list[tuple[str, str, int]] = []
    async with world.running():
        run = await world.queue.start_workflow("flow")
        while (await world.queue.get(run.id)).is_live:
            lines, _ = await tail.more()
            seen += [(line.key, line.status, line.attempts) for _, line in lines if isinstance(line, Step)]
        lines, _ = await tail.more()
        seen += [(line.key, line.status, line.attempts) for _, line in lines if isinstance(line, Step)]
    assert seen == [
        ("charge", "waiting", 1),
        ("charge", "completed", 2),
        ("sleep", "waiting", 0),
        ("sleep", "completed", 0),
    ]
