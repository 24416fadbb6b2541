"""Limits of tasks, in virtual time: never more at once, never more in a while, and nothing is left in a line.

Handlers mark when they begin and end; the marks are the judge.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

import rota
from rota.domain.model import Gate
from rota.engine import limits
from rota.engine.commands import gates as commands
from rota.engine.commands.tasks import ASKED_AHEAD
from simulation.faults import Fault, FaultyStore, Node
from worlds import HOUR, MINUTE, SECOND, START, Stubborn, World, on_any_store


class Marks:
    """What handlers did: when each began, and how many of each key ran at once."""

    def __init__(self, world: World, seconds: float) -> None:
        self._world = world
        self._seconds = seconds
        self._now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.begun: dict[str, list[datetime]] = {}

    async def handle(self, input: Any, context: rota.Context) -> None:
        key = str(input["customer"])
        self.begun.setdefault(key, []).append(self._world.clock.now())
        self._now[key] += 1
        self.most[key] = max(self.most[key], self._now[key])
        try:
            await asyncio.sleep(self._seconds)
        finally:
            self._now[key] -= 1

    def most_within(self, key: str, period: timedelta) -> int:
        times = self.begun[key]
        return max(sum(1 for other in times if at <= other < at + period) for at in times)


async def gates(world: World) -> list[Gate]:
    return (await world.store.snapshot())["gate"]  # type: ignore[return-value]  # the type's own list


async def all_done(world: World, tasks: list[Any]) -> None:
    for task in tasks:
        await world.queue.wait(task.id, timeout=timedelta(hours=3))


async def check_empty(world: World) -> None:
    """Nobody is inside or in a line, and every task has left its gates."""
    assert [each for each in await gates(world) if each.inside or each.has_line] == []
    assert {(task.passed, task.line) for task in await world.tasks()} == {(0, None)}


async def test_never_more_at_once_for_each_key(world: World) -> None:
    marks = Marks(world, seconds=1)
    world.app.task("work", limit=rota.Limit(concurrency=3, key="customer"))(marks.handle)
    await world.queue.declare_limits(world.app)
    tasks = await world.queue.submit_many([("work", {"customer": n % 4}) for n in range(60)])
    assert sum(task.line is not None for task in await world.tasks()) == 60 - 4 * 3
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert marks.most == {str(n): 3 for n in range(4)}
    assert world.clock.now() - START < 6 * SECOND, "15 of each key, 3 at a time, take 5 s"
    await check_empty(world)


async def test_tasks_from_before_a_limit_pass_gates_in_the_order_of_those_after_it(world: World) -> None:
    """Else one would hold the queue's place and wait for that of its kind, and the other the other way round."""
    marks = Marks(world, seconds=1)
    world.app.task("work")(marks.handle)
    queue = world.queue
    await queue.limit_queue("mail", concurrency=1)
    tasks = [await queue.submit("work", {"customer": 1}, queue="mail") for _ in range(3)]
    await queue.limit_kind("work", concurrency=1)
    tasks += [await queue.submit("work", {"customer": 1}, queue="mail") for _ in range(3)]
    assert {each.gates for each in await world.tasks()} == {(await queue.get(tasks[-1].id)).gates}
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert marks.most == {"1": 1}
    await check_empty(world)


async def test_a_key_that_is_taken_away_and_comes_back_leaves_nobody_waiting(world: World) -> None:
    marks = Marks(world, seconds=1)
    world.app.task("work")(marks.handle)
    tasks = []
    for key in ("customer", None, "customer"):
        await world.queue.limit_kind("work", concurrency=1, key=key)
        tasks += [await world.queue.submit("work", {"customer": 1}) for _ in range(2)]
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert marks.most == {"1": 1}
    await check_empty(world)


async def test_the_limit_of_a_handler_binds_what_waits_under_another(world: World) -> None:
    """A worker sets it when it starts."""
    marks = Marks(world, seconds=1)
    await world.queue.limit_queue("mail", concurrency=20)
    tasks = [await world.queue.submit("work", {"customer": 1}, queue="mail") for _ in range(8)]
    world.app.task("work", limit=rota.Limit(concurrency=1))(marks.handle)
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert marks.most == {"1": 1}
    await check_empty(world)


async def test_planned_tasks_keep_their_moments_if_only_the_concurrency_changes(world: World) -> None:
    marks = Marks(world, seconds=0)
    world.app.task("work")(marks.handle)
    await world.queue.limit_kind("work", concurrency=200, rate="60/m")
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 60)
    async with world.running(concurrency=50):
        await asyncio.sleep(5)
        await world.queue.limit_kind("work", concurrency=201, rate="60/m")
        await all_done(world, tasks)
    assert marks.most_within("1", MINUTE) <= 60
    assert world.clock.now() - START < 65 * SECOND
    await check_empty(world)


