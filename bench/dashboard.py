"""The dashboard: how long each page takes with very many schedules and tasks, and how much it weighs.

Pages are asked of the application itself, without a socket: what a browser waits for before its first paint, on SQLite.
Each is asked for once to warm up, then `--rounds` times; the figure is the median.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

import measure
import rota
import seed
from rota.domain.model import Task, TaskStatus
from rota.domain.recurrence import Cron
from rota.engine.clock import new_id
from rota.stores.base import Tx, Work
from rota.surfaces.http import create_app

AT_MOST = 200.0
HEAVIEST = 150_000
AT_ONCE = 5000
PAGES = (
    *("", "/schedules", "/schedules?state=paused", "/schedules?sort=next", "/schedules?kind=noop"),
    *("/schedules?tag=none", "/schedules/bench-7", "/tasks", "/tasks?status=failed", "/tasks?status=pending"),
    *(
        "/tasks?kind=report",
        "/workflows",
        "/queues",
        "/nodes",
        "/alarms",
        "/calendars",
        "/audit",
        "/keys",
        "/new",
    ),
)


async def fill(address: str, schedules: int, tasks: int, pending: int) -> None:
    async with rota.connect(address) as queue:
        timings = [Cron(f"{n % 60} {n // 60 % 24} * * *", "UTC") for n in range(schedules)]
        await seed.make_schedules(queue, timings)
        now = await queue.now()
        for start in range(0, tasks, AT_ONCE):
            await queue.store.transact(_tasks(range(start, min(start + AT_ONCE, tasks)), tasks, pending, now))


def _tasks(numbers: range, tasks: int, pending: int, now: datetime) -> Work[None]:
    """Spread over the last week; the newest are pending, and of the others one in a hundred failed."""
    ids = [new_id() for _ in numbers]

    async def work(tx: Tx) -> None:
        for number, id in zip(numbers, ids, strict=True):
            at = now - timedelta(days=7) * (1 - number / tasks)
            given: dict[str, Any] = {"id": id, "kind": f"kind-{number % 7}", "queue": f"queue-{number % 5}"}
            if number < tasks - pending:
                status = TaskStatus.FAILED if number % 100 == 0 else TaskStatus.COMPLETED
                given |= {"status": status, "started_at": at, "completed_at": at, "attempt": 1}
            tx.put(Task(created_at=at, available_at=at, updated_at=at, input={"number": number}, **given))

    return work


async def look(address: str, rounds: int) -> tuple[dict[str, float], dict[str, int]]:
    took: dict[str, float] = {}
    weight: dict[str, int] = {}
    api = create_app(address, rate=1e6)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://127.0.0.1") as client:
        assets = 0
        for name in ("style.css", "tokens.css", "rota.js"):
            assets += len((await client.get(f"/assets/{name}")).content)
        for place in PAGES:
            times = []
            for _ in range(rounds + 1):
                began = time.perf_counter()
                answer = await client.get(f"/ui/default{place}")
                times.append((time.perf_counter() - began) * 1000)
                assert answer.status_code == 200, (place, answer.text[:500])
            took[place or "/"] = round(statistics.median(times[1:]), 1)
            weight[place or "/"] = assets + len(answer.content)
    return took, weight


def main() -> None:
    given = measure.arguments(__doc__, schedules=100_000, tasks=1_000_000, pending=100_000, rounds=5)
    with measure.folder(given.folder) as place:
        address = f"sqlite:///{Path(place) / 'rota.db'}"
        asyncio.run(fill(address, given.schedules, given.tasks, given.pending))
        took, weight = asyncio.run(look(address, given.rounds))
        slowest, heaviest = max(took, key=lambda page: took[page]), max(weight, key=lambda page: weight[page])
        sizes = {"schedules": given.schedules, "tasks": given.tasks, "pending": given.pending}
        results = {**sizes, "ms": took, "slowest": slowest, "heaviest": {heaviest: weight[heaviest]}}
        aims = {
            f"every page within {AT_MOST:.0f} ms": took[slowest] <= AT_MOST,
            f"every page at most {HEAVIEST // 1000} kB with all that it needs": weight[heaviest] <= HEAVIEST,
        }
        measure.report("dashboard", results, aims, given.folder)


if __name__ == "__main__":
    main()
