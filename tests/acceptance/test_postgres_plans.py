"""Every query uses the index that it means to use, however the tables are filled: no sequential scan, no sort of what
an index has in order."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from postgres_server import new_database
from rota.domain.model import TaskStatus
from rota.stores.base import (
    Cancelling,
    DueSchedules,
    EventList,
    FinishedTasks,
    LiveTasks,
    LostLeases,
    OldEvents,
    OldRuns,
    OutdatedZones,
    PastExpiry,
    Query,
    ReadyTasks,
    RunList,
    ScheduleByKey,
    ScheduleList,
    TaskList,
    UpcomingTasks,
)
from rota.stores.postgres_address import Address
from rota.stores.postgres_queries import Statements, statement_name, values_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)
STATEMENTS = Statements("rota")
PLANS: list[tuple[Query, str, bool]] = [
    (ReadyTasks(at=NOW, kinds=("a", "b"), tenant="t"), "task_pending", True),
    (ReadyTasks(at=NOW, queues=("q",), kinds=("a",)), "task_pending", True),
    (UpcomingTasks(after=NOW, kinds=("a",)), "task_pending", False),
    (LostLeases(at=NOW), "task_lease", True),
    (PastExpiry(at=None), "task_expiry", True),
    (Cancelling(worker_id="w"), "task_cancelling", False),
    (LiveTasks(schedule_ids=("s", "t")), "task_live", False),
    (FinishedTasks(before=NOW), "task_finished", False),
    (TaskList(tenant="t", at=NOW), "task_created", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.FAILED), "task_unusual", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.EXPIRED), "task_unusual", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.EXPIRED), "task_expiry", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.RUNNING), "task_lease", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.PENDING), "task_pending", False),
    (TaskList(tenant="t", at=NOW, schedule_id="s"), "task_of_schedule", False),
    (DueSchedules(at=NOW), "schedule_due", True),
    (OutdatedZones(zone_data="2026a"), "schedule_zone", False),
    (ScheduleByKey(tenant="t", key="k"), "schedule_living_key", False),
    (ScheduleByKey(tenant="t", key="k", deleted=True), "schedule_deleted_key", False),
    (ScheduleList(tenant="t"), "schedule_created", False),
    (RunList(schedule_id="s"), "schedule_run_of_schedule", False),
    (OldRuns(before=NOW), "schedule_run_ended", False),
    (EventList(tenant="t"), "event_of_tenant", False),
    (EventList(tenant="t", subject_id="s"), "event_of_subject", False),
    (OldEvents(before=NOW), "event_at", False),
]


@asynccontextmanager
async def as_the_store_does(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(**Address.parse(url).connect_options())
    try:
        yield connection
    finally:
        await connection.close()


FILL = """
insert into rota.task (id, tenant, status, kind, queue, priority, attempt, created_at, available_at, completed_at,
  expires_at, lease_expires_at, cancel_requested, schedule_id, version, body)
select 'x' || n, 't', (array['completed','completed','completed','pending','running','failed'])[n % 6 + 1],
  'k' || n % 7, 'q', 128, 0, '2026-01-01'::timestamptz + n * interval '1 s',
  '2026-01-01'::timestamptz + n * interval '1 s',
  '2026-01-02', case when n % 5 = 0 then '2026-01-03'::timestamptz end, '2026-01-02', false,
  case when n % 9 = 0 then 's' || n % 100 end, 1, '{}' from generate_series(1, 3000) n;
"""


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "filled"])
async def test_plans(filled: bool) -> None:
    async with as_the_store_does(new_database()) as connection:
        if filled:
            await connection.execute(FILL)
            await connection.execute("analyze rota.task")
        for query, index, lock in PLANS:
            name = statement_name(query)
            statement = (STATEMENTS.locked if lock else STATEMENTS.find)[name]
            rows = await connection.fetch("explain " + statement.sql, *statement.args(values_of(query, 50)))
            plan = "\n".join(row[0] for row in rows)
            used = set(re.findall(r"Index (?:Only )?Scan (?:Backward )?using (\w+)", plan))
            assert index in used, f"{name}\n{plan}"
            assert "Seq Scan" not in plan, f"{name}\n{plan}"


async def test_delayed_and_finished_tasks_are_not_walked() -> None:
    """The claim touches as many pages with ten thousand delayed tasks of each kind as with none."""
    async with as_the_store_does(new_database()) as connection:
        query = ReadyTasks(at=NOW, kinds=tuple(f"k{n}" for n in range(7)))
        statement = STATEMENTS.locked["ready_tasks"]

        async def pages() -> int:
            rows = await connection.fetch(
                "explain (analyze, buffers) " + statement.sql, *statement.args(values_of(query, 50))
            )
            hits = re.search(r"Buffers: shared hit=(\d+)", "\n".join(row[0] for row in rows))
            assert hits is not None
            return int(hits[1])

        await connection.execute(FILL.replace("'2026-01-01'", "'2030-01-01'"))
        await connection.execute("vacuum analyze rota.task")
        few = await pages()
        more = FILL.replace("'2026-01-01'", "'2030-01-01'").replace("'x'", "'y'").replace("3000", "30000")
        await connection.execute(more)
        await connection.execute("vacuum analyze rota.task")
        assert await pages() < 2 * few + 20
