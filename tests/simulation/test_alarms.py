"""Alarms from end to end, in virtual time: what stops silently is noticed, once, and over when it is over."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from records import node
from rota import Alarm, AlarmRule, RunStatus, TaskStatus
from rota.domain.model import NodeState
from rota.engine.commands import check_fleet, look_for_alarms, write_node
from rota.engine.observe.telemetry import AlarmBegan, AlarmOver
from rota.engine.roles.alarms import AlarmWatch
from rota.stores.base import Tx
from rota.stores.queries import RunList, WatchedSchedules
from worlds import DAY, HOUR, MINUTE, SECOND, START, World, on_any_store


def failing(world: World, until: timedelta) -> None:
    @world.app.task("work", max_retries=0)
    async def work(input: object) -> None:
        if world.clock.now() < START + until:
            raise ValueError("the bank is closed")


async def alarms(world: World, **options: Any) -> list[Alarm]:
    return list(reversed(await world.queue.alarms(over=True, **options)))


async def test_failures_are_an_alarm_until_one_succeeds(world: World) -> None:
    failing(world, until=4 * HOUR)
    await world.schedule("bank", interval=HOUR, alarm_failures=2)
    async with world.running():
        await world.at(2 * HOUR + MINUTE)
        [found] = await world.queue.alarms()
        assert (found.rule, found.subject, found.over_at) == (AlarmRule.FAILURES, "bank", None)
        assert "the bank is closed" in found.detail
        assert START + 2 * HOUR <= found.began_at < START + 2 * HOUR + 5 * SECOND
        await world.at(5 * HOUR)
    known = {each.rule: each for each in await alarms(world)}
    assert set(known) == {AlarmRule.FAILURES, AlarmRule.NO_SUCCESS}  # three times in a row, by default
    for each in known.values():
        assert each.over_at is not None
        assert START + 4 * HOUR <= each.over_at < START + 4 * HOUR + MINUTE
    signals = [each for each in world.signals if isinstance(each, (AlarmBegan, AlarmOver))]
    assert [type(each).__name__ for each in signals] == ["AlarmBegan", "AlarmBegan", "AlarmOver", "AlarmOver"]
    assert await world.queue.alarms() == []


async def test_only_what_is_written_of_schedules_leads_to_a_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[timedelta] = []
    run_once = AlarmWatch.run_once

    async def counted(watch: AlarmWatch) -> timedelta:
        looks.append(await run_once(watch))
        return looks[-1]

    monkeypatch.setattr(AlarmWatch, "run_once", counted)
    world.app.task("work")(lambda: None)
    async with world.running():
        await world.at(MINUTE)
        before = len(looks)
        task = await world.queue.submit("work")
        await world.queue.store.transact(write_node(node()))
        await world.at(2 * MINUTE)
        assert (await world.queue.get(task.id)).status is TaskStatus.COMPLETED
        assert len(looks) == before
        await world.schedule("bank", interval=HOUR)
        await world.at(3 * MINUTE)
        assert len(looks) > before


@on_any_store
async def test_ten_minutes_without_a_success_are_ten_minutes(world: World) -> None:
    """However many rows that are: at every ten seconds the latest twenty are less than four minutes."""

    @world.app.task("work", max_retries=0)
    async def work(input: object) -> None:
        if world.clock.now() >= START + 20 * MINUTE:
            raise ValueError("the bank is closed")

    await world.schedule("bank", interval=10 * SECOND)
    async with world.running():
        await world.at(29 * MINUTE)
        assert await world.queue.alarms() == []
        await world.at(31 * MINUTE)
        [found] = await world.queue.alarms()
        assert found.rule is AlarmRule.NO_SUCCESS
        assert found.detail.startswith("no success for 10 minutes")


@on_any_store
async def test_failures_are_in_a_row_however_many_times_are_skipped_between(world: World) -> None:
    @world.app.task("work", max_retries=0)
    async def work(input: object) -> None:
        await asyncio.sleep(300)
        if world.clock.now() < START + 20 * MINUTE:
            raise ValueError("the bank is closed")

    await world.schedule("bank", interval=10 * SECOND, alarm_failures=3, alarm_no_success=0)
    async with world.running():
        await world.at(15 * MINUTE)
        assert await world.queue.alarms() == []
        await world.at(20 * MINUTE)
        assert [each.rule for each in await world.queue.alarms()] == [AlarmRule.FAILURES]
        await world.at(30 * MINUTE)
    [found] = await alarms(world)
    assert found.over_at is not None
    assert found.over_at >= START + 20 * MINUTE, "it was over when one succeeded"


@on_any_store
async def test_a_long_run_that_succeeds_is_a_success(world: World) -> None:
    """It began many skipped times ago."""

    @world.app.task("work")
    async def work(input: object) -> None:
        await asyncio.sleep(480)

    await world.schedule("long", interval=10 * SECOND)
    async with world.running():
        await world.at(HOUR)
    assert await alarms(world) == []


@on_any_store
@pytest.mark.parametrize("rules", [{}, {"alarm_no_success": 10 * MINUTE}], ids=["by default", "as asked"])
async def test_times_that_wait_do_not_hide_those_that_succeed(world: World, rules: dict[str, Any]) -> None:
    """They wait in the latest rows, and what succeeds is a time of an hour ago."""
    is_stuck = False

    @world.app.task("work")
    async def work(input: object) -> None:
        await asyncio.sleep(150 if not is_stuck else 86_400)

    await world.schedule("busy", interval=MINUTE, overlap_policy="buffer_all", **rules)
    async with world.running():
        await world.at(100 * MINUTE)
        assert await world.queue.alarms() == []
        is_stuck = True
        await world.at(130 * MINUTE)
        assert [each.rule for each in await world.queue.alarms()] == [AlarmRule.NO_SUCCESS]


@on_any_store
async def test_a_run_that_takes_too_long(world: World) -> None:
    @world.app.task("work")
    async def work(input: object) -> None:
        await asyncio.sleep(1800)

    await world.schedule("slow", interval=2 * HOUR, alarm_duration=10 * MINUTE)
    async with world.running():
        await world.at(30 * MINUTE)
        await world.queue.trigger_schedule("slow")
        await world.at(42 * MINUTE)
        assert [each.rule for each in await world.queue.alarms()] == [AlarmRule.DURATION]
        await world.at(2 * HOUR + 9 * MINUTE)
        assert await world.queue.alarms() == []
        await world.at(2 * HOUR + 11 * MINUTE)
        [found] = await world.queue.alarms(schedule="slow")
        assert found.rule is AlarmRule.DURATION
        assert found.began_at - START - 2 * HOUR - 10 * MINUTE < SECOND
        await world.at(2 * HOUR + 31 * MINUTE)
        assert await world.queue.alarms() == []


@on_any_store
async def test_nobody_takes_its_tasks(world: World) -> None:
    """No worker has a handler: it is late, and in the end without success."""
    await world.schedule("orphan", interval=HOUR, alarm_late=5 * MINUTE)
    async with world.running():
        await world.at(HOUR + 6 * MINUTE)
        assert [each.rule for each in await world.queue.alarms()] == [AlarmRule.LATE]
        await world.at(6 * HOUR)
        rules = {each.rule for each in await world.queue.alarms()}
    assert rules == {AlarmRule.LATE, AlarmRule.NO_SUCCESS}
    assert [each.rule for each in await world.queue.alarms(fleet=True)] == [AlarmRule.WAITING_TASKS]


@on_any_store
async def test_pausing_ends_an_alarm_and_resuming_counts_anew(world: World) -> None:
    failing(world, until=DAY)
    await world.schedule("bank", interval=HOUR)
    async with world.running():
        await world.at(4 * HOUR)
        assert [each.rule for each in await world.queue.alarms()] == [AlarmRule.NO_SUCCESS]
        await world.queue.pause_schedule("bank")
        await world.at(4 * HOUR + MINUTE)
        assert await world.queue.alarms() == []
        await world.queue.resume_schedule("bank")
        await world.at(6 * HOUR + MINUTE)
        assert await world.queue.alarms() == []
        await world.queue.delete_schedule("bank")
        await world.at(9 * HOUR)
    assert len(await alarms(world)) == 1


@on_any_store
async def test_rules_of_a_tag(world: World) -> None:
    failing(world, until=DAY)
    await world.schedule("bank", interval=HOUR, tags=["money"])
    await world.schedule("else", interval=HOUR)
    async with world.running():
        await world.queue.set_alarm_rules("money", alarm_failures=1)
        await world.at(HOUR + MINUTE)
        assert [(each.rule, each.subject) for each in await world.queue.alarms()] == [("failures", "bank")]
        await world.queue.remove_alarm_rules("money")
        await world.at(HOUR + 2 * MINUTE)
        assert await world.queue.alarms() == []
    assert await world.queue.alarm_rules() == {}


@on_any_store
async def test_a_healthy_schedule_is_looked_at_seldom(world: World) -> None:
    failing(world, until=timedelta(0))
    await world.schedule("well", interval=HOUR)
    looks = []

    async def watch_at(tx: Tx) -> Any:
        return [each.watch_at for each in await tx.find(WatchedSchedules(at=None), 10)]

    async with world.running():
        for hour in range(1, 13):
            await world.at(hour * HOUR + 20 * MINUTE)
            looks += await world.store.read(watch_at)
    assert len(set(looks)) <= 6  # of twelve hours
    assert await alarms(world) == []


@on_any_store
async def test_a_row_that_is_missing_and_one_that_is_stuck(world: World) -> None:
    failing(world, until=timedelta(0))
    await world.schedule("well", interval=HOUR)
    async with world.running():
        await world.at(4 * HOUR + MINUTE)

    async def damage(tx: Tx) -> None:
        schedule = (await tx.find(WatchedSchedules(at=None), 1))[0]
        rows = await tx.find(RunList(schedule_id=schedule.id), 10)
        tx.delete(rows[2])

    await world.store.transact(damage)
    watch = AlarmWatch(world.store, world.clock, world.signals.append, kept=30 * DAY)
    await watch.scan()
    [found] = await world.queue.alarms()
    assert found.rule is AlarmRule.MISSING_ROW
    assert (await world.ledger("well"))[0].status is RunStatus.COMPLETED
    await watch.scan()
    assert len(await alarms(world)) == 1


@on_any_store
async def test_overdue_is_said_by_the_second_scan(world: World) -> None:
    await world.schedule("late", interval=HOUR)
    watch = AlarmWatch(world.store, world.clock, world.signals.append)
    await world.at(HOUR + 2 * MINUTE)
    await watch.scan()
    assert await world.queue.alarms() == []
    await world.at(HOUR + 3 * MINUTE)
    await watch.scan()
    assert [each.rule for each in await world.queue.alarms()] == [AlarmRule.OVERDUE]


@pytest.mark.parametrize("nodes", [4])
async def test_many_nodes_raise_an_alarm_once(world: World, nodes: int) -> None:
    failing(world, until=DAY)
    for number in range(10):
        await world.schedule(f"bank-{number}", interval=HOUR)
    async with world.running(janitor=False):
        await world.at(3 * HOUR + 2 * MINUTE)
    looks = [world.store.transact(look_for_alarms(5, DAY)) for _ in range(nodes * 5)]
    answers = await asyncio.gather(*looks)
    assert len(await alarms(world)) == 10
    assert sum(len(each.alarms) for each in answers) == 10


@on_any_store
async def test_one_node_of_the_fleet_tells_a_watch_outside(world: World) -> None:
    async def beat(id: str, *roles: str) -> None:
        state = NodeState(
            id=id,
            tenant="*",
            host="h",
            pid=1,
            release="1",
            roles=roles,
            started_at=START,
            seen_at=START,
            heartbeat=10 * SECOND,
        )
        await world.store.transact(write_node(state))

    async def teller() -> str | None:
        return (await world.store.transact(check_fleet())).teller

    assert await teller() is None
    await beat("a", "janitor")
    await beat("b", "janitor", "heartbeats")
    await beat("c", "janitor", "heartbeats")
    assert await teller() == "b"
    await world.at(14 * SECOND)
    assert await teller() == "b"
    await world.at(16 * SECOND)
    assert await teller() is None, "whoever looks"
    await beat("c", "janitor", "heartbeats")
    assert await teller() == "c", "a heartbeat of b is late: it may be dead"
