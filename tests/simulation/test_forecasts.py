"""Forecasts on every store: what they announce is what happens, and a peak is spread."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import rota
from worlds import DAY, HOUR, MINUTE, START, World, on_any_store

NINE = START + 9 * HOUR


@on_any_store
async def test_what_is_forecast_is_what_runs(world: World) -> None:
    @world.app.task("work")
    async def work(context: rota.Context) -> None:
        await asyncio.sleep(30)

    await world.schedule("hourly", cron="0 * * * *", jitter=timedelta(minutes=30))
    await world.schedule("often", interval=timedelta(minutes=20), max_runs=10)
    await world.schedule("later", cron="30 * * * *")
    await world.queue.pause_schedule("later", until=START + 6 * HOUR)
    await world.schedule("next", after="often")
    before = await world.queue.forecast(START, START + 8 * HOUR)
    assert (before.runs, before.unknown, before.following, before.work) == (7 + 10 + 2, 3, 1, 0.0)
    async with world.running():
        await world.at(8 * HOUR - timedelta(seconds=1))
        rows = [row for key in ("hourly", "often", "later") for row in await world.ledger(key)]
        started = Counter((row.started_at - START) // HOUR for row in rows if row.started_at)
        assert [each.runs for each in before.spans] == [started[hour] for hour in range(8)]
        now = await world.queue.forecast()
    assert (now.schedules, now.unknown) == (2, 0), "one has used up its runs"
    assert now.work == pytest.approx(30 * now.runs, rel=0.01)
    assert {each.key: each.runs for each in now.participants} == {"hourly": 24, "later": 24}


async def test_a_peak_is_spread_once_and_for_all(world: World) -> None:
    with pytest.raises(rota.Refused, match="nothing at any minute of the next 24 hours is worth spreading"):
        await world.queue.spread(dry_run=True)
    for number in range(12):
        await world.schedule(f"s{number}", cron="0 9 * * *")
    await world.schedule("often", cron="*/2 * * * *")
    planned = await world.queue.spread(over=10 * MINUTE, dry_run=True)
    assert (planned.at, planned.schedules, planned.moving, planned.before) == (NINE, 13, 11, 13), (
        "one of them stays"
    )
    assert (await world.queue.get_schedule("s9")).offset == timedelta(0), "a dry run does nothing"
    await world.schedule("new", cron="5 9 * * *")
    with pytest.raises(
        rota.Refused, match="the plan no longer holds: other schedules fire in these minutes now"
    ):
        await world.queue.spread(planned.at, planned.over, token=planned.token)
    planned = await world.queue.spread(over=10 * MINUTE, dry_run=True)
    done = await world.queue.spread(planned.at, planned.over, token=planned.token)
    assert done == planned
    assert planned.after == 2, "18 runs in ten minutes"
    found = await world.queue.forecast(START, START + DAY, "minute")
    assert max(each.runs for each in found.spans) == planned.after
    [*_, last] = await world.queue.schedule_history("s9")
    assert (last.action, last.actor, last.detail) == ("updated", "tester", "spread")
    with pytest.raises(rota.Refused, match="nothing at 2026-01-01T09:00"):
        await world.queue.spread(NINE, 10 * MINUTE)
    with pytest.raises(rota.Invalid, match="over: 0:00:30 is no number of minutes"):
        await world.queue.spread(NINE, timedelta(seconds=30))
    with pytest.raises(rota.Invalid, match=r"at: .* has passed"):
        await world.queue.spread(START - HOUR)
    for call in (world.queue.forecast, world.queue.spread):
        with pytest.raises(
            rota.Invalid, match=r"9999-12-31.* is out of range; give a time from 1970 to 9998"
        ):
            await call(datetime(9999, 12, 31, tzinfo=UTC))
    with pytest.raises(rota.Invalid, match="by: 'week' is not one of them; give minute, hour, day"):
        await world.queue.forecast(by="week")
