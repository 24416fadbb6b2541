"""Nodes are seen while they live, and a queue that is paused is served by nobody."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import rota
from rota.engine.queries.health import check_serving
from worlds import HOUR, SECOND, START, World


def known(world: World) -> None:
    @world.app.task("work")
    async def work() -> None: ...


async def test_a_node_is_seen_while_it_runs_and_gone_when_it_has_stopped(world: World) -> None:
    known(world)
    assert await world.queue.nodes() == []
    async with world.running(concurrency=7, queues=["mail"]) as worker:
        await world.at(2.5 * HOUR)
        [node] = await world.queue.nodes()
        assert (node.id, node.roles) == (worker.worker_id, ("scheduler", "worker", "janitor"))
        assert (node.kinds, node.queues, node.slots, node.tenant) == (
            ("rota.http", "work"),
            ("mail",),
            7,
            "default",
        )
        assert (node.started_at, node.seen_at) == (START, START + 2 * HOUR)
        assert await world.queue.for_tenant("other").nodes() == []
    assert await world.queue.nodes(dead=True) == []


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
        with pytest.warns(rota.UnhandledKind, match="nobody handles `wrok`; did you mean `work`?"):
            task = await world.queue.submit("wrok")
        with pytest.warns(rota.UnhandledKind, match="nobody handles `wrok`"):
            await world.schedule(task_type="wrok", interval=3600)
        coming = await world.queue.why("s", START + SECOND + HOUR)
        assert str(coming).endswith(": nobody handles `wrok`; did you mean `work`?")
        await world.queue.trigger_schedule("s")
        [run] = await world.ledger("s")
        assert "so far: nobody handles `wrok`" in await world.queue.why("s", run.scheduled_at)
        health = await world.store.read(check_serving())
        assert health.unhandled == {"nobody handles `wrok`; did you mean `work`?": 2}
        assert health.alarms == ["kind_unhandled"]
        waiting = await world.queue.waiting(task.id)
    assert waiting is not None
    assert (waiting, waiting.reason) == ("nobody handles `wrok`; did you mean `work`?", "no_worker")


async def test_a_template_of_an_unknown_kind_says_so(world: World) -> None:
    known(world)
    async with world.running():
        await world.at(SECOND)
        made = await world.queue.create_template("typo", "wrok")
        with pytest.warns(rota.UnhandledKind, match="nobody handles `wrok`; did you mean `work`?"):
            await world.queue.execute_template("typo")
        target = rota.TemplateTarget(template_id=made.id)
        with pytest.warns(rota.UnhandledKind, match="nobody handles `wrok`"):
            await world.queue.create_schedule("s", target=target, interval=3600)
        assert "nobody handles `wrok`" in await world.queue.why("s", START + SECOND + HOUR)


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
    every: Any = {"all_tenants": True, "concurrency": 3}
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
        ended: list[int] = []
        draining = asyncio.create_task(world.queue.drain_queue("mail", report=ended.append))
        await world.at(10 * SECOND)
        assert not draining.done()
        finish.set()
        assert (await draining).note == "deploying"
    assert sum(ended) == 1
    assert (await world.queue.get(task.id)).status == "completed"
    assert (await world.queue.get(later.id)).status == "pending"
    actions = [(each.subject_type, each.action) for each in await world.queue.events()]
    assert actions == [("queue", "paused")]


async def test_many_failed_tasks_are_replayed_page_by_page(world: World) -> None:
    is_well = False

    @world.app.task("work", max_retries=0)
    async def work(n: int) -> None:
        if not is_well:
            raise ValueError(n)

    old = await world.queue.submit("work", {"n": 0})
    async with world.running(concurrency=1000):
        await world.at(100 * SECOND)
        await world.queue.submit_many([("work", {"n": n}) for n in range(1, 602)])
        await world.queue.submit("work", {"n": -1}, queue="mail")
        await world.at(110 * SECOND)
        recent: Any = {"since": 60, "queue": "default"}
        assert await world.queue.count(status="failed") == 603
        assert await world.queue.replay_many(**recent, dry_run=True) == 601
        assert await world.queue.count(status="failed") == 603
        is_well = True
        reported: list[int] = []
        assert await world.queue.replay_many(**recent, report=reported.append) == 601
        assert reported == [500, 102]
        assert await world.queue.replay_many(**recent) == 0
        await world.at(120 * SECOND)
    assert Counter(task.status for task in await world.tasks()) == {"completed": 601, "failed": 2}
    assert (await world.queue.get(old.id)).status == "failed"
    with pytest.raises(rota.Invalid, match="a task that is pending cannot be replayed"):
        await world.queue.replay_many(status="pending")


async def test_no_more_is_replayed_than_may_be_pending(world: World) -> None:
    @world.app.task("work", max_retries=0)
    async def work() -> None:
        raise ValueError

    await world.queue.submit_many([("work", None)] * 3)
    async with world.running():
        await world.at(10 * SECOND)
    await world.queue.create_tenant("default", pending_tasks=2)
    with pytest.raises(rota.Refused) as refused:
        await world.queue.replay_many()
    assert refused.value.code == "limit_reached"
    assert await world.queue.count(status="failed") == 3
