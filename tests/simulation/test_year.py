"""Schedules in many zones through their transitions, against an oracle that knows nothing of the engine: a walk over
the days of a calendar on the wall. `make test` plays a few for five weeks, `make test-all` a hundred for a year; a
quarter of them on stores that ask a server, or write files, for every run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from rota import RunReason
from rota.stores.memory.store import MemoryStore
from rota.stores.sqlite.store import SqliteStore
from worlds import DAY, THOROUGH, World, on_any_store

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
NUMBER, DAYS = (100, 365) if THOROUGH else (8, 35)
ZONES = ("Europe/London", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo", "America/Santiago", "UTC")


class Plain(NamedTuple):
    """Daily, or on one day of the week or of the month, at a time on the clock of a zone; at weekends, or not (`skip`),
    or on the Monday after (`next`)."""

    zone: str
    hour: int
    minute: int
    weekday: int | None
    monthday: int | None
    excluded: str | None

    @property
    def cron(self) -> str:
        weekday = "*" if self.weekday is None else (self.weekday + 1) % 7
        return f"{self.minute} {self.hour} {self.monthday or '*'} * {weekday}"


def some(random: Random) -> Plain:
    kind = random.choice(["daily", "weekly", "monthly"])
    weekday = random.randrange(7) if kind == "weekly" else None
    never = kind == "weekly" and weekday in (5, 6)  # without weekends it would have no time
    return Plain(
        zone=random.choice(ZONES),
        hour=random.choice([0, 1, 2, 3, 9, 23]),
        minute=random.choice([0, 15, 30, 59]),
        weekday=weekday,
        monthday=random.randrange(1, 32) if kind == "monthly" else None,
        excluded=random.choice([None, "next"] if never else [None, "skip", "next"]),
    )


def instant(day: date, plain: Plain) -> datetime:
    """The first of two, or the first after a gap: minute by minute, until the clock shows such a time."""
    zone, local = ZoneInfo(plain.zone), datetime(day.year, day.month, day.day, plain.hour, plain.minute)
    while True:
        at = local.replace(tzinfo=zone).astimezone(UTC)
        if at.astimezone(zone).replace(tzinfo=None) == local:
            return at
        local += timedelta(minutes=1)


def expected(plain: Plain, until: datetime) -> tuple[set[datetime], int]:
    """The times that run, and how many are left out."""
    runs, left_out = set(), 0
    for day in _days(plain, until):
        if plain.excluded is None or day.weekday() < 5:
            runs.add(instant(day, plain))
            continue
        left_out += BEGIN < instant(day, plain) <= until
        if plain.excluded == "next":
            runs.add(instant(day + timedelta(days=7 - day.weekday()), plain))
    return {at for at in runs if BEGIN < at <= until}, left_out


def _days(plain: Plain, until: datetime) -> Iterator[date]:
    day = BEGIN.date() - timedelta(days=7)
    while day <= until.date() + DAY:
        if plain.weekday in (None, day.weekday()) and plain.monthday in (None, day.day):
            yield day
        day += DAY


@on_any_store
@pytest.mark.start(BEGIN)
async def test_every_expected_time_has_its_row(world: World) -> None:
    @world.app.task("work")
    async def work() -> None: ...

    random, until = Random(16), BEGIN + DAYS * DAY
    await world.queue.create_calendar("weekends", rules=["FREQ=WEEKLY;BYDAY=SA,SU"])
    number = NUMBER if isinstance(world.store, MemoryStore | SqliteStore) else -(-NUMBER // 4)
    plains = {f"s{each}": some(random) for each in range(number)}
    for key, plain in plains.items():
        named = {} if plain.excluded is None else {"exclude": ["weekends"], "excluded_policy": plain.excluded}
        await world.schedule(key, cron=plain.cron, timezone=plain.zone, **named)
    async with world.running(janitor=False):
        await world.at(until + timedelta(seconds=1))
    for key, plain in plains.items():
        rows = await world.ledger(key)
        runs, left_out = expected(plain, until)
        assert {row.scheduled_at for row in rows if row.status == "completed"} == runs, (key, plain)
        assert len(rows) == len({row.scheduled_at for row in rows})
        told = sum(row.count for row in rows if row.reason is RunReason.EXCLUDED)
        last = max(runs, default=BEGIN)
        waiting = left_out - told  # they get their row with the next time that runs
        assert waiting >= 0
        assert waiting == sum(
            last < instant(day, plain) <= until
            for day in _days(plain, until)
            if day.weekday() >= 5 and plain.excluded
        ), (key, plain)
