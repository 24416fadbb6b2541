"""Real processes on one PostgreSQL, killed with -9 among them: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from test_processes import PATIENCE, Processes

import rota
from command_line import Process
from postgres_server import new_database


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    running = Processes(tmp_path)
    running.store = new_database()
    yield running
    running.end()


async def test_eight_processes_of_which_three_are_killed(processes: Processes) -> None:
    """Two schedulers and six workers; a scheduler and two workers die."""
    keys = [f"s{n}" for n in range(5)]
    async with rota.connect(processes.store) as queue:
        tasks = await queue.submit_many([("work", {"seconds": 0.02})] * 300)
        workers = [processes.start("worker", lease=1) for _ in range(6)]
        schedulers = [processes.start("scheduler") for _ in range(2)]
        await processes.until(lambda: len(processes.lines("ready")) == 8, "all are up")
        for key in keys:
            await queue.create_schedule(key, task_type="work", interval=1, max_runs=2, overlap_policy="allow")
        victims = [workers[0], workers[1], schedulers[0]]
        for victim in victims:
            victim.kill()
        for key in keys:
            await _completed(queue, key)
        for task in tasks:
            assert (await queue.wait(task.id, PATIENCE)).status == "completed"
        for key in keys:
            rows = await queue.runs(key)
            fired = [row for row in rows if row.target_id is not None]
            assert len(rows) == len({row.scheduled_at for row in rows})
            assert len(fired) == 2
            for row in fired:
                assert (await queue.wait(row.target_id or "", PATIENCE)).status == "completed"
    dead = {str(victim.pid) for victim in victims}
    starts = Counter(line[1] for line in processes.lines("start"))
    again = {id for id, count in starts.items() if count > 1}
    by_the_dead = {line[1] for line in processes.lines("start") if line[2] in dead}
    assert again <= by_the_dead, "a task ran twice although its worker lived"
    assert len(starts) == 300 + 5 * 2
    assert len({line[2] for line in processes.lines("start")}) > 2, "the work was shared"


async def _completed(queue: rota.Queue, key: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await queue.get_schedule(key)).status != "completed":
            await queue.store.wait(await queue.now() + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("scheduler run", "scheduler"),
        ("monitor", "janitor"),
        ("up --demo", "scheduler-worker-janitor"),
    ],
)
def test_the_server_shows_in_which_role_a_process_is_connected(tmp_path: Path, line: str, role: str) -> None:
    store = new_database()
    others = "datname = current_database() and pid <> pg_backend_pid()"
    names = f"select application_name from pg_stat_activity where {others}"

    async def connected() -> list[str]:
        connection = await asyncpg.connect(store)
        try:
            return [name for (name,) in await connection.fetch(names)]
        finally:
            await connection.close()

    with Process(f"{line} --store {shlex.quote(store)}", tmp_path) as process:
        process.until("Ctrl-C stops it")
        shown = asyncio.run(connected())
    assert shown
    assert all(name.startswith(f"rota {role} ") and ":" in name for name in shown), shown
