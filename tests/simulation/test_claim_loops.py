"""A worker with many slots has two claim loops: while one waits for the store, the other's tasks run."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from rota.stores.base import PLAIN_COMMIT, CommitOptions, Work
from worlds import Crowd, World


async def test_both_loops_together_fill_the_slots_and_no_more(world: World) -> None:
    crowd = Crowd(seconds=0.1)
    world.app.task("work")(crowd.handle)
    tasks = await world.queue.submit_many([("work", None)] * 700)
    async with world.running(concurrency=250):
        for task in tasks:
            await world.queue.wait(task.id)
    assert crowd.most == 250
    assert Counter(task.status for task in await world.tasks()) == {"completed": 700}
    assert {task.attempt for task in await world.tasks()} == {1}


async def test_the_second_loop_helps_only_when_there_is_more(world: World) -> None:
    claims: Counter[str] = Counter()
    transact = world.store.transact

    async def counted(work: Work[Any], /, options: CommitOptions = PLAIN_COMMIT) -> Any:
        claims[options.lane or ""] += 1
        return await transact(work, options)

    vars(world.store)["transact"] = counted
    world.app.task("work")(lambda: None)
    async with world.running(concurrency=250, scheduler=False, janitor=False):
        [few] = await world.queue.submit_many([("work", None)])
        await world.queue.wait(few.id)
        assert claims["first"]
        assert not claims["second"]
        for task in await world.queue.submit_many([("work", None)] * 600):
            await world.queue.wait(task.id)
        assert claims["second"]


async def test_a_worker_that_stops_settles_what_either_loop_claimed(world: World) -> None:
    started = 0
    all_started, go_on = asyncio.Event(), asyncio.Event()

    @world.app.task("work")
    async def work() -> None:
        nonlocal started
        started += 1
        if started == 300:
            all_started.set()
        await go_on.wait()

    await world.queue.submit_many([("work", None)] * 400)
    async with world.running(concurrency=300) as worker:
        await all_started.wait()
        worker.stop()
        await asyncio.sleep(1)
        go_on.set()
    assert Counter(task.status for task in await world.tasks()) == {"completed": 300, "pending": 100}
