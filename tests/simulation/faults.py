"""A store that fails on purpose, and the oracle that says what must hold all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import rota
from rota.domain import recurrence
from rota.domain.model import Run, Schedule, Task
from rota.engine.observe.telemetry import Observation
from rota.stores.base import Contents, Store
from worlds import World


class Fault(StrEnum):
    BEFORE = "the store is away"
    AFTER = "the commit happened, the answer was lost"
    SLOW = "the answer takes ten seconds"
    DIES = "the node dies before the commit"
    DIES_AFTER = "the node dies after the commit"


Plan = Callable[[int], Fault | None]


class FaultyStore:
    """Passes everything on; the plan says which `transact` fails, and how. Writing and removing contents count, too."""

    def __init__(self, inner: Store, plan: Plan) -> None:
        self._inner = inner
        self._plan = plan
        self.calls = 0
        self.dead = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def transact(self, work: Any, *options: Any) -> Any:
        return await self.do(lambda: self._inner.transact(work, *options))

    @property
    def contents(self) -> FaultyContents:
        return FaultyContents(self._inner.contents, self)

    async def do(self, call: Callable[[], Awaitable[Any]]) -> Any:
        self.calls += 1
        match self._plan(self.calls):
            case Fault.BEFORE:
                raise rota.Unavailable("injected: away")
            case Fault.AFTER:
                await call()
                raise rota.Unavailable("injected: answer lost")
            case Fault.SLOW:
                answer = await call()
                await asyncio.sleep(10)
                return answer
            case Fault.DIES:
                return await self._die()
            case Fault.DIES_AFTER:
                await call()
                return await self._die()
        return await call()

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()


class FaultyContents:
    """The contents of a faulty store."""

    def __init__(self, inner: Contents, store: FaultyStore) -> None:
        self._inner = inner
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, key: str, chunks: Iterator[bytes]) -> None:
        await self._store.do(lambda: self._inner.write(key, chunks))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._store.do(lambda: self._inner.delete(keys))


class Node:
    """A worker with scheduler and janitor on a faulty store; killed when the store says so, then begun anew."""

    store_class: type[FaultyStore] = FaultyStore

    def __init__(self, world: World, plan: Plan, name: str) -> None:
        self._world = world
        self._plan = plan
        self._name = name
        self.lives = 0
        self.calls = 0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._live(stop)

    async def _live(self, stop: asyncio.Event) -> None:
        self.lives += 1
        faulty = self.store_class(self._world.store, lambda number: self._plan(self.calls + number))
        queue = rota.Queue(faulty, clock=self._world.clock)
        worker = rota.Worker(
            queue,
            self._world.app,
            lease=30,
            worker_id=f"{self._name}-{self.lives}",
            observers=[self._world.signals.append],
        )
        worker.jump_watch.every = timedelta(minutes=1)
        living = asyncio.create_task(worker.run(handle_signals=False))
        ends = [asyncio.create_task(faulty.dead.wait()), asyncio.create_task(stop.wait())]
        await asyncio.wait({living, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if faulty.dead.is_set():
            worker.tasks.abandon_handlers()
            living.cancel()
        worker.stop()
        for waiting in ends:
            waiting.cancel()
        await asyncio.gather(living, *ends, return_exceptions=True)
        self.calls += faulty.calls


class Watch:
    """What handlers saw: who ran what, and whether two ever held one task."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()
        self.starts: Counter[str] = Counter()
        self.held_twice: list[str] = []

    def handler(self, seconds: float) -> Callable[..., Any]:
        async def handle(input: object, context: rota.Context) -> str:
            id = context.task.id
            self.starts[id] += 1
            self.held[id] += 1
            if self.held[id] > 1:
                self.held_twice.append(id)
            try:
                await asyncio.sleep(seconds)
                return "done"
            finally:
                self.held[id] -= 1

        return handle


def check_ledger(
    schedule: Schedule, rows: list[Run], tasks: dict[str, Task], since: datetime, now: datetime
) -> None:
    """Every expected time has exactly one row; every row that fired has exactly one task, and follows it."""
    expected = list(recurrence.between(schedule.timing, since, now - timedelta(seconds=61)))
    covered: list[datetime] = []
    for row in rows:
        if row.until is None:
            covered.append(row.scheduled_at)
        else:
            stretch = recurrence.between(
                schedule.timing, row.scheduled_at - timedelta(microseconds=1), row.until
            )
            covered += list(stretch)
    assert len(covered) == len(set(covered)), "a time has two rows"
    missing = set(expected) - set(covered)
    assert not missing, f"times without a row: {sorted(missing)}"
    started = [row.target_id for row in rows if row.target_id is not None]
    assert len(started) == len(set(started)), "two rows have one task"
    of_schedule = {id for id, task in tasks.items() if task.schedule_id == schedule.id}
    assert set(started) == of_schedule, "a task without a row, or a row without its task"
    for row in rows:
        if row.target_id is not None:
            ended = not tasks[row.target_id].is_live
            assert (row.status != "running") == ended, "a row does not follow its task"


def check_signals(signals: list[Observation]) -> None:
    """Nothing finished un-finishes."""
    ended: dict[str, str] = {}
    for signal in signals:
        task = getattr(signal, "task", None)
        if isinstance(task, Task) and not task.is_live:
            assert ended.setdefault(task.id, str(task.status)) == str(task.status), "a task ended twice"


async def attempted(store: FaultyStore, call: Coroutine[Any, Any, Any]) -> None:
    """What a person starts, until it has an answer, or the store is away, or the node dies."""
    calling = asyncio.create_task(call)
    dying = asyncio.create_task(store.dead.wait())
    await asyncio.wait({calling, dying}, return_when=asyncio.FIRST_COMPLETED)
    dying.cancel()
    if store.dead.is_set():
        calling.cancel()
    for answer in await asyncio.gather(calling, return_exceptions=True):
        assert not isinstance(answer, BaseException) or isinstance(
            answer, rota.Unavailable | asyncio.CancelledError
        )
