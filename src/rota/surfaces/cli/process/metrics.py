"""Metrics of a running process: served on a port of their own, by the HTTP API, or not at all.

A process that serves nothing else answers `/metrics` with a few lines of HTTP, on the event loop of its roles.
It answers GET /metrics and closes the connection. The size of a request, its time and the number of clients are
bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from ....domain.errors import Invalid
from ....stores.base import Store

if TYPE_CHECKING:
    from ....engine.observe.metrics import Metrics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ....engine.loops import NoHints, keep_running
from ....engine.observe.observed import ObservedStore
from ....engine.observe.telemetry import LoopFailed, Observation, Observer
from ...python.client import Queue
from ..session import Session

__all__ = [
    "BufferedMetrics",
    "MonitoringOptions",
    "collecting_metrics",
    "make_metrics",
    "metrics_served",
    "observers_of",
]

PATIENCE = timedelta(seconds=10)
AT_ONCE = 20
HEAD_BYTES = 16 * 1024
TEXT = "text/plain; charset=utf-8"


def make_metrics(field: str) -> Metrics:
    """Make the metrics. Without prometheus-client, the error says how to install it. `field` is what asked for them."""
    try:
        from ....engine.observe.metrics import Metrics
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
        from ....engine.observe.metrics import CONTENT_TYPE

        return _response("200 OK", CONTENT_TYPE, await self._metrics.render(self._store))


def _response(status: str, kind: str, body: bytes, more: str = "") -> bytes:
    about = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}"
    return f"HTTP/1.1 {status}\r\n{about}\r\n".encode() + body


KEPT = 10_000


@dataclass(frozen=True)
class MonitoringOptions:
    """Where a process serves its metrics (port None: nowhere), and from which level on it logs."""

    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    log_level: str | None = None


class BufferedMetrics:
    """Metrics take a while to import, and the roles begin at once. Until the metrics have `arrived`, this keeps what
    there is to count. `store` is the store itself, not observed."""

    def __init__(self, queue: Queue) -> None:
        self.store = queue.store
        self.metrics: Metrics | None = None
        self._kept: deque[Callable[[Metrics], None]] = deque(maxlen=KEPT)
        self._measuring: asyncio.Task[None] | None = None
        queue.store = ObservedStore(self.store, self._answered, self._failed, queue.clock)

    def observe(self, signal: Observation) -> None:
        self._tell(lambda metrics: metrics.observe(signal))

    def arrived(self, metrics: Metrics) -> None:
        self.metrics = metrics
        while self._kept:
            self._kept.popleft()(metrics)
        self._measuring = asyncio.create_task(self._keep_measuring(metrics), name="rota-loop-lag")

    def end(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()

    def _tell(self, what: Callable[[Metrics], None]) -> None:
        if self.metrics is None:
            self._kept.append(what)
        else:
            what(self.metrics)

    def _answered(self, operation: str, seconds: float) -> None:
        self._tell(lambda metrics: metrics.store_answered(operation, seconds))

    def _failed(self, operation: str, code: str) -> None:
        self._tell(lambda metrics: metrics.store_failed(operation, code))

    async def _keep_measuring(self, metrics: Metrics) -> None:
        def failed(error: BaseException, again_in: timedelta) -> None:
            metrics.observe(LoopFailed("loop lag", error, again_in))

        await keep_running(metrics.loop_lag, NoHints(), stop=asyncio.Event(), on_error=failed)


@asynccontextmanager
async def collecting_metrics(
    session: Session, monitoring: MonitoringOptions, queue: Queue, *, is_served: bool
) -> AsyncIterator[BufferedMetrics | None]:
    """Collect metrics meanwhile, and serve them if a port was named. `is_served`: the HTTP API will serve them."""
    if monitoring.metrics_port is None and not is_served:
        yield None
        return
    buffered = BufferedMetrics(queue)
    try:
        if monitoring.metrics_port is None:
            yield buffered
            return

        buffered.arrived(metrics := make_metrics("metrics_port"))
        async with metrics_served(
            metrics, queue.store, monitoring.metrics_host, monitoring.metrics_port
        ) as address:
            session.screen.remark(f"metrics: {address}")
            yield buffered
    finally:
        buffered.end()


def observers_of(buffered: BufferedMetrics | None) -> tuple[Observer, ...]:
    return () if buffered is None else (buffered.observe,)
