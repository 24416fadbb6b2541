"""Hearing of commits by other nodes: `LISTEN` on a connection of its own, opened by the first `wait`. A notice names
the types of records that were written, so that only those who wait for one of them wake: without, a commit of a worker
made the scheduler of every other node look for due schedules.

Every `interval` the same connection is asked whether any rows of ours were written since. So a lost notification costs
little more than the interval (a server counts rows up to ten seconds late), a dead connection is noticed, and an idle
node sends one statement per interval. When the connection is lost, all waiting calls wake, and it is opened anew with
growing delays and jitter.

Behind a pooler there is no `LISTEN`. Then a connection of the pool is asked whether any transaction has committed on
the server: that is seen at once, but other databases of the server wake us, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Protocol

import asyncpg

from ...domain.errors import StoreError
from ...domain.model import Record
from ..base import PendingTask, RecordTypes
from ..codec import TABLES
from .address import Address
from .errors import FAILURES
from .queries import Statements

log = logging.getLogger("rota")

_NAMES: dict[type[Record], str] = {of_type: table.name for of_type, table in TABLES.items()}
_NAMES[PendingTask] = "pending"
_TYPES = {name: of_type for of_type, name in _NAMES.items()}
_SHORTEST, _LONGEST = 0.1, 15.0  # seconds until it is opened anew
_CANCEL_AGAIN = 2.0  # seconds: longer than a goodbye to the server may take


class RunOnConnection(Protocol):
    """Calls a function with a connection of the pool, in a transaction or for one statement without."""

    async def __call__(self, use: Callable[[Any], Awaitable[Any]], *, in_transaction: bool = True) -> Any: ...


class ChangeListener:
    """Calls `changed` when another node has committed something, until it is closed."""

    def __init__(
        self,
        address: Address,
        statements: Statements,
        sender: str,
        changed: Callable[[RecordTypes | None], None],
        run: RunOnConnection,
    ) -> None:
        self.address = address
        self._statements = statements
        self._sender = sender
        self._changed = changed
        self._run_on_connection = run
        self._interval = address.poll_interval.total_seconds()
        self._random = Random()
        self._running: asyncio.Task[None] | None = None
        self._is_closing = False
        self.is_listening = asyncio.Event()

    def start(self) -> None:
        """Called by every wait; the first one starts it."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run(), name="rota-listen")

    async def close(self) -> None:
        """A cancellation may be lost, if the connection fails while it is given back. So it is repeated."""
        self._is_closing = True
        while self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait({self._running}, timeout=_CANCEL_AGAIN)

    async def _run(self) -> None:
        delay = _SHORTEST
        while not self._is_closing:
            try:
                await (self._poll() if self.address.pgbouncer else self._listen())
            except (*FAILURES, StoreError):
                pass  # callers of the store get the same error
            except Exception as error:  # it must not be the end of all hearing
                log.warning("hearing of the commits of other nodes failed: %s", error, exc_info=error)
            if self.is_listening.is_set():
                self.is_listening.clear()
                delay = _SHORTEST
            self._changed(None)  # a notification may have been missed
            await asyncio.sleep(delay * self._random.uniform(0.5, 1.0))
            delay = min(2 * delay, _LONGEST)

    async def _listen(self) -> None:
        """Until the connection is lost."""
        connection = await asyncpg.connect(**self.address.connect_options())
        try:
            closed = asyncio.Event()
            connection.add_termination_listener(lambda _: closed.set())
            await connection.add_listener(self.address.channel, self._notified)
            look = self._statements.plain["rows_written"].sql
            seen = await connection.fetchval(look)
            self._started()
            while not closed.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval):
                        await closed.wait()
                    return
                now = await connection.fetchval(look)
                if now != seen:
                    seen = now
                    self._changed(None)
        finally:
            await _end(connection)

    async def _poll(self) -> None:
        """Until the server cannot be asked."""
        look = self._statements.plain["look"].sql
        seen = await self._run_on_connection(lambda connection: connection.fetchval(look))
        self._started()
        while True:
            await asyncio.sleep(self._interval)
            if await self._differs(seen):
                seen = await self._run_on_connection(lambda connection: connection.fetchval(look))
                self._changed(None)

    async def _differs(self, seen: str) -> bool:
        statement = self._statements.plain["look_again"].sql.replace("{seen}", seen)
        answer: str = await self._run_on_connection(
            lambda connection: connection.execute(statement), in_transaction=False
        )
        return answer != "SELECT 0"

    def _started(self) -> None:
        """Changes are heard from now on. A change just before was not, so everyone looks once."""
        self.is_listening.set()
        self._changed(None)

    def _notified(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        sender, of = _read(str(payload))
        if sender != self._sender:  # commits of this node are known already
            self._changed(of)


def notice(sender: str, of: RecordTypes) -> str:
    """The text that tells others of a commit: who made it, and the types of the records that it wrote."""
    return " ".join((sender, *sorted(_NAMES[each] for each in of)))


def _read(notice: str) -> tuple[str, RecordTypes | None]:
    """Who made a commit, and the types that it wrote; None: not said, or of a newer version of ours."""
    sender, *names = notice.split(" ")
    of = {_TYPES.get(name, Record) for name in names}
    return sender, None if not of or Record in of else of


async def _end(connection: Any) -> None:
    """Say goodbye to the server, if that is quick."""
    try:
        await connection.close(timeout=1)
    except FAILURES:
        connection.terminate()
