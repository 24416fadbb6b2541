"""Calendars that change while schedules that name them are made."""

from __future__ import annotations

import asyncio

import rota
from rota.stores.base import Store


async def test_no_schedule_keeps_what_a_calendar_covered_before(store: Store) -> None:
    mine, theirs = rota.Queue(store), rota.Queue(store)
    await mine.create_calendar("free", days=["2030-01-01"])
    await mine.create_schedule("first", task_type="work", cron="0 9 * * *", exclude=["free"])
    for number in range(5):
        made = [
            mine.create_schedule(f"{number}-{each}", task_type="work", cron="0 9 * * *", exclude=["free"])
            for each in range(2)
        ]
        await asyncio.gather(*made, theirs.update_calendar("free", days=[f"2030-02-0{number + 1}"]))
    covers = (await mine.get_calendar("free")).covers
    assert {each.key for each in await mine.list_schedules() if each.calendars != (covers,)} == set()


async def test_the_name_of_a_deleted_calendar_can_be_given_again(store: Store) -> None:
    queue = rota.Queue(store)
    for day in ("2027-01-01", "2027-01-02", "2027-01-03"):
        made = await queue.create_calendar("closing", days=[day])
        assert made.version == 1
        await queue.update_calendar("closing", days=["2028-01-01"])
        await queue.delete_calendar("closing")
    assert await queue.list_calendars() == []
