"""Forecast: how long 24 hours ahead take, and how much memory, with 100,000 schedules of every kind."""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import measure
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
        yield Once(begin + timedelta(hours=number % 24))


async def seeded(address: str, schedules: int) -> None:
    async with rota.connect(address) as queue:
        now = (await queue.now()).replace(microsecond=0)
        await make_schedules(queue, list(islice(timings(now), schedules)))


def seed_in_process(address: str, schedules: int) -> None:
    asyncio.run(seeded(address, schedules))


async def measured(address: str, rounds: int) -> tuple[list[float], dict[str, float]]:
    async with rota.connect(address) as queue:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        took: list[float] = []
        for _ in range(rounds):
            began = time.perf_counter()
            found = await queue.forecast()
            took.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return took, {"runs": found.runs, "megabytes_more": round((after - before) / 1024, 1)}


def main() -> None:
    asked = measure.arguments(__doc__, schedules=100_000, rounds=3, store="")
    with measure.folder(asked.folder) as place:
        address = asked.store or f"sqlite:///{Path(place) / 'rota.db'}"
        with ProcessPoolExecutor(1, get_context("spawn")) as elsewhere:  # its memory is not to be counted
            elsewhere.submit(seed_in_process, address, asked.schedules).result()
        took, seen = asyncio.run(measured(address, asked.rounds))
    seconds = [round(each, 2) for each in took]
    results = {"seconds": seconds, **seen, "sizes": {"schedules": asked.schedules}, "rounds": asked.rounds}
    measure.report("forecast", results, {"<= 3 s": statistics.median(took) <= 3}, asked.folder)


if __name__ == "__main__":
    main()
