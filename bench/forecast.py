"""Forecast: how long 24 hours ahead take, and how much memory, with 100,000 schedules: of every kind, on SQLite and on
PostgreSQL; and as many rules, each with a beginning of its own."""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta
from itertools import count, islice
from multiprocessing import get_context
from typing import Any

import measure
import postgres_rig
import rota
from rota.domain.recurrence import Cron, Interval, Once, RRule, Several, Timing
from seed import make_schedules

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")


def timings(now: datetime) -> Iterator[Timing]:
    """Of ten: six cron lines (daily at any minute, weekdays, hourly, every five minutes), two intervals, each with a
    beginning of its own, a calendar rule or two lines together, and a single time."""
    number = 0
    while True:
        number += 1
        zone = ZONES[number % 4]
        begin = now + timedelta(milliseconds=37 * (number % 100_000))
        yield Cron(f"{number % 60} {number // 60 % 24} * * *", zone)
        yield Cron(f"0 {number % 24} * * 1-5", zone)
        yield Cron("0 9 * * *", zone)
        yield Cron(f"{number % 60} * * * *")
        yield Cron("*/5 * * * *")
        yield Cron(f"{number % 60} {number // 60 % 24} {number % 28 + 1} * *", zone)
        yield Interval(timedelta(hours=1), begin)
        yield Interval(timedelta(seconds=30), begin)
        if number % 2:
            yield RRule("FREQ=DAILY", begin.replace(microsecond=0), zone)
        else:
            yield Several((Cron("0 8 * * *", zone), Cron(f"{number % 60} 17 * * *", zone)))
        yield Once(begin + timedelta(hours=1 + number % 24))


RULES = (
    "FREQ=DAILY",
    "FREQ=WEEKLY;BYDAY=MO,WE,FR",
    "FREQ=MONTHLY;BYDAY=-1FR",
    "FREQ=HOURLY;INTERVAL=2",
    "FREQ=DAILY;BYHOUR=9,17;BYMINUTE=30",
)


def rules(now: datetime) -> Iterator[Timing]:
    """No two are the same timing."""
    for number in count():
        yield RRule(RULES[number % 5], now - timedelta(seconds=61 * number), ZONES[number % 4])


KINDS = {"timings": timings, "rules": rules}


async def seeded(address: str, kind: str, schedules: int) -> None:
    async with rota.connect(address) as queue:
        now = (await queue.now()).replace(microsecond=0)
        await make_schedules(queue, list(islice(KINDS[kind](now), schedules)))


def seed_in_process(address: str, kind: str, schedules: int) -> None:
    asyncio.run(seeded(address, kind, schedules))


async def measured(address: str, rounds: int) -> dict[str, Any]:
    async with rota.connect(address) as queue:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds: list[float] = []
        processor: list[float] = []
        for _ in range(rounds):
            began = time.perf_counter(), time.process_time()
            found = await queue.forecast()
            seconds.append(round(time.perf_counter() - began[0], 2))
            processor.append(round(time.process_time() - began[1], 2))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    more = round((after - before) / 1024, 1)
    return {"seconds": seconds, "processor_seconds": processor, "runs": found.runs, "megabytes_more": more}


def measured_in_process(address: str, rounds: int) -> dict[str, Any]:
    return asyncio.run(measured(address, rounds))


def case(address: str, kind: str, schedules: int, rounds: int) -> dict[str, Any]:
    """Each in a process of its own: the memory of one is not to be counted for the other."""
    spawn = get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as seeding:
        seeding.submit(seed_in_process, address, kind, schedules).result()
    with ProcessPoolExecutor(1, spawn) as measuring:
        return measuring.submit(measured_in_process, address, rounds).result()


def main() -> None:
    asked = measure.arguments(__doc__, schedules=100_000, rounds=3)
    sizes = asked.schedules, asked.rounds
    with measure.folder(asked.folder) as place:
        found = {kind: case(f"sqlite:///{place / kind}.db", kind, *sizes) for kind in KINDS}
    with postgres_rig.server(asked.folder) as server:
        address = asyncio.run(postgres_rig.database(server, "forecast"))
        found["timings, postgres"] = case(address, "timings", *sizes)
    aims = {
        f"{name} <= 3 s": statistics.median(each["seconds"]) <= 3
        for name, each in found.items()
        if name.startswith("timings")
    }
    measure.report(
        "forecast", {**found, "schedules": asked.schedules, "rounds": asked.rounds}, aims, asked.folder
    )


if __name__ == "__main__":
    main()
