"""Every query uses the index that it means to use, however the tables are filled: no sequential scan, no sort of what
an index has in order."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from postgres_server import new_database
from rota.domain import task as life
from rota.domain.model import Record, ScheduleStatus, TaskStatus
from rota.stores.postgres.address import Address
from rota.stores.postgres.queries import Statement, Statements, statement_name, values_of, values_of_update
from rota.stores.queries import (
    RECORD_OF,
    AlarmList,
    ApiKeyList,
    ArtifactList,
    ArtifactsByContent,
    CalendarList,
    Cancelling,
    DueSchedules,
    EndedRuns,
    EndedTasks,
    EventList,
    FinishedTasks,
    GateList,
    HeldTasks,
    IdleGates,
    LatestRuns,
    LiveTasks,
    LostLeases,
    NodeList,
    OldAlarms,
    OldEvents,
    OldReceipts,
    OldRuns,
    OldSchedules,
    OpenAlarms,
    OpenSchedules,
    OpenTasks,
    OutdatedZones,
    PastExpiry,
    PausedQueues,
    PlannedTasks,
    Query,
    ReadyTasks,
    ReturnedTasks,
    RunList,
    ScheduleByKey,
    ScheduleList,
    SchedulesByBeginning,
    SchedulesByKeys,
    SchedulesByName,
    SchedulesByNextTime,
    SignalList,
    StepList,
    TaskList,
    TasksByBeginning,
    TasksInLine,
    TemplateByAlias,
    TemplateList,
    TenantList,
    UntoldAlarms,
    UpcomingTasks,
    UpdatedSteps,
    WatchedSchedules,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
STATEMENTS = Statements("rota")
PLANS: list[tuple[Query[Record], str, bool]] = [
    (ReadyTasks(at=NOW, kinds=("a", "b"), tenant="t"), "task_pending", True),
    (ReadyTasks(at=NOW, queues=("q",), kinds=("a",)), "task_pending", True),
    (UpcomingTasks(after=NOW, kinds=("a",)), "task_pending", False),
    (LostLeases(at=NOW), "task_lease", True),
    (HeldTasks(worker_id="w"), "task_lease", False),
    (PastExpiry(at=None), "task_expiry", True),
    (Cancelling(worker_id="w"), "task_cancelling", False),
    (LiveTasks(schedule_ids=("s", "t")), "task_live", False),
    (TasksByBeginning(tenant="t", beginning="01997c1e"), "task_pkey", False),
    (TasksByBeginning(tenant="t", beginning="01"), "task_created", False),
    (FinishedTasks(before=NOW), "task_finished", False),
    (TaskList(tenant="t", at=NOW), "task_created", False),
    (TaskList(tenant="t", at=NOW), "task_lease", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.COMPLETED), "task_created", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.FAILED), "task_unusual", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.EXPIRED), "task_unusual", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.EXPIRED), "task_expiry", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.RUNNING), "task_lease", False),
    (TaskList(tenant="t", at=NOW, status=TaskStatus.PENDING), "task_pending", False),
    (TaskList(tenant="t", at=NOW, schedule_id="s"), "task_of_schedule", False),
    (DueSchedules(at=NOW), "schedule_due", True),
    (OutdatedZones(zone_data="2026a"), "schedule_zone", False),
    (ScheduleByKey(tenant="t", key="k"), "schedule_living_key", False),
    (SchedulesByKeys(tenant="t1", keys=("k1", "k2")), "schedule_living_key", False),
    (ScheduleByKey(tenant="t", key="k", deleted=True), "schedule_deleted_key", False),
    (OpenSchedules(tenant="t"), "schedule_living_key", False),
    (OldSchedules(before=NOW), "schedule_completed", False),
    (ScheduleList(tenant="t"), "schedule_created", False),
    (ScheduleList(tenant="t", status=ScheduleStatus.PAUSED), "schedule_unusual", False),
    (ScheduleList(tenant="t", newest=1000, kind="k"), "schedule_created", False),
    (SchedulesByBeginning(tenant="t", beginning="01997c1e"), "schedule_pkey", False),
    (SchedulesByName(tenant="t"), "schedule_living_key", False),
    (SchedulesByName(tenant="t", first=1000, kind="k"), "schedule_living_key", False),
    (SchedulesByNextTime(tenant="t"), "schedule_next_time", False),
    (SchedulesByNextTime(tenant="t", first=1000, kind="k"), "schedule_next_time", False),
    (RunList(schedule_id="s"), "schedule_run_of_schedule", False),
    (LatestRuns(schedule_ids=("s1", "s2"), most=20), "schedule_run_of_schedule", False),
    (OldRuns(before=NOW), "schedule_run_ended", False),
    (EventList(tenant="t"), "event_of_tenant", False),
    (EventList(tenant="t", subject_id="s"), "event_of_subject", False),
    (OldEvents(before=NOW), "event_at", False),
    (OpenTasks(), "task_pending", False),
    (OpenTasks(), "task_lease", False),
    (EndedTasks(tenant="t", since=NOW), "task_finished", False),
    (ReturnedTasks(tenant="t", since=NOW), "task_returned", False),
    (TaskList(tenant="t", at=NOW, is_workflow=True), "task_workflow", False),
    (ScheduleList(tenant=None), "schedule_of_all", False),
    (EndedRuns(tenant="t", since=NOW), "schedule_run_ended", False),
    (TemplateList(tenant="t"), "template_of_tenant", False),
    (TemplateByAlias(tenant="t1", alias_key="a1"), "template_alias", False),
    (ApiKeyList(tenant="t"), "apikey_of_tenant", False),
    (ApiKeyList(tenant=None), "apikey_pkey", False),
    (TenantList(), "tenant_pkey", False),
    (OldReceipts(before=NOW), "receipt_at", False),
    (TasksInLine(gates=("l1", "l2"), most=10, at=NOW), "task_line", False),
    (PlannedTasks(gate="l1", after=NOW), "task_planned", False),
    (WatchedSchedules(at=NOW), "schedule_watch", True),
    (OpenAlarms(subject_ids=("s1", "s2")), "alarm_open", False),
    (AlarmList(tenant="t"), "alarm_of_tenant", False),
    (AlarmList(tenant=None), "alarm_began", False),
    (UntoldAlarms(at=NOW), "alarm_untold", True),
    (OldAlarms(before=NOW), "alarm_over", False),
    (ArtifactList(task_ids=("x1", "x2")), "artifact_of_task", False),
    (ArtifactsByContent(contents=("c1", "c2")), "artifact_content", False),
    (StepList(task_ids=("x1", "x2")), "step_of_task", False),
    (UpdatedSteps(tenant="t", since=NOW), "step_updated", False),
    (SignalList(task_ids=("x1", "x2")), "signal_of_task", False),
    (GateList(tenant="t", subject="kind:k"), "gate_of_tenant", False),
    (IdleGates(before=NOW), "gate_idle", False),
    (CalendarList(tenant="t"), "calendar_of_tenant", False),
    (PausedQueues(tenant="t"), "pausedqueue_of_tenant", False),
    (NodeList(), "nodestate_pkey", False),
]


def test_every_query_is_among_them() -> None:
    assert {type(query) for query, _, _ in PLANS} == set(RECORD_OF)


TALLIES: list[tuple[Query[Record], set[str]]] = [
    (OpenTasks(), {"task_pending", "task_lease"}),
    (PastExpiry(at=NOW), {"task_expiry"}),
    (ScheduleList(tenant="t"), {"schedule_created"}),
    (ScheduleList(tenant=None), {"schedule_of_all"}),
]


@asynccontextmanager
async def as_the_store_does(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    address = Address.parse(url)._replace(statement_timeout=timedelta(minutes=4))  # tables are filled, too
    connection = await asyncpg.connect(**address.connect_options())
    try:
        yield connection
    finally:
        await connection.close()


FILL = """
insert into rota.task (id, tenant, status, kind, queue, priority, attempt, created_at, available_at, completed_at,
  expires_at, lease_expires_at, cancel_requested, schedule_id, line, lined_at, planned_by,
  updated_at, changes, version, body)
