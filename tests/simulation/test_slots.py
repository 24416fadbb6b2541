"""A worker fills its slots, never holds more than it has room for, and starts what fires at once."""

from __future__ import annotations

import asyncio
from collections import Counter

from worlds import SECOND, START, Crowd, World, on_any_store


@on_any_store
async def test_a_worker_fills_its_slots_and_no_more(world: World) -> None:
    crowd = Crowd(seconds=0.1)
    world.app.task("work")(crowd.handle)
    tasks = await world.queue.submit_many([("work", None)] * 700)
    async with world.running(concurrency=250):
        for task in tasks:
            await world.queue.wait(task.id)
    assert crowd.most == 250
    assert Counter(task.status for task in await world.tasks()) == {"completed": 700}
    assert {task.attempt for task in await world.tasks()} == {1}


async def test_a_worker_that_stops_settles_what_it_claimed(world: World) -> None:
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


async def test_what_fires_starts_at_that_time(world: World) -> None:
    @world.app.task("work")
    async def work() -> None: ...

    await world.schedule(interval=1)
    async with world.running():
        await world.at(3.5 * SECOND)
    assert [task.started_at for task in await world.tasks()] == [START + n * SECOND for n in (1, 2, 3)]


async def test_a_burst_never_fills_more_than_the_slots(world: World) -> None:
    crowd = Crowd(seconds=0.1)
    world.app.task("work")(crowd.handle)
    for number in range(10):
        await world.schedule(f"s{number}", interval=1, overlap_policy="allow", max_runs=2)
    async with world.running(concurrency=3):
        await world.at(10 * SECOND)
    assert crowd.most == 3
    assert {task.status for task in await world.tasks()} == {"completed"}
    assert len(await world.tasks()) == 20
