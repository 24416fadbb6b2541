"""A fault at every request that a store makes of its bucket. What was acknowledged happened, once; what was not may be
repeated, and then has happened once."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bucket.faulty import Fault, FaultyRequests, ManualClock, Plan
from records import task
from rota.domain.errors import Unavailable
from rota.domain.model import Task
from rota.stores.base import Store, Tx
from rota.stores.bucket.service.bucket import MemoryRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning
from stores import EAGER, START, get
from worlds import THOROUGH, seeds

QUICK = Tuning(
    shortest_pause=timedelta(milliseconds=1),
    longest_pause=timedelta(milliseconds=4),
    give_up_after=timedelta(milliseconds=60),
    views="off",
)
REQUESTS = 40
STEP = 1 if THOROUGH else 3
"""With `make test`, the fault strikes at each third request."""


async def count_up(store: Store, id: str) -> None:
    """Add one to the counter, once for this id, however often it is asked; repeated until the store has an answer."""

    async def work(tx: Tx) -> None:
        done, counter = await tx.get(Task, id), await tx.get(Task, "counter")
        if done is None:
            tx.put(task(id))
            tx.put(task("counter", priority=1) if counter is None else _next(counter))

    await persistent(lambda: store.transact(work))


class Blind:
    """Counts without ids: what was acknowledged counts once, what was not may have happened or not."""

    def __init__(self) -> None:
        self.acknowledged = self.unknown = 0

    async def add(self, store: Store) -> None:
        async def work(tx: Tx) -> None:
            counter = await tx.get(Task, "blind")
            tx.put(task("blind", priority=1) if counter is None else _next(counter))

        try:
            await store.transact(work)
            self.acknowledged += 1
        except Unavailable:
            self.unknown += 1

    async def check(self, store: Store) -> None:
        counter = await get(store, Task, "blind")
        found = 0 if counter is None else counter.priority
        assert self.acknowledged <= found <= self.acknowledged + self.unknown


def _next(counter: Task) -> Task:
    return replace(counter, priority=counter.priority + 1)


async def persistent(attempt: Any) -> Any:
    for _ in range(20):
        try:
            return await attempt()
        except Unavailable as error:
            if "memory-bucket:" not in str(error):
                raise AssertionError(f"which bucket? {error}") from error
    raise AssertionError("the store never recovered")


async def scenario(plan: Plan, tuning: Tuning, name: str) -> FaultyRequests:
    """A node with faults and one without on a bucket, and one that comes last."""
    clock = ManualClock(START)

    def slow() -> None:
        clock.at += timedelta(minutes=30)
        clock.steady += 1800

    requests = FaultyRequests(MemoryRequests(name), plan, slow)
    faulty = BucketStore(requests, clock, tuning)
    sound = BucketStore(MemoryRequests(name), ManualClock(START), tuning)
    late = BucketStore(MemoryRequests(name), ManualClock(START), tuning)
    blind = Blind()
    await sound.open()
    try:
        await persistent(faulty.open)
        await blind.add(faulty)
        await count_up(sound, "s0")
        await blind.add(faulty)
        await count_up(faulty, "f0")
        await asyncio.gather(*(count_up(faulty, f"g{n}") for n in range(3)))
        await count_up(sound, "s1")
        await count_up(faulty, "f1")
        await asyncio.gather(count_up(sound, "s2"), count_up(faulty, "f2"))
        assert await persistent(lambda: get(faulty, Task, "s2")) is not None
        await asyncio.gather(*(blind.add(store) for store in (faulty, sound, faulty)))
        await blind.add(faulty)
        await count_up(faulty, "f3")
        await blind.check(sound)
        await check(faulty, sound, late)
    finally:
        for store in (faulty, sound, late):
            await store.close()
    return requests


async def check(faulty: Store, sound: Store, late: Store) -> None:
    ids = ["s0", "f0", "g0", "g1", "g2", "s1", "f1", "s2", "f2", "f3"]
    await late.open()
    everything = await late.snapshot()
    assert {each.id for each in everything["task"]} - {"blind"} == {*ids, "counter"}
    [counter] = [each for each in everything["task"] if each.id == "counter"]
    assert isinstance(counter, Task)
    assert (counter.priority, counter.version) == (len(ids), len(ids))
    assert await sound.snapshot() == everything
    assert await persistent(faulty.snapshot) == everything


@pytest.mark.long
@pytest.mark.parametrize("fault", Fault)
async def test_one_fault_at_every_request(fault: Fault) -> None:
    struck = 0
    for strike in range(1, REQUESTS + 1, STEP):

        def plan(number: int, kind: str, strike: int = strike) -> Fault | None:
            return fault if number == strike else None

        requests = await scenario(plan, QUICK, f"{fault} {strike}")
        struck += len(requests.made) >= strike
        if len(requests.made) < strike:  # the scenario has ended before
            break
    assert struck * STEP >= 18, "the scenario makes fewer requests than the test thinks"


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.THROTTLED, Fault.TAKEN_AFTER])
async def test_a_service_that_is_away_for_a_while(fault: Fault) -> None:
    """Long enough for one attempt to give up."""
    for strike in range(1, REQUESTS, 3 * STEP):

        def plan(number: int, kind: str, strike: int = strike) -> Fault | None:
            return fault if strike <= number < strike + 15 else None

        requests = await scenario(plan, QUICK, f"away {fault} {strike}")
        if len(requests.made) < strike:
            break


@pytest.mark.parametrize("seed", seeds(few=3, every=16))
async def test_many_faults_by_seed_with_snapshots_archive_and_views(seed: int) -> None:
    """Every third request fails in some way, also those of the upkeep."""
    chance = random.Random(seed)
    kinds = [fault for fault in Fault if fault is not Fault.SLOW]
    tuning = replace(
        EAGER,
        shortest_pause=QUICK.shortest_pause,
        longest_pause=QUICK.longest_pause,
        give_up_after=QUICK.give_up_after,
        retention=timedelta(hours=1),
    )

    def plan(number: int, kind: str) -> Fault | None:
        return chance.choice(kinds) if chance.random() < 0.3 and number < 200 else None

    await scenario(plan, tuning, f"seed {seed}")