@pytest.mark.parametrize("subject", ["kind", "queue"])
@pytest.mark.parametrize("change", ["taken away and set again", "lowered", "lowered beside another"])
async def test_a_limit_binds_what_was_let_in_and_has_not_started(
    world: World, change: str, subject: str
) -> None:
    begun: list[int] = []
    running = most = 0

    @world.app.task("work")
    async def work(number: int) -> None:
        nonlocal running, most
        begun.append(number)
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    async def limit(of: str, concurrency: int | None) -> None:
        if of == "kind":
            await world.queue.limit_kind("work", concurrency=concurrency)
        else:
            await world.queue.limit_queue("default", concurrency=concurrency)

    if change == "lowered beside another":
        await limit("queue" if subject == "kind" else "kind", 12)
    await limit(subject, 15)
    tasks = await world.queue.submit_many([("work", {"number": n}) for n in range(20)])
    if change == "taken away and set again":
        await limit(subject, None)
        assert {task.line for task in await world.tasks()} == {None}
    await limit(subject, 1)
    tasks += await world.queue.submit_many([("work", {"number": n}) for n in range(20, 23)])
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert (most, begun) == (1, list(range(23)))
    await check_empty(world)


@pytest.mark.parametrize("by", ["call", "worker", "worker without limits"])
@pytest.mark.parametrize("calls", range(1, 6))
@on_any_store
async def test_a_change_of_a_limit_that_was_interrupted_is_ended_by_the_next(
    world: World, calls: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever changes it dies after each of its commits."""
    monkeypatch.setattr(limits, "PAGE", 4)
    marks = Marks(world, seconds=1)
    limit = None if by == "worker without limits" else rota.Limit(concurrency=1)
    world.app.task("work", limit=limit)(marks.handle)
    await world.queue.limit_queue("default", concurrency=9)
    await world.queue.limit_kind("work", concurrency=6)
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 10)
    store = FaultyStore(world.store, lambda number: Fault.DIES if number > calls else None)
    other = rota.Queue(store, clock=world.clock)
    changing = asyncio.create_task(other.limit_kind("work", concurrency=1))
    await store.dead.wait()
    changing.cancel()
    if by == "call":
        await world.queue.limit_kind("work", concurrency=1)
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert marks.most == {"1": 1}
    await check_empty(world)
    assert (await world.queue.get_tenant("default")).unplanned == {}


@on_any_store
async def test_who_is_over_its_time_keeps_its_place_until_its_code_has_ended(world: World) -> None:
    stubborn = Stubborn(world, seconds=40)
    limit = rota.Limit(concurrency=1)
    world.app.task("work", timeout=1, max_retries=0, limit=limit)(stubborn.handle)
    await world.queue.declare_limits(world.app)
    tasks = await world.queue.submit_many([("work", None)] * 2)
    async with world.running(concurrency=50, lease=10 * SECOND):
        await world.at(30 * SECOND)
        assert (await world.queue.get(tasks[0].id)).status == "running"
        for task in tasks:
            ended = await world.queue.wait(task.id)
            assert (ended.status, ended.attempt) == ("failed", 1)
            assert "and still runs" in str(ended.error)
    assert (stubborn.most, stubborn.began) == (1, [timedelta(0), 40 * SECOND])
    await check_empty(world)


async def test_who_is_cancelled_keeps_its_place_until_its_code_has_ended(world: World) -> None:
    """One with a timeout is given up soon after the cancel, but goes on."""
    stubborn = Stubborn(world, seconds=40)
    limit = rota.Limit(concurrency=1)
    world.app.task("work", timeout=HOUR, max_retries=0, limit=limit)(stubborn.handle)
    await world.queue.declare_limits(world.app)
    tasks = await world.queue.submit_many([("work", None)] * 2)
    async with world.running(concurrency=50, lease=10 * SECOND):
        await world.at(5 * SECOND)
        await world.queue.cancel(tasks[0].id)
        await world.at(30 * SECOND)
        ended = [await world.queue.wait(task.id) for task in tasks]
    assert [task.status for task in ended] == ["cancelled", "completed"]
    assert (stubborn.most, stubborn.began) == (1, [timedelta(0), 40 * SECOND])
    await check_empty(world)


async def test_who_is_over_its_time_ends_at_once_if_only_its_rate_is_limited(world: World) -> None:
    stubborn = Stubborn(world, seconds=40)
    world.app.task("work", timeout=1, max_retries=0, limit=rota.Limit(rate="1/s"))(stubborn.handle)
    await world.queue.declare_limits(world.app)
    task = await world.queue.submit("work")
    async with world.running(concurrency=50):
        ended = await world.queue.wait(task.id)
        assert (ended.status, world.clock.now() < START + 20 * SECOND) == ("failed", True)


async def test_who_is_over_its_time_when_its_worker_ends_has_failed(world: World) -> None:
    """It is not handed back: its attempt is over, though its code goes on."""
    stubborn = Stubborn(world, seconds=40)
    world.app.task("work", timeout=1, max_retries=0, limit=rota.Limit(concurrency=1))(stubborn.handle)
    await world.queue.declare_limits(world.app)
    task = await world.queue.submit("work")
    async with world.running(shutdown_timeout=2 * SECOND):
        await world.at(10 * SECOND)
    ended = await world.queue.get(task.id)
    assert (ended.status, stubborn.most) == ("failed", 1)
    await check_empty(world)


async def test_who_ran_while_there_was_no_limit_takes_no_place_from_others(world: World) -> None:
    """The gate of a limit that was taken away is forgotten. It was not counted there when it began."""
    marks = Marks(world, seconds=20)
    world.app.task("work")(marks.handle)
    await world.queue.limit_kind("work", concurrency=1)
    later = await world.queue.submit("work", {"customer": "later"}, schedule_at=START + 3 * HOUR)
    await world.queue.limit_kind("work")
    async with world.running(concurrency=50):
        await world.at(3 * HOUR + SECOND)
        assert await gates(world) == []
        await world.queue.limit_kind("work", concurrency=1)
        await world.at(3 * HOUR + 10 * SECOND)
        tasks = await world.queue.submit_many([("work", {"customer": "other"})] * 2)
        await all_done(world, [later, *tasks])
    assert marks.most == {"later": 1, "other": 1}
    await check_empty(world)


@pytest.mark.parametrize("end", ["cancelled", "cancelled at once", "expired"])
@pytest.mark.parametrize("gone", ["all", "first", "last", "every other", "one by one"])
async def test_moments_that_are_not_used_are_had_by_those_behind(world: World, gone: str, end: str) -> None:
    begun: list[int] = []

    @world.app.task("work", limit=rota.Limit(rate="60/m"))
    async def work(number: int) -> None:
        begun.append(number)

    await world.queue.declare_limits(world.app)
    leaving = {
        "all": range(1, 200),
        "first": range(1, 100),
        "last": range(100, 200),
        "every other": range(1, 200, 2),
        "one by one": range(1, 60),
    }[gone]
    staying = [number for number in range(200) if number not in leaving]
    tasks = [
        await world.queue.submit("work", {"number": n}, ttl=5 if n in leaving and end == "expired" else None)
        for n in range(200)
    ]
    async with world.running(concurrency=50):
        await world.at(2.5 * SECOND)
        ids = [tasks[number].id for number in leaving if number > 5]
        if gone == "one by one" and end != "expired":
            for id in ids:
                await world.queue.cancel(id)
        elif end == "cancelled at once":
            await world.queue.cancel_many(ids)
        elif end == "cancelled":
            for first in range(0, len(ids), 20):
                await world.queue.cancel_many(ids[first : first + 20])
        new = await world.queue.submit("work", {"number": 200})
        await all_done(world, [new])
    ran = [number for number in begun if number > 5]
    assert ran == [number for number in staying if number > 5] + [200]
    planned = len(staying) + 6
    assert (world.clock.now() - START) / SECOND < 1.02 * 1.12 * planned + 10
    await check_empty(world)


@on_any_store
async def test_many_move_up_in_several_commits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MOVED_AT_ONCE", 7)
    begun: list[int] = []

    @world.app.task("work", limit=rota.Limit(rate="60/m"))
    async def work(number: int) -> None:
        begun.append(number)

    await world.queue.declare_limits(world.app)
    tasks = await world.queue.submit_many([("work", {"number": n}) for n in range(200)])
    await world.queue.cancel_many([task.id for task in tasks[1:100]])
    async with world.running():
        await world.at(30 * SECOND)
        await world.queue.cancel_many([task.id for task in tasks[150:160]])
        tasks.append(await world.queue.submit("work", {"number": 200}))
        await all_done(world, tasks)
    assert begun == [0, *range(100, 150), *range(160, 201)]
    assert world.clock.now() - START < 100 * SECOND
    await check_empty(world)


@pytest.mark.parametrize("seconds", [40, 400])
async def test_many_move_up_in_their_order_while_handlers_take_long(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """Only a task that ends moves others up. Those that move late get no moments that are over."""
    monkeypatch.setattr(commands, "MOVED_AT_ONCE", 20)
    begun: dict[int, datetime] = {}

    @world.app.task("work", limit=rota.Limit(rate="60/m"))
    async def work(number: int) -> None:
        begun[number] = world.clock.now()
        await asyncio.sleep(seconds)

    await world.queue.declare_limits(world.app)
    tasks = await world.queue.submit_many([("work", {"number": n}) for n in range(300)])
    async with world.running(concurrency=300):
        await world.at(2.5 * SECOND)
        await world.queue.cancel_many([task.id for task in tasks[5:200]])
        await all_done(world, tasks)
    assert [*begun] == [*range(5), *range(200, 300)]
    times = [*begun.values()]
    assert times[24] - START < 26 * SECOND, "20 have moved up in the commit that noticed it"
    assert min(later - at for at, later in zip(times, times[60:], strict=False)) >= MINUTE
    await check_empty(world)


async def test_moments_that_are_over_are_given_to_nobody(world: World) -> None:
    """A few are not used, which is no tenth of what is planned until most have begun."""
    begun: dict[int, datetime] = {}

    @world.app.task("work", limit=rota.Limit(rate="60/m"))
    async def work(number: int) -> None:
        begun[number] = world.clock.now()

    await world.queue.declare_limits(world.app)
    tasks = await world.queue.submit_many([("work", {"number": n}) for n in range(200)])
    async with world.running():
        await world.at(2.5 * SECOND)
        await world.queue.cancel_many([task.id for task in tasks[10:20]])
        await world.at(112.5 * SECOND)
        await world.queue.cancel(tasks[-1].id)
        await all_done(world, tasks)
    assert [*begun] == [*range(10), *range(20, 199)]
    times = [*begun.values()]
    assert min(later - at for at, later in zip(times, times[60:], strict=False)) >= MINUTE
    await check_empty(world)


@pytest.mark.parametrize("by", ["call", "worker"])
@pytest.mark.parametrize("calls", range(1, 7))
@on_any_store
async def test_a_change_of_a_rate_that_was_interrupted_is_ended_by_the_next(
    world: World, calls: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "MOVED_AT_ONCE", 7)
    marks = Marks(world, seconds=0)
    world.app.task("work", limit=rota.Limit(rate="60/m"))(marks.handle)
    await world.queue.limit_kind("work", rate="1/h")
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 40)
    store = FaultyStore(world.store, lambda number: Fault.DIES if number > calls else None)
    other = rota.Queue(store, clock=world.clock)
    changing = asyncio.create_task(other.limit_kind("work", rate="60/m"))
    await store.dead.wait()
    changing.cancel()
    if by == "call":
        await world.queue.limit_kind("work", rate="60/m")
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert world.clock.now() - START < MINUTE
    await check_empty(world)


@pytest.mark.parametrize("other", ["concurrency", "rate"])
async def test_a_second_limit_costs_planned_tasks_no_moments(world: World, other: str) -> None:
    marks = Marks(world, seconds=0.1)
    world.app.task("work")(marks.handle)
    await world.queue.limit_kind("work", rate="60/m")
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 120)
    async with world.running(concurrency=50):
        await world.at(5 * SECOND)
        if other == "rate":
            await world.queue.limit_queue("default", rate="200/m")
        else:
            await world.queue.limit_queue("default", concurrency=5)
        await all_done(world, tasks)
    assert marks.most_within("1", MINUTE) <= 60
    assert world.clock.now() - START < 125 * SECOND
    await check_empty(world)


async def test_a_rate_that_is_added_binds_what_was_let_in(world: World) -> None:
    marks = Marks(world, seconds=0.1)
    world.app.task("work")(marks.handle)
    await world.queue.limit_kind("work", concurrency=100)
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 30)
    await world.queue.limit_kind("work", concurrency=100, rate="20/m")
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert marks.most_within("1", MINUTE) <= 20
    assert world.clock.now() - START < 100 * SECOND
    await check_empty(world)


@pytest.mark.parametrize("end", ["retry", "reschedule", "replay"])
@pytest.mark.parametrize("subject", ["kind", "queue"])
async def test_a_limit_binds_the_next_attempts_of_what_ran_when_it_was_set(
    world: World, end: str, subject: str
) -> None:
    marks = Marks(world, seconds=1)
    running, limited = asyncio.Event(), asyncio.Event()
    begun = 0

    @world.app.task("work", max_retries=3)
    async def work(input: Any, context: rota.Context) -> None:
        nonlocal begun
        if not limited.is_set():
            begun += 1
            if begun == 4:
                running.set()
            await limited.wait()
            if end == "retry":
                raise RuntimeError
            raise rota.PermanentError if end == "replay" else rota.RescheduleError(delay_seconds=1)
        await marks.handle(input, context)

    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 4, queue="mail")
    async with world.running(concurrency=50):
        await running.wait()
        if subject == "kind":
            await world.queue.limit_kind("work", concurrency=1)
        else:
            await world.queue.limit_queue("mail", concurrency=1)
        limited.set()
        if end == "replay":
            await all_done(world, tasks)
            for task in tasks:
                await world.queue.replay(task.id)
        await all_done(world, tasks)
    assert {str(task.status) for task in await world.tasks()} == {"completed"}
    assert (marks.most, len(marks.begun["1"])) == ({"1": 1}, 4)
    await check_empty(world)


async def test_never_more_than_the_rate(world: World) -> None:
    marks = Marks(world, seconds=5)
    world.app.task("work", limit=rota.Limit(rate="10/m"))(marks.handle)
    await world.queue.declare_limits(world.app)
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 35)
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert marks.most_within("1", MINUTE) == 10
    assert world.clock.now() - START < 3.7 * MINUTE
    await check_empty(world)


@on_any_store
async def test_what_piled_up_while_no_worker_was_there_does_not_start_at_once(world: World) -> None:
    marks = Marks(world, seconds=0.1)
    world.app.task("work", limit=rota.Limit(rate="10/m"))(marks.handle)
    await world.queue.declare_limits(world.app)
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 25)
    await world.at(10 * MINUTE)
    async with world.running(concurrency=4):
        await all_done(world, tasks)
    assert marks.most_within("1", MINUTE) <= 10
    assert world.clock.now() - START < 13 * MINUTE


@on_any_store
async def test_a_line_of_many_holds_up_no_other(world: World) -> None:
    marks = Marks(world, seconds=60)
    world.app.task("work", limit=rota.Limit(concurrency=1, key="customer"))(marks.handle)
    await world.queue.declare_limits(world.app)
    await world.queue.submit_many([("work", {"customer": "slow"})] * 5_000)
    other = await world.queue.submit("work", {"customer": "other"})
    async with world.running(concurrency=10):
        await world.at(2 * SECOND)
        assert (await world.queue.get(other.id)).started_at == START
    assert marks.most == {"slow": 1, "other": 1}


@on_any_store
async def test_those_that_a_limit_turns_away_hold_up_no_other(world: World) -> None:
    """They ask when a worker would start them: more than one claim reads are before the one that is free to start."""
    marks = Marks(world, seconds=60)
    world.app.task("work")(marks.handle)
    world.app.task("other")(marks.handle)
    await world.queue.limit_kind("work", concurrency=1)
    due = START + MINUTE
    await world.queue.submit_many(
        [("work", {"customer": 1})] * 2 * ASKED_AHEAD, priority=200, schedule_at=due
    )
    await world.queue.submit("other", {"customer": 2}, priority=1, schedule_at=due)
    async with world.running(concurrency=2):
        await world.at(MINUTE + SECOND)
    assert marks.begun.keys() == {"1", "2"}


@on_any_store
async def test_a_task_for_later_takes_no_place_before_its_time(world: World) -> None:
    marks = Marks(world, seconds=1)
    world.app.task("work", limit=rota.Limit(concurrency=1))(marks.handle)
    await world.queue.declare_limits(world.app)
    later = await world.queue.submit("work", {"customer": "later"}, schedule_at=START + MINUTE)
    now = await world.queue.submit("work", {"customer": "now"})
    async with world.running():
        await all_done(world, [now, later])
    assert marks.begun == {"now": [START], "later": [START + MINUTE]}
    await check_empty(world)


@on_any_store
async def test_one_let_in_by_its_kind_asks_at_a_queue_that_those_before_it_are_not_in(world: World) -> None:
    marks = Marks(world, seconds=1)
    world.app.task("work", limit=rota.Limit(concurrency=2))(marks.handle)
    await world.queue.declare_limits(world.app)
    for queue in ("a", "b"):
        await world.queue.limit_queue(queue, concurrency=1)
    tasks = [
        await world.queue.submit("work", {"customer": name}, queue=name) for name in ("a", "a", *"bbbbaa")
    ]
    async with world.running(concurrency=10):
        await all_done(world, tasks)
    assert marks.most == {"a": 1, "b": 1}
    await check_empty(world)


@on_any_store
async def test_a_retry_waits_in_line_again(world: World) -> None:
    begun: list[str] = []

    @world.app.task("work", limit=rota.Limit(concurrency=1))
    async def work(name: str, context: rota.Context) -> None:
        begun.append(name)
        await asyncio.sleep(1)
        if name == "fails" and context.task.attempt == 1:
            raise rota.RetryableError("once", delay_seconds=0)

    await world.queue.declare_limits(world.app)
    tasks = await world.queue.submit_many([("work", {"name": name}) for name in ("fails", "b", "c")])
    async with world.running(concurrency=5):
        await all_done(world, tasks)
    assert begun == ["fails", "b", "c", "fails"]
    await check_empty(world)


@on_any_store
async def test_what_ends_in_whatever_way_lets_the_next_in(world: World) -> None:
    world.app.task("work", limit=rota.Limit(concurrency=1))(Marks(world, seconds=0).handle)
    await world.queue.declare_limits(world.app)
    first, second, third, fourth = await world.queue.submit_many([("work", {"customer": 1})] * 4)
    await world.queue.cancel(first.id)
    assert (await world.queue.get(second.id)).line is None
    await world.queue.cancel(third.id)  # from within the line
    await world.queue.mark_expired(second.id)
    assert (await world.queue.get(fourth.id)).line is None
    [gate] = await gates(world)
    assert gate.inside == 1
    await world.queue.replay(first.id)
    assert (await world.queue.get(first.id)).line == gate.id


async def test_a_queue_and_a_kind_limit_together(world: World) -> None:
    marks = Marks(world, seconds=1)
    world.app.task("work", limit=rota.Limit(concurrency=2, key="customer"))(marks.handle)
    await world.queue.declare_limits(world.app)
    await world.queue.limit_queue("mail", concurrency=3)
    tasks = await world.queue.submit_many([("work", {"customer": n % 3}) for n in range(24)], queue="mail")
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert max(marks.most.values()) <= 2
    assert world.clock.now() - START == 8 * SECOND, "always three at work"
    await check_empty(world)


async def test_who_waits_for_a_queue_comes_before_who_only_now_passes_its_kind(world: World) -> None:
    begun: list[str] = []

    async def handle(input: str) -> None:
        begun.append(input)
        await asyncio.sleep(1)

    world.app.task("work", limit=rota.Limit(concurrency=1))(handle)
    world.app.task("other")(handle)
    await world.queue.declare_limits(world.app)
    await world.queue.limit_queue("mail", concurrency=1)
    wanted = [("work", "inside"), ("other", "in the line of the queue"), ("work", "in the line of its kind")]
    tasks = [await world.queue.submit(kind, name, queue="mail") for kind, name in wanted]
    async with world.running():
        await all_done(world, tasks)
    assert begun == [name for _, name in wanted]
    await check_empty(world)


@on_any_store
async def test_the_rate_of_a_kind_is_kept_behind_a_queue_that_is_full(world: World) -> None:
    """Tasks pile up in the line of their queue, long after the moments of their kind. They hold up no other."""
    marks, others = Marks(world, seconds=0.5), Marks(world, seconds=0.5)
    world.app.task("work", limit=rota.Limit(rate="10/m"))(marks.handle)
    world.app.task("other")(others.handle)

    @world.app.task("block")
    async def block() -> None:
        await asyncio.sleep(600)

    await world.queue.declare_limits(world.app)
    await world.queue.limit_queue("mail", concurrency=2)
    await world.queue.submit_many([("block", None)] * 2, queue="mail")
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 40, queue="mail")
    async with world.running(concurrency=50):
        await world.at(9 * MINUTE)
        tasks += await world.queue.submit_many([("other", {"customer": 2})] * 40, queue="mail")
        assert {task.line is None for task in await world.queue.list(kind="work")} == {False}
        await all_done(world, tasks)
    assert marks.most_within("1", MINUTE) <= 10
    assert max(others.begun["2"]) < START + 10.3 * MINUTE, "40 of half a second each, with two places"
    assert world.clock.now() < START + 16 * MINUTE, "as fast as the rate allows"
    await check_empty(world)


@on_any_store
async def test_a_kind_gets_its_rate_from_a_queue_that_is_always_full(world: World) -> None:
    marks, others = Marks(world, seconds=1), Marks(world, seconds=1)
    world.app.task("work", limit=rota.Limit(rate="10/m"))(marks.handle)
    world.app.task("other")(others.handle)
    await world.queue.declare_limits(world.app)
    await world.queue.limit_queue("mail", concurrency=1)
    batch = [("other", {"customer": 2})] * 60 + [("work", {"customer": 1})] * 20
    async with world.running(concurrency=50):
        for minute in range(6):
            await world.queue.submit_many(batch, queue="mail")
            await world.at((minute + 1) * MINUTE)
    assert marks.most_within("1", MINUTE) == 10
    assert len(marks.begun["1"]) > 45
    assert len(others.begun["2"]) > 280


@on_any_store
async def test_a_kind_and_its_queue_have_rates_and_both_are_kept(world: World) -> None:
    marks, others = Marks(world, seconds=0.1), Marks(world, seconds=0.1)
    world.app.task("work", limit=rota.Limit(rate="10/m"))(marks.handle)
    world.app.task("other")(others.handle)
    await world.queue.declare_limits(world.app)
    await world.queue.limit_queue("mail", rate="20/m", concurrency=2)
    names = ["other"] * 30 + ["work", "other"] * 25
    tasks = await world.queue.submit_many(
        [(name, {"customer": 1 if name == "work" else 2}) for name in names], queue="mail"
    )
    async with world.running(concurrency=50):
        await all_done(world, tasks)
    assert marks.most_within("1", MINUTE) <= 10
    together = Marks(world, 0)
    together.begun["all"] = sorted(marks.begun["1"] + others.begun["2"])
    assert together.most_within("all", MINUTE) <= 20
    assert world.clock.now() < START + 8 * MINUTE
    await check_empty(world)


@on_any_store
async def test_who_is_in_line_keeps_the_order_after_a_limit_is_lowered(world: World) -> None:
    """Those that are inside stay; then the line moves as ever: the highest priority first, then who came first."""
    begun: list[str] = []

    @world.app.task("work")
    async def work(name: str) -> None:
        begun.append(name)
        await asyncio.sleep(10)

    await world.queue.limit_queue("default", concurrency=3)
    tasks = []
    for number, priority in enumerate((128, 128, 128, 100, 200, 128, 200, 100)):
        tasks.append(await world.queue.submit("work", {"name": str(number)}, priority=priority))
        await world.at((number + 1) * SECOND)
    async with world.running(concurrency=10):
        await world.at(9 * SECOND)
        assert sorted(begun) == ["0", "1", "2"]
        await world.queue.limit_queue("default", concurrency=1)
        assert [gate.inside for gate in await gates(world)] == [3]
        await world.at(19.5 * SECOND)
        assert begun[3:] == ["4"], "three have ended, and one may be inside"
        await all_done(world, tasks)
    assert begun[3:] == ["4", "6", "5", "3", "7"]
    await check_empty(world)


@on_any_store
async def test_a_changed_limit_plans_the_line_anew(world: World) -> None:
    marks = Marks(world, seconds=10)
    world.app.task("work")(marks.handle)
    await world.queue.limit_queue("default", concurrency=1)
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 700)
    async with world.running(concurrency=1000):
        await world.at(5 * SECOND)
        await world.queue.limit_queue("default", concurrency=600)
        await world.at(9 * SECOND)
        assert marks.most == {"1": 600}
        await world.queue.limit_queue("default")
        await all_done(world, tasks)
    assert marks.most == {"1": 700}
    await check_empty(world)


async def test_a_limit_goes_when_it_is_deleted_in_the_code(world: World) -> None:
    """The next worker that starts takes it away."""
    marks = Marks(world, seconds=10)
    world.app.task("work", limit=rota.Limit(concurrency=1))(marks.handle)
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 5)
    async with world.running(concurrency=50):
        await world.at(5 * SECOND)
        assert await world.queue.task_limits(declared=True) == {"kind:work": rota.Limit(concurrency=1)}
        del world.app.handlers["work"]
        world.app.task("work")(marks.handle)
        async with world.running(concurrency=50):
            await all_done(world, tasks)
    assert await world.queue.task_limits() == {}
    assert marks.most == {"1": 5}
    await check_empty(world)


@on_any_store
@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
async def test_a_limit_that_a_person_set_stays_when_it_is_deleted_in_the_code(
    world: World, is_first: bool
) -> None:
    limited, unlimited, other = rota.App(), rota.App(), rota.App()
    limited.task("work", limit=rota.Limit(concurrency=1))(lambda: None)
    unlimited.task("work")(lambda: None)
    other.task("other")(lambda: None)
    if is_first:
        await world.queue.limit_kind("work", concurrency=1)
    await world.queue.declare_limits(limited)
    await world.queue.declare_limits(other)
    assert bool(await world.queue.task_limits(declared=True)) is not is_first
    if not is_first:
        await world.queue.limit_kind("work", concurrency=1)
    await world.queue.declare_limits(unlimited)
    assert await world.queue.task_limits(declared=False) == {"kind:work": rota.Limit(concurrency=1)}
    await world.queue.limit_kind("work")
    assert await world.queue.task_limits() == {}


@on_any_store
async def test_what_the_worker_that_started_last_declares_holds(world: World) -> None:
    old, new = rota.App(), rota.App()
    old.task("work", limit=rota.Limit(concurrency=1))(lambda: None)
    new.task("work")(lambda: None)
    for app, wanted in [(old, {"kind:work": rota.Limit(concurrency=1)}), (new, {})] * 2:
        await world.queue.declare_limits(app)
        assert await world.queue.task_limits() == wanted


@on_any_store
async def test_a_task_in_a_line_says_that_those_let_in_are_in_a_paused_queue(world: World) -> None:
    await world.queue.limit_kind("work", concurrency=1)
    await world.queue.pause_queue("idle")  # nothing of it is inside
    held = await world.queue.submit("work", queue="mail")
    behind = await world.queue.submit("work")
    line = "it is the next of kind work (at most 1 at once)"
    assert await world.queue.waiting(behind.id) == line
    await world.queue.pause_queue("mail", "the server moves")
    paused = await world.queue.waiting(behind.id)
    assert paused is not None
    assert (
        paused
        == f"{line}; one that was let in cannot start: queue mail was paused by tester less than a second ago"
        " (the server moves)"
    )
    assert paused.reason == "limited"
    await world.queue.cancel(held.id)
    assert (await world.queue.waiting(behind.id)) != paused


@on_any_store
async def test_a_task_in_the_line_of_a_paused_queue_says_so(world: World) -> None:
    await world.queue.limit_queue("mail", concurrency=1)
    await world.queue.submit("work", queue="mail")
    behind = await world.queue.submit("work", queue="mail")
    await world.queue.pause_queue("mail")
    said = "it is the next of queue mail (at most 1 at once); queue mail was paused by tester less than a second ago"
    assert await world.queue.waiting(behind.id) == said


@on_any_store
async def test_a_key_without_a_number_takes_no_limit_away(world: World) -> None:
    await world.queue.limit_kind("work", concurrency=1, key="customer")
    with pytest.raises(rota.Invalid, match=r"^key: it limits nothing; give concurrency, rate, or both"):
        await world.queue.limit_kind("work", key="client")
    assert await world.queue.task_limits() == {"kind:work": rota.Limit(concurrency=1, key="customer")}


@on_any_store
async def test_a_changed_rate_gives_other_moments(world: World) -> None:
    marks = Marks(world, seconds=0)
    world.app.task("work")(marks.handle)
    await world.queue.limit_queue("default", rate="1/h")
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 80)
    await world.queue.limit_queue("default", rate="100/m")
    async with world.running():
        await all_done(world, tasks[:50])
        await world.queue.limit_queue("default", rate="10/m")
        marks.begun["1"] = []
        await all_done(world, tasks)
    assert marks.most_within("1", MINUTE) == 10


@pytest.mark.parametrize("of_queue", [None, 3], ids=["kind alone", "behind a queue"])
@pytest.mark.parametrize("fault", list(Fault))
@on_any_store
async def test_a_fault_at_every_store_call(world: World, fault: Fault, of_queue: int | None) -> None:
    """Two nodes, of which one meets the fault again and again."""
    marks = Marks(world, seconds=3)
    world.app.task("work", limit=rota.Limit(concurrency=2, rate="20/m", key="customer"))(marks.handle)
    await world.queue.declare_limits(world.app)
    await world.queue.limit_queue("default", concurrency=of_queue)
    tasks = await world.queue.submit_many([("work", {"customer": n % 2}) for n in range(20)])
    stop = asyncio.Event()
    nodes = [
        Node(world, lambda number: fault if number % 7 == 3 and number < 70 else None, "a"),
        Node(world, lambda _: None, "b"),
    ]
    running = [asyncio.create_task(node.run(stop)) for node in nodes]
    await all_done(world, tasks)
    stop.set()
    await asyncio.gather(*running)
    assert max(marks.most.values()) <= 2
    assert max(marks.most_within(key, MINUTE) for key in marks.begun) <= 20
    await check_empty(world)


@on_any_store
@pytest.mark.parametrize("number", range(1, 25))
async def test_one_fault_at_each_store_call(world: World, number: int) -> None:
    marks = Marks(world, seconds=1)
    world.app.task("work", max_retries=9, limit=rota.Limit(concurrency=1, key="customer"))(marks.handle)
    await world.queue.declare_limits(world.app)
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 4)
    fault = list(Fault)[number % len(Fault)]
    stop = asyncio.Event()
    node = Node(world, lambda call: fault if call == number else None, "a")
    running = asyncio.create_task(node.run(stop))
    await all_done(world, tasks)
    stop.set()
    await running
    assert marks.most == {"1": 1}
    await check_empty(world)


@on_any_store
async def test_tasks_submitted_before_the_limit_was_known_are_limited(world: World) -> None:
    marks = Marks(world, seconds=1)
    world.app.task("work", limit=rota.Limit(concurrency=2))(marks.handle)
    tasks = await world.queue.submit_many([("work", {"customer": 1})] * 9)
    async with world.running(concurrency=5):
        await all_done(world, tasks)
    assert marks.most == {"1": 2}
    await check_empty(world)


@on_any_store
async def test_a_schedule_fires_into_the_line(world: World) -> None:
    marks = Marks(world, seconds=25)
    world.app.task("work", limit=rota.Limit(concurrency=1))(marks.handle)
    await world.queue.declare_limits(world.app)
    await world.schedule(interval=10, max_runs=4, overlap_policy="allow", input={"customer": 1})
    async with world.running():
        await world.at(3 * MINUTE)
    assert marks.most == {"1": 1}
    assert {task.status for task in await world.tasks()} == {"completed"}
    await check_empty(world)


@on_any_store
async def test_the_highest_priority_is_let_in_first(world: World) -> None:
    begun: list[str] = []

    @world.app.task("work", limit=rota.Limit(concurrency=1))
    async def work(name: str) -> None:
        begun.append(name)
        await asyncio.sleep(1)

    await world.queue.declare_limits(world.app)
    tasks = [
        await world.queue.submit("work", {"name": str(priority)}, priority=priority)
        for priority in (100, 0, 200, 128)
    ]
    async with world.running():
        await all_done(world, tasks)
    assert begun == ["100", "200", "128", "0"]


@on_any_store
async def test_idle_gates_are_forgotten(world: World) -> None:
    world.app.task("work", limit=rota.Limit(concurrency=1, key="customer"))(Marks(world, seconds=0).handle)
    await world.queue.declare_limits(world.app)
    await all_done_by(world, await world.queue.submit_many([("work", {"customer": n}) for n in range(5)]))
    assert await gates(world) == []


async def all_done_by(world: World, tasks: list[Any]) -> None:
    """They end, and three hours pass."""
    async with world.running():
        await all_done(world, tasks)
        await world.at(timedelta(hours=3))


@on_any_store
async def test_workflows_and_their_children_in_one_limited_queue(world: World) -> None:
    """A workflow that is parked leaves its place; else its children could never run."""
    marks = Marks(world, seconds=5)
    world.app.task("work")(marks.handle)

    @world.app.workflow("flow")
    async def flow(ctx: Any) -> None:
        await asyncio.gather(*[ctx.child("work", {"customer": 1}, key=n) for n in range(3)])

    await world.queue.limit_queue("default", concurrency=1)
    flows = [await world.queue.start_workflow("flow") for _ in range(3)]
    async with world.running(concurrency=10):
        await all_done(world, flows)
    assert {task.status for task in await world.tasks()} == {"completed"}
    assert marks.most == {"1": 1}
    await check_empty(world)


@on_any_store
async def test_children_that_are_cancelled_with_their_workflow_leave_the_line(world: World) -> None:
    marks = Marks(world, seconds=MINUTE.total_seconds())
    world.app.task("work", limit=rota.Limit(concurrency=2))(marks.handle)

    @world.app.workflow("flow")
    async def flow(ctx: Any) -> None:
        await asyncio.gather(*[ctx.child("work", {"customer": 1}, key=n) for n in range(5)])

    await world.queue.declare_limits(world.app)
    started = await world.queue.start_workflow("flow")
    async with world.running(concurrency=10):
        await world.at(20 * SECOND)
        assert sum(task.line is not None for task in await world.tasks()) == 3
        other = await world.queue.submit("work", {"customer": 2})
        await world.queue.cancel(started.id)
        await all_done(world, [other])
    assert marks.begun["1"] == [marks.begun["1"][0]] * 2
    await check_empty(world)


@on_any_store
async def test_a_queue_is_limited_that_has_tasks_already(world: World) -> None:
    marks = Marks(world, seconds=1)
    world.app.task("work", limit=rota.Limit(concurrency=5))(marks.handle)
    await world.queue.declare_limits(world.app)
    first = await world.queue.submit_many([("work", {"customer": 1})] * 9)
    await world.queue.limit_queue("default", concurrency=2)
    async with world.running(concurrency=10):
        await all_done(world, [*first, *await world.queue.submit_many([("work", {"customer": 1})] * 9)])
    assert marks.most == {"1": 2}
    await check_empty(world)


async def test_a_queue_says_since_when_its_line_waits(world: World) -> None:
    marks = Marks(world, seconds=60)
    world.app.task("work")(marks.handle)
    await world.queue.limit_queue("mail", concurrency=1)
    await world.queue.submit_many([("work", {"customer": 1})] * 3, queue="mail")
    async with world.running():
        await world.at(5 * SECOND)
        [mail] = await world.queue.list_queues()
        assert (mail.pending, mail.running, mail.oldest_at) == (2, 1, START)


@on_any_store
async def test_rates_that_are_faster_than_the_workers_cost_few_writes(world: World) -> None:
    """Every moment passes before a worker comes. A task that asked for another one each time would be written again and
    again, and keep workers from those that may start."""
    marks = Marks(world, seconds=0.3)
    for kind in "abcd":
        world.app.task(kind, limit=rota.Limit(rate="300/s"))(marks.handle)
    await world.queue.declare_limits(world.app)
    await world.queue.limit_queue("mail", concurrency=6)
    wanted = [(kind, {"customer": kind}) for kind in "abcd" * 100]
    tasks = await world.queue.submit_many(wanted, queue="mail")
    await world.at(5 * SECOND)
    async with world.running(concurrency=10):
        await all_done(world, tasks)
    assert world.clock.now() - START - 5 * SECOND < 1.1 * (400 / 6) * 0.3 * SECOND, "always six at work"
    versions = [task.version for task in await world.tasks()]
    assert sum(versions) / 400 < 4.2, "submitted, let in, claimed, settled"
    assert max(marks.most_within(kind, SECOND) for kind in "abcd") <= 300
    await check_empty(world)
