"""The listener for commits of other nodes, over a connection that ends when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from rota.stores.postgres.address import Address
from rota.stores.postgres.listen import ChangeListener
from rota.stores.postgres.queries import Statements

TURNS = 8
"""More than the end of a connection needs to reach the one who waits for it."""


class Connection:
    """As much of a connection as the listener uses."""

    def __init__(self) -> None:
        self.end: Callable[[Any], None] = lambda _: None

    def add_termination_listener(self, listener: Callable[[Any], None]) -> None:
        self.end = listener

    async def add_listener(self, channel: str, listener: object) -> None:
        pass

    async def fetchval(self, statement: str) -> int:
        return 0

    async def close(self, **options: object) -> None:
        pass


async def no_pool(*args: object, **options: object) -> None:
    raise AssertionError("it listens on a connection of its own")


@pytest.mark.parametrize("turns", range(TURNS))
async def test_a_connection_that_ends_while_the_listener_is_closed(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection()

    async def connect(**options: object) -> Connection:
        return connection

    monkeypatch.setattr(asyncpg, "connect", connect)
    address = Address.parse("postgresql://localhost/rota")
    listener = ChangeListener(address, Statements(address.schema), "me", lambda of: None, no_pool)
    listener.start()
    await listener.is_listening.wait()
    await asyncio.sleep(0)
    connection.end(connection)
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(60):  # else it would wait for ever
        await listener.close()


async def test_it_listens_again_after_an_error_of_another_kind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To look up an address takes a thread, and there may be no room for one."""
    tries = 0

    async def connect(**options: object) -> Connection:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError("can't start new thread")
        return Connection()

    monkeypatch.setattr(asyncpg, "connect", connect)
    address = Address.parse("postgresql://localhost/rota")
    listener = ChangeListener(address, Statements(address.schema), "me", lambda of: None, no_pool)
    listener.start()
    async with asyncio.timeout(60):
        await listener.is_listening.wait()
        await listener.close()
    [told] = [each for each in caplog.records if each.name == "rota"]
    assert "can't start new thread" in told.getMessage()
    assert told.exc_info is not None


async def test_a_poll_that_fails_while_it_is_cancelled_does_not_go_on() -> None:
    """The error takes the place of the cancellation. A store that was closing then waited for ever."""
    polls = asyncio.Semaphore(0)

    async def run(use: object, *, in_transaction: bool = True) -> str:
        if in_transaction:
            return "1:1:"
        polls.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionResetError from None
        raise AssertionError("unreachable")

    address = Address.parse("postgresql://localhost/rota?pgbouncer=1&poll=0.1")
    listener = ChangeListener(address, Statements(address.schema), "me", lambda of: None, run)
    listener.start()
    await polls.acquire()
    async with asyncio.timeout(60):
        await listener.close()
