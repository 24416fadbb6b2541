"""Nodes are seen while they live, and a queue that is paused is served by nobody."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from worlds import HOUR, SECOND, START, World


def known(world: World) -> None:
    @world.app.task("work")
    async def work() -> None: ...


@pytest.mark.hours
async def test_a_node_is_seen_while_it_runs_and_gone_when_it_has_stopped(world: World) -> None:
    known(world)
    assert await world.queue.nodes() == []
    async with world.running(concurrency=7, queues=["mail"]) as worker:
        await world.at(2.5 * HOUR)
        [node] = await world.queue.nodes()
        assert (node.id, node.roles) == (worker.worker_id, ("scheduler", "worker", "janitor"))
        assert (node.kinds, node.queues, node.slots, node.tenant) == (("work",), ("mail",), 7, "default")
        assert (node.started_at, node.seen_at) == (START, START + 2 * HOUR)
        assert await world.queue.for_tenant("other").nodes() == []
    assert await world.queue.nodes(dead=True) == []


@pytest.mark.hours
async def test_a_node_that_dies_is_seen_and_its_record_goes_later(world: World) -> None:
    known(world)
    worker = world.worker()
    running = asyncio.create_task(worker.run(handle_signals=False))
    await world.at(0.5 * HOUR)
    worker.heartbeat.end = asyncio.Event().wait  # type: ignore[method-assign, assignment]  # it dies: nothing is said
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await world.at(2.9 * HOUR)
    assert [node.id for node in await world.queue.nodes()] == [worker.worker_id]
    await world.at(3.1 * HOUR)
    assert await world.queue.nodes() == []
    [node] = await world.queue.nodes(dead=True)
    assert node.id == worker.worker_id
    async with world.running():
        await world.at(7 * HOUR)
        assert worker.worker_id not in [node.id for node in await world.queue.nodes(dead=True)]


async def test_a_task_of_an_unknown_kind_says_so(world: World) -> None:
    known(world)
    async with world.running():
        await world.at(SECOND)
        task = await world.queue.submit("wrok")
        waiting = await world.queue.waiting(task.id)
    assert waiting is not None
    assert (waiting, waiting.reason) == ("nobody handles `wrok`; did you mean `work`?", "no_worker")


async def test_four_workers_take_nothing_from_a_paused_queue(world: World) -> None:
    ran: Counter[str] = Counter()

    @world.app.task("work")
    async def work(name: str) -> None:
        ran[name] += 1

    other = world.queue.for_tenant("other")
    await world.queue.pause_queue("mail", "moving")
    for _ in range(20):
        await world.queue.submit("work", {"name": "paused"}, queue="mail", priority=255)
        await world.queue.submit("work", {"name": "open"})
        await other.submit("work", {"name": "of another tenant"}, queue="mail")
    [use] = [each for each in await world.queue.list_queues() if each.name == "mail"]
    assert (use.pending, use.running, use.oldest_at) == (20, 0, START)
    assert use.paused is not None
    assert use.paused.note == "moving"
    every = {"all_tenants": True, "concurrency": 3}
    async with (
        world.running(**every),
        world.running(**every),
        world.running(concurrency=3),
        world.running(concurrency=3, queues=["mail", "default"]),
    ):
        await world.at(60 * SECOND)
        assert ran == {"open": 20, "of another tenant": 20}
        assert await world.queue.resume_queue("mail")
        assert not await world.queue.resume_queue("mail")
        await world.at(61 * SECOND)
    assert ran == {"open": 20, "of another tenant": 20, "paused": 20}


async def test_drain_waits_until_nothing_of_the_queue_runs(world: World) -> None:
    finish = asyncio.Event()

    @world.app.task("work")
    async def work() -> None:
        await finish.wait()

    task = await world.queue.submit("work", queue="mail")
    async with world.running():
        await world.at(SECOND)
        with pytest.raises(TimeoutError):
            await world.queue.drain_queue("mail", "deploying", timeout=5)
        later = await world.queue.submit("work", queue="mail")
        draining = asyncio.create_task(world.queue.drain_queue("mail"))
        await world.at(10 * SECOND)
        assert not draining.done()
        finish.set()
        assert (await draining).note == "deploying"
    assert (await world.queue.get(task.id)).status == "completed"
    assert (await world.queue.get(later.id)).status == "pending"
    actions = [(each.subject_type, each.action) for each in await world.queue.events()]
    assert actions == [("queue", "paused")]
