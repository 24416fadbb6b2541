"""The last day, hour by hour: how many tasks came, how late they began, how long they waited; on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

import rota
from records import task
from rota.domain.model import TaskStatus
from rota.engine.queries import overview
from rota.stores.base import Store
from stores import put

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


async def test_each_hour_of_the_last_day_is_measured(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "COUNTED", 6)
    queue = rota.Queue(store)
    now = await queue.now()
    this = now.replace(minute=0, second=0, microsecond=0)
    before = this - HOUR
    begun = [
        task(
            created_at=before + MINUTE * n,
            available_at=before + MINUTE * n,
            scheduled_at=before + MINUTE * (n - 1),
            started_at=before + MINUTE * (n + 12),
            completed_at=before + MINUTE * 30,
            status=TaskStatus.COMPLETED,
        )
        for n in range(1, 6)
    ]
    many = [task(created_at=this - 3 * HOUR - MINUTE / 60 * n) for n in range(1, 13)]
    old = [task(created_at=this - 30 * HOUR), task(created_at=before, tenant="other")]
    await put(store, *begun, *many, *old)
    hours = {hour.begins: hour for hour in await queue.last_day()}
    assert len(hours) == 24
    last = hours[before]
    assert (last.created, last.is_estimate) == (5, False)
    assert (last.late, last.waited) == (13 * MINUTE, 12 * MINUTE)
    assert last.depth == pytest.approx(1.0)
    busy = hours[this - 4 * HOUR]
    assert (busy.is_estimate, busy.waited) == (True, None)
    assert busy.created == 3600, "one came each second at the end of it"
    assert sum(hour.created for hour in hours.values()) == 3605
