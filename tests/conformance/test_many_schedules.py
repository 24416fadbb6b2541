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
