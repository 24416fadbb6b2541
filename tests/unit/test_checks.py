"""What `rota doctor` asks: each trouble is found, and nothing else is called one."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from records import run, schedule, task
from rota.domain.model import Record, RunStatus, ScheduleStatus, Task, TaskStatus
from rota.engine.commands import remove_receipt, write_receipt
from rota.engine.queries.health import Health, broken_records, check_health
from rota.stores.memory.store import MemoryStore
from rota.surfaces.cli.commands import store as doctor
from stores import START, put

LONG_AGO = START - timedelta(hours=1)
JUST_NOW = START - timedelta(seconds=1)


class StoppedClock:
    at = START

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


@pytest.fixture
def store(runner: asyncio.Runner) -> MemoryStore:
    store = MemoryStore(StoppedClock())
    runner.run(store.open())
    return store


async def health(store: MemoryStore, *records: Record) -> Health:
    if records:
        await put(store, *records)
    return await store.read(check_health("default"))


@pytest.mark.parametrize(
    ("opening", "ok", "found"),
    [
        (0.1, False, "the store's clock is 2s behind this machine's"),
        (4.0, True, "within 5s of this machine's"),
    ],
)
async def test_a_time_that_was_learned_slowly_is_known_as_well_as_that(
    monkeypatch: pytest.MonkeyPatch, opening: float, ok: bool, found: str
) -> None:
    """A database that answers after 4 s took its time at one end of them: an estimate may be 2 s off."""
    machine = StoppedClock()

    class Slow(MemoryStore):
        async def open(self, *, migrate: bool = True) -> None:
            await super().open(migrate=migrate)
            machine.at += timedelta(seconds=opening)

        async def now(self) -> datetime:
            return machine.now() - timedelta(seconds=2)

    monkeypatch.setattr(doctor, "SystemClock", lambda: machine)
    findings = {each.check: each for each in await doctor.examine(Slow(StoppedClock()), "default")}
    assert (findings["clock"].ok, findings["clock"].found) == (ok, found)


def running(**values: Any) -> Task:
    return task(status=TaskStatus.RUNNING, lease_id="l", worker_id="w", **values)


async def test_a_healthy_store(runner: asyncio.Runner, store: MemoryStore) -> None:
    found = await health(
        store,
        schedule(due_at=JUST_NOW, next_run_at=JUST_NOW),
        running(lease_expires_at=JUST_NOW),
        task(available_at=JUST_NOW),
        task(expires_at=JUST_NOW),
    )
    assert [*found.overdue, *found.lost, *found.unswept, *found.waiting] == []
    assert (found.unknown_tasks, found.unknown_schedules) == (0, 0)
    assert found.tasks["running"] == found.tasks["pending"] == found.tasks["expired"] == 1
    assert found.schedules["active"] == 1


async def test_what_is_late_is_found(runner: asyncio.Runner, store: MemoryStore) -> None:
    found = await health(
        store,
        schedule(due_at=LONG_AGO, next_run_at=LONG_AGO, key="late"),
        schedule(due_at=LONG_AGO, status=ScheduleStatus.PAUSED),
        running(lease_expires_at=LONG_AGO, kind="lost"),
        task(available_at=LONG_AGO, kind="waiting"),
        task(expires_at=LONG_AGO, available_at=LONG_AGO, kind="unswept"),
    )
    assert [each.key for each in found.overdue] == ["late"]
    assert [each.kind for each in found.lost] == ["lost"]
    assert [each.kind for each in found.unswept] == ["unswept"]
    assert [each.kind for each in found.waiting] == ["waiting"]


async def test_the_receipt_leaves_nothing_behind(runner: asyncio.Runner, store: MemoryStore) -> None:
    before = await store.snapshot()
    receipt = await store.transact(write_receipt("m"))
    await store.transact(remove_receipt(receipt))
    assert await store.snapshot() == before


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (schedule(key="dead", next_run_at=None), "schedule dead is active and has no next time"),
        (task("t1", status=TaskStatus.RUNNING), "task t1 is running without a lease"),
        (task("t2", status=TaskStatus.FAILED, lease_id="l"), "task t2 is failed and still has a lease"),
        (run("r1", target_id="ended"), "run r1 is running, but its task ended is completed"),
        (run("r2", target_id="gone"), "run r2 is running, but its task gone is gone"),
    ],
)
def test_records_that_do_not_fit(record: Record, said: str) -> None:
    ended = task("ended", status=TaskStatus.COMPLETED)
    (problem,) = broken_records({"task": [ended], "other": [record]})
    assert said in problem


def test_records_that_fit() -> None:
    fine = [
        schedule(next_run_at=START, due_at=START),
        schedule(status=ScheduleStatus.PAUSED),
        running(id="t1", lease_expires_at=START),
        run(target_id="t1"),
        run(status=RunStatus.SKIPPED),
    ]
    assert broken_records({"all": fine}) == []