select 'x' || n, 't', (array['completed','completed','completed','pending','running','failed'])[n % 6 + 1],
  'k' || n % 7, 'q', 128, 0, '2026-01-01'::timestamptz + n * interval '1 s',
  '2026-01-01'::timestamptz + n * interval '1 s',
  '2026-01-02', case when n % 5 = 0 then '2026-01-03'::timestamptz end, '2026-01-02', false,
  case when n % 9 = 0 then 's' || n % 100 end, case when n % 6 = 3 then 'l' || n % 50 end, '2026-01-02',
  case when n % 12 = 9 then 'l' || n % 50 end,
  '2026-01-01'::timestamptz + n * interval '1 s', 0, 1, '{}'
from generate_series(1, 3000) n;
"""
FILL_OTHERS = """
insert into rota.schedule (id, tenant, key, description, status, timing, target, run_count, missed_run_policy,
  overlap_policy, zone_data, timezone, search, created_at, updated_at, version, body)
select 's' || n, 't' || n % 5, 'k' || n, '', 'active', '{}', '{}', 0, '', '', '2026a', 'UTC', '',
  '2026-01-01'::timestamptz + n * interval '1 s', '2026-01-01', 1, '{}' from generate_series(1, 3000) n;
insert into rota.schedule_run (id, tenant, schedule_id, scheduled_at, status, trigger, target_type, completed_at,
  created_at, version, body)
