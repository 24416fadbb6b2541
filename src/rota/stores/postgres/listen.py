"""Hearing of changes that others make: `LISTEN` on one connection of its own, opened when somebody waits.

Every `interval` the same connection is asked whether any transaction has committed since (the snapshot differs):
so a notification that was lost costs at most the interval, a connection that died is noticed, and an idle node
costs one statement per interval. When the connection is lost, everyone wakes and looks; it is opened anew with
growing delays and jitter. Behind a pooler there is no `LISTEN`, only the asking, on any connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Protocol

import asyncpg

from ...domain.errors import StoreError
from .address import Address
from .errors import FAILURES
from .queries import Statements

__all__ = ["Listener"]

_SHORTEST, _LONGEST = 0.1, 15.0


class Ask(Protocol):
    """Calls a function with a connection of the pool; in a transaction, unless it is one statement `alone`."""

    async def __call__(self, use: Callable[[Any], Awaitable[Any]], *, alone: bool = False) -> Any: ...


class Listener:
    """Calls `changed` when somebody else has committed something. `close` ends it."""

    def __init__(
        self, address: Address, statements: Statements, sender: str, changed: Callable[[], None], ask: Ask
    ) -> None:
        self.address = address
        self._statements = statements
        self._sender = sender
        self._changed = changed
        self._ask = ask
        self._interval = address.poll_interval.total_seconds()
        self._random = Random()
        self._running: asyncio.Task[None] | None = None
        self.is_listening = asyncio.Event()

    def start(self) -> None:
        """From the first wait on."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run(), name="rota-listen")

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        delay = _SHORTEST
        while True:
            try:
                await (self._poll() if self.address.pgbouncer else self._listen())
            except (*FAILURES, StoreError):
                pass  # whoever uses the store meets the same trouble, and says so
            if self.is_listening.is_set():
                self.is_listening.clear()
                delay = _SHORTEST
            self._changed()  # something may have happened unheard
            await asyncio.sleep(delay * self._random.uniform(0.5, 1.0))
            delay = min(2 * delay, _LONGEST)

    async def _listen(self) -> None:
        """Until the connection is lost."""
        connection = await asyncpg.connect(**self.address.connect_options())
        try:
            closed = asyncio.Event()
            connection.add_termination_listener(lambda _: closed.set())
            await connection.add_listener(self.address.channel, self._heard)
            look = self._statements.plain["look"].sql
            seen = await connection.fetchval(look)
            self._began()
            while not closed.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(closed.wait(), self._interval)
                    return
                now = await connection.fetchval(look)
                if now != seen:
                    seen = now
                    self._changed()
        finally:
            await _end(connection)

    async def _poll(self) -> None:
        """Until the server cannot be asked."""
        look = self._statements.plain["look"].sql
        seen = await self._ask(lambda connection: connection.fetchval(look))
        self._began()
        while True:
            await asyncio.sleep(self._interval)
            if await self._differs(seen):
                seen = await self._ask(lambda connection: connection.fetchval(look))
                self._changed()

    async def _differs(self, seen: str) -> bool:
        statement = self._statements.plain["look_again"].sql.replace("{seen}", seen)
        answer: str = await self._ask(lambda connection: connection.execute(statement), alone=True)
        return answer != "SELECT 0"

    def _began(self) -> None:
        """From here on changes are heard. What came just before was not."""
        self.is_listening.set()
        self._changed()

    def _heard(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        if payload != self._sender:  # of our own commits we know already
            self._changed()


async def _end(connection: Any) -> None:
    """Politely, if that is quick."""
    try:
        await connection.close(timeout=1)
    except FAILURES:
        connection.terminate()
