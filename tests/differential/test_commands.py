"""One random stream of commands through every store: equal answers, equal refusals, equal state at each step.

The reference is the memory store. A stream counts only if every command in it was accepted at least once and refused
at least once (those that cannot be refused aside), so that nothing is compared by never happening."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import rota
from rota import testing
from rota.domain.model import Failure, Task
from rota.domain.task import Completed, Defaults, Failed, Released, Rescheduled
from rota.engine import commands
from rota.engine.commands import Claim, Renewal, Result
from rota.stores.base import Store
from rota.testing import LoopClock
from worlds import EVERY_STORE as STORES

STEPS = 1000
SEEDS = range(4)
KEYS = ["a", "b", "c"]
KINDS = ["mail", "report"]
NEVER_REFUSED = {
    "claim",
    "renew",
    "settle",
    "sweep",
    "tick",
    "forget",
    "list",
    "count",
    "schedules",
    "cancel_many",
}
START = datetime(2026, 3, 27, 23, 0, tzinfo=UTC)  # two days before clocks change in Europe


class Side:
    """One store with its queue, its own supply of ids, and the tasks that its worker holds."""

    def __init__(self, store: Store, clock: LoopClock) -> None:
        numbers = count(1)
        self.store = store
        self.new_id = lambda: f"00000000-0000-7000-8000-{next(numbers):012d}"
        self.queue = rota.Queue(store, clock=clock, actor="tester", new_id=self.new_id)
        self.held: list[Task] = []
        self.known: list[str] = []

    async def claim(self, limit: int) -> Any:
        defaults = {kind: Defaults(max_retries=1) for kind in KINDS}
        ask = Claim(
            worker_id="w", lease_id=self.new_id(), lease=timedelta(seconds=60), limit=limit, kinds=defaults
        )
        claimed = await self.store.transact(commands.claim_tasks(ask))
        self.held += claimed.tasks
        return claimed

    async def renew(self) -> Any:
        renewals = [Renewal(task=task, lease=timedelta(seconds=60)) for task in self.held]
        return await self.store.transact(commands.renew_leases(renewals))

    async def settle(self, choose: Callable[[], Any], keep: bool) -> Any:
        results = [Result(task=task, outcome=choose()) for task in self.held[:3]]
        answers = await self.store.transact(commands.settle_tasks(results))
        if not keep:
            del self.held[:3]
        return answers


Step = tuple[str, Callable[[Side], Awaitable[Any]]]


def outcome(chance: random.Random) -> Any:
    return chance.choice(
        [
            Completed({"n": chance.randrange(10)}),
            Failed(failure=Failure(type="ValueError", message="x")),
            Failed(failure=Failure(type="ValueError", message="y"), permanent=True),
            Rescheduled(delay=timedelta(seconds=5), extend_expiration=timedelta(seconds=5)),
            Released(),
        ]
    )


def task_step(chance: random.Random, ids: list[str]) -> Step:
    id = chance.choice([*ids, "nowhere"])
    kind = chance.choice([*KINDS, "bad kind!"])
    options: dict[str, Any] = {
        "priority": chance.choice([None, 0, 255, 300]),
        "queue": chance.choice([None, "other"]),
        "ttl": chance.choice([None, None, 0, 30]),
        "tags": chance.choice([None, ["x", "y"]]),
    }
    key = chance.choice(["k1", "k2"])
    number = chance.randrange(3)
    return chance.choice(
        [
            ("submit", lambda side: side.queue.submit(kind, {"n": number}, **options)),
            ("submit", lambda side: side.queue.submit(kind, {"n": number}, **options)),
            ("submit_many", lambda side: side.queue.submit_many([(kind, {"n": n}) for n in range(3)])),
            ("with_key", lambda side: side.queue.submit("mail", {"n": number}, idempotency_key=key)),
            ("get", lambda side: side.queue.get(id)),
            ("cancel", lambda side: side.queue.cancel(id, "because")),
            ("expire", lambda side: side.queue.mark_expired(id)),
            ("replay", lambda side: side.queue.replay(id)),
            ("archive", lambda side: side.queue.archive(id)),
            ("cancel_many", lambda side: side.queue.cancel_many(tag="x")),
        ]
    )


def schedule_step(chance: random.Random) -> Step:
    key = chance.choice([*KEYS, "nowhere"])
    hard = chance.random() < 0.3
    options: dict[str, Any] = {
        "overlap_policy": chance.choice(["skip", "allow", "cancel_previous"]),
        "missed_run_policy": chance.choice(["skip", "execute_once", "catch_up"]),
        "max_runs": chance.choice([None, 2, 50]),
        "pause_on_failure": chance.choice([None, True]),
    }
    timing = chance.choice(
        [
            {"cron": "*/5 * * * *"},
            {"cron": "30 1 * * *", "timezone": "Europe/London"},
            {"interval": 60, "jitter": 20},
            {"rrule": "FREQ=HOURLY;INTERVAL=2"},
            {"cron": "61 * * * *"},
        ]
    )
    created = chance.choice(KEYS)
    return chance.choice(
        [
            (
                "create",
                lambda side: side.queue.create_schedule(created, task_type="mail", **timing, **options),
            ),
            (
                "create",
                lambda side: side.queue.create_schedule(created, task_type="report", **timing, **options),
            ),
            ("update", lambda side: side.queue.update_schedule(key, **timing)),
            ("pause", lambda side: side.queue.pause_schedule(key, "note")),
            ("resume", lambda side: side.queue.resume_schedule(key)),
            ("trigger", lambda side: side.queue.trigger_schedule(key)),
            ("delete", lambda side: side.queue.delete_schedule(key, hard=hard)),
            ("restore", lambda side: side.queue.restore_schedule(key)),
            ("runs", lambda side: side.queue.runs(key)),
            ("history", lambda side: side.queue.schedule_history(key)),
            ("preview", lambda side: side.queue.preview(key, 3)),
            ("why", lambda side: side.queue.why(key, START + timedelta(hours=1))),
        ]
    )


def engine_step(chance: random.Random) -> Step:
    seed = chance.randrange(10**9)
    limit = chance.randrange(5)
    keep = chance.random() < 0.2
    status = chance.choice([None, *rota.TaskStatus])
    retention = rota.Retention(tasks=timedelta(hours=5), runs=timedelta(hours=5), events=timedelta(days=2))

    async def settle(side: Side) -> Any:
        own = random.Random(seed)
        return await side.settle(lambda: outcome(own), keep)

    return chance.choice(
        [
            ("claim", lambda side: side.claim(limit)),
            ("claim", lambda side: side.claim(limit)),
            ("renew", lambda side: side.renew()),
            ("settle", settle),
            ("settle", settle),
            ("sweep", lambda side: side.store.transact(commands.sweep(100))),
            ("forget", lambda side: side.store.transact(commands.forget_old(retention, 100))),
            ("tick", lambda side: side.queue.run_due()),
            ("tick", lambda side: side.queue.run_due()),
            ("list", lambda side: side.queue.list(status=status, limit=7)),
            ("count", lambda side: side.queue.count(status=status)),
            ("schedules", lambda side: side.queue.list_schedules()),
        ]
    )


async def answer(step: Callable[[Side], Awaitable[Any]], side: Side) -> tuple[bool, Any]:
    try:
        return True, await step(side)
    except rota.Refused as refused:
        return False, (refused.code, str(refused))


def plain(value: Any) -> Any:
    """Refusals inside answers compare by what they say."""
    if isinstance(value, rota.Refused):
        return (value.code, str(value))
    return [plain(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [name for name in STORES if name != "memory"])
def test_every_store_answers_as_memory_does(name: str, seed: int, tmp_path: Path) -> None:
    async def main(clock: LoopClock) -> None:
        stores = [STORES["memory"](tmp_path, clock), STORES[name](tmp_path, clock)]
        for store in stores:
            await store.open()
        try:
            await compare(random.Random(seed), [Side(store, clock) for store in stores])
        finally:
            for store in stores:
                await store.close()

    testing.run(main, start=START)


async def compare(chance: random.Random, sides: list[Side]) -> None:
    accepted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    ids: list[str] = []
    for number in range(STEPS):
        name, step = chance.choice([task_step(chance, ids), schedule_step(chance), engine_step(chance)])
        answers = [await answer(step, side) for side in sides]
        (fine, reference), (_, other) = answers
        assert plain(other) == plain(reference), f"step {number}, {name}"
        assert [fine] * 2 == [was_fine for was_fine, _ in answers], f"step {number}, {name}"
        states = [await side.store.snapshot() for side in sides]
        assert states[0] == states[1], f"after step {number}, {name}"
        (accepted if fine else refused)[name] += 1
        ids = [task.id for task in states[0]["task"]][-8:] if "task" in states[0] else ids
        if chance.random() < 0.3:
            await testing.advance(timedelta(seconds=chance.choice([1, 20, 61, 600, 7000])))
    never_accepted = refused.keys() - accepted.keys()
    never_refused = accepted.keys() - refused.keys() - NEVER_REFUSED
    assert not never_accepted, f"never accepted: {never_accepted}"
    assert not never_refused, f"never refused: {never_refused}"
