"""Random walks under limits that change all the time: handlers mark when they begin, and the marks are the judge.

A limit counts from when the call that set it has answered. Tasks that had begun by then are not counted if there was
none before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

import rota
from rota.domain.model import Limit
from simulation.test_gates import all_done, check_empty
from worlds import MINUTE, SECOND, START, World, seeds

PERIODS = {"s": SECOND, "m": MINUTE}
KINDS, QUEUES, CUSTOMERS = ("a", "b"), ("default", "mail"), (1, 2, 3)


class Rule:
    """A limit as it is now, and who has begun under it, by key."""

    def __init__(self) -> None:
        self.limit: Limit | None = None
        self.since = START
        self.is_changing = False
        self.running: dict[Any, set[str]] = {}
        self.begun: dict[Any, deque[datetime]] = {}

    def set(self, limit: Limit | None, now: datetime) -> None:
        if self.limit is None or limit is None or self.limit.key != limit.key:
            self.running = {}
        if (
            limit is None
            or self.limit is None
            or (self.limit.rate, self.limit.key) != (limit.rate, limit.key)
        ):
            self.begun = {}
        self.limit, self.since, self.is_changing = limit, now, False

    def begin(self, task: str, customer: int, at: datetime) -> None:
        """A task begins: neither is exceeded."""
        if self.limit is None or (at <= self.since and not self.is_changing):
            return
        key = customer if self.limit.key else None
        running = self.running.setdefault(key, set())
        running.add(task)
        if self.is_changing:
            return
        assert len(running) <= (self.limit.concurrency or len(running)), (key, self.limit, at)
        if self.limit.rate is not None:
            count, _, unit = self.limit.rate.partition("/")
            times = self.begun.setdefault(key, deque(maxlen=int(count) + 1))
            times.append(at)
            assert len(times) <= int(count) or times[-1] - times[0] >= PERIODS[unit], (self.limit, [*times])

    def end(self, task: str) -> None:
        for running in self.running.values():
            running.discard(task)


class Walk:
    """Random calls, and the rules that hold meanwhile."""

    def __init__(self, world: World, random: Random) -> None:
        self.world, self.random = world, random
        self.rules = {f"kind:{kind}": Rule() for kind in KINDS} | {f"queue:{name}": Rule() for name in QUEUES}
        self.tasks: list[Any] = []
        self.problems: list[AssertionError] = []

    async def handle(self, input: Any, context: rota.Context) -> None:
        task = context.task
        own = [self.rules[f"kind:{task.kind}"], self.rules[f"queue:{task.queue}"]]
        try:
            for rule in own:
                rule.begin(task.id, input["customer"], self.world.clock.now())
        except AssertionError as problem:
            self.problems.append(problem)
        try:
            await asyncio.sleep(input["seconds"])
            if input["fails"] and task.attempt == 1:
                raise rota.RetryableError("once", delay_seconds=1)
        finally:
            for rule in own:
                rule.end(task.id)

    async def step(self) -> None:
        calls = (self.submit, self.submit, self.cancel, self.limit, self.pause, self.replay)
        await self.random.choice(calls)()

    async def submit(self) -> None:
        some, queue = self.random, self.world.queue
        items = []
        for _ in range(some.choice((1, 5, 30))):
            input = {"customer": some.choice(CUSTOMERS), "seconds": some.choice((0, 0.3, 4))}
            items.append((some.choice(KINDS), input | {"fails": some.random() < 0.1}))
        self.tasks += await queue.submit_many(
            items,
            queue=some.choice(QUEUES),
            priority=some.choice((100, 128)),
            ttl=some.choice((None, None, 20)),
            schedule_at=None if some.random() < 0.8 else queue.clock.now() + some.randint(1, 30) * SECOND,
        )

    async def cancel(self) -> None:
        first = self.random.randrange(len(self.tasks) + 1)
        some = self.tasks[first : first + self.random.choice((1, 20, 1000))]
        await self.world.queue.cancel_many([task.id for task in some])

    async def replay(self) -> None:
        ended = await self.world.queue.list(status="cancelled", limit=5)
        for task in (each for each in ended if each.expires_at is None):
            await self.world.queue.replay(task.id)

    async def pause(self) -> None:
        name = self.random.choice(QUEUES)
        if self.random.random() < 0.3:
            await self.world.queue.pause_queue(name)
        else:
            await self.world.queue.resume_queue(name)

    async def limit(self) -> None:
        some, queue = self.random, self.world.queue
        subject = some.choice([*self.rules])
        what, _, name = subject.partition(":")
        limit = Limit(
            concurrency=some.choice((None, 1, 2, 10)), rate=some.choice((None, "3/s", "40/m", "300/m"))
        )
        if what == "kind":
            limit = replace(limit, key=some.choice((None, "customer")))
        is_none = limit.concurrency is None and limit.rate is None
        self.rules[subject].is_changing = True
        if what == "kind":
            key = None if is_none else limit.key
            await queue.limit_kind(name, concurrency=limit.concurrency, rate=limit.rate, key=key)
        else:
            await queue.limit_queue(name, concurrency=limit.concurrency, rate=limit.rate)
        self.rules[subject].set(None if is_none else limit, queue.clock.now())


@pytest.mark.parametrize("world", ["memory", "sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("seed", seeds(few=3, every=40))
async def test_no_limit_is_exceeded_and_nobody_is_stuck(world: World, seed: int) -> None:
    walk = Walk(world, Random(seed))
    for kind in KINDS:
        world.app.task(kind, max_retries=3)(walk.handle)
    options = {"concurrency": 20, "lease": 10 * SECOND}
    async with world.running(**options), world.running(**options):
        for _ in range(60):
            await walk.step()
            await asyncio.sleep(walk.random.choice((0, 0.1, 1, 5)))
        for name in QUEUES:
            await world.queue.resume_queue(name)
        await all_done(world, walk.tasks)
        await asyncio.sleep(30)  # the janitor marks those that have expired
    assert walk.problems == []
    assert world.clock.now() - START < timedelta(hours=1)
    await check_empty(world)
