"""A queue whose store is behind a server. A call of `wire.CALLS` is one request; what needs the store itself is
refused."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast
from urllib.parse import quote, urlsplit

import msgspec

from ... import __version__
from ...domain.checks import check_duration
from ...domain.errors import Invalid, NotFound, Refused, RotaError, Unavailable
from ...domain.model import Artifact, PausedQueue, Task
from ...domain.options import Duration
from ...domain.plan import Plan
from ...engine.app import App
from ...engine.artifacts import OpenArtifact
from ...engine.clock import aware, sleep
from ...stores.base import Store
from .. import files
from ..python.client import Queue, Report
from ..python.known_nodes import UnhandledKind
from ..stores import without_secrets
from . import wire

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
LOOK_AGAIN = timedelta(milliseconds=500)
PATIENCE = timedelta(seconds=60)


class RemoteQueue(Queue):
    """One tenant's tasks, schedules and templates behind a server, as a `Queue`. What it does is done in the name of
    the key."""

    def __init__(self, server: str, key: str | None = None, *, tenant: str = "default") -> None:
        super().__init__(cast(Store, _NoStore()), tenant=tenant)
        address = _checked_address(server)
        self._server = without_secrets(address)  # as errors name it
        self._key = key
        self._client = _client(address, key)
        self._place = f"{address}/api/tenants/{quote(self.tenant, safe='')}"

    async def close(self) -> None:
        await self._client.aclose()

    async def wait(self, task_id: str, timeout: Duration | None = None) -> Task:  # noqa: ASYNC109  a word of the API
        async with asyncio.timeout(_seconds(timeout)):
            while (task := await self.get(task_id)).is_live:
                await sleep(LOOK_AGAIN)
        return task

    async def drain_queue(
        self,
        name: str,
        note: str = "",
        timeout: Duration | None = None,  # noqa: ASYNC109  a word of the API
        *,
        report: Report | None = None,
    ) -> PausedQueue:
        at_most = _seconds(timeout)
        paused = await self.pause_queue(name, note)
        running = await self.count(queue=paused.queue, status="running")
        async with asyncio.timeout(at_most):
            while running:
                await sleep(LOOK_AGAIN)
                before, running = running, await self.count(queue=paused.queue, status="running")
                if report is not None:
                    report(before - running)
        return paused

    async def open_artifact(self, task_id: str, name: str) -> OpenArtifact:
        found = next((each for each in await self.artifacts(task_id) if each.name == name), None)
        if found is None:
            raise NotFound("artifact", name)
        return OpenArtifact(cast(Store, _Download(self, found)), found)

    @asynccontextmanager
    async def stream(
        self, types: str, behind: str | None = None
    ) -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any] | None]]]:
        """The records that change from now on, or `behind` a position, as the server's stream of events tells them:
        each with the position behind it. None: nothing happened up to there."""
        headers = {} if behind is None else {"Last-Event-ID": behind}
        async with self._asked("GET", "/events", params={"types": types}, headers=headers) as response:
            lines = response.aiter_lines()
            await anext(lines, None)  # the stream has begun: nothing that follows is missed
            yield self._heard(lines)

    async def _heard(self, lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, dict[str, Any] | None]]:
        position, record = None, None
        async for line in lines:
            name, _, rest = line.partition(": ")
            if name == "id":
                position = rest
            elif name == "data":
                record = _decoded(self._server, rest.encode(), dict[str, Any])
            elif not line and position is not None:
                yield position, record
                position, record = None, None
        raise Unavailable(f"{self._server} has ended the stream of events", server=self._server)

    async def _call(self, name: str, given: Mapping[str, Any]) -> Any:
        body = msgspec.json.encode(wire.written_arguments(_prepared(name, given)))
        report = given.get("report")
        headers = {} if report is None else {wire.PROGRESS_HEADER: "lines"}
        async with self._asked("POST", f"/calls/{name}", content=body, headers=headers) as response:
            if report is not None and wire.PROGRESS_HEADER in response.headers:
                content = await self._awaited(response, report)
            else:
                content = await response.aread()
            answered = _decoded(self._server, content, wire.Answered)
        for sentence in answered.warnings:
            warnings.warn(sentence, UnhandledKind, stacklevel=3)
        try:
            return wire.read_answer(name, answered.answer)
        except msgspec.DecodeError:
            self._check_version(response)
            raise

    async def _awaited(self, response: httpx.Response, report: Report) -> bytes:
        """The answer, if it is not a refusal, after lines that say how far it is."""
        last: list[bytes] = []
        async for piece in response.aiter_bytes():
            *ended, begun = piece.split(b"\n")
            for end in ended:
                report(_decoded(self._server, b"".join([*last, end]), int))
                last.clear()
            last.append(begun)
        status, _, content = b"".join(last).partition(b" ")
        if not status:
            raise Unavailable(f"{self._server} has ended before its answer", server=self._server)
        if status != b"200":
            self._refuse(response, _decoded(self._server, status, int), content)
        return content

    @asynccontextmanager
    async def _asked(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """The answer to a request, if it is not a refusal."""
        import httpx

        try:
            async with self._client.stream(method, self._place + path, **options) as response:
                if response.status_code >= 300:
                    self._refuse(response, response.status_code, await response.aread())
                yield response
        except httpx.HTTPError as error:
            problem = str(error) or type(error).__name__
            raise Unavailable(f"{self._server} does not answer ({problem})", server=self._server) from error

    def _check_version(self, response: httpx.Response) -> None:
        """Refuse a server of another version: calls and answers change with the records, so they may not fit."""
        theirs = response.headers.get(wire.VERSION_HEADER, "older")
        if theirs != __version__:
            raise Refused("other_version", server=self._server, theirs=theirs, here=__version__)

    def _refuse(self, response: httpx.Response, status: int, content: bytes) -> NoReturn:
        problem = _decoded(self._server, content, _Problem)
        if "call" in problem.details or problem.details.get("field", "").startswith(("body", "$")):
            self._check_version(response)
        if problem.code == "unauthorized" and self._key is None:
            raise Invalid("key", f"{self._server} wants one", "give it with --key or as ROTA_KEY")
        if status >= 500:
            raise Unavailable(f"{self._server}: {problem.detail}", server=self._server)
        raise _refusal(problem)


class _Problem(msgspec.Struct, frozen=True):
    """A refusal as the server tells it: a problem document, or that of a call, which has the ids involved."""

    code: str
    detail: str
    details: dict[str, Any] = {}


class _NoStore:
    """Stands where the store would be, and refuses whatever is asked of it."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Refused("needs_store")