select 'r' || n, 't' || n % 5, 's' || n % 100, '2026-01-01'::timestamptz + n * interval '1 s', 'completed', '', '',
  '2026-01-01'::timestamptz + n * interval '1 s', '2026-01-01', 1, '{}' from generate_series(1, 3000) n;
insert into rota.template (id, tenant, alias_key, version, body)
select 'm' || n, 't' || n % 5, 'a' || n, 1, '{}' from generate_series(1, 3000) n;
insert into rota.apikey (id, tenant, name, role, created_at, created_by, version, body)
select 'a' || n, 't' || n % 5, '', 'viewer', '2026-01-01', '', 1, '{}' from generate_series(1, 3000) n;
insert into rota.tenant (id, tenant, version, body) select 't' || n, 't', 1, '{}' from generate_series(1, 3000) n;
insert into rota.receipt (id, tenant, at, status, version, body)
select 'q' || n, 't', '2026-01-01'::timestamptz + n * interval '1 s', 201, 1, '{}' from generate_series(1, 3000) n;
insert into rota.alarm (id, tenant, rule, subject_type, subject_id, subject, detail, began_at, over_at, version, body)
select 'l' || n, 't' || n % 5, '', 'schedule', 's' || n % 100, '', '', '2026-01-01'::timestamptz + n * interval '1 s',
  case when n % 9 > 0 then '2026-01-02'::timestamptz end, 1, '{}' from generate_series(1, 3000) n;
insert into rota.artifact (id, tenant, task_id, name, media_type, size, created_at, content, version, body)
select 'f' || n, 't', 'x' || n, 'log', '', 0, '2026-01-01', 'c' || n % 50, 1, '{}' from generate_series(1, 3000) n;
insert into rota.step (id, tenant, task_id, key, kind, status, created_at, updated_at, version, body)
select 'p' || n, 't' || n % 5, 'x' || n % 100, 'k', 'call', 'completed', '2026-01-01'::timestamptz + n * interval '1 s',
  '2026-01-01'::timestamptz + n * interval '1 s', 1, '{}' from generate_series(1, 3000) n;
