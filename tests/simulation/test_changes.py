"""What changed since: everything is told that happened, whenever someone looks, stops looking and resumes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

import records
import rota
from rota.domain.model import Event, Run, Task, TaskStatus, TemplateTarget
from rota.engine import changes
from rota.engine.changes import (
    LIMIT,
    OVERLAP,
    Ask,
    ChangeFollower,
    Notice,
    changes_since,
    cursor,
    notices_of,
    time_of_cursor,
)
from rota.stores.base import Store, Tx
from rota.surfaces.cli.commands.tail import Tail
from worlds import EVERY_STORE, MINUTE, SECOND, START, THOROUGH, World, play, seeds

Told = dict[str, Notice]


def names(notices: Iterable[Notice]) -> list[str]:
    return [notice.name for notice in notices]


async def truth(store: Store, tenant: str = "default") -> set[str]:
    """Everything that the records of a tenant have to tell."""
    kept = [
        record for each in (await store.snapshot()).values() for record in each if record.tenant == tenant
    ]
    told: list[Task | Run | Event] = [each for each in kept if isinstance(each, (Task, Event))]
    told += [each for each in kept if isinstance(each, Run) and each.target_id is None]
    return {notice.cursor for record in told for notice in notices_of(record)}


def busy(w: World) -> None:
    """Handlers for everything that can become of a task."""

    @w.app.task("work")
    async def work(input: Any) -> None:
        await asyncio.sleep(0.7)

    @w.app.task("slow")
    async def slow(input: Any) -> None:
        await asyncio.sleep(15)

    @w.app.task("shaky", max_retries=2)
    async def shaky(context: rota.Context) -> None:
        if context.attempt < 3:
            raise ValueError("not yet")

    @w.app.task("hopeless", max_retries=0)
    async def hopeless(input: Any) -> None:
        raise ValueError("never")

    @w.app.task("later")
    async def later(context: rota.Context) -> None:
        if context.attempt == 1:
            raise rota.RescheduleError(delay_seconds=2)


async def people(w: World, random: Random, queue: rota.Queue, until: timedelta) -> None:
    """What people do meanwhile."""
    await queue.create_schedule("often", task_type="slow", interval=SECOND * 3)
    await queue.create_template("off", "slow")
    await queue.create_schedule("bad", target=TemplateTarget(template_id="off"), interval=SECOND * 5)
    await queue.update_template("off", enabled=False)
    await queue.create_schedule("failing", task_type="hopeless", interval=SECOND * 4, pause_on_failure=True)
    kinds = ("work", "slow", "shaky", "hopeless", "later", "unknown")
    while w.clock.now() < START + until:
        task = await queue.submit(random.choice(kinds), ttl_seconds=random.choice((None, 5)))
        await asyncio.sleep(random.random() * 2)
        task = await queue.get(task.id)
        if task.status in ("failed", "cancelled") or (random.random() < 0.3 and task.is_live):
            await (queue.cancel(task.id) if task.is_live else queue.replay(task.id))
        if random.random() < 0.2:
            await queue.pause_schedule("often", "a break")
            await queue.resume_schedule("often")
    await queue.delete_schedule("often")


LONG = MINUTE if THOROUGH else MINUTE / 2
WRITTEN_TO = [store for store in EVERY_STORE if THOROUGH or store != "folder"]
"""A bucket in memory and one in a folder are the same store, and a slow one here."""


async def follow(store: Store, random: Random, stop: asyncio.Event) -> Told:
    """Follow, lose the connection at any point of what was sent, resume behind the last that came."""
    told: Told = {}
    last: datetime | None = None
    while not stop.is_set():
        lookout = ChangeFollower(store, "default")
        look = await lookout.look(behind=last)
        sent = look.missed.notices if look.missed is not None else []
        last = last or look.at
        for _ in range(random.randrange(8)):
            await asyncio.sleep(random.random() * 2)
            sent += (await lookout.look()).notices
        for notice in sent[: random.randrange(len(sent) + 1)]:
            told[notice.cursor] = notice
            last = time_of_cursor(notice.cursor)
        await asyncio.sleep(random.random() * 3)
    look = await ChangeFollower(store, "default").look(behind=last)
    assert look.missed is not None
    assert not look.missed.too_many
    return told | {notice.cursor: notice for notice in look.missed.notices}


@pytest.mark.filterwarnings("ignore::rota.UnhandledKind")  # one kind is unknown on purpose
@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(few=1, every=2))
@pytest.mark.parametrize("store", WRITTEN_TO)
def test_everything_is_told_to_those_who_come_and_go(tmp_path: Path, store: str, seed: int) -> None:
    async def scenario(w: World) -> None:
        random = Random(seed)
        busy(w)
        stop = asyncio.Event()
        others = rota.Queue(w.store, tenant="others", clock=w.clock, actor="other")
        following = [asyncio.create_task(follow(w.store, Random(seed + each), stop)) for each in (10, 20)]
        await asyncio.sleep(0.1)
        async with w.running(worker_id="one", lease=30), w.running(worker_id="two"):
            await asyncio.gather(
                people(w, random, w.queue, LONG), people(w, random, others, timedelta(seconds=10))
            )
        stop.set()
        expected = await truth(w.store)
        for told in await asyncio.gather(*following):
            assert set(told) == expected
        assert {each.name for each in told.values()} >= EVERYTHING
        assert await truth(w.store, "others") & expected == set()

    play(scenario, EVERY_STORE[store], tmp_path)


EVERYTHING = {
    *(
        f"task.{action}"
        for action in ("created", "started", "completed", "failed", "retrying", "rescheduled")
    ),
    *(f"task.{action}" for action in ("cancelling", "cancelled", "expired", "replayed")),
    *(f"run.{action}" for action in ("started", "completed", "failed", "skipped")),
    *(f"schedule.{action}" for action in ("created", "paused", "resumed", "deleted")),
}


@pytest.mark.parametrize("store", ["sqlite", "folder"])
def test_what_another_node_writes_is_told(tmp_path: Path, store: str) -> None:
    async def scenario(w: World) -> None:
        busy(w)
        there = EVERY_STORE[store](tmp_path, w.clock)
        await there.open()
        lookout = ChangeFollower(there, "default")
        told = [*(await lookout.look()).notices]
        async with w.running():
            for _ in range(8):
                await w.queue.submit("shaky")
                await asyncio.sleep(0.9)
                told += (await lookout.look()).notices
        await asyncio.sleep(3)
        told += (await lookout.look()).notices
        ids = [notice.cursor for notice in told]
        assert len(ids) == len(set(ids)), "whoever stays hears each once"
        assert set(ids) == await truth(w.store)
        await there.close()

    play(scenario, EVERY_STORE[store], tmp_path)


async def test_the_life_of_a_task_and_its_run_in_order(world: World) -> None:
    @world.app.task("work", max_retries=1)
    async def work(context: rota.Context) -> None:
        if context.attempt == 1:
            raise ValueError("once")

    lookout = ChangeFollower(world.store, "default")
    assert (await lookout.look()).notices == []
    schedule = await world.schedule("s", interval=MINUTE)
    async with world.running():
        await world.at(MINUTE * 1.5)
    await world.queue.pause_schedule("s")
    notices = (await lookout.look()).notices
    assert names(notices) == [
        "schedule.created",
        "run.started",
        "task.created",
        "task.started",
        "task.retrying",
        "task.started",
        "task.completed",
        "run.completed",
        "schedule.paused",
    ]
    assert {each.schedule and each.schedule.key for each in notices} == {"s"}
    assert {each.record.id for each in notices if each.type == "schedule" and each.record} == {schedule.id}
    assert [each.line.number for each in notices if each.line and each.type == "task"] == [1, 2, 3, 4, 5]
    assert (await lookout.look()).notices == []


async def test_what_runs_is_told_while_it_runs(world: World) -> None:
    busy(world)
    lookout = ChangeFollower(world.store, "default")
    await lookout.look()
    task = await world.queue.submit("slow", schedule_at=START + MINUTE)
    assert names((await lookout.look()).notices) == ["task.created"]
    async with world.running():
        await world.at(MINUTE + SECOND)
        assert names((await lookout.look()).notices) == ["task.started"]
        await world.at(MINUTE + 12 * SECOND)
        assert (await lookout.look()).notices == []
        await world.queue.cancel(task.id)
        told = names((await lookout.look()).notices)
        await world.at(MINUTE * 2)
    told += names((await lookout.look()).notices)  # the handler may be as quick as the first of the two looks
    assert told == ["task.cancelling", "task.cancelled"]


async def test_a_change_that_becomes_visible_late_is_told_once(world: World) -> None:
    await world.at(MINUTE)
    lookout = ChangeFollower(world.store, "default")
    await lookout.look()
    for late in (SECOND, SECOND * 9):
        await world.queue.submit("work")
        first = await lookout.look()
        assert names(first.notices) == ["task.created"]
        slow = records.task(created_at=world.clock.now() - late)

        async def work(tx: Tx, task: Task = slow) -> None:
            tx.put(_with_history(task))

        await world.store.transact(work)
        assert [each.id for each in (await lookout.look()).notices] == [slow.id]
        assert (await lookout.look()).notices == []


def _with_history(task: Task) -> Task:
    from msgspec.structs import replace

    line = rota.Change(
        number=1,
        at=task.created_at,
        status=TaskStatus.PENDING,
        actor="late",
        type=rota.ChangeType.CREATED,
    )
    return replace(task, updated_at=task.created_at, history=(line,))


async def test_a_clock_that_is_set_back_hides_nothing(world: World) -> None:
    await world.at(MINUTE)
    lookout = ChangeFollower(world.store, "default")
    await lookout.look()
    first = await world.queue.submit("work")
    assert [each.id for each in (await lookout.look()).notices] == [first.id]
    world.clock.step(-MINUTE / 2)
    second = await world.queue.submit("work")
    assert second.id in [each.id for each in (await lookout.look()).notices]


async def test_too_many_changes_are_told_as_such_and_then_it_goes_on(world: World) -> None:
    lookout = ChangeFollower(world.store, "default", limit=10)
    await lookout.look()
    begun = await world.store.now()
    await world.queue.submit_many([("work", None)] * 11)
    flooded = await lookout.look()
    assert flooded.too_many
    assert flooded.notices == []
    one = await world.queue.submit("work")
    after = await lookout.look(behind=begun)
    assert not after.too_many
    assert [each.id for each in after.notices] == [one.id]
    assert after.missed is not None
    assert after.missed.too_many
    assert after.missed.notices == []


async def test_more_than_can_be_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MARKED_AT_MOST", 10)
    lookout = ChangeFollower(world.store, "default")
    await lookout.look()
    await world.queue.submit_many([("work", None)] * 11)
    await asyncio.sleep(1)
    assert (await lookout.look()).too_many
    await asyncio.sleep(1)
    one = await world.queue.submit("work")
    after = await lookout.look()
    assert not after.too_many
    assert [each.id for each in after.notices] == [one.id]
    await asyncio.sleep(OVERLAP.total_seconds())
    assert (await lookout.look()).too_many, "what had begun before the flood was not told"
    assert not (await lookout.look()).too_many


async def test_many_pages(world: World) -> None:
    tasks = await world.queue.submit_many([("work", None)] * 1500)
    found = (await world.store.read(changes_since("default", Ask(since=START))))[0]
    assert {each.id for each in found.notices} == {task.id for task in tasks}
    assert len(found.notices) == 1500 < LIMIT


async def test_tail_shows_what_becomes_of_tasks_that_ended_before_it_began(world: World) -> None:
    old = await world.queue.submit("work", tags=["mine"])
    await world.queue.cancel(old.id)
    await world.at(MINUTE)
    watch = Tail(world.queue, {"tag": "mine", "kind": None, "schedule": None})
    assert [line.status for _, line in await watch.begin()] == ["pending", "cancelled"]
    await world.queue.replay(old.id)
    await world.queue.submit("work")
    new = await world.queue.submit("work", tags=["mine"])
    lines, too_many = await watch.more()
    assert [(task.id, line.number) for task, line in lines] == [(old.id, 3), (new.id, 1)]
    assert not too_many


@pytest.mark.parametrize("text", ["", "x", "12", "-1-", "9" * 19 + "-", "9" * 18 + "-", "1-\n", "1-é"])
def test_what_is_no_cursor(text: str) -> None:
    assert time_of_cursor(text) is None


def test_a_cursor_says_its_time() -> None:
    at = START + timedelta(microseconds=123)
    assert time_of_cursor(cursor(at, "task:1:2")) == at