class _Download:
    """The content of one artifact, in pieces, where `OpenArtifact` looks for it."""

    def __init__(self, queue: RemoteQueue, artifact: Artifact) -> None:
        self._queue = queue
        self._path = (
            f"/task-executions/{quote(artifact.task_id, safe='')}/artifacts/{quote(artifact.name, safe='')}"
        )

    @property
    def contents(self) -> _Download:
        return self

    async def read(self, key: str, start: int, stop: int) -> AsyncIterator[bytes]:
        span = {"Range": f"bytes={start}-{stop - 1}"}
        async with self._queue._asked("GET", self._path, headers=span) as response:
            async for piece in response.aiter_raw():
                yield piece


def _forwarded(name: str) -> Callable[..., Awaitable[Any]]:
    async def call(self: RemoteQueue, *args: Any, **kwargs: Any) -> Any:
        return await self._call(name, wire.named_arguments(name, args, kwargs))

    return call


for _name in wire.CALLS:
    setattr(RemoteQueue, _name, _forwarded(_name))


def _prepared(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, without what only this process knows: its files, its local time, and who watches."""
    keeps_naive = name == "why" or given.get("timezone") is not None
    sent: dict[str, Any] = {
        each: aware(value)
        if isinstance(value, datetime) and value.tzinfo is None and not keeps_naive
        else value
        for each, value in given.items()
        if each != "report"
    }
    if "source" in sent:
        sent["source"] = _document(sent["source"])
    if isinstance(sent.get("plan"), Plan):
        sent["plan"] = [sent["plan"].at, sent["plan"].token]
    return sent


def _document(source: Any) -> Mapping[str, Any]:
    if isinstance(source, App):
        raise Invalid(
            "file", "the schedules of an app are planned on a store", "give a file, or name a store"
        )
    return source if isinstance(source, Mapping) else files.read(Path(source))


def _decoded(server: str, body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unavailable(f"{server} does not answer as a rota server does", server=server) from None


def _refusal(problem: _Problem) -> Refused:
    """The error that the call raised there."""
    kinds: dict[str, type[Refused]] = {"invalid": Invalid, "not_found": NotFound}
    kind = kinds.get(problem.code, Refused)
    refused = kind.__new__(kind)
    RotaError.__init__(refused, problem.detail, **problem.details)
    refused.code = problem.code
    if isinstance(refused, Invalid):
        refused.field = str(problem.details.get("field", ""))
        refused.problem = problem.detail.removeprefix(f"{refused.field}: ")
    return refused


def _checked_address(server: str) -> str:
    if not _is_address(server):
        problem = f"{without_secrets(server)!r:.60} is not the address of one"
        raise Invalid("server", problem, "give one such as https://rota.example.com")
    return server.rstrip("/")


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False


def _client(server: str, key: str | None) -> httpx.AsyncClient:
    try:
        import httpx
    except ModuleNotFoundError:
        raise Invalid(
            "server", "to ask one needs httpx", "install it with: pip install 'rota[http]'"
        ) from None
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    # Without TLS the certificates of the machine are not read: that would take longer than to ask.
    is_secure = server.startswith("https:")
    trusted = ssl.create_default_context() if is_secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(headers=headers, timeout=PATIENCE.total_seconds(), verify=trusted)


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else check_duration("timeout", timeout).total_seconds()
