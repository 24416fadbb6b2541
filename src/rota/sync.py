"""The same calls without `await`, for programs that have no event loop.

    import rota.sync

    with rota.sync.connect() as queue:
        queue.submit("greet", {"name": "Ada"})

There is one portal: a thread with an event loop, on which the asynchronous `Queue` lives. Nothing is written twice;
`sync.pyi`, which is generated from `Queue`, tells type checkers the signatures.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from .surfaces import client

__all__ = ["Queue", "connect"]

T = TypeVar("T")


class Portal:
    """A thread with an event loop that runs coroutines for others."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="rota-portal", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there, wait here."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


class Queue:
    """`rota.Queue`, each of its calls made through the portal."""

    def __init__(self, queue: client.Queue, portal: Portal) -> None:
        self._queue = queue
        self._portal = portal
        self._open = True

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._queue, name)
        return self._bridged(value) if inspect.iscoroutinefunction(value) else value

    def close(self) -> None:
        """Close the store and end the portal. A second call does nothing."""
        if self._open:
            self._open = False
            self._portal.call(self._queue.close())
            self._portal.close()

    def _bridged(self, method: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> T:
            return self._portal.call(method(*args, **kwargs))

        return call


def connect(
    store: str | None = None, *, bucket: str | None = None, tenant: str = "default", actor: str | None = None
) -> Queue:
    """As `rota.connect`, without `await`."""
    portal = Portal()

    async def opening() -> client.Queue:
        return await client.connect(store, bucket=bucket, tenant=tenant, actor=actor)

    try:
        return Queue(portal.call(opening()), portal)
    except BaseException:
        portal.close()
        raise
