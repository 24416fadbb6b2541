"""Applying a plan: all of it or nothing, on every store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import rota
from rota.domain.plan.declaration import plain_value
from rota.engine.commands import plans
from rota.stores.base import Store

DECLARED: dict[str, Any] = {
    "calendars": {"closing": {"days": ["2027-12-24"]}},
    "templates": {"page": {"http": "https://example.com/"}},
    "schedules": {
        "a": {"task_type": "t", "cron": "0 9 * * *", "timezone": "Europe/London", "jitter": "5m"},
        "b": {"template": "page", "interval": "5m"},
    },
}


async def test_what_is_applied_is_what_was_planned(store: Store) -> None:
    queue = rota.Queue(store)
    plan = await queue.plan(DECLARED)
    await queue.apply(DECLARED, plan)
    [a, b] = [each.new for each in plan.schedules]
    assert a is not None
    assert b is not None
    found = await queue.get_schedule("a")
    assert (found.id, found.due_at) == (a.id, a.due_at)
    assert (await queue.get_schedule("b")).timing == b.timing
    assert not (await queue.plan(DECLARED)).changes
    exported = await queue.export()
    assert exported["schedules"]["b"].pop("anchor") == plain_value(getattr(b.timing, "anchor", None))
    assert exported == DECLARED
    assert [event.action for event in await queue.schedule_history("a")] == ["created"]


async def test_nothing_is_applied_if_one_thing_is_refused(store: Store) -> None:
    queue = rota.Queue(store)
    await queue.create_tenant("default", schedules=1)
    with pytest.raises(rota.Refused, match="may have 1 schedule"):
        await queue.apply(DECLARED)
    assert await queue.export() == {"calendars": {}, "schedules": {}, "templates": {}}


@pytest.mark.parametrize("value", ["\ud800", 2**70, float("nan")], ids=["surrogate", "large", "nan"])
async def test_what_cannot_be_stored_is_refused_with_its_name(store: Store, value: Any) -> None:
    declared = {"schedules": {"a": {**DECLARED["schedules"]["a"], "input": [value]}}}
    with pytest.raises(rota.Invalid, match=r"^schedule 'a': input: "):
        await rota.Queue(store).plan(declared)


async def test_a_plan_that_no_longer_holds_is_refused(store: Store) -> None:
    queue = rota.Queue(store, actor="anna")
    await queue.apply(DECLARED)
    wanted = {**DECLARED, "schedules": {"a": {**DECLARED["schedules"]["a"], "priority": 3}}}
    plan = await queue.plan(wanted, prune=True)
    await queue.update_schedule("a", description="mine")
    with pytest.raises(rota.Refused, match="no longer holds: schedule 'a' was updated by anna at"):
        await queue.apply(wanted, plan, prune=True)
    await queue.apply(wanted, prune=True)
    assert (await queue.get_schedule("b")).status == "paused"
    again = await queue.get_schedule("a")
    assert (again.description, getattr(again.target, "priority", None)) == ("mine", 3)


async def test_a_plan_of_yesterday_is_refused(store: Store) -> None:
    queue = rota.Queue(store)
    plan = await queue.plan(DECLARED)
    with pytest.raises(rota.Refused, match=r"no longer holds: it was made at .*, not today"):
        await queue.apply(DECLARED, replace(plan, at=plan.at - timedelta(hours=25)))
    assert not await queue.list_schedules()


async def test_a_plan_sees_every_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = rota.Queue(store)
    declared = {
        "templates": {f"t{n}": {"http": "https://example.com/"} for n in range(7)},
        "schedules": {f"s{n}": {"template": f"t{n}", "interval": "5m"} for n in range(7)},
    }
    await queue.apply(declared)
    monkeypatch.setattr(plans, "AT_ONCE", 3)
    plan = await queue.plan(declared)
    assert (len(plan.schedules), len(plan.templates), plan.changes) == (7, 7, [])


async def test_an_edit_is_planned_without_being_made(store: Store) -> None:
    queue = rota.Queue(store)
    made = await queue.plan_create("a", task_type="t", cron="0 9 * * *")
    assert made.schedules[0].new is not None
    assert len(made.times(made.schedules[0]).appear) == 14
    old = await queue.create_schedule("a", task_type="t", cron="0 9 * * *")
    plan = await queue.plan_update("a", cron="0 9 * * 1-5", priority=3)
    [item] = plan.schedules
    assert [each.name for each in item.differences] == ["cron", "priority"]
    assert (len(plan.times(item).vanish), plan.times(item).move, plan.runs_now(item)) == (4, (), False)
    assert await queue.get_schedule("a") == old
    assert [each.key for each in await queue.list_schedules()] == ["a"]
