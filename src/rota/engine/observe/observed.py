"""The store and the event loop, watched from outside: how long each call takes, what fails, how late the loop is.

One wrapper round the store instead of stopwatches in it: stores and loops know nothing of being measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from ...domain.errors import Refused, StoreError
from ...domain.model import Record
from ...stores.base import PLAIN_COMMIT, CommitOptions, Contents, Proof, ReadSoFar, RecordTypes, Store, Work
from ..clock import Clock, SystemClock

T = TypeVar("T")

EVERY = timedelta(seconds=1)


class ObservedStore(Store):
    """A store that reports how long `transact` and `read` took, and with which code they failed. What a work refuses is
    an answer and no failure."""

    def __init__(
        self,
        store: Store,
        on_time: Callable[[str, float], None],
        on_error: Callable[[str, str], None],
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._on_time = on_time
        self._on_error = on_error
        self._monotonic = (clock or SystemClock()).monotonic

    @property
    def url(self) -> str:
        return self._store.url

    async def open(self, *, migrate: bool = True) -> None:
        await self._store.open(migrate=migrate)

    async def close(self) -> None:
        await self._store.close()

    async def migrate(self) -> Sequence[str]:
        return await self._store.migrate()

    async def plan(self) -> str:
        return await self._store.plan()

    async def now(self) -> datetime:
        return await self._store.now()

    async def transact(self, work: Work[T], /, options: CommitOptions = PLAIN_COMMIT) -> T:
        return await self._timed("transact", self._store.transact(work, options))

    async def read(self, work: Work[T], /) -> T:
        return await self._timed("read", self._store.read(work))

    async def wait(self, until: datetime | None, *, of: RecordTypes | None = None) -> None:
        await self._store.wait(until, of=of)

    async def snapshot(self, report: ReadSoFar | None = None) -> dict[str, list[Record]]:
        return await self._store.snapshot(report)

    @property
    def heartbeat(self) -> timedelta:
        return self._store.heartbeat

    @property
    def contents(self) -> Contents:
        return self._store.contents

    @property
    def schema(self) -> str | None:
        return self._store.schema

    async def join(self, connection: Any, work: Work[T], /) -> T:
        return await self._store.join(connection, work)

    async def wait_for_writers(self, at_most: timedelta) -> bool:
        return await self._store.wait_for_writers(at_most)

    async def take_role(self, role: str) -> None:
        await self._store.take_role(role)

    async def tidy(self) -> None:
        await self._store.tidy()

    async def prove(self) -> Sequence[Proof]:
        return await self._store.prove()

    async def prove_upkeep(self) -> Sequence[Proof]:
        return await self._store.prove_upkeep()

    async def _timed(self, operation: str, answer: Awaitable[T]) -> T:
        began = self._monotonic()
        try:
            return await answer
        except Refused:
            raise
        except Exception as error:
            self._on_error(operation, error.code if isinstance(error, StoreError) else "unexpected")
            raise
        finally:
            self._on_time(operation, self._monotonic() - began)


class LoopLag:
    """A role: asks to be called again in a second, and reports by how much the loop was late. Whatever keeps the loop
    from turning (a handler that computes, a machine with too much to do) makes everything late by as much."""

    def __init__(self, on_lag: Callable[[float], None], clock: Clock | None = None) -> None:
        self._on_lag = on_lag
        self._monotonic = (clock or SystemClock()).monotonic
        self._due: float | None = None

    async def run_once(self) -> timedelta:
        now = self._monotonic()
        if self._due is not None:
            self._on_lag(max(0.0, now - self._due))
        self._due = now + EVERY.total_seconds()
        return EVERY
