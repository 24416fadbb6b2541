"""Calendars that are changed while a node dies or the store is away."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

import rota
from rota.engine.queries.health import broken_records
from simulation.faults import Fault, FaultyStore, attempted
from worlds import START, STORES, World, play

DAYS = [date(2026, 1, day) for day in range(2, 6)]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("fault", [each for each in Fault if each is not Fault.SLOW])
def test_a_change_reaches_all_schedules_or_none(fault: Fault, store: str, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.queue.create_calendar("free", days=DAYS[:1])
        for number in range(12):
            await world.schedule(f"s{number}", cron="0 9 * * *", exclude=["free"])
        faulty = FaultyStore(world.store, lambda call: fault if call == 1 else None)
        queue = rota.Queue(faulty, clock=world.clock)
        await attempted(faulty, queue.update_calendar("free", days=DAYS))
        covers = (await world.queue.get_calendar("free")).covers
        found = await world.queue.list_schedules()
        assert {each.calendars for each in found} == {(covers,)}
        assert {each.next_run_at for each in found} == {found[0].next_occurrence(START)}
        await world.queue.update_calendar("free", days=DAYS)
        assert {each.calendars[0].days for each in await world.queue.list_schedules()} == {tuple(DAYS)}
        assert broken_records(await world.store.snapshot()) == []

    play(scenario, STORES[store], tmp_path)
