"""What a claim of 50, a tick that fires 50 and a list of 50 take beside more and more finished tasks: milliseconds,
medians. Claims and ticks are undone. Aim: beside the most, within 1.5x of beside the fewest.

Each size is a database of its own, and they are asked in turn, so that whatever else the machine does meets all of
them. The rows are made by the server: a million take about a minute and 1 GB. `bench/plots.py` draws the curve."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import asyncpg

import measure
import postgres_rig
import rota
from postgres_claims import Undone, claim, fill
from postgres_idle import FILL
from postgres_server import Server
from rota.engine.commands import fire_due
from rota.stores.base import Tx

PENDING = 1000


async def filled(server: Server, finished: int) -> rota.Queue:
    queue = await rota.connect(await postgres_rig.database(server, f"finished_{finished}"))
    await fill(server, queue, completed=finished, pending=PENDING)
    due = await queue.now() + timedelta(milliseconds=100)
    await queue.create_schedule("s", task_type="noop", run_at=due)
    connection = await asyncpg.connect(queue.store.address.dsn)  # type: ignore[attr-defined]  # of PostgresStore
    await connection.execute(FILL, 999)
    await connection.execute("vacuum analyze rota.schedule")
    await connection.close()
    await asyncio.sleep(max(0, (due - await queue.now()).total_seconds()))
    return queue


async def fire(tx: Tx) -> None:
    fired = await fire_due(50)(tx)
    assert fired.runs
    raise Undone


async def undone(queue: rota.Queue, work: Callable[[Tx], Awaitable[None]]) -> None:
    try:
        await queue.store.transact(work)
    except Undone:
        return


ASKED: dict[str, Callable[[rota.Queue], Awaitable[object]]] = {
    "claim": lambda queue: undone(queue, claim),
    "fire": lambda queue: undone(queue, fire),
    "list": lambda queue: queue.list(limit=50),
}


async def measured(server: Server, sizes: list[int], rounds: int) -> dict[str, list[tuple[int, float]]]:
    queues = {size: await filled(server, size) for size in sizes}
    seen: dict[str, dict[int, list[float]]] = {name: {size: [] for size in sizes} for name in ASKED}
    for number in range(-10, rounds):
        for size, queue in queues.items():
            for name, ask in ASKED.items():
                began = time.perf_counter()
                await ask(queue)
                if number >= 0:
                    seen[name][size].append(1000 * (time.perf_counter() - began))
    for queue in queues.values():
        await queue.close()
    return {
        name: [(size, round(statistics.median(took), 3)) for size, took in found.items()]
        for name, found in seen.items()
    }


def main() -> None:
    options = measure.arguments(__doc__, sizes="1000,10000,100000,1000000", rounds=100)
    sizes = sorted(int(each) for each in options.sizes.split(","))
    with postgres_rig.server(options.folder) as server:
        points = asyncio.run(measured(server, sizes, options.rounds))
    ratios = {name: measure.ratio(found[-1][1], found[0][1]) for name, found in points.items()}
    curve = {"x": "finished tasks", "y": "milliseconds", "points": points}
    aims = {f"{name} within 1.5x": each <= 1.5 for name, each in ratios.items()}
    postgres_rig.report("postgres growth", {"ratios": ratios, "curve": curve}, aims, options.folder)


if __name__ == "__main__":
    main()
