"""Submit: how many tasks a second one process hands to a SQLite file, each durable when the call returns.

One caller at a time, 16 callers at once, and `submit_many`; beside the raw limit of SQLite for the same rows (one row
per commit; as many rows per commit as there are callers; all in one commit) and beside Huey (which has no bulk call).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import measure
import rota
import rows
from rivals import Rival

CLIENTS = 16
INPUT = {"number": 1}


async def one_by_one(queue: rota.Queue, number: int) -> None:
    for _ in range(number):
        await queue.submit(rows.KIND, INPUT)


async def at_once(queue: rota.Queue, number: int) -> None:
    await asyncio.gather(*(one_by_one(queue, number // CLIENTS) for _ in range(CLIENTS)))


async def in_bulk(queue: rota.Queue, number: int) -> None:
    await queue.submit_many([(rows.KIND, INPUT)] * number)


Submit = Callable[[rota.Queue, int], Awaitable[None]]


def rota_rate(submit: Submit, number: int) -> Callable[[Path], float]:
    async def timed(place: Path) -> float:
        async with rota.connect(f"sqlite:///{place / 'rota.db'}") as queue:
            await queue.submit(rows.KIND, INPUT)
            began = time.perf_counter()
            await submit(queue, number)
            return number / (time.perf_counter() - began)

    return lambda place: asyncio.run(timed(place))


def raw_rate(number: int, batch: int) -> Callable[[Path], float]:
    prepared = rows.lives(number)

    def run(place: Path) -> float:
        file = rows.RawFile(place)
        took = file.insert(prepared, batch)
        file.close()
        return number / took

    return run


def huey_rate(number: int, clients: int) -> Callable[[Path], float]:
    def run(place: Path) -> float:
        rival = Rival(place)
        took = rival.submit(number) if clients == 1 else rival.submit_from(clients, number)
        rival.close()
        return number / took

    return run


def main() -> None:
    asked = measure.arguments(__doc__, single=500, concurrent=4_000, bulk=10_000, rounds=3)
    concurrent = max(asked.concurrent // CLIENTS, 1) * CLIENTS
    contestants = {
        "single_rota": rota_rate(one_by_one, asked.single),
        "single_raw": raw_rate(asked.single, 1),
        "single_huey": huey_rate(asked.single, 1),
        "concurrent_rota": rota_rate(at_once, concurrent),
        "concurrent_raw": raw_rate(concurrent, CLIENTS),
        "concurrent_huey": huey_rate(asked.single, CLIENTS),
        "bulk_rota": rota_rate(in_bulk, asked.bulk),
        "bulk_raw": raw_rate(asked.bulk, asked.bulk),
    }
    rates = measure.medians(measure.side_by_side(asked.rounds, contestants, asked.folder))
    ways = {
        way: {who: rates[f"{way}_{who}"] for who in ("rota", "raw", "huey") if f"{way}_{who}" in rates}
        for way in ("single", "concurrent", "bulk")
    }
    ratios = {
        way: {f"to_{who}": measure.ratio(seen["rota"], seen[who]) for who in seen if who != "rota"}
        for way, seen in ways.items()
    }
    sizes = {"single": asked.single, "concurrent": concurrent, "clients": CLIENTS, "bulk": asked.bulk}
    results = {"tasks_per_second": ways, "ratios": ratios, "sizes": sizes, "rounds": asked.rounds}
    measure.report("submit", results, {}, asked.folder)


if __name__ == "__main__":
    main()
