"""Many schedules in one transaction: all of them or none, on every store."""

from __future__ import annotations

from typing import Any

import pytest

import rota
from rota.domain.options import ScheduleOptions
from rota.stores.base import Store
from rota.stores.queries import OpenSchedules

DAILY: ScheduleOptions = {"task_type": "report", "cron": "0 9 * * *"}


async def test_many_schedules_are_created_at_once(store: Store) -> None:
    queue = rota.Queue(store, actor="anna")
    created = await queue.create_schedules(
        {
            "a": DAILY,
            "b": {"task_type": "mail", "interval": "5m", "tags": ["x"]},
            "c": {**DAILY, "status": "draft"},
        }
    )
    assert [each.key for each in created] == ["a", "b", "c"]
    assert [await queue.get_schedule(each.key) for each in created] == created
    assert [event.actor for event in await queue.schedule_history("b")] == ["anna"]
    assert await store.read(lambda tx: tx.count(OpenSchedules(tenant="default"))) == 3
    assert await queue.create_schedules({}) == []


@pytest.mark.parametrize(
    ("schedules", "said"),
    [
        ({"a": DAILY, "b": {"task_type": "report"}}, "schedule 'b'"),
        ({"a": DAILY, "b": {**DAILY, "cron": "never"}}, "schedule 'b'.*cron"),
        ({"a": DAILY, "there": DAILY}, "there"),
        ({"a": DAILY, "b": DAILY, "c": DAILY}, "may have 3 schedules"),
        ({"a": DAILY, "": DAILY}, "schedule ''"),
        ({"a": DAILY, "b": 5}, "schedule 'b': options: 5 is not a dict"),
        ({"a": DAILY, "b": ["cron"]}, "schedule 'b'"),
        (["a"], "schedules: they are not a dict"),
    ],
)
async def test_none_is_created_if_one_is_refused(store: Store, schedules: Any, said: str) -> None:
    queue = rota.Queue(store)
    await queue.create_tenant("default", schedules=3)
    await queue.create_schedule("there", task_type="report", interval="1h")
    with pytest.raises(rota.RotaError, match=said):
        await queue.create_schedules(schedules)
    assert [each.key for each in await queue.list_schedules()] == ["there"]


@pytest.mark.parametrize(
    ("order", "keys"), [("newest", "bca"), ("name", "abc"), ("next", "cab")], ids=lambda each: str(each)
)
async def test_pages_of_schedules_go_on_in_their_order(store: Store, order: str, keys: str) -> None:
    queue = rota.Queue(store)
    for key, hours in (("a", 2), ("c", 1), ("b", 3)):
        await queue.create_schedule(key, task_type="report", interval=f"{hours}h")
    found: list[str] = []
    cursor = None
    while len(found) < len(keys):
        page = await queue.list_schedules(order=order, limit=1, cursor=cursor)
        found += [each.key for each in page]
        cursor = page.next_cursor
    assert "".join(found) == keys
    assert await queue.list_schedules(order=order, cursor=cursor) == []


async def test_deleted_schedules_are_listed_newest_first_only(store: Store) -> None:
    with pytest.raises(rota.Invalid, match="order: deleted schedules"):
        await rota.Queue(store).list_schedules(order="name", deleted=True)
