"""The dashboard: how long each page takes with very many schedules and tasks, how much it weighs, and what fifty who
keep the overview open cost the server.

Pages are asked of the application itself, once it has started and without a socket: what a browser waits for before its
first paint, on SQLite and on PostgreSQL. Each is asked for once, and then `--rounds` times; the figures are the first
time and the median of the others, with the processor time of this process beside it. Viewers ask a server of their own,
as the script of the page does: each hears the events of one task a second, and reads the overview every eight seconds,
for `--seconds`; the figure is what the server used of a core, above what it used without them.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

import measure
import postgres_rig
import rota
import seed
from rota.domain.model import Task, TaskStatus
from rota.domain.recurrence import Cron
from rota.engine.clock import new_id
from rota.stores.base import Tx, Work
from rota.surfaces.http import create_app

AT_MOST = 200
HEAVIEST = 150
MOST_OF_A_CORE = 0.05
AT_ONCE = 5000
PAGES = (
    *("", "/schedules", "/schedules?state=paused", "/schedules?state=failing", "/schedules?sort=next"),
    *("/schedules?sort=name", "/schedules?sort=outcome", "/schedules?sort=name&state=paused"),
    *(
        "/schedules?kind=noop",
        "/schedules?kind=none",
        "/schedules?tag=none",
        "/schedules?timezone=Asia/Tokyo",
    ),
    *("/schedules?text=none", "/schedules?text=bench-77", "/schedules/bench-7", "/schedules/bench-7/runs"),
    *("/schedules/bench-7/versions", "/schedules/bench-7/edit", "/new", "/calendars", "/tasks"),
    *("/tasks?status=failed", "/tasks?status=pending", "/tasks?kind=report", "/tasks?tag=none"),
    *("/tasks?queue=none", "/tasks?schedule=bench-7", "/workflows", "/queues", "/nodes", "/alarms", "/audit"),
    *("/keys", "/tenants", "/forecast"),
)
VIEWERS = 50
READS_EVERY = 8.0


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


async def look(address: str, rounds: int) -> dict[str, dict[str, float]]:
    """Of each page its milliseconds, those of the processor, those of the first time, and its kilobytes."""
    found = {}
    api = create_app(address, rate=1e6)
    transport = httpx.ASGITransport(api)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        assets = 0
        for name in ("style.css", "tokens.css", "rota.js"):
            assets += len((await client.get(f"/assets/{name}")).content)
        for place in PAGES:
            times, used = [], []
            for _ in range(rounds + 1):
                began, before = time.perf_counter(), time.process_time()
                answer = await client.get(f"/ui/default{place}")
                times.append((time.perf_counter() - began) * 1000)
                used.append((time.process_time() - before) * 1000)
                assert answer.status_code == 200, (place, answer.text[:500])
            found[place or "/"] = {
                "ms": round(statistics.median(times[1:]), 1),
                "processor_ms": round(statistics.median(used[1:]), 1),
                "first_ms": round(times[0], 1),
                "kB": (assets + len(answer.content)) // 1000,
            }
    return found


async def watched(address: str, seconds: int) -> dict[str, float]:
    """What viewers cost: parts of a core, with none and with all of them."""
    command = [sys.executable, "-m", "rota", "--store", address, "serve", "--port", "0"]
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        url = ""
        while "http://" not in url:
            url = (await server.stdout.readline()).decode()
        url = "http://" + url.partition("http://")[2].split()[0].rstrip("/.,")
        async with rota.connect(address) as queue:
            change = asyncio.create_task(_changes(queue))
            await asyncio.sleep(READS_EVERY)  # it has begun
            alone = await _used(server.pid, seconds)
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(base_url=url, limits=limits, timeout=None) as client:
                viewers = [asyncio.create_task(_view(client, number)) for number in range(VIEWERS)]
                await asyncio.sleep(READS_EVERY)
                with_all = await _used(server.pid, seconds)
                for each in (*viewers, change):
                    each.cancel()
                ended = await asyncio.gather(*viewers, change, return_exceptions=True)
                wrong = [each for each in ended if not isinstance(each, asyncio.CancelledError)]
                assert not wrong, wrong[:3]
    finally:
        server.terminate()
        await server.wait()
    return {"alone": alone, "viewers": with_all, "cost": round(with_all - alone, 4)}


async def _changes(queue: rota.Queue) -> None:
    while True:
        await queue.submit("watched", {})
        await asyncio.sleep(1)


async def _view(client: httpx.AsyncClient, number: int) -> None:
    async def read() -> None:
        await asyncio.sleep(READS_EVERY * number / VIEWERS)
        while True:
            (await client.get("/ui/default")).raise_for_status()
            await asyncio.sleep(READS_EVERY)

    reading = asyncio.create_task(read())
    try:
        events = "/api/tenants/default/events?types=task,run,schedule"
        async with client.stream("GET", events) as stream:
            async for _ in stream.aiter_bytes():
                if reading.done():
                    reading.result()
    finally:
        reading.cancel()


async def _used(pid: int, seconds: int) -> float:
    """The part of a core that a process uses, over so many seconds. (Linux only.)"""

    def ticks() -> int:
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))

    before, began = ticks(), time.perf_counter()
    await asyncio.sleep(seconds)
    used = (ticks() - before) / os.sysconf("SC_CLK_TCK")
    return round(used / (time.perf_counter() - began), 4)


async def on_store(address: str, given: Any) -> dict[str, Any]:
    await fill(address, given.schedules, given.tasks, given.pending)
    pages = await look(address, given.rounds)
    return {"pages": pages, "fifty_viewers": await watched(address, given.seconds)}


def main() -> None:
    given = measure.arguments(
        __doc__, schedules=100_000, tasks=1_000_000, pending=100_000, rounds=5, seconds=30
    )
    results: dict[str, Any] = {"schedules": given.schedules, "tasks": given.tasks, "pending": given.pending}
    with measure.folder(given.folder) as place:
        results["sqlite"] = asyncio.run(on_store(f"sqlite:///{Path(place) / 'rota.db'}", given))
    with postgres_rig.server(given.folder) as server:

        async def on_postgres() -> dict[str, Any]:
            return await on_store(await postgres_rig.database(server, "dashboard"), given)

        results["postgres"] = asyncio.run(on_postgres())
    aims = {}
    for store in ("sqlite", "postgres"):
        pages, viewers = results[store]["pages"], results[store]["fifty_viewers"]
        aims[f"{store}: every page within {AT_MOST} ms"] = (
            max(each["ms"] for each in pages.values()) <= AT_MOST
        )
        aims[f"{store}: for the first time, too"] = (
            max(each["first_ms"] for each in pages.values()) <= AT_MOST
        )
        aims[f"{store}: at most {HEAVIEST} kB each"] = max(each["kB"] for each in pages.values()) <= HEAVIEST
        aims[f"{store}: {VIEWERS} viewers at most {MOST_OF_A_CORE:.0%} of a core"] = (
            viewers["cost"] <= MOST_OF_A_CORE
        )
    measure.report("dashboard", results, aims, given.folder)


if __name__ == "__main__":
    main()