insert into rota.signal (id, tenant, task_id, name, at, version, body)
select 'g' || n, 't', 'x' || n % 100, 'go', '2026-01-01', 1, '{}' from generate_series(1, 3000) n;
insert into rota.gate (id, tenant, subject, inside, has_line, idle_since, version, body)
select 'l' || n, 't' || n % 5, 'kind:k', 1, true, case when n % 3 = 0 then '2026-01-01'::timestamptz end, 1, '{}'
from generate_series(1, 3000) n;
"""
AS_IF_LARGE = """
set parallel_setup_cost = 0; set parallel_tuple_cost = 0;
set min_parallel_table_scan_size = 0; set min_parallel_index_scan_size = 0;
"""
"""A large table is read by several processes of the server, unless it is told not to."""


@pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])
@pytest.mark.parametrize("state", ["empty", "grown", "analyzed"])
async def test_plans(state: str, generic: bool) -> None:
    """A table that has grown is one of which the server has no statistics yet."""
    async with as_the_store_does(new_database()) as connection:
        await connection.execute(AS_IF_LARGE)
        if state != "empty":
            await connection.execute(FILL)
            await connection.execute(FILL_OTHERS)
        if state == "analyzed":
            await connection.execute("analyze")
        for query, index, lock in PLANS:
            name = statement_name(query)
            statement = (STATEMENTS.locked if lock else STATEMENTS.find)[name]
            if lock and isinstance(query, ReadyTasks):
                statement = STATEMENTS.plain["lock_ready_tasks"]
            plan, used = await explained(connection, statement, values_of(query, 50) | {"most": 50}, generic)
            assert index in used, f"{name}\n{plan}"
            assert "Seq Scan" not in plan, f"{name}\n{plan}"
            assert "Gather" not in plan, f"{name}\n{plan}"
            shows_parameters = statement.parameters != ("limit",) and not isinstance(
                query, LatestRuns | TasksInLine
            )
            assert ("$1" in plan) == generic or not shows_parameters, plan
            plan, used = await explained(connection, STATEMENTS.count[name], values_of(query, 50), generic)
            assert index in used, f"counting {name}\n{plan}"
            assert "Seq Scan" not in plan, f"counting {name}\n{plan}"
        for query, indexes in TALLIES:
            statement = STATEMENTS.tally(query, ("tenant", "status"))
            plan, used = await explained(connection, statement, values_of(query, None), generic)
            assert used == indexes, plan
            assert "Seq Scan" not in plan, plan


async def explained(
    connection: asyncpg.Connection[Any], statement: Statement, values: dict[str, Any], generic: bool = False
) -> tuple[str, set[str]]:
    """The plan for these values, or for any, and the indexes that it uses."""
    if generic:  # as the store asks: planned once
        await connection.execute(f"prepare planned as {statement.sql}")
        nothing = ", ".join("null" for _ in statement.parameters)
        rows = await connection.fetch("explain execute planned" + (f"({nothing})" if nothing else ""))
        await connection.execute("deallocate planned")
    else:
        rows = await connection.fetch("explain " + statement.sql, *statement.args(values))
    plan = "\n".join(row[0] for row in rows)
    return plan, set(re.findall(r"Index (?:Only )?Scan (?:Backward )?using (\w+)", plan))


async def test_a_count_with_a_limit_stops_there() -> None:
    """A tenant's pending tasks are counted on every submission, if it has a limit."""
    async with as_the_store_does(new_database()) as connection:
        await connection.execute(FILL.replace("3000", "30000"))
        await connection.execute("vacuum analyze rota.task")
        query = TaskList(tenant="t", at=NOW.replace(month=1, day=2), status=TaskStatus.PENDING)
        statement = STATEMENTS.count[statement_name(query)]
        rows = await connection.fetch(
            "explain (analyze) " + statement.sql, *statement.args(values_of(query, 20))
        )
        walked = [
            int(float(n))
            for n in re.findall(r"Scan .*actual.*rows=([\d.]+)", "\n".join(row[0] for row in rows))
        ]
        assert walked
        assert max(walked) < 200


async def test_who_is_next_in_lines_is_read_by_line() -> None:
    """Also while the server knows nothing yet of all those that wait."""
    async with as_the_store_does(new_database()) as connection:
        waiting = FILL.replace("3000", "10000").replace("n % 6", "3")
        waiting = waiting.replace("'x' ||", "'01997c1e-0000-7000-8000-0000000' ||")  # of usual lengths
        await connection.execute(waiting.replace("'l' ||", f"'{'l' * 50}' ||"))
        for gates in (1, 50):
            query = TasksInLine(gates=tuple(f"l{n}" for n in range(gates)), most=10, at=NOW)
            statement = STATEMENTS.find["tasks_in_line"]
            for generic in (True, False):
                plan, used = await explained(connection, statement, values_of(query, 500), generic)
                assert used == {"task_line"}, plan
                assert plan.count("Sort Key") == 1, f"each line is in order\n{plan}"
            letting_in = STATEMENTS.update(life.letting_in(), "update_lines")
            values = values_of_update(life.letting_in())
            values |= {"gates": list(query.gates), "numbers": [10] * gates, "at": NOW}
            for generic in (True, False):
                plan, used = await explained(connection, letting_in, values, generic)
                assert used == {"task_line", "task_pkey"}, plan
                assert "Sort" not in plan, f"each line is in order\n{plan}"


