"""One random stream of raw store operations through every store: equal answers at each step, equal snapshots at
every tenth step (with ROTA_TEST_SIMULATION=all, at each).

`Stream` decides what to do, from its seed and from what it believes is stored, never from a store; `answer`
does it to one store and gives something comparable. Streams of engine commands can be run the same way:
`run_stream` takes any operations with `describe` and `apply`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec.structs import replace

from records import FIXED, MAKERS, any_event, any_run, any_schedule, any_task, minutes
from rota.domain.errors import RotaError
from rota.domain.model import Event, Record, Run, RunStatus, Schedule, ScheduleStatus, Task, TaskStatus
from rota.domain.task import completing
from rota.stores.base import Store, Tx
from rota.stores.queries import (
    AlarmList,
    ApiKeyList,
    CalendarList,
    Cancelling,
    Cursor,
    DueSchedules,
    EndedRuns,
    EndedTasks,
    EventList,
    FinishedTasks,
    HeldTasks,
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
    ReadyTasks,
    ReturnedTasks,
    RunList,
    ScheduleByKey,
    ScheduleList,
    SchedulesByBeginning,
    SchedulesByKeys,
    SchedulesByName,
    SchedulesByNextTime,
    TaskList,
    TasksByBeginning,
    TemplateList,
    TenantList,
    UntoldAlarms,
    UpcomingTasks,
    WatchedSchedules,
)
from stores import START, STORES
from worlds import STATE_EVERY, seeds

_LARGE = {Task, Schedule, Run, Event}


class FixedClock:
    """All stores see the same time."""

    def now(self) -> Any:
        return START

    def monotonic(self) -> float:
        return 0.0


class Operation(Protocol):
    """Something done to a store, with an answer that must be the same on all of them."""

    name: str

    async def apply(self, store: Store) -> Any: ...


async def answer(store: Store, operation: Operation) -> Any:
    """What came back: the value, or the kind of error."""
    try:
        return await operation.apply(store)
    except (RotaError, AssertionError) as error:
        return type(error).__name__


async def run_stream(folder: Path, operations: Iterator[Operation], every: int) -> Counter[tuple[str, str]]:
    """Apply every operation to every store. Counts how often each succeeded and was refused."""
    outcomes: Counter[tuple[str, str]] = Counter()
    async with AsyncExitStack() as stack:
        stores = {name: make(folder, FixedClock()) for name, make in STORES.items()}
        for store in stores.values():
            await store.open()
            stack.push_async_callback(store.close)
        for number, operation in enumerate(operations):
            answers = {name: await answer(store, operation) for name, store in stores.items()}
            reference = answers["memory"]
            assert all(each == reference for each in answers.values()), (number, operation, answers)
            if (number + 1) % every == 0:
                snapshots = {name: await store.snapshot() for name, store in stores.items()}
                assert all(each == snapshots["memory"] for each in snapshots.values()), (number, operation)
            outcomes[operation.name, reference if isinstance(reference, str) else "done"] += 1
    return outcomes


class Write:
    """A work that puts and deletes several records, some of them stale or in each other's way."""

    name = "write"

    def __init__(self, puts: list[Record], deletes: list[Record]) -> None:
        self.puts, self.deletes = puts, deletes

    def __repr__(self) -> str:
        return f"Write({self.puts}, {self.deletes})"

    async def apply(self, store: Store) -> Any:
        async def work(tx: Tx) -> list[Record]:
            for record in self.deletes:
                tx.delete(record)
            return [tx.put(record) for record in self.puts]

        return await store.transact(work)


class Complete:
    """A new task that runs, and a work that completes it with another that does, in one update; perhaps too late."""

    name = "complete"

    def __init__(self, task: Task, output: Any, is_stale: bool) -> None:
        self.task, self.output, self.is_stale = task, output, is_stale

    def __repr__(self) -> str:
        return f"Complete({self.task}, {self.output}, {self.is_stale})"

    async def apply(self, store: Store) -> Any:
        async def begin(tx: Tx) -> Task:
            return tx.put(self.task)

        async def complete(tx: Tx) -> list[Task]:
            others = await tx.find(LostLeases(at=None), 2)
            running = [*(each for each in others if each.id != new.id), new]
            outputs = {each.id: self.output for each in running[::2]}
            return tx.put_updated(running, completing(outputs, worker_id="w1", now=START))

        new = await store.transact(begin)
        new = replace(new, version=new.version + self.is_stale)
        return await store.transact(complete)


class Ask:
    """A query, found with a limit and counted, to the end and to the limit."""

    name = "ask"

    def __init__(self, query: Any, limit: int) -> None:
        self.query, self.limit = query, limit

    def __repr__(self) -> str:
        return f"Ask({self.query}, {self.limit})"

    async def apply(self, store: Store) -> Any:
        async def work(tx: Tx) -> Any:
            return [
                await tx.find(self.query, self.limit),
                await tx.count(self.query),
                await tx.count(self.query, at_most=self.limit),
            ]

        return await store.read(work)


