"""A fault at every store call: one at a time for a small scenario, by seed for a large one. The guarantees hold."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from pathlib import Path

import pytest

import rota
from rota import TaskStatus
from simulation.faults import Fault, FaultyStore, Node, Plan, Watch, check_ledger, check_signals
from worlds import STORES, World, play, seeds, some_calls

CALLS = 40


async def scenario(world: World, plans: list[Plan], minutes: int, quiet: int, watch: Watch) -> list[Node]:
    """Some nodes with faults, some schedules and tasks, for some minutes, and then some quiet ones."""
    world.app.task("work", max_retries=20)(watch.handler(seconds=5))
    await world.schedule("each-minute", cron="* * * * *", overlap_policy="allow")
    await world.schedule("catching-up", interval=45, missed_run_policy="catch_up", overlap_policy="allow")
    tasks = await world.queue.submit_many([("work", {"n": n}) for n in range(3)])
    stop = asyncio.Event()
    faulty = [Node(world, plan, f"node-{n}") for n, plan in enumerate(plans)]
    running = [asyncio.create_task(node.run(stop)) for node in faulty]
    await world.at(timedelta(minutes=minutes))
    late = await world.queue.submit("work", {"n": "late"})
    await world.at(timedelta(minutes=minutes + quiet))
    stop.set()
    await asyncio.gather(*running)
    await check(world, watch, [*(task.id for task in tasks), late.id])
    return faulty


async def check(world: World, watch: Watch, submitted: list[str]) -> None:
    now = world.clock.now()
    for id in submitted:
        task = await world.queue.get(id)
        assert task.status is TaskStatus.COMPLETED, f"lost: {task}"
        assert watch.starts[id] >= 1
    tasks = {task.id: task for task in await world.tasks()}
    for key in ("each-minute", "catching-up"):
        schedule = await world.queue.get_schedule(key)
        check_ledger(schedule, await world.ledger(key), tasks, schedule.created_at, now)
    assert not watch.held_twice, "two workers held one task"
    check_signals(world.signals)


def once(fault: Fault, call: int) -> Plan:
    return lambda number: fault if number == call else None


@pytest.mark.long
@pytest.mark.parametrize("fault", Fault)
def test_one_fault_at_every_call(fault: Fault, tmp_path: Path) -> None:
    """On the reference store: the fault strikes at one call after the other."""
    for call in some_calls(CALLS, fault, Fault):

        async def one(world: World, call: int = call) -> None:
            watch = Watch()
            (node,) = await scenario(world, [once(fault, call)], minutes=2, quiet=2, watch=watch)
            assert node.calls >= call, "the scenario is shorter than the plan: the fault never struck"
            if fault is Fault.BEFORE:
                assert all(count == 1 for count in watch.starts.values()), "run twice without need"

        play(one, STORES["memory"], tmp_path)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", seeds(few=1, every=6))
def test_many_faults_by_seed(seed: int, store: str, tmp_path: Path) -> None:
    """Three nodes, each of whose calls fails with a probability of one in eight, in any way."""
    chance = random.Random(seed)

    def plan(number: int) -> Fault | None:
        return chance.choice(list(Fault)) if chance.random() < 0.125 and number < 300 else None

    async def many(world: World) -> None:
        nodes = await scenario(world, [plan, plan, plan], minutes=5, quiet=4, watch=Watch())
        assert sum(node.lives for node in nodes) > 3, "no node died: the seed proves nothing"

    play(many, STORES[store], tmp_path)


def test_an_answer_that_was_lost_is_not_a_second_task(tmp_path: Path) -> None:
    """`submit` repeats with the same id."""

    async def one(world: World) -> None:
        faulty = FaultyStore(world.store, once(Fault.AFTER, 1))
        queue = rota.Queue(faulty, clock=world.clock)
        task = await queue.submit("work", {"a": 1})
        assert [found.id for found in await world.tasks()] == [task.id]
        faulty = FaultyStore(world.store, once(Fault.AFTER, 1))
        queue = rota.Queue(faulty, clock=world.clock)
        schedule = await queue.create_schedule("s", task_type="work", cron="* * * * *")
        assert (await world.queue.get_schedule("s")).id == schedule.id
        faulty = FaultyStore(world.store, once(Fault.AFTER, 1))
        queue = rota.Queue(faulty, clock=world.clock)
        await queue.trigger_schedule("s")
        assert len(await world.ledger("s")) == 1

    play(one, STORES["memory"], tmp_path)
