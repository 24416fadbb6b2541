"""Times that wait, and runs that are ended, from end to end in virtual time."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from rota import RunReason, RunStatus, RunTrigger, TaskStatus
from rota.engine.commands import cancel_listed
from rota.engine.queries.health import broken_records
from simulation.faults import Fault, Node, Watch, check_ledger
from worlds import (
    HOUR,
    MINUTE,
    SECOND,
    START,
    STORES,
    THOROUGH,
    World,
    on_any_store,
    play,
    some_calls,
    to_the_tenth,
)


def handle(world: World, seconds: float, *, fails: bool = False) -> list[datetime]:
    """A handler for `work` that takes this long; the times at which it was started. Two never run at once."""
    starts: list[datetime] = []
    running = 0

    @world.app.task("work", max_retries=0)
    async def work() -> None:
        nonlocal running
        starts.append(to_the_tenth(world.clock.now()))
        running += 1
        assert running == 1, "two at once"
        await asyncio.sleep(seconds)
        running -= 1
        if fails:
            raise RuntimeError("broken")

    return starts


async def statuses(world: World, key: str = "s") -> list[str]:
    rows = await world.ledger(key)
    assert broken_records(await world.store.snapshot()) == []
    return [f"{row.status}" + (f" {row.reason}" if row.reason else "") for row in rows]


REPLACING = pytest.mark.parametrize("policy", ["cancel_previous", "terminate_previous"])


@REPLACING
async def test_what_cannot_start_ends_no_other(world: World, policy: Any) -> None:
    handle(world, seconds=200)
    await world.queue.create_template("job", "work")
    target = rota.TemplateTarget(template_id="job")
    await world.queue.create_schedule("s", cron="* * * * *", target=target, overlap_policy=policy)
    async with world.running():
        await world.at(1.5 * MINUTE)
        await world.queue.update_template("job", enabled=False)
        await world.at(5.5 * MINUTE)
    assert await statuses(world) == ["completed", *["skipped disabled"] * 4]


@REPLACING
async def test_a_time_that_comes_again_does_not_end_its_own_run(world: World, policy: Any) -> None:
    starts = handle(world, seconds=100)
    await world.schedule(cron="* * * * *", overlap_policy=policy)
    async with world.running():
        await world.at(61 * SECOND)
        world.clock.step(-10 * SECOND)
        await asyncio.sleep(40)
        assert await statuses(world) == ["running"]
    assert len(starts) == 1


@on_any_store
async def test_what_waits_does_not_outlive_its_template(world: World) -> None:
    handle(world, seconds=200)
    await world.queue.create_template("job", "work")
    target = rota.TemplateTarget(template_id="job")
    made = await world.queue.create_schedule(
        "s", cron="* * * * *", target=target, overlap_policy="buffer_all"
    )
    async with world.running():
        await world.at(3.5 * MINUTE)
        await world.queue.delete_template("job")
        await world.at(20 * MINUTE)
    assert await statuses(world, made.id) == ["completed", "skipped changed", "skipped changed"]


@on_any_store
@pytest.mark.parametrize("cause", ["disabled", "suspended"])
async def test_what_waits_says_what_became_of_it_when_a_pause_ends(world: World, cause: str) -> None:
    """Also if the schedule has come to its end meanwhile, and no tick looks at it again."""
    handle(world, seconds=200)
    await world.queue.create_template("job", "work")
    target = rota.TemplateTarget(template_id="job")
    await world.queue.create_schedule(
        "s", cron="* * * * *", target=target, overlap_policy="buffer_all", end_at=START + 4 * MINUTE
    )
    async with world.running():
        await world.at(200 * SECOND)
        await world.queue.pause_schedule("s", until=START + 10 * MINUTE)
        await world.at(5 * MINUTE)
        if cause == "disabled":
            await world.queue.update_template("job", enabled=False)
        else:
            await world.queue.suspend_tenant(world.queue.tenant)
        await world.at(11 * MINUTE)
        found = await world.queue.get_schedule("s")
    assert (found.status, found.buffered, found.run_count) == ("completed", (), 1)
    assert await statuses(world) == ["completed", *[f"skipped {cause}"] * 2]


@on_any_store
async def test_what_waits_behind_what_cannot_start_has_its_turn(world: World) -> None:
    handle(world, seconds=10)
    await world.queue.create_template("job", "work")
    target = rota.TemplateTarget(template_id="job")
    ending: dict[str, Any] = {"misfire_grace": 60, "end_at": START + 5 * SECOND}
    made = await world.schedule(
        interval=1, target=target, task_type=None, overlap_policy="buffer_all", **ending
    )
    await world.queue.update_template("job", enabled=False)
    await world.at(10 * SECOND)
    async with world.running():
        await world.at(20 * SECOND)
        found = await world.queue.get_schedule("s")
    assert (found.status, found.buffered, found.run_count) == ("completed", (), 0)
    assert set(await statuses(world, made.id)) == {"skipped disabled"}


@on_any_store
async def test_what_waits_behind_a_time_that_comes_again_has_its_turn(world: World) -> None:
    starts = handle(world, seconds=10)
    await world.schedule(cron="* * * * *", overlap_policy="buffer_all", misfire_grace=600)
    async with world.running():
        await world.at(65 * SECOND)
    await world.at(75 * SECOND)
    await world.queue.update_schedule("s", end_at=START + 4 * MINUTE)
    world.clock.step(-20 * SECOND)
    async with world.running():
        await asyncio.sleep(5)
    await world.at(5 * MINUTE)
    await world.queue.run_due()
    assert (await world.queue.get_schedule("s")).last_run_at == START + 5 * MINUTE
    async with world.running():
        await world.at(10 * MINUTE)
    assert set(await statuses(world)) == {"completed"}
    assert len(starts) == 4


async def test_buffer_one(world: World) -> None:
    starts = handle(world, seconds=200)
    await world.schedule(cron="* * * * *", overlap_policy="buffer_one", max_runs=3)
    async with world.running():
        await world.at(4.1 * MINUTE)
        assert await statuses(world) == ["running", "buffered overlap", "skipped overlap", "skipped overlap"]
        why = await world.queue.why("s", START + 2 * MINUTE)
        assert why.status == "buffered"
        assert (
            "It waits: an earlier run was still going on (overlap_policy is buffer_one); it starts when"
            in why
        )
        await world.at(20 * MINUTE)
    began = START + MINUTE
    assert starts == [began + n * 200 * SECOND for n in range(3)], "each begins when the one before has ended"
    rows = [row for row in await world.ledger("s") if row.status is RunStatus.COMPLETED]
    assert [row.scheduled_at for row in rows] == [START + n * MINUTE for n in (1, 2, 5)]
    assert "It waited 2 minutes 20 seconds for an earlier run to end" in await world.queue.why(
        "s", START + 2 * MINUTE
    )
    skipped = await world.queue.why("s", START + 3 * MINUTE)
    assert "another time waited for its end already (overlap_policy is buffer_one)" in skipped
    schedule = await world.queue.get_schedule("s")
    assert (schedule.status, schedule.run_count, schedule.buffered) == ("completed", 3, ())
    assert schedule.last_task_id == rows[-1].target_id


async def test_a_time_that_waits_takes_up_room_for_tasks(world: World) -> None:
    await world.queue.create_tenant("default", pending_tasks=2)
    await world.schedule("a", cron="* * * * *", overlap_policy="buffer_all")
    await world.schedule("b", cron="* * * * *", start_at=START + 2 * MINUTE)
    await world.at(MINUTE)
    await world.queue.run_due()
    await world.at(2 * MINUTE)
    await world.queue.run_due()
    assert [row.status for row in await world.ledger("a")] == [RunStatus.RUNNING, RunStatus.BUFFERED]
    assert [(row.status, row.reason) for row in await world.ledger("b")] == [
        (RunStatus.SKIPPED, RunReason.LIMIT)
    ]


async def test_buffer_all(world: World) -> None:
    starts = handle(world, seconds=90)
    await world.schedule(cron="* * * * *", overlap_policy="buffer_all", max_runs=5)
    async with world.running():
        await world.at(HOUR)
    assert starts == [START + MINUTE + n * 90 * SECOND for n in range(5)]
    assert await statuses(world) == ["completed"] * 5


async def test_catch_up_in_line(world: World) -> None:
    starts = handle(world, seconds=30)
    await world.schedule(
        cron="0 * * * *", overlap_policy="buffer_all", missed_run_policy="catch_up", end_at=START + 3 * HOUR
    )
    await world.at(3.5 * HOUR)
    async with world.running():
        await world.at(4 * HOUR)
    assert starts == [START + 3.5 * HOUR + n * 30 * SECOND for n in range(3)]
    assert {row.trigger for row in await world.ledger("s")} == {RunTrigger.CATCH_UP}


@pytest.mark.parametrize("overlap", ["buffer_one", "buffer_all"])
async def test_catch_up_in_line_gives_every_run_however_many(world: World, overlap: str) -> None:
    starts = handle(world, seconds=0.1)
    end = START + 250 * MINUTE
    await world.schedule(cron="* * * * *", overlap_policy=overlap, missed_run_policy="catch_up", end_at=end)
    await world.at(260 * MINUTE)
    async with world.running():
        await world.at(261 * MINUTE)
    assert await statuses(world) == ["completed"] * 250
    assert len(starts) == 250
    assert starts[-1] < START + 261 * MINUTE, "the line moves on by itself"


async def test_why_a_time_waits_for_a_place_in_line(world: World) -> None:
    await world.schedule(cron="* * * * *", overlap_policy="buffer_all", missed_run_policy="catch_up")
    await world.at(250 * MINUTE)
    await world.queue.run_due()
    why = await world.queue.why("s", START + 200 * MINUTE)
    assert "100 times before it wait in line" in why
    assert (await world.queue.get_schedule("s")).next_run_at == START + 102 * MINUTE
    await world.queue.pause_schedule("s")
    rows = await world.ledger("s")
    assert sum(row.count for row in rows) == 250, "a pause gives up what has come, and says so"


@on_any_store
async def test_terminate_previous_asks_nobody(world: World) -> None:
    ended: list[str] = []

    @world.app.task("work", max_retries=0)
    async def stubborn() -> None:
        try:
            await asyncio.sleep(150)
        except asyncio.CancelledError:
            ended.append("asked")
            await asyncio.sleep(500)  # it does not consent
            raise

    await world.schedule(cron="*/2 * * * *", overlap_policy="terminate_previous", max_runs=2)
    async with world.running():
        await world.at(4 * MINUTE + SECOND)
        first, second = await world.ledger("s")
        assert (first.status, first.completed_at) == (RunStatus.CANCELLED, START + 4 * MINUTE)
        assert second.status is RunStatus.RUNNING
        await world.at(HOUR)
    task = await world.queue.get(first.target_id or "")
    assert (task.status, task.cancelled_by, task.lease_id) == (TaskStatus.CANCELLED, "scheduler", None)
    assert ended == ["asked"], "its worker learns that it has lost it"
    assert await statuses(world) == ["cancelled", "completed"]


async def test_a_pause_holds_what_waits(world: World) -> None:
    starts = handle(world, seconds=90)
    await world.schedule(cron="* * * * *", overlap_policy="buffer_all")
    async with world.running():
        await world.at(3.2 * MINUTE)
        await world.queue.pause_schedule("s", "deploy")
        await world.at(10 * MINUTE)
        assert await statuses(world) == ["completed", "completed", "buffered overlap"]
        assert "the schedule is paused, and what waits goes on" in await world.queue.why(
            "s", START + 3 * MINUTE
        )
        await world.queue.resume_schedule("s")
        await world.at(10 * MINUTE + SECOND)
        assert (await statuses(world))[:3] == ["completed", "completed", "running"]
    assert starts[-1] == START + 10 * MINUTE


async def test_a_resume_waits_for_what_still_runs(world: World) -> None:
    starts = handle(world, seconds=300)
    await world.schedule(cron="* * * * *", overlap_policy="buffer_one", max_runs=2)
    async with world.running():
        await world.at(2.5 * MINUTE)
        await world.queue.update_schedule("s", max_runs=0)
        await world.queue.pause_schedule("s")
        await world.queue.resume_schedule("s")
        await world.at(5.9 * MINUTE)
        assert len(starts) == 1
        await world.at(7 * MINUTE)
    assert starts == [START + MINUTE, START + 6 * MINUTE]


async def test_what_fires_beside_a_line_is_waited_for_too(world: World) -> None:
    """The policy was changed while a time waits: the next one fires beside what runs, and ends last."""
    seconds = [150, 120, 1]
    starts: list[datetime] = []

    @world.app.task("work")
    async def work() -> None:
        starts.append(to_the_tenth(world.clock.now()))
        await asyncio.sleep(seconds[len(starts) - 1])

    await world.schedule(cron="* * * * *", overlap_policy="buffer_one", max_runs=3)
    async with world.running():
        await world.at(2.2 * MINUTE)
        await world.queue.update_schedule("s", overlap_policy="allow")
        await world.at(10 * MINUTE)
    assert starts == [START + MINUTE, START + 3 * MINUTE, START + 5 * MINUTE]
    assert await statuses(world) == ["completed"] * 3


@pytest.mark.parametrize("act", ["delete", "complete"])
async def test_a_delete_gives_up_what_waits(world: World, act: str) -> None:
    starts = handle(world, seconds=600)
    await world.schedule(cron="* * * * *", overlap_policy="buffer_all")
    async with world.running():
        await world.at(3.5 * MINUTE)
        if act == "delete":
            await world.queue.delete_schedule("s")
            await world.queue.restore_schedule("s")
            await world.queue.pause_schedule("s")
        else:
            await world.queue.update_schedule("s", status="completed")
        await world.at(HOUR)
    assert len(starts) == 1
    assert await statuses(world) == ["completed", "skipped changed", "skipped changed"]
    assert (await world.queue.get_schedule("s")).run_count == 1


@on_any_store
async def test_a_trigger_by_hand_is_waited_for(world: World) -> None:
    starts: list[str] = []

    @world.app.task("work", max_retries=0)
    async def work(seconds: int) -> None:
        starts.append(f"{(world.clock.now() - START) / MINUTE:g}")
        await asyncio.sleep(seconds)

    await world.schedule(cron="* * * * *", overlap_policy="buffer_all", max_runs=2, input={"seconds": 90})
    async with world.running():
        await world.at(2.2 * MINUTE)
        await world.queue.trigger_schedule("s", {"seconds": 120})
        await world.at(HOUR)
    assert starts == ["1", "2.2", "4.2"]


@on_any_store
@pytest.mark.parametrize("end", ["cancel", "expire", "fail", "suspend"])
async def test_whatever_ends_a_run_the_line_moves_on(world: World, end: str) -> None:
    """Nobody works at first: what was started stays pending."""
    queue = world.queue
    if end == "suspend":
        await queue.create_tenant("acme")
        queue = queue.for_tenant("acme")
    await queue.create_schedule(
        "s",
        task_type="work",
        cron="* * * * *",
        overlap_policy="buffer_one",
        max_runs=2,
        ttl=200 if end == "expire" else None,
    )
    for minute in (1, 2):
        await world.at(minute * MINUTE)
        await world.queue.run_due()
    second, first = await queue.runs("s")
    assert (first.status, second.status) == (RunStatus.RUNNING, RunStatus.BUFFERED)
    if end == "suspend":
        await world.queue.suspend_tenant("acme")
    if end == "fail":
        handle(world, seconds=5, fails=True)
    if end in ("cancel", "suspend"):
        await world.queue.cancel_many(schedule="s") if end == "cancel" else await _cancel_all(world)
    else:
        async with world.running():
            await world.at(MINUTE + 206 * SECOND)
    second, first = await queue.runs("s")
    assert second.status is not RunStatus.BUFFERED
    if end == "suspend":
        assert second.reason is RunReason.SUSPENDED
    else:
        assert second.started_at == first.completed_at
    assert broken_records(await world.store.snapshot()) == []


async def _cancel_all(world: World) -> None:
    ids = [task.id for task in (await world.store.snapshot())["task"] if isinstance(task, rota.Task)]
    await world.store.transact(cancel_listed("acme", ids, "tester", ""))


async def test_pause_on_failure_holds_what_waits(world: World) -> None:
    starts = handle(world, seconds=90, fails=True)
    await world.schedule(cron="* * * * *", overlap_policy="buffer_all", pause_on_failure=True)
    async with world.running():
        await world.at(10 * MINUTE)
        assert await statuses(world) == ["failed", "buffered overlap"]
        assert (await world.queue.get_schedule("s")).status == "paused"
        await world.queue.resume_schedule("s")
        await world.at(10 * MINUTE + timedelta(seconds=30))
    assert starts == [START + MINUTE, START + 10 * MINUTE]


@pytest.mark.parametrize("fault", Fault)
def test_a_line_survives_a_fault_at_every_call(fault: Fault, tmp_path: Path) -> None:
    """Each time of the line starts one task, in order, whatever call fails and how."""
    for call in some_calls(25, fault, Fault):

        async def one(world: World, call: int = call) -> None:
            watch = Watch()
            world.app.task("work", max_retries=20)(watch.handler(seconds=7))
            await world.schedule(
                interval=5,
                overlap_policy="buffer_all",
                missed_run_policy="catch_up",
                end_at=START + 30 * SECOND,
            )
            stop = asyncio.Event()
            node = Node(world, lambda made: fault if made == call else None, "node")
            running = asyncio.create_task(node.run(stop))
            await world.at(5 * MINUTE)
            stop.set()
            await running
            assert node.calls >= call, "the fault never struck"
            assert await statuses(world) == ["completed"] * 6
            rows = await world.ledger("s")
            began = [row.started_at for row in rows if row.started_at]
            assert began == sorted(began)
            assert all(
                later >= (row.completed_at or later) for row, later in zip(rows, began[1:], strict=False)
            )
            assert (len(watch.starts), watch.held_twice) == (6, [])

        play(one, STORES["memory"], tmp_path)


@pytest.mark.parametrize(
    ("store", "overlap"),
    [
        (store, overlap)
        for number, store in enumerate(STORES)
        for at, overlap in enumerate(("buffer_one", "buffer_all", "terminate_previous"))
        if THOROUGH or store == "memory" or at == number % 3
    ],
)
def test_many_faults_at_once(store: str, overlap: str, tmp_path: Path) -> None:
    """Three nodes whose calls fail often. When all is quiet, nothing is left waiting."""
    chance = random.Random(overlap)

    def plan(number: int) -> Fault | None:
        return chance.choice(list(Fault)) if chance.random() < 0.125 and number < 200 else None

    async def many(world: World) -> None:
        watch = Watch()
        world.app.task("work", max_retries=20)(watch.handler(seconds=12))
        end = START + 3 * MINUTE
        schedule = await world.schedule(interval=10, overlap_policy=overlap, end_at=end)
        stop = asyncio.Event()
        nodes = [asyncio.create_task(Node(world, plan, f"node-{n}").run(stop)) for n in range(3)]
        await world.at(10 * MINUTE)
        stop.set()
        await asyncio.gather(*nodes)
        found = await statuses(world)
        assert not {status.split()[0] for status in found} & {"running", "buffered"}
        tasks = {task.id: task for task in await world.tasks()}
        check_ledger(schedule, await world.ledger("s"), tasks, schedule.created_at, end + MINUTE)
        assert not watch.held_twice

    play(many, STORES[store], tmp_path)


async def test_one_that_cannot_start_gives_way(world: World) -> None:
    await world.queue.create_template("report", "work")
    target = rota.TemplateTarget(template_id="report")
    handle(world, seconds=150)
    await world.queue.create_schedule(
        "s", target=target, cron="* * * * *", overlap_policy="buffer_all", max_runs=3
    )
    async with world.running():
        await world.at(3.2 * MINUTE)
        await world.queue.update_template("report", enabled=False)
        await world.at(HOUR)
        assert (await statuses(world))[:3] == ["completed", "skipped disabled", "skipped disabled"]
        assert (await world.queue.get_schedule("s")).run_count == 1


@pytest.mark.parametrize("why", ["disabled", "suspended"])
async def test_one_that_waited_and_did_not_start_uses_up_no_run(world: World, why: str) -> None:
    """It was the last of its `max_runs`, by which the schedule had completed."""
    await world.queue.create_template("report", "work")
    target = rota.TemplateTarget(template_id="report")
    starts = handle(world, seconds=90)
    options: Any = {"overlap_policy": "buffer_all", "max_runs": 2, "alarm_late": "10m"}
    await world.queue.create_schedule("s", target=target, cron="* * * * *", **options)
    await world.queue.create_tenant("default")
    async with world.running():
        await world.at(2.1 * MINUTE)
        assert (await world.queue.get_schedule("s")).status == "completed"
        if why == "disabled":
            await world.queue.update_template("report", enabled=False)
        else:
            await world.queue.suspend_tenant("default")
        await world.at(2.8 * MINUTE)
        schedule = await world.queue.get_schedule("s")
        assert (schedule.status, schedule.run_count) == ("active", 1)
        assert (schedule.next_run_at, schedule.completed_reason) == (START + 3 * MINUTE, None)
        assert schedule.watch_at == START + 13 * MINUTE, "its alarms are on again"
        await world.at(4.1 * MINUTE)
        if why == "disabled":
            await world.queue.update_template("report", enabled=True)
        else:
            await world.queue.resume_tenant("default")
        await world.at(HOUR)
    assert await statuses(world) == ["completed", *[f"skipped {why}"] * 3, "completed"]
    assert starts == [START + MINUTE, START + 5 * MINUTE]
    schedule = await world.queue.get_schedule("s")
    assert (schedule.status, schedule.run_count) == ("completed", 2)
    events = await world.queue.schedule_history("s")
    assert [event.action for event in events] == ["created", "completed", "resumed", "completed"]
