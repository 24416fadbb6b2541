"""Schedules that come after others, from end to end in virtual time."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import rota
from rota import RunStatus
from rota.engine.queries.health import broken_records
from simulation.faults import Fault, Node
from worlds import EVERY_STORE, HOUR, MINUTE, SECOND, START, STORES, World, on_any_store, play, seeds


def handle(world: World, seconds: float = 10) -> None:
    @world.app.task("work", max_retries=0)
    async def work(fails: bool = False) -> None:
        await asyncio.sleep(seconds)
        if fails:
            raise RuntimeError("broken")


@pytest.mark.parametrize("store", EVERY_STORE)
def test_one_after_the_other_and_a_join(store: str, tmp_path: Path) -> None:
    async def chain(world: World) -> None:
        handle(world)
        await world.schedule("extract", cron="0 * * * *", max_runs=1)
        await world.schedule("orders", cron="30 * * * *", max_runs=1)
        await world.schedule("load", after="extract", after_delay=MINUTE)
        await world.schedule("report", after=["load", "orders"])
        async with world.running():
            await world.at(2 * HOUR)
        assert broken_records(await world.store.snapshot()) == []
        [extract], [orders] = await world.ledger("extract"), await world.ledger("orders")
        [load], [report] = await world.ledger("load"), await world.ledger("report")
        assert orders.scheduled_at == START + HOUR / 2
        assert load.scheduled_at == START + HOUR + 10 * SECOND + MINUTE
        assert load.completed_at is not None
        assert report.scheduled_at == load.completed_at
        assert (load.causes, extract.effects) == ((extract.id,), (load.id,))
        assert (set(report.causes), load.effects) == ({load.id, orders.id}, (report.id,))
        why = await world.queue.why("report", report.scheduled_at)
        assert "It came after load, 2026-01-01 01:01:10 UTC (completed)." in why
        assert "load, 2026-01-01 01:01:10 UTC, came after extract, 2026-01-01 01:00 UTC (completed)." in why
        [told] = await world.queue.explained_runs("load")
        assert "It came after extract" in told
        assert "It was followed by report" in told
        assert "It was followed by load" in await world.queue.why("extract", extract.scheduled_at)

    play(chain, EVERY_STORE[store], tmp_path)


async def test_the_link_to_a_run_that_has_expired_says_so_unswept(world: World) -> None:
    handle(world)
    await world.schedule("extract", cron="0 * * * *", max_runs=1)
    await world.schedule("load", task_type="nobody", after="extract", ttl=60)
    async with world.running(janitor=False):
        await world.at(HOUR + MINUTE)
        assert "It was followed by load, 2026-01-01 01:00:10 UTC (running)." in await world.queue.why(
            "extract", START + HOUR
        )
        await world.at(HOUR + 2 * MINUTE)
    why = await world.queue.why("extract", START + HOUR)
    assert "It was followed by load, 2026-01-01 01:00:10 UTC (skipped)." in why


async def test_failures_runs_by_hand_and_pauses(world: World) -> None:
    handle(world)
    await world.schedule("s", cron="0 * * * *", status="paused")
    await world.schedule("cleanup", after="s", after_on="failure")
    await world.schedule("always", after="s", after_on="end")
    await world.schedule("resting", after="s", after_on="end", status="paused")
    async with world.running():
        await world.queue.trigger_schedule("s", input={"fails": True})
        await world.at(MINUTE)
        await world.queue.trigger_schedule("s", input={"fails": False})
        await world.at(2 * MINUTE)
        await world.queue.resume_schedule("resting")
        await world.at(3 * MINUTE)
    assert [len(await world.ledger(key)) for key in ("cleanup", "always", "resting")] == [1, 2, 0]
    assert (await world.queue.preview("always")) == []
    unexpected = await world.queue.why("resting", START + MINUTE)
    assert unexpected.status == "paused" or "no times of its own" in unexpected


@on_any_store
async def test_what_runs_already_is_heard_and_overlap_is_judged(world: World) -> None:
    """The follower is made while the other runs. It takes longer than the other, so its own line fills."""
    handle(world, seconds=70)
    await world.schedule("s", cron="* * * * *", overlap_policy="allow", max_runs=3)
    async with world.running():
        await world.at(1.5 * MINUTE)
        await world.schedule("slow", after="s", overlap_policy="buffer_all")
        await world.at(20 * MINUTE)
    rows = await world.ledger("slow")
    assert [row.status for row in rows] == [RunStatus.COMPLETED] * 3
    assert [len(row.causes) for row in rows] == [1] * 3


@on_any_store
async def test_a_target_that_cannot_start_has_failed(world: World) -> None:
    handle(world)
    await world.queue.create_template("report", "work")
    target = rota.TemplateTarget(template_id="report")
    await world.queue.create_schedule("s", target=target, cron="0 * * * *", max_runs=1)
    await world.queue.update_template("report", parameters_schema={"required": ["day"]})
    await world.schedule("cleanup", after="s", after_on="failure")
    with pytest.raises(rota.Refused, match="cannot be deleted while others run after it \\(cleanup\\)"):
        await world.queue.delete_template("report")
    async with world.running():
        await world.at(1.5 * HOUR)
    [row] = await world.ledger("s")
    [effect] = await world.ledger("cleanup")
    assert (row.reason, effect.causes, row.effects) == ("bad_target", (row.id,), (effect.id,))


async def test_cycles_are_refused(world: World) -> None:
    await world.schedule("a", cron="@daily")
    await world.schedule("b", after="a")
    await world.schedule("c", after="b")
    before = await world.queue.get_schedule("a")
    with pytest.raises(rota.Invalid, match="after: it would run after itself: a after c after b after a"):
        await world.queue.update_schedule("a", after="c")
    assert await world.queue.get_schedule("a") == before
    with pytest.raises(rota.Invalid, match="it would run after itself: d after d"):
        await world.schedule("d", after="d")
    with pytest.raises(rota.Invalid, match="after: there is no schedule 'nobody'; create it first"):
        await world.schedule("d", after=["a", "nobody"])


@on_any_store
async def test_two_that_would_close_a_cycle_together(world: World) -> None:
    for key in "abcd":
        await world.schedule(key, cron="@daily")
    await world.queue.update_schedule("b", after="c")
    await world.queue.update_schedule("d", after="a")
    both = [world.queue.update_schedule("a", after="b"), world.queue.update_schedule("c", after="d")]
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert sum(isinstance(each, rota.Invalid) for each in outcomes) == 1


@on_any_store
async def test_delete_rename_and_restore(world: World) -> None:
    handle(world)
    await world.schedule("extract", cron="0 * * * *")
    await world.schedule("load", after="extract")
    with pytest.raises(rota.Refused, match="cannot be deleted while others run after it \\(load\\)"):
        await world.queue.delete_schedule("extract")
    await world.queue.update_schedule("extract", key="read")
    load = await world.queue.get_schedule("load")
    assert load.timing == rota.After(("read",))
    await world.queue.delete_schedule("load")
    await world.queue.delete_schedule("read")
    with pytest.raises(rota.Invalid, match="there is no schedule 'read'"):
        await world.queue.restore_schedule("load")
    await world.queue.restore_schedule("read")
    await world.queue.restore_schedule("load")
    async with world.running():
        await world.at(1.5 * HOUR)
    assert len(await world.ledger("load")) == 1


@on_any_store
async def test_whoever_takes_the_key_of_a_completed_one_has_its_followers(world: World) -> None:
    handle(world)
    await world.schedule("s", run_at=START + MINUTE)
    await world.schedule("load", after="s")
    async with world.running():
        await world.at(2 * MINUTE)
        await world.schedule("s", run_at=START + 3 * MINUTE)
        await world.at(5 * MINUTE)
    assert len(await world.ledger("load")) == 2


@on_any_store
async def test_declared_in_any_order(world: World) -> None:
    handle(world)
    world.app.schedule("load", task_type="work", after="extract")
    world.app.schedule("extract", task_type="work", cron="0 * * * *")
    async with world.running():
        await world.at(1.5 * HOUR)
    assert len(await world.ledger("load")) == 1


async def test_applied_and_backfilled(world: World) -> None:
    handle(world)
    declared = {
        "load": {"task_type": "work", "after": ["extract"]},
        "extract": {"task_type": "work", "cron": "0 * * * *"},
    }
    await world.queue.apply({"schedules": declared})
    assert not (await world.queue.plan({"schedules": declared})).changes
    async with world.running():
        await world.queue.backfill("extract", START - 2 * HOUR, START - HOUR)
        await world.at(5 * MINUTE)
    past = await world.ledger("extract")
    assert [row.causes for row in await world.ledger("load")] == [(row.id,) for row in past]
    assert len(past) == 2
    with pytest.raises(rota.Invalid, match="there is no schedule 'gone'"):
        await world.queue.apply({"schedules": {"x": {"task_type": "work", "after": "gone"}}})
    changed = {**declared, "load": {"task_type": "work", "cron": "0 0 * * *"}}
    await world.queue.apply({"schedules": changed})
    await world.queue.delete_schedule("extract")
    assert broken_records(await world.store.snapshot()) == []


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("seed", seeds(few=1, every=12))
def test_each_end_has_one_effect_whatever_fails(seed: int, store: str, tmp_path: Path) -> None:
    chance = random.Random(seed)

    def plan(number: int) -> Fault | None:
        return chance.choice(list(Fault)) if chance.random() < 0.125 and number < 300 else None

    async def many(world: World) -> None:
        handle(world, seconds=1)
        await world.schedule("s", cron="* * * * *", missed_run_policy="catch_up", max_runs=8)
        await world.schedule("each", after="s", after_on="end", overlap_policy="allow")
        await world.schedule("both", after=["s", "each"], after_on="end", overlap_policy="buffer_all")
        stop = asyncio.Event()
        nodes = [Node(world, plan, f"node-{n}") for n in range(2)]
        running = [asyncio.create_task(node.run(stop)) for node in nodes]
        await world.at(30 * MINUTE)
        stop.set()
        await asyncio.gather(*running)
        assert broken_records(await world.store.snapshot()) == []
        for key, upstream in (("each", ["s"]), ("both", ["s", "each"])):
            causes = {row.id: row for each in upstream for row in await world.ledger(each)}
            rows = await world.ledger(key)
            used = [id for row in rows for id in row.causes]
            assert len(used) == len(set(used)), "an end had two effects"
            for row in rows:
                assert row.status in (RunStatus.COMPLETED, RunStatus.FAILED)
                assert all(row.id in causes[id].effects for id in row.causes)
        times = [row.scheduled_at for row in await world.ledger("each")]
        for row in await world.ledger("s"):
            ended = row.completed_at or world.clock.now()
            assert row.effects or any(at >= ended for at in times), "an end had no effect"

    play(many, STORES[store], tmp_path)


async def test_who_comes_after_another_schedule_now_is_no_follower_of_the_first(world: World) -> None:
    for key in ("first", "second"):
        await world.queue.create_schedule(key, task_type="work", cron="0 * * * *")
    follower = await world.queue.create_schedule("load", task_type="work", after="first")
    await world.queue.update_schedule("load", after="second")
    followers = [(await world.queue.get_schedule(key)).followers for key in ("first", "second")]
    assert followers == [(), (follower.id,)]
