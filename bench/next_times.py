"""Next times: how many times a second the next fire time of a schedule is computed, beside croniter.

Two ways for each: a walk (each time from the one before, as a preview does) and a tick (from an instant somewhere in
the year, as a scheduler does when it plans the next run of a stored expression).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import croniter

import measure
from rota.domain.recurrence import Cron, next_after

START = datetime(2026, 1, 15, 10, 7, 23, tzinfo=UTC)
BEFORE_THE_END_OF_TIME = 1000  # leap days, from now on: a walk begins anew before the year 9999
EXPRESSIONS = (
    ("*/5 * * * *", "UTC"),
    ("0 9 * * 1-5", "America/New_York"),
    ("0 0 29 2 *", "UTC"),
    ("0 0 L * *", "UTC"),
)


def rota_walk(expression: str, zone: str, number: int) -> None:
    timing, at = Cron(expression, zone), START
    for _ in range(number):
        at = next_after(timing, at) or START


def croniter_walk(expression: str, zone: str, number: int) -> None:
    begin = START.astimezone(ZoneInfo(zone))
    for step in range(number):
        if step % BEFORE_THE_END_OF_TIME == 0:
            walk = croniter(expression, begin)
        walk.get_next(datetime)


def rota_ticks(expression: str, zone: str, number: int) -> None:
    timing = Cron(expression, zone)
    for step in range(number):
        next_after(timing, START + timedelta(hours=13 * step))


def croniter_ticks(expression: str, zone: str, number: int) -> None:
    place = ZoneInfo(zone)
    for step in range(number):
        croniter(expression, (START + timedelta(hours=13 * step)).astimezone(place)).get_next(datetime)


def rate(run: Callable[[str, str, int], None], expression: str, zone: str, number: int) -> float:
    began = time.perf_counter()
    run(expression, zone, number)
    return number / (time.perf_counter() - began)


def compare(expression: str, zone: str, times: int, rounds: int) -> dict[str, float]:
    """The best of some rounds for each: what else the machine does only ever makes it slower."""
    fewer = max(times // 50, 2)
    best = {
        "walk": max(rate(rota_walk, expression, zone, times) for _ in range(rounds)),
        "walk_croniter": max(rate(croniter_walk, expression, zone, fewer) for _ in range(rounds)),
        "tick": max(rate(rota_ticks, expression, zone, times) for _ in range(rounds)),
        "tick_croniter": max(rate(croniter_ticks, expression, zone, fewer) for _ in range(rounds)),
    }
    ratios = {f"{way}_ratio": measure.ratio(best[way], best[f"{way}_croniter"]) for way in ("walk", "tick")}
    return {name: round(value) for name, value in best.items()} | ratios


def main() -> None:
    asked = measure.arguments(__doc__, times=20_000, rounds=3)
    seen = {f"{line} {zone}": compare(line, zone, asked.times, asked.rounds) for line, zone in EXPRESSIONS}
    least = min(each[f"{way}_ratio"] for each in seen.values() for way in ("walk", "tick"))
    results = {
        "per_second": seen,
        "least_ratio": least,
        "sizes": {"times": asked.times},
        "rounds": asked.rounds,
    }
    measure.report("next_times", results, {"rota >= 10 x croniter": least >= 10}, asked.folder)


if __name__ == "__main__":
    main()