async def test_who_looks_for_expired_tasks_reads_none_that_cannot_expire() -> None:
    """If no task has an expiry, all that the planner knows of the column is that it is null."""
    async with as_the_store_does(new_database()) as connection:
        never = FILL.replace("3000", "30000").replace("'2026-01-03'", "null").replace("n % 6", "3")
        padded = never.replace("'{}'", "to_json(repeat('x', 300))")  # to walk short rows would be cheap
        await connection.execute(padded)
        await connection.execute("vacuum analyze rota.task")
        for statement in (STATEMENTS.find["past_expiry"], STATEMENTS.locked["past_expiry"]):
            plan, used = await explained(connection, statement, {}, generic=True)
            assert used == {"task_expiry"}, plan


@pytest.mark.parametrize("first", [None, 1000])
async def test_schedules_in_an_order_are_not_sorted(first: int | None) -> None:
    """Else all of a tenant would be read for a page."""
    async with as_the_store_does(new_database()) as connection:
        await connection.execute(FILL_OTHERS)
        await connection.execute("analyze")
        for query, index in (
            (SchedulesByName(tenant="t", first=first), "schedule_living_key"),
            (SchedulesByNextTime(tenant="t", first=first), "schedule_next_time"),
        ):
            statement = STATEMENTS.find[statement_name(query)]
            plan, used = await explained(connection, statement, values_of(query, 50), generic=True)
            assert used == {index}, plan
            assert "Sort" not in plan, plan


async def test_a_task_that_never_returns_is_in_none_of_the_new_indexes() -> None:
    async with as_the_store_does(new_database()) as connection:
        await connection.execute(FILL)
        for name in ("task_returned", "task_workflow"):
            pages = await connection.fetchval("select pg_relation_size($1::regclass)", f"rota.{name}")
            assert pages == 8192, f"{name} has more than its first page"


async def test_kinds_that_nobody_asked_for_are_not_walked() -> None:
    """The claim touches as many pages with thousands of other kinds pending as with none, in one queue or in a few."""
    async with as_the_store_does(new_database()) as connection:
        query = ReadyTasks(at=NOW.replace(year=2030), kinds=("k0", "k3", "zzz"))
        statement = STATEMENTS.locked["ready_tasks"]
        fill = FILL.replace("'k' || n % 7", "'k' || n").replace("'q'", "'q' || n % 3")
        pages = await pages_of_a_claim(connection, statement, query)
        await connection.execute(fill.replace("3000", "30000"))  # 5,000 pending kinds
        await connection.execute("vacuum analyze rota.task")
        assert await pages_of_a_claim(connection, statement, query) < pages + 100


async def pages_of_a_claim(
    connection: asyncpg.Connection[Any], statement: Statement, query: Query[Record]
) -> int:
    rows = await connection.fetch(
        "explain (analyze, buffers) " + statement.sql, *statement.args(values_of(query, 50))
    )
    hits = re.search(r"Buffers: shared hit=(\d+)", "\n".join(row[0] for row in rows))
    assert hits is not None
    return int(hits[1])


async def test_delayed_and_finished_tasks_are_not_walked() -> None:
    """The claim touches as many pages with ten thousand delayed tasks of each kind as with none."""
    async with as_the_store_does(new_database()) as connection:
        query = ReadyTasks(at=NOW, kinds=tuple(f"k{n}" for n in range(7)))
        statement = STATEMENTS.locked["ready_tasks"]

        await connection.execute(FILL.replace("'2026-01-01'", "'2030-01-01'"))
        await connection.execute("vacuum analyze rota.task")
        few = await pages_of_a_claim(connection, statement, query)
        more = FILL.replace("'2026-01-01'", "'2030-01-01'").replace("'x'", "'y'").replace("3000", "30000")
        await connection.execute(more)
        await connection.execute("vacuum analyze rota.task")
        assert await pages_of_a_claim(connection, statement, query) < 2 * few + 20
