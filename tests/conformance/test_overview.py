"""How a tenant is doing, on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

import rota
from records import task
from rota.engine.queries import overview
from rota.stores.base import Store
from stores import put

MINUTE = timedelta(minutes=1)


async def test_what_has_expired_hides_nothing_that_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "AT_MOST", 2)
    queue = rota.Queue(store)
    now = await queue.now()
    created = [now - MINUTE * n for n in (9, 8, 7, 6, 5, 4)]
    tasks = [task(created_at=at, available_at=at, scheduled_at=at) for at in created]
    expired = [task(created_at=at - MINUTE, available_at=at - MINUTE, expires_at=now) for at in created]
    await put(store, *tasks, *expired)
    assert [each.id for each in (await queue.overview()).waiting] == [each.id for each in tasks[:2]]
