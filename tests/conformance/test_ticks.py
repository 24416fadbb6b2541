"""Ticks, on every store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from records import run, schedule, task
from rota.domain.model import OverlapPolicy, RunStatus, Schedule
from rota.domain.recurrence import Interval
from rota.domain.schedule import decide
from rota.domain.schedule import run as ledger
from rota.engine.commands import fire_due
from rota.stores.base import Store
from stores import get, put

EVERY = timedelta(minutes=5)


async def test_a_time_that_had_its_run_starts_no_other_beside_those_that_had_none(store: Store) -> None:
    """The clock was set back."""
    now = await store.now()
    due = now - timedelta(seconds=1)
    plans = [
        schedule(id, timing=Interval(EVERY, due), next_run_at=due, due_at=due) for id in ("s1", "s2", "s3")
    ]
    had = run(ledger.run_id(plans[1], due), schedule_id="s2", scheduled_at=due)
    await put(store, *plans, had)
    tick = await store.transact(fire_due(10))
    assert (
        {each.schedule_id for each in tick.runs} == {each.schedule_id for each in tick.tasks} == {"s1", "s3"}
    )
    rows = (await store.snapshot())["run"]
    assert sorted(each.id for each in rows) == sorted(ledger.run_id(plan, due) for plan in plans)
    for plan in plans:
        moved = await get(store, Schedule, plan.id)
        assert moved is not None
        assert (moved.run_count, moved.next_run_at) == (plan.id != "s2", due + EVERY)
    assert not (await store.transact(fire_due(10))).runs


async def test_what_waited_keeps_its_row(store: Store) -> None:
    now = await store.now()
    due = now - timedelta(seconds=1)
    waited = due - EVERY
    plan = schedule(
        "s1",
        timing=Interval(EVERY, due),
        next_run_at=due,
        due_at=due,
        overlap_policy=OverlapPolicy.BUFFER_ALL,
        buffered=(waited,),
    )
    row = run(ledger.run_id(plan, waited), schedule_id="s1", scheduled_at=waited, status=RunStatus.BUFFERED)
    await put(store, plan, row)
    tick = await store.transact(fire_due(10))
    assert {each.scheduled_at: (str(each.status), each.version) for each in tick.runs} == {
        waited: ("running", 2),
        due: ("buffered", 1),
    }
    assert [each.scheduled_at for each in tick.tasks] == [waited]


@pytest.mark.parametrize("live", ["1", "24"])
async def test_schedules_that_are_alike_mind_what_is_live_of_each(store: Store, live: str) -> None:
    """What is decided of one holds for others only if nothing is live of either."""
    now = await store.now()
    due = now - timedelta(seconds=1)
    shared: dict[str, Any] = {"timing": Interval(EVERY, due), "next_run_at": due, "due_at": due}
    plans = {
        f"{policy} {number}": schedule(f"{policy} {number}", overlap_policy=policy, **shared)
        for policy in OverlapPolicy
        for number in "1234"
    }
    tasks = {id: [task(f"of {id}", schedule_id=id)] for id in plans if id[-1] in live}
    await put(store, *plans.values(), *(each for of_one in tasks.values() for each in of_one))
    tick = await store.transact(fire_due(100))
    decided = {id: decide(plan, tick.at, tasks.get(id, [])) for id, plan in plans.items()}
    assert {each.schedule_id for each in tick.tasks} == {id for id, each in decided.items() if each.fires}
    left_out = {row.schedule_id for row in tick.runs if row.status is RunStatus.SKIPPED}
    assert left_out == {id for id, each in decided.items() if not (each.fires or each.buffers)}
    for id, each in decided.items():
        moved = await get(store, Schedule, id)
        assert moved is not None
        assert (moved.run_count, moved.buffered) == (each.schedule.run_count, each.schedule.buffered)
