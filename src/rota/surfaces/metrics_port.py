"""`/metrics` for processes that serve nothing else: a few lines of HTTP on the loop that the roles run on.

It answers GET /metrics and hangs up. What a client may send, how long it may take, and how many there may be is
bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from ..domain.errors import Invalid
from ..stores.base import Store

if TYPE_CHECKING:
    from ..engine.metrics import Metrics

__all__ = ["make_metrics", "metrics_served"]

PATIENCE = timedelta(seconds=10)
AT_ONCE = 20
HEAD_BYTES = 16 * 1024
TEXT = "text/plain; charset=utf-8"


def make_metrics(field: str) -> Metrics:
    """Metrics, if prometheus-client is there; if not, what to do about it. `field` is what asked for them."""
    try:
        from ..engine.metrics import Metrics
    except ModuleNotFoundError as missing:
        if missing.name != "prometheus_client":
            raise
        problem = "metrics need prometheus-client"
        raise Invalid(field, problem, "install it with: pip install 'rota[server]'") from None
    return Metrics()


@asynccontextmanager
async def metrics_served(metrics: Metrics, store: Store, host: str, port: int) -> AsyncIterator[str]:
    """Serve meanwhile; gives the address. Port 0: one that is free."""
    answering = _Answering(metrics, store)
    try:
        server = await asyncio.start_server(answering.answer, host, port, limit=HEAD_BYTES)
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise Invalid("metrics_port", f"{host}:{port} cannot be used: {reason}", "choose another") from None
    taken = server.sockets[0].getsockname()[1]
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{taken}/metrics"
    finally:
        server.close()
        await answering.end()
        await server.wait_closed()


class _Answering:
    def __init__(self, metrics: Metrics, store: Store) -> None:
        self._metrics = metrics
        self._store = store
        self._under_way: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request. A client that is too slow, or one too many, is hung up on."""
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            if len(self._under_way) <= AT_ONCE:
                async with asyncio.timeout(PATIENCE.total_seconds()):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._response(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client's own doing; it sees that the connection is closed
        except asyncio.CancelledError:
            pass  # the process ends; to raise it would only have asyncio report it
        finally:
            self._under_way.discard(task)
            writer.close()

    async def end(self) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path != b"/metrics":
            return _response("404 Not Found", TEXT, b"there is only /metrics here\n")
        if method != b"GET":
            return _response("405 Method Not Allowed", TEXT, b"GET it\n", "Allow: GET\r\n")
        from ..engine.metrics import CONTENT_TYPE

        return _response("200 OK", CONTENT_TYPE, await self._metrics.render(self._store))


def _response(status: str, kind: str, body: bytes, more: str = "") -> bytes:
    about = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}"
    return f"HTTP/1.1 {status}\r\n{about}\r\n".encode() + body
