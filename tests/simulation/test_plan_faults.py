"""A file is applied while a node dies, the store is away or an answer is lost: all of it is there, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rota
from rota.engine.queries.health import broken_records
from simulation.faults import Fault, FaultyStore, Plan, attempted
from worlds import STORES, World, play

FAULTS = [each for each in Fault if each is not Fault.SLOW]


def declared(hour: int, day: str) -> dict[str, Any]:
    return {
        "calendars": {"free": {"days": [day]}},
        "templates": {"backup": {"kind": "backup", "queue": f"at-{hour}"}},
        "schedules": {
            f"s{number}": {"template": "backup", "cron": f"{number} {hour} * * *", "exclude": ["free"]}
            for number in range(5)
        },
    }


BEFORE, AFTER = declared(9, "2026-01-02"), declared(17, "2026-01-03")


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_call_of_an_apply(fault: Fault, store: str, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        calls = await _calls_of_an_apply(world)
        for call in range(1, calls + 1):
            await world.queue.apply(BEFORE, force=True)
            await world.queue.create_schedule(
                f"by-hand-{call}", task_type="work", cron="0 8 * * *", exclude=["free"]
            )
            before = await world.queue.export()
            faulty = FaultyStore(world.store, _at(call, fault))
            queue = rota.Queue(faulty, clock=world.clock)
            plan = await queue.plan(AFTER)
            await attempted(faulty, queue.apply(AFTER, plan))
            found = await world.queue.export()
            assert found in (before, {**before, **_laid_over(before)}), "some of it is there"
            schedules = await world.queue.list_schedules()
            assert {each.calendars[0] for each in schedules} == {
                (await world.queue.get_calendar("free")).covers
            }
            if found == before:
                assert (await world.queue.apply(AFTER, plan)).changes, "given again, it is done"
            assert (await world.queue.apply(AFTER, plan)).changes == [], "and then it is there"
            assert (await world.queue.export()) == {**before, **_laid_over(before)}
        assert broken_records(await world.store.snapshot()) == []

    play(scenario, STORES[store], tmp_path)


def _at(call: int, fault: Fault) -> Plan:
    return lambda number: fault if number == call else None


def _laid_over(before: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {section: {**before[section], **named} for section, named in AFTER.items()}


async def _calls_of_an_apply(world: World) -> int:
    counting = FaultyStore(world.store, lambda number: None)
    await rota.Queue(counting, clock=world.clock).apply(BEFORE)
    return counting.calls
