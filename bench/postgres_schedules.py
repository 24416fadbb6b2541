"""Creating schedules on PostgreSQL: 32 clients that create one after the other, with few and with many there, in turn;
and all of one call, `create_schedules`. A second, and microseconds of the processors each (ours and the server's).
Aims: 32 at once at least 1,500/s, within 1.2x of each other; in one call at least 8,000/s."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable
from itertools import count
from typing import Any

import asyncpg

import measure
import postgres_rig
import rota
from postgres_idle import FILL
from postgres_server import Server

CLIENTS = 32
_numbers = count()


async def filled(server: Server, name: str, number: int) -> rota.Queue:
    queue = await rota.connect(await postgres_rig.database(server, name))
    await queue.create_tenant("default", schedules=10_000_000)
    await queue.create_schedule("s", task_type="noop", cron="0 0 1 1 *")
    connection = await asyncpg.connect(queue.store.address.dsn)  # type: ignore[attr-defined]  # of PostgresStore
    await connection.execute(FILL, number - 1)
    await connection.execute("vacuum analyze rota.schedule")
    await connection.close()
    return queue


def options() -> Any:
    return {"task_type": "noop", "cron": f"{next(_numbers) % 60} 3 * * *", "timezone": "Europe/London"}


async def one_by_one(queue: rota.Queue, number: int) -> None:
    async def client() -> None:
        for _ in range(number // CLIENTS):
            await queue.create_schedule(f"one-{next(_numbers)}", **options())

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def in_one_call(queue: rota.Queue, number: int) -> None:
    await queue.create_schedules({f"many-{next(_numbers)}": options() for _ in range(number)})


async def measured(server: Server, number: int, work: Awaitable[None]) -> dict[str, float]:
    began, ours, theirs = time.perf_counter(), time.process_time(), postgres_rig.cpu_seconds(server)
    await work
    return {
        "per_second": number / (time.perf_counter() - began),
        "rota_us": 1e6 * (time.process_time() - ours) / number,
        "server_us": 1e6 * (postgres_rig.cpu_seconds(server) - theirs) / number,
    }


async def run(server: Server, few: int, many: int, number: int, rounds: int) -> dict[str, dict[str, float]]:
    small, large = await filled(server, "few", few), await filled(server, "many", many)
    seen: dict[str, list[dict[str, float]]] = {"with_few": [], "with_many": [], "in_one_call": []}
    for _ in range(rounds):
        seen["with_few"].append(await measured(server, number, one_by_one(small, number)))
        seen["with_many"].append(await measured(server, number, one_by_one(large, number)))
        seen["in_one_call"].append(await measured(server, 5 * number, in_one_call(large, 5 * number)))
    for queue in (small, large):
        await queue.close()
    return {
        name: {what: round(statistics.median(each[what] for each in found), 1) for what in found[0]}
        for name, found in seen.items()
    }


def main() -> None:
    asked = measure.arguments(__doc__, few=1000, many=100_000, number=1600, rounds=3)
    with postgres_rig.server(asked.folder) as server:
        found = asyncio.run(run(server, asked.few, asked.many, asked.number, asked.rounds))
    few, many = (found[name]["per_second"] for name in ("with_few", "with_many"))
    aims = {
        ">= 1,500/s": min(few, many) >= 1500,
        "within 1.2x": few <= 1.2 * many,
        "in one call >= 8,000/s": found["in_one_call"]["per_second"] >= 8000,
    }
    postgres_rig.report(
        "postgres schedules", {**found, "few": asked.few, "many": asked.many}, aims, asked.folder
    )


if __name__ == "__main__":
    main()
