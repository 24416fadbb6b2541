"""Backfills, from end to end in virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

import rota
from rota import BackfillStatus, RunStatus, RunTrigger
from rota.domain.schedule.backfill import NO_ROOM
from rota.engine.commands import fire_due
from rota.engine.queries.health import broken_records
from simulation.faults import Fault, Node, Watch, check_ledger
from worlds import DAY, HOUR, MINUTE, SECOND, START, STORES, World, on_any_store, play, some_calls


def handle(world: World, seconds: float = 0) -> list[datetime]:
    """The times that the runs were for, in the order in which they were started."""
    ran: list[datetime] = []

    @world.app.task("work", max_retries=0)
    async def work(context: rota.Context) -> None:
        assert context.scheduled_at is not None
        ran.append(context.scheduled_at)
        await asyncio.sleep(seconds)

    return ran


async def finished(world: World) -> rota.Backfill:
    filling = (await world.queue.get_schedule("s")).backfill
    assert filling is not None
    assert broken_records(await world.store.snapshot()) == []
    return filling


async def test_the_past_one_after_the_other(world: World) -> None:
    ran = handle(world, seconds=60)
    await world.schedule(cron="0 * * * *", end_at=START + 3 * DAY, overlap_policy="allow")
    before = [START - n * HOUR for n in (3, 2, 1, 0)]
    planned = await world.queue.backfill("s", before[0], START, dry_run=True)
    assert (planned.total, planned.started, planned.passed) == (4, 4, 0)
    assert (await world.queue.get_schedule("s")).backfill is None, "a dry run does nothing"
    async with world.running():
        begun = await world.queue.backfill("s", before[0], START)
        assert (begun.status, begun.total, begun.created_by) == (BackfillStatus.RUNNING, 4, "tester")
        with pytest.raises(rota.Refused, match="has a backfill under way"):
            await world.queue.backfill("s", before[0], START)
        await world.at(10 * MINUTE)
        assert ran == before
        rows = await world.ledger("s")
        assert {(row.trigger, row.status) for row in rows} == {(RunTrigger.BACKFILL, RunStatus.COMPLETED)}
        late = [row.started_at - START - n * MINUTE for n, row in enumerate(rows) if row.started_at]
        assert all(each < SECOND for each in late), "each begins when the one before has ended"
        done = await finished(world)
        assert (done.status, done.started, done.left) == (BackfillStatus.COMPLETED, 4, 0)
        assert "by a backfill by tester" in await world.queue.why("s", before[0])
        again = await world.queue.backfill("s", before[0], START)
        await world.at(11 * MINUTE)
    assert len(ran) == 4, "what has run is passed over"
    assert (again.total, (await finished(world)).passed) == (4, 4)
    schedule = await world.queue.get_schedule("s")
    assert (schedule.run_count, schedule.next_run_at) == (0, START + HOUR)


@on_any_store
@pytest.mark.parametrize("grace", [0, 600])
async def test_a_time_that_is_due_is_none_of_the_past(world: World, grace: int) -> None:
    """No node has looked at it yet: it fires by itself, or is missed and then runs after all."""
    ran = handle(world)
    await world.schedule(cron="* * * * *", misfire_grace=grace, overlap_policy="allow")
    await world.at(125 * SECOND)
    await world.queue.backfill("s", START, START + 2 * MINUTE, overlap_policy="allow")
    async with world.running():
        await world.at(150 * SECOND)
    assert sorted(ran) == [START, START + MINUTE, START + 2 * MINUTE]
    rows = await world.ledger("s")
    assert {row.status for row in rows} == {RunStatus.COMPLETED}
    assert sum(row.trigger == RunTrigger.BACKFILL for row in rows) == (1 if grace else 3)
    assert (await finished(world)).left == 0


@on_any_store
async def test_a_time_whose_task_expired_runs_after_all(world: World) -> None:
    """In a task of its own: what has expired stays as it is, also when it is put away."""
    await world.queue.create_template("job", "work", ttl=5)
    target = rota.TemplateTarget(template_id="job")
    await world.queue.create_schedule("s", cron="* * * * *", target=target, end_at=START + 2 * MINUTE)
    await world.schedule("other", cron="* * * * *")
    async with world.running(scheduler=False) as worker:
        assert worker.janitor is not None
        worker.janitor.look_again = SECOND
        await world.at(65 * SECOND)
        await world.queue.run_due()
        await world.at(75 * SECOND)
    [expired] = await world.tasks(status="expired")
    await world.queue.update_template("job", enabled=False)
    await world.queue.backfill("s", START + MINUTE, START + MINUTE)
    await world.queue.run_due()
    assert [row.reason for row in await world.ledger("s")] == [rota.RunReason.DISABLED]
    await world.queue.update_template("job", enabled=True)
    await world.queue.backfill("s", START + MINUTE, START + MINUTE)
    await world.queue.run_due()
    await world.queue.archive(expired.id)
    [row] = await world.ledger("s")
    assert (row.status, row.trigger, row.reason) == (RunStatus.RUNNING, RunTrigger.BACKFILL, None)
    ran = handle(world)
    async with world.running():
        await world.at(80 * SECOND)
    assert START + MINUTE in ran
    [row] = await world.ledger("s")
    assert (row.status, row.target_id != expired.id) == (RunStatus.COMPLETED, True)
    assert (await world.queue.get(expired.id)).status == "archived"


async def test_one_without_room_looks_again_after_a_while(world: World) -> None:
    await world.schedule(cron="0 * * * *", end_at=START + 3 * DAY)
    await world.queue.create_tenant("default", pending_tasks=1)
    await world.queue.submit("unknown")
    await world.queue.backfill("s", START - 3 * HOUR, START, overlap_policy="allow")
    await world.store.transact(fire_due(10))
    assert (await world.queue.get_schedule("s")).due_at == START + NO_ROOM, "not at once, and again and again"
    assert (await finished(world)).started == 0


async def test_a_gap_is_filled(world: World) -> None:
    """200 minutes were missed, which is one row; some in its middle are run after all."""
    ran = handle(world)
    await world.schedule(cron="* * * * *", misfire_grace=0)
    await world.at(200.5 * MINUTE)
    async with world.running():
        await world.at(201.5 * MINUTE)
        start, end = START + 50 * MINUTE, START + 59 * MINUTE
        await world.queue.backfill("s", start, end, overlap_policy="allow")
        await world.at(202.5 * MINUTE)
        wanted = [START + n * MINUTE for n in range(50, 60)]
        assert [at for at in ran if at <= end] == wanted
    rows = await world.ledger("s")
    assert [(row.count, row.status) for row in rows[:1]] == [(49, "skipped")]
    assert [row.trigger for row in rows[1:11]] == ["backfill"] * 10
    assert (rows[11].count, rows[11].scheduled_at) == (141, START + 60 * MINUTE)
    schedule = await world.queue.get_schedule("s")
    tasks = {task.id: task for task in await world.tasks()}
    check_ledger(schedule, rows, tasks, START, START + 202 * MINUTE)
    await finished(world)


@on_any_store
async def test_what_was_skipped_runs_after_all(world: World) -> None:
    ran = handle(world, seconds=150)
    await world.schedule(cron="* * * * *", max_runs=2)
    async with world.running():
        await world.at(HOUR)
        skipped = [row.scheduled_at for row in await world.ledger("s") if row.status == "skipped"]
        plan = await world.queue.backfill("s", START + MINUTE, START + 10 * MINUTE, dry_run=True)
        assert (plan.total, plan.passed) == (10, 2)
        await world.queue.backfill("s", START + MINUTE, START + 4 * MINUTE)
        await world.at(2 * HOUR)
    assert sorted(ran) == [START + n * MINUTE for n in (1, 2, 3, 4)]
    assert set(skipped) <= set(ran)
    assert (await world.queue.get_schedule("s")).status == "completed", (
        "it goes on although the schedule is over"
    )


@on_any_store
@pytest.mark.parametrize("overlap", ["buffer_all", "allow"])
async def test_times_that_no_tick_has_handled_yet(world: World, overlap: str) -> None:
    """Nobody was there at some times; they are run after all before anyone is. One row holds what was skipped of
    them, or each has its own."""
    ran = handle(world)
    ends = {"s": START + HOUR, "many": START + 3 * HOUR}
    for key, end_at in ends.items():
        await world.schedule(key, cron="* * * * *", end_at=end_at)
    await world.at(4 * HOUR)
    for key, first in (("s", 1), ("many", 150)):
        start, end = START + first * MINUTE, START + (first + 2) * MINUTE
        await world.queue.backfill(key, start, end, overlap_policy=overlap)
    async with world.running():
        await world.at(4 * HOUR + MINUTE)
    assert sorted(ran) == [START + n * MINUTE for n in (1, 2, 3, 150, 151, 152)]
    assert (await finished(world)).status is BackfillStatus.COMPLETED
    tasks = {task.id: task for task in await world.tasks()}
    for key, end_at in ends.items():
        schedule = await world.queue.get_schedule(key)
        check_ledger(schedule, await world.ledger(key), tasks, START, end_at + SECOND)


@on_any_store
async def test_a_backfill_is_cancelled(world: World) -> None:
    ran = handle(world, seconds=60)
    await world.schedule(cron="0 0 * * *")
    async with world.running():
        await world.queue.backfill("s", START - 10 * DAY, START)
        await world.at(2.5 * MINUTE)
        cancelled = await world.queue.cancel_backfill("s")
        assert (cancelled.status, cancelled.started, cancelled.note) == (
            "cancelled",
            3,
            "cancelled by tester",
        )
        await world.at(HOUR)
    assert len(ran) == 3
    assert (await world.queue.cancel_backfill("s")).status == "cancelled"
    actions = [event.action for event in await world.queue.schedule_history("s")]
    assert actions == ["created", "backfilled", "backfill cancelled"]


@on_any_store
@pytest.mark.parametrize("act", ["pause", "delete", "suspend"])
async def test_what_happens_to_its_schedule(world: World, act: str) -> None:
    await world.queue.create_tenant("acme")
    everyone = world.queue
    queue = world.queue = everyone.for_tenant("acme")
    ran = handle(world, seconds=60)
    await queue.create_schedule("s", task_type="work", cron="0 0 * * *")
    async with world.running():
        await queue.backfill("s", START - 2 * DAY, START)
        await world.at(0.5 * MINUTE)
        if act == "pause":
            await queue.pause_schedule("s")
        elif act == "delete":
            await queue.delete_schedule("s")
            await queue.restore_schedule("s")
        else:
            await everyone.suspend_tenant("acme")
        await world.at(HOUR)
    filling = (await queue.get_schedule("s")).backfill
    assert filling is not None
    notes = {"pause": None, "delete": "the schedule was deleted", "suspend": "the tenant was suspended"}
    assert (len(ran), filling.note) == (3 if act == "pause" else 1, notes[act])


@pytest.mark.parametrize("act", ["pause", "change", "delete"])
async def test_a_time_to_come_is_not_given_up_because_a_tick_is_to_look_at_a_backfill(
    world: World, act: str
) -> None:
    ran = handle(world)
    await world.schedule(cron="0 6 * * *")
    await world.queue.backfill("s", START - 2 * DAY, START - DAY)
    if act == "pause":
        await world.queue.pause_schedule("s")
        await world.queue.resume_schedule("s")
    elif act == "change":
        await world.queue.update_schedule("s", cron="0 7 * * *")
        await world.queue.update_schedule("s", cron="0 6 * * *")
    else:
        await world.queue.delete_schedule("s")
        await world.queue.restore_schedule("s")
        await world.queue.resume_schedule("s")
    assert await world.ledger("s") == []
    async with world.running():
        await world.at(6 * HOUR + MINUTE)
    assert ran[-1] == START + 6 * HOUR


async def test_an_edit_runs_nothing_because_a_tick_is_to_look_at_a_backfill(world: World) -> None:
    """Its time was put off to 06:10. At 06:05 it is put off no more."""
    ran = handle(world)
    await world.schedule(cron="0 6 * * *", offset="10m", misfire_grace="1h")
    await world.at(6 * HOUR + 5 * MINUTE)
    await world.queue.backfill("s", START - 2 * DAY, START - DAY)
    await world.queue.update_schedule("s", offset=0)
    async with world.running():
        await world.at(7 * HOUR)
    assert START + 6 * HOUR not in ran
    assert ran, "the backfill ran"


async def test_its_own_times_go_on_meanwhile(world: World) -> None:
    ran = handle(world, seconds=40)
    await world.schedule(cron="* * * * *", overlap_policy="buffer_one")
    async with world.running():
        await world.at(0.5 * MINUTE)
        await world.queue.backfill("s", START - 10 * MINUTE, START - MINUTE)
        await world.at(25 * MINUTE)
    fillings = [at for at in ran if at < START]
    assert fillings == [START - n * MINUTE for n in range(10, 0, -1)]
    rows = await world.ledger("s")
    own = [row for row in rows if row.scheduled_at > START]
    assert [row.status for row in own].count(RunStatus.COMPLETED) > 8
    await finished(world)


@on_any_store
async def test_refusals(world: World) -> None:
    await world.schedule(cron="* * * * *")
    now = await world.queue.now()
    for start, end, options, problem in [
        (START, START - HOUR, {}, "end: .* is before start"),
        (datetime(1, 1, 1, tzinfo=UTC), START, {}, "start: .* is out of range; give a time since 1970"),
        (START, now + HOUR, {}, "end: .* is still to come; give a time in the past"),
        (START - 2 * DAY, START, {}, "at_most: it has more than 1,000 times"),
        (START - HOUR, START, {"at_most": 0}, "at_most: 0 is too small|at_most: .*1"),
        (
            START - HOUR,
            START,
            {"overlap_policy": "skip"},
            "a backfill cannot skip; accepted are buffer_all and allow",
        ),
    ]:
        with pytest.raises(rota.Invalid, match=problem):
            await world.queue.backfill("s", start, end, **options)  # type: ignore[arg-type]  # a table
    with pytest.raises(LookupError):
        await world.queue.cancel_backfill("s")


@pytest.mark.parametrize("overlap", ["buffer_all", "allow"])
@pytest.mark.parametrize("fault", Fault)
def test_a_fault_at_every_call(fault: Fault, overlap: str, tmp_path: Path) -> None:
    """Each time starts one task, whatever call fails and how."""
    for call in some_calls(25, fault, Fault):

        async def one(world: World, call: int = call) -> None:
            watch = Watch()
            world.app.task("work", max_retries=20)(watch.handler(seconds=7))
            await world.schedule(cron="0 0 1 1 *")
            await world.queue.backfill("s", START - 3 * 366 * DAY, START, overlap_policy=overlap)
            stop = asyncio.Event()
            node = Node(world, lambda made: fault if made == call else None, "node")
            running = asyncio.create_task(node.run(stop))
            await world.at(5 * MINUTE)
            stop.set()
            await running
            rows = await world.ledger("s")
            assert [row.status for row in rows] == ["completed"] * 4
            assert (await finished(world)).status is BackfillStatus.COMPLETED
            assert (len(watch.starts), watch.held_twice) == (4, [])

        play(one, STORES["memory"], tmp_path)


async def test_more_than_one_tick_takes(world: World) -> None:
    ran = handle(world)
    await world.schedule(cron="0 0 1 1 *")
    await world.queue.update_schedule("s", cron="* * * * *", status="paused")
    async with world.running(concurrency=500):
        await world.queue.backfill("s", START - 250 * MINUTE, START - SECOND, overlap_policy="allow")
        await world.at(MINUTE)
    assert len(ran) == len(set(ran)) == 250
    assert (await finished(world)).started == 250
