"""One random stream of commands through every store: equal answers and refusals at each step, equal state at every
tenth step (with ROTA_TEST_SIMULATION=all, at each).

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
from rota.domain.model import ApiKey, Failure, Record, Task, Template
from rota.domain.task import Completed, Defaults, Failed, Released, Rescheduled, Submission
from rota.engine import commands
from rota.engine.commands import Claim, Renewal, Result
from rota.stores.base import Store
from rota.stores.memory.store import MemoryStore
from rota.testing import LoopClock
from worlds import EVERY_STORE as STORES
from worlds import STATE_EVERY, THOROUGH, seeds

STEPS = {"work": 1000, "access": 600} if THOROUGH else {"work": 600, "access": 400}
SEEDS = [
    *(("work", seed) for seed in seeds(few=1, every=4)),
    *(("access", seed) for seed in seeds(few=1, every=3)),
]
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
    "keys",
    "templates",
    "tenants",
    "events",
    "workflows",
}
OFTEN = 10
"""So many times in one run is enough for a command to be accepted once and refused once."""
START = datetime(2026, 3, 27, 23, 0, tzinfo=UTC)  # two days before clocks change in Europe


class Side:
    """One store with its queue, its own supply of ids, and the tasks that its worker holds."""

    def __init__(self, store: Store, clock: LoopClock) -> None:
        numbers = count(1)
        self.store = store
        self.new_id: Callable[[], str] = lambda: f"00000000-0000-7000-8000-{next(numbers):012d}"
        self.queue = rota.Queue(store, clock=clock, actor="tester", new_id=self.new_id)
        self.held: list[Task] = []

    async def claim(self, limit: int) -> Any:
        defaults = {"mail": Defaults(max_retries=1), "report": Defaults(max_retries=1, workflow_version=1)}
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

    async def replay_cancelled(self, kind: str) -> Any:
        task = await self.queue.submit(kind)
        await self.queue.cancel(task.id)
        return await self.queue.replay(task.id)


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
    by = chance.choice([None, ["kind"], ["input.n"], ["input.m"]])
    return chance.choice(
        [
            ("submit", lambda side: side.queue.submit(kind, {"n": number}, **options)),
            ("submit", lambda side: side.queue.submit(kind, {"n": number}, **options)),
            ("submit_many", lambda side: side.queue.submit_many([(kind, {"n": n}) for n in range(3)])),
            ("with_key", lambda side: side.queue.submit("mail", {"n": number}, idempotency_key=key)),
            ("unique", lambda side: side.queue.submit("mail", {"n": number}, unique_for=60, unique_by=by)),
            ("get", lambda side: side.queue.get(id)),
            ("cancel", lambda side: side.queue.cancel(id, "because")),
            ("expire", lambda side: side.queue.mark_expired(id)),
            ("replay", lambda side: side.queue.replay(id)),
            ("replay", lambda side: side.replay_cancelled(kind)),
            ("archive", lambda side: side.queue.archive(id)),
            ("cancel_many", lambda side: side.queue.cancel_many(tag="x")),
        ]
    )


def schedule_step(chance: random.Random) -> Step:
    key = chance.choice([*KEYS, "nowhere"])
    hard = chance.random() < 0.3
    options: dict[str, Any] = {
        "overlap_policy": chance.choice([str(policy) for policy in rota.OverlapPolicy]),
        "missed_run_policy": chance.choice(["skip", "execute_once", "catch_up"]),
        "max_runs": chance.choice([None, 2, 50]),
        "pause_on_failure": chance.choice([None, True, 2]),
    }
    timing: dict[str, Any] = chance.choice(
        [
            {"cron": "*/5 * * * *"},
            {"cron": "30 1 * * *", "timezone": "Europe/London"},
            {"interval": 60, "jitter": 20},
            {"rrule": "FREQ=HOURLY;INTERVAL=2"},
            {"cron": "61 * * * *"},
        ]
    )
    created = chance.choice(KEYS)
    chance_hours = chance.randrange(24)
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
            (
                "pause",
                lambda side: side.queue.pause_schedule(key, until=START + timedelta(hours=chance_hours)),
            ),
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


def tenant_step(chance: random.Random, keys: list[str]) -> Step:
    """What people do to tenants and keys, and what the tenant `acme`, which is small and often suspended, may do."""
    name = chance.choice(["acme", "acme", "nobody", "*"])
    limits: dict[str, Any] = chance.choice(
        [{}, {"schedules": 1}, {"pending_tasks": 2}, {"pending_tasks": None}, {"schedules": -1}]
    )
    key = chance.choice([*keys, "ci", "nowhere"])
    role = chance.choice(["viewer", "admin", "boss"])
    secret = f"secret-{chance.randrange(10**9)}"
    number = chance.randrange(3)
    request = chance.randrange(2)

    def create_key(side: Side) -> Awaitable[Any]:
        work = commands.create_key(side.new_id(), secret, "default", "ci", role, "tester")
        return side.store.transact(work)

    def once(side: Side) -> Awaitable[Any]:
        asked = Submission(kind="mail", input=[number])
        work = commands.submit_tasks([(side.new_id(), asked)], "default", "tester")
        kept = commands.once(
            f"r{request}", "default", f"POST {number}", work, lambda tasks: (201, tasks[0].id)
        )
        return side.store.transact(kept)

    return chance.choice(
        [
            ("create_tenant", lambda side: side.queue.create_tenant(name, **limits)),
            ("set_limits", lambda side: side.queue.set_limits(name, **limits)),
            ("suspend", lambda side: side.queue.suspend_tenant(name, "note")),
            ("resume_tenant", lambda side: side.queue.resume_tenant(name)),
            ("resume_tenant", lambda side: side.queue.resume_tenant(name)),
            ("tenants", lambda side: side.queue.list_tenants()),
            ("create_key", create_key),
            ("revoke", lambda side: side.queue.revoke_key(key)),
            ("keys", lambda side: side.queue.list_keys(every_tenant=number > 0, limit=3)),
            ("events", lambda side: side.queue.events(limit=10)),
            ("once", once),
            ("once", once),
            ("acme_submit", lambda side: side.queue.for_tenant("acme").submit("mail", number)),
            ("acme_submit", lambda side: side.queue.for_tenant("acme").submit("mail", number, ttl=30)),
            (
                "acme_schedule",
                lambda side: side.queue.for_tenant("acme").create_schedule(
                    f"s{number}", task_type="mail", interval=60, overlap_policy="allow"
                ),
            ),
            ("acme_trigger", lambda side: side.queue.for_tenant("acme").trigger_schedule(f"s{number}")),
            (
                "acme_why",
                lambda side: side.queue.for_tenant("acme").why(f"s{number}", START + timedelta(hours=2)),
            ),
        ]
    )


def template_step(chance: random.Random, templates: list[str]) -> Step:
    id = chance.choice([*templates, "nowhere", "O-n_e"])
    alias = chance.choice(["one", "ONE", "two", "t-w-o", None, ""])
    fields: dict[str, Any] = {
        "parameters": chance.choice([{}, {"a": 1}, [1]]),
        "max_retries": chance.choice([None, 2]),
        "enabled": chance.random() < 0.7,
    }
    version = chance.choice([None, 1])
    key = chance.choice(KEYS)
    input = chance.choice([None, {"b": 2}, 5])

    def schedule(side: Side) -> Awaitable[Any]:
        target = rota.TemplateTarget(template_id=id, input={"c": 3})
        return side.queue.create_schedule(key, target=target, cron="*/5 * * * *")

    return chance.choice(
        [
            ("create_template", lambda side: side.queue.create_template(alias, "mail", **fields)),
            ("create_template", lambda side: side.queue.create_template(alias, "mail", **fields)),
            ("edit_template", lambda side: side.queue.update_template(id, version=version, **fields)),
            (
                "replace_template",
                lambda side: side.queue.update_template(id, replace=True, alias=alias, kind="report"),
            ),
            ("get_template", lambda side: side.queue.get_template(id)),
            ("execute", lambda side: side.queue.execute_template(id, input)),
            ("execute", lambda side: side.queue.execute_template(id, input)),
            ("delete_template", lambda side: side.queue.delete_template(id)),
            ("schedule_template", schedule),
            ("templates", lambda side: side.queue.list_templates(limit=3)),
            (
                "start_workflow",
                lambda side: side.queue.start_workflow("mail" if alias else "bad kind!"),
            ),
            ("workflows", lambda side: side.queue.list(workflow=alias == "one", limit=5)),
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
            (
                "sweep",
                lambda side: side.store.transact(commands.sweep(100, ran_out_by=side.queue.clock.now())),
            ),
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


@pytest.mark.long
@pytest.mark.parametrize(("stream", "seed"), SEEDS)
@pytest.mark.parametrize(
    "name", [name for name in STORES if name != "memory" and (THOROUGH or name != "memory bucket")]
)
def test_every_store_answers_as_memory_does(name: str, stream: str, seed: int, tmp_path: Path) -> None:
    async def main(clock: LoopClock) -> None:
        stores = [STORES["memory"](tmp_path, clock), STORES[name](tmp_path, clock)]
        for store in stores:
            await store.open()
        try:
            sides = [Side(store, clock) for store in stores]
            await compare(stream, random.Random(seed), sides, STATE_EVERY)
        finally:
            for store in stores:
                await store.close()

    testing.run(main, start=START)


def choices(stream: str, chance: random.Random, reference: Store) -> list[Step]:
    if stream == "work":
        return [task_step(chance, last_ids(reference, Task)), schedule_step(chance), engine_step(chance)]
    keys = last_ids(reference, ApiKey)
    return [
        tenant_step(chance, keys),
        tenant_step(chance, keys),
        template_step(chance, last_ids(reference, Template)),
        engine_step(chance),
    ]


def last_ids(reference: Store, kind: type[Record]) -> list[str]:
    """Looked up in memory's own table: a snapshot before each step would be most of the time."""
    assert isinstance(reference, MemoryStore)
    return sorted(row.record.id for row in reference.state.rows(kind))[-8:]


async def compare(stream: str, chance: random.Random, sides: list[Side], every: int) -> None:
    accepted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for number in range(STEPS[stream]):
        name, step = chance.choice(choices(stream, chance, sides[0].store))
        answers = [await answer(step, side) for side in sides]
        (fine, reference), (_, other) = answers
        assert plain(other) == plain(reference), f"step {number}, {name}"
        assert [fine] * 2 == [was_fine for was_fine, _ in answers], f"step {number}, {name}"
        (accepted if fine else refused)[name] += 1
        if (number + 1) % every == 0:
            states = [await side.store.snapshot() for side in sides]
            assert states[0] == states[1], f"after step {number}, {name}"
        if chance.random() < 0.3:
            await testing.advance(timedelta(seconds=chance.choice([1, 20, 61, 600, 7000])))
    never_accepted = {name for name in refused.keys() - accepted.keys() if refused[name] >= OFTEN}
    never_refused = {
        name for name in accepted.keys() - refused.keys() - NEVER_REFUSED if accepted[name] >= OFTEN
    }
    assert not never_accepted, f"never accepted: {never_accepted}"
    assert not never_refused, f"never refused: {never_refused}"