class Tally:
    """A query, counted by columns."""

    name = "tally"

    def __init__(self, query: Any, by: tuple[str, ...]) -> None:
        self.query, self.by = query, by

    def __repr__(self) -> str:
        return f"Tally({self.query}, {self.by})"

    async def apply(self, store: Store) -> Any:
        async def work(tx: Tx) -> Any:
            return await tx.tally(self.query, *self.by)

        return await store.read(work)


class Get:
    """Records by id, some of which are not there."""

    name = "get"

    def __init__(self, type: type[Record], ids: list[str]) -> None:
        self.type, self.ids = type, ids

    async def apply(self, store: Store) -> Any:
        async def work(tx: Tx) -> Any:
            return await tx.get_many(self.type, self.ids), [
                await tx.get(self.type, each) for each in self.ids
            ]

        return await store.read(work)


class Stream:
    """A seeded stream of operations. Remembers what it put, so that it can put again, in time or too late."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.known: list[Record] = []
        self.completions = 0

    def operations(self, count: int) -> Iterator[Operation]:
        for _ in range(count):
            choice = self.chance.random()
            if choice < 0.45:
                yield self.write()
            elif choice < 0.5:
                yield self.complete()
            elif choice < 0.55:
                yield self.tally()
            elif choice < 0.9:
                yield Ask(self.query(), self.chance.choice((0, 1, 3, 100)))
            else:
                yield self.get()

    def write(self) -> Write:
        puts, deletes, ids = [], [], set()
        for _ in range(self.chance.choice((1, 1, 2, 5))):
            record = self.changed() if self.known and self.chance.random() < 0.6 else self.fresh()
            if (type(record), record.id) in ids:
                continue
            ids.add((type(record), record.id))
            if record.version and self.chance.random() < 0.2:
                deletes.append(record)
            else:
                puts.append(record)
                self.known.append(replace(record, version=record.version + 1))
        return Write(puts, deletes)

    def complete(self) -> Complete:
        task = any_task(self.chance, status=TaskStatus.RUNNING)
        output = self.chance.choice((1, "ü", {"x": ["\0"]}))
        self.completions += 1
        return Complete(task, output, self.completions % 2 == 0)

    def fresh(self) -> Record:
        makers = (any_task, any_task, any_schedule, any_schedule, any_run, any_event, self.small)
        make: Any = self.chance.choice(makers)
        record: Any = make(self.chance)
        if hasattr(record, "key"):
            record = replace(record, key=self.chance.choice("abc"))
        fresh: Record = record
        return fresh

    def small(self, chance: random.Random) -> Record:
        make: Any = chance.choice([maker for kind, maker in MAKERS.items() if kind not in _LARGE])
        record: Record = make(chance)
        return record

    def changed(self) -> Record:
        """A known record (perhaps not as it is now) in another shape, sometimes one that is not allowed."""
        old = self.chance.choice(self.known[-40:])
        make: Any = MAKERS.get(type(old))
        if make is None or self.chance.random() < 0.3:
            return old
        new: Record = make(self.chance)
        kept = {name: getattr(old, name) for name in (*FIXED, "key") if name in old.__struct_fields__}
        if self.chance.random() < 0.1:
            kept.pop(self.chance.choice([name for name in kept if name not in ("id", "version")]))
        return replace(new, **kept)

    def get(self) -> Get:
        known = self.chance.sample(self.known, min(5, len(self.known)))
        kind = type(self.chance.choice(known or [any_task(self.chance)]))
        return Get(kind, [each.id for each in known])

    def query(self) -> Any:
        chance = self.chance
        at, some_time = minutes(chance), chance.choice((None, minutes(chance)))
        who, lane = chance.choice(("default", "other")), self.lane()
        after = chance.choice((None, Cursor(at=minutes(chance), id=chance.choice("erst"))))
        return chance.choice(
            (
                lambda: DueSchedules(at=some_time),
                lambda: OutdatedZones(zone_data=chance.choice(("2025b", "2026a"))),
                lambda: ReadyTasks(at=at, **lane),
                lambda: ReadyTasks(at=at, **lane, without=tuple(each.id for each in self.known[-9::2])),
                lambda: UpcomingTasks(after=at, **lane),
                lambda: LostLeases(at=some_time),
                lambda: PastExpiry(at=some_time),
                lambda: Cancelling(worker_id=chance.choice(("w1", "w2"))),
                lambda: HeldTasks(worker_id=chance.choice(("w1", "w2"))),
                lambda: LiveTasks(schedule_ids=tuple(chance.sample(("s1", "s2", "s3", "s9"), 2))),
                lambda: FinishedTasks(before=at),
                lambda: TaskList(
                    tenant=who,
                    at=at,
                    after=after,
                    status=chance.choice((None, *TaskStatus)),
                    **self.task_filter(),
                ),
                lambda: SchedulesByKeys(tenant=who, keys=tuple(chance.choices("abc", k=2))),
                lambda: ScheduleByKey(tenant=who, key=chance.choice("abc"), deleted=chance.random() < 0.5),
                lambda: ScheduleList(
                    tenant=who,
                    after=after,
                    deleted=chance.random() < 0.5,
                    newest=chance.choice((None, None, None, 3)),
                    **self.schedule_filter(),
                ),
                lambda: RunList(
                    schedule_id=chance.choice(("s1", "s2")),
                    status=chance.choice((None, *RunStatus)),
                    since=some_time,
                    until=chance.choice((None, minutes(chance))),
                    after=after,
                ),
                lambda: LatestRuns(
                    schedule_ids=tuple(chance.choices(("s1", "s2", "s3", "s9"), k=3)),
                    most=chance.choice((1, 3)),
                ),
                lambda: OldRuns(before=at),
                lambda: EventList(tenant=who, subject_id=chance.choice((None, "s1")), after=after),
                lambda: OldEvents(before=at),
                *self.newer_queries(at, who, after),
            )
        )()

    def newer_queries(self, at: Any, who: str, after: Cursor | None) -> tuple[Callable[[], Any], ...]:
        behind = self.chance.choice((None, *(each.id for each in self.known[-20:])))
        return (
            OpenTasks,
            lambda: TasksByBeginning(tenant=who, beginning=(behind or "")[: self.chance.choice((1, 2, 9))]),
            lambda: EndedTasks(tenant=who, since=at, after=after),
            lambda: ReturnedTasks(tenant=who, since=at, after=after),
            lambda: EndedRuns(tenant=who, since=at, after=after),
            lambda: ScheduleList(tenant=None, after=after, **self.schedule_filter()),
            lambda: SchedulesByBeginning(tenant=who, beginning=(behind or "")[:2]),
            lambda: SchedulesByName(
                tenant=who, after=self.chance.choice((None, "a")), first=2, **self.schedule_filter()
            ),
            lambda: SchedulesByNextTime(tenant=who, after=after, **self.schedule_filter()),
            lambda: OpenSchedules(tenant=who),
            lambda: OldSchedules(before=at),
            lambda: TaskList(tenant=who, at=at, after=after, is_workflow=True, **self.task_filter()),
            lambda: TemplateList(tenant=who, after=behind),
            lambda: ApiKeyList(tenant=self.chance.choice((None, who, "*")), after=behind),
            lambda: TenantList(after=behind),
            lambda: OldReceipts(before=at),
            lambda: NodeList(after=behind),
            lambda: PausedQueues(tenant=who),
            lambda: CalendarList(tenant=who),
            lambda: WatchedSchedules(at=self.chance.choice((None, at))),
            lambda: OpenAlarms(subject_ids=("s1", "s2", "fleet")),
            lambda: AlarmList(tenant=self.chance.choice((None, who)), is_open=True, after=after),
            lambda: UntoldAlarms(at=at),
            lambda: OldAlarms(before=at),
        )

    def tally(self) -> Tally:
        chance = self.chance
        if chance.random() < 0.3:
            who = chance.choice((None, "other"))
            return Tally(ScheduleList(tenant=who, **self.schedule_filter()), ("tenant", "kind"))
        query = chance.choice((OpenTasks(), PastExpiry(at=minutes(chance))))
        names = ("tenant", "status", "queue", "kind", "schedule_id", "priority")
        return Tally(query, tuple(chance.sample(names, chance.choice((1, 2, 3)))))

    def lane(self) -> dict[str, Any]:
        return {
            "queues": self.chance.choice((None, ("default",), ("mail", "ärger", "none"))),
            "kinds": self.chance.choice((None, ("send",), ("report", "send_later", "x"))),
            "tenant": self.chance.choice((None, "other")),
        }

    def task_filter(self) -> dict[str, Any]:
        values = {"kind": "send", "queue": "mail", "schedule_id": "s1", "tag": "urgent"}
        return {name: value for name, value in values.items() if self.chance.random() < 0.2}

    def schedule_filter(self) -> dict[str, Any]:
        values = {
            "status": ScheduleStatus.ACTIVE,
            "kind": "send",
            "template_id": "m1",
            "tag": "urgent",
            "text": "EV",
        }
        return {name: value for name, value in values.items() if self.chance.random() < 0.2}


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(few=2, every=6))
def test_all_stores_answer_alike(tmp_path: Path, seed: int) -> None:
    outcomes = asyncio.run(run_stream(tmp_path, Stream(seed).operations(250), STATE_EVERY))
    assert outcomes["write", "done"] > 10
    assert outcomes["write", "Conflict"] > 10
    assert outcomes["complete", "done"] > 1
    assert outcomes["complete", "Conflict"] > 1
    assert outcomes["ask", "done"] > 10
    assert outcomes["tally", "done"] > 1
