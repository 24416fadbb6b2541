"""The log of a process, and its metrics.

The log is lines in a terminal, else JSON. Every record carries the ids that it is about: tenant, schedule, run, task,
worker. The engine names them. A record that a handler logs, with any logger, has those of the task that is running.
Passwords in addresses and keys are blotted out.

Metrics are served on a port of their own, by the HTTP API, or not at all. On a port of their own, a few lines of HTTP
answer GET and HEAD of /metrics on the event loop of the roles, and close the connection. The size of a request, its
time and the number of clients are bounded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

from ....domain.errors import Invalid
from ....engine.loops import NoHints, keep_running
from ....engine.observe.log import FIELDS, ids_of_task
from ....engine.observe.observed import ObservedStore
from ....engine.observe.telemetry import LoopFailed, Observation, running_task
from ....stores.base import Store
from ...python.client import Queue
from ..session import Session

if TYPE_CHECKING:
    from ....engine.observe.metrics import Metrics

CLIENT_PATIENCE = timedelta(seconds=10)
CLIENTS = 20
HEAD_BYTES = 16 * 1024
TEXT = "text/plain; charset=utf-8"
SIGNALS_KEPT = 10_000

_USUAL = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"})
_SECRETS = (
    (re.compile(r"\b(rota_[0-9a-f]{32})_[\w-]+"), r"\1_…"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 …"),
    (
        re.compile(r"(?i)((?:api[-_]?key|password|passwd|secret|token)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+"),
        r"\1…",
    ),
)
_WORD = re.compile(r"(?:[^\s\"']|(?<=[^\s{\[(,:=])[\"'](?=[^\s}\]),:;.]))+")
"""A quotation mark ends it where it may quote something: a password may hold one."""
_PASSWORD = re.compile(r"(\w:/*[^:/@]*):.+")
_SECRET_NAMES = re.compile(r"(?i)password|passwd|secret|token|authorization|api_?key")
_COLOURS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}


@dataclass(frozen=True)
class MonitoringOptions:
    """Where a process serves its metrics (port None: nowhere), and from which level on it logs."""

    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    log_level: str | None = None


@contextmanager
def logging_to(
    level: str | None = None, stream: TextIO | None = None, *, muted: Collection[str] = ()
) -> Iterator[None]:
    """Log meanwhile everything of this process from `level` on (`warning`, unless given) to `stream` (stderr, unless
    given): readable lines if it is a terminal, else a JSON document a line. `muted` names loggers that are left out."""
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines() if stream.isatty() else JsonLines())
    handler.addFilter(lambda record: record.name not in muted)
    handler.addFilter(with_ids)
    root = logging.getLogger()
    level_before = root.level
    root.addHandler(handler)
    root.setLevel((level or "warning").upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level_before)


def with_ids(record: logging.LogRecord) -> bool:
    """A filter that lets everything pass, and gives it the ids of the task that is running here."""
    task = running_task.get()
    if task is not None and not hasattr(record, "task"):
        for name, value in ids_of_task(task).items():
            if not hasattr(record, name):
                setattr(record, name, value)
    return True


class JsonLines(logging.Formatter):
    """One JSON document a line: at, level, logger, message, the ids, whatever else was given as `extra`, exception."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "at": _at(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        given = vars(record)
        document |= {name: given[name] for name in FIELDS if given.get(name) is not None}
        for name, value in given.items():
            if name not in _USUAL and name not in document and not name.startswith("_"):
                document[name] = "…" if _SECRET_NAMES.search(name) else _plain(value)
        if record.exc_info:
            document["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(document, ensure_ascii=False, default=str)


class Lines(logging.Formatter):
    """For people: time, level, logger, message, and the ids behind it."""

    def format(self, record: logging.LogRecord) -> str:
        at = _at(record).astimezone().strftime("%H:%M:%S")
        level = f"{record.levelname.lower():<7}"
        if record.levelname in _COLOURS and not os.environ.get("NO_COLOR"):
            level = f"\x1b[{_COLOURS[record.levelname]}m{level}\x1b[0m"
        given = vars(record)
        ids = " ".join(f"{name}={given[name]}" for name in FIELDS if given.get(name) is not None)
        line = f"{at} {level} {record.name}: {record.getMessage()}" + (f"  [{ids}]" if ids else "")
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return without_secrets(line)


def without_secrets(text: str) -> str:
    """Passwords in addresses, keys in headers: what must not be in a log even if someone logs it."""
    text = _WORD.sub(_without_password, text)
    for pattern, blotted in _SECRETS:
        text = pattern.sub(blotted, text)
    return text


def _without_password(word: re.Match[str]) -> str:
    """Of `scheme:user:password@host`. A password may be of any length, and have colons and more of `@`."""
    before, at, host = word[0].rpartition("@")
    return _PASSWORD.sub(r"\1:…", before, count=1) + at + host


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return without_secrets(value)
    return value if isinstance(value, (int, float, bool, type(None))) else without_secrets(str(value))


def _at(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class BufferedMetrics:
    """Metrics take 0.1 s of processor time to import, a sixth of what a process needs until its roles begin. So the
    roles do not wait for them: until the metrics have `arrived`, this keeps what there is to count. `store` is the
    store itself, not observed."""

    def __init__(self, queue: Queue) -> None:
        self.store = queue.store
        self.metrics: Metrics | None = None
        self._kept: deque[Callable[[Metrics], None]] = deque(maxlen=SIGNALS_KEPT)
        self._measuring: asyncio.Task[None] | None = None
        queue.store = ObservedStore(self.store, self._answered, self._failed, queue.clock)

    def observe(self, seen: Observation) -> None:
        self._tell(lambda metrics: metrics.observe(seen))

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
        buffered.arrived(metrics := _make_metrics())
        host, port = monitoring.metrics_host, monitoring.metrics_port
        async with _metrics_served(metrics, queue.store, host, port) as address:
            session.screen.remark(f"metrics: {address}")
            yield buffered
    finally:
        buffered.end()


def _make_metrics() -> Metrics:
    """Make the metrics. Without prometheus-client, the error says how to install it."""
    try:
        from ....engine.observe.metrics import Metrics
    except ModuleNotFoundError as missing:
        if missing.name != "prometheus_client":
            raise
        advice = "install it with: pip install 'rota[server]'"
        raise Invalid("metrics_port", "metrics need prometheus-client", advice) from None
    return Metrics()


@asynccontextmanager
async def _metrics_served(metrics: Metrics, store: Store, host: str, port: int) -> AsyncIterator[str]:
    """Serve meanwhile; gives the address. Port 0: one that is free."""
    responder = _MetricsServer(metrics, store)
    try:
        server = await asyncio.start_server(responder.answer, host, port, limit=HEAD_BYTES)
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise Invalid("metrics_port", f"{host}:{port} cannot be used: {reason}", "choose another") from None
    taken = server.sockets[0].getsockname()[1]
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{taken}/metrics"
    finally:
        server.close()
        await responder.end()
        await server.wait_closed()


class _MetricsServer:
    def __init__(self, metrics: Metrics, store: Store) -> None:
        self._metrics = metrics
        self._store = store
        self._connections: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request. A client that is too slow, or one too many, is hung up on."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= CLIENTS:
                async with asyncio.timeout(CLIENT_PATIENCE.total_seconds()):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._response(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client's own doing; it sees that the connection is closed
        except asyncio.CancelledError:
            pass  # the process ends; to raise it would only have asyncio report it
        finally:
            self._connections.discard(task)
            writer.close()

    async def end(self) -> None:
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        about, body = await self._answered(method, path)
        return about if method == b"HEAD" else about + body

    async def _answered(self, method: bytes, path: bytes) -> tuple[bytes, bytes]:
        if path != b"/metrics":
            return _response("404 Not Found", TEXT, b"there is only /metrics here\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", TEXT, b"GET it\n", "Allow: GET, HEAD\r\n")
        from ....engine.observe.metrics import CONTENT_TYPE

        return _response("200 OK", CONTENT_TYPE, await self._metrics.render(self._store))


def _response(status: str, kind: str, body: bytes, more: str = "") -> tuple[bytes, bytes]:
    """The head of an answer, and its body."""
    about = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}"
    return f"HTTP/1.1 {status}\r\n{about}\r\n".encode(), body
