"""A worker beside a scheduler claims in the commit that fires; it never holds more than it has room for."""

from __future__ import annotations

from worlds import SECOND, START, Crowd, World


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
