"""The same calls without `await`, for programs that have no event loop.

    import rota.sync

    with rota.sync.connect() as queue:
        queue.submit("greet", {"name": "Ada"})
        print(queue.bind(greet).submit("Ada").result())      # a function that is registered with an app

There is one portal: a thread with an event loop, on which the asynchronous `Queue` lives. Nothing is written twice;
`sync.pyi`, which is generated from `Queue`, tells type checkers the signatures.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from .domain.errors import Unavailable
from .domain.model import Artifact, Task
from .domain.options import Duration, SubmitOptions
from .engine import artifacts
from .engine.app import App
from .engine.clock import Clock
from .engine.handlers import functions
from .surfaces.python import client

__all__ = ["Handle", "OpenArtifact", "Queue", "TaskFunction", "connect"]

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Portal:
    """A thread with an event loop that runs coroutines for others."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._open = True
        self._pid = os.getpid()
        self._opening = threading.Lock()
        self._thread = threading.Thread(target=self._turn, name="rota-portal", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there, wait here. `Unavailable` if the portal is closed, or is being closed meanwhile."""
        if (refused := self._refused()) is not None:
            coroutine.close()
            raise refused
        with self._opening:  # once it is closed nothing may be handed in: nobody would answer
            if not self._open:
                coroutine.close()
                raise _closed()
            answer = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return answer.result()
        except CancelledError:
            if self._open:
                raise
            raise _closed() from None

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Make the `last` call, end those that are under way, and the thread. A second close does nothing, nor does one
        in a forked process: it is not this one's to close."""
        if os.getpid() != self._pid:
            return
        if (refused := self._refused()) is not None:
            raise refused
        with self._opening:
            if not self._open:
                return
            self._open = False
            answer = None if last is None else asyncio.run_coroutine_threadsafe(last(), self._loop)
        try:
            if answer is not None:
                answer.result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _refused(self) -> Exception | None:
        """Why a call from here would wait for ever: nobody turns the loop, or the caller does."""
        if os.getpid() != self._pid:
            problem = "this queue was opened by the process that this one was forked from"
            return Unavailable(f"{problem}: open another with rota.sync.connect()", is_final=True)
        if threading.current_thread() is self._thread:
            return RuntimeError("a callback of a call cannot use the queue that calls it: do it afterwards")
        return None

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
        finally:
            self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class OpenArtifact:
    """`rota.OpenArtifact`, read through the portal."""

    def __init__(self, opened: artifacts.OpenArtifact, portal: Portal) -> None:
        self._opened = opened
        self._portal = portal

    @property
    def artifact(self) -> Artifact:
        return self._opened.artifact

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to `stop` (None: the end), in pieces."""
        pieces = self._opened.chunks(start, stop)

        async def piece() -> bytes | None:
            return await anext(pieces, None)

        while (found := self._portal.call(piece())) is not None:
            yield found

    def read(self) -> bytes:
        """All of it, in memory."""
        return self._portal.call(self._opened.read())

    def save(self, path: str | os.PathLike[str], *, report: Callable[[int], None] | None = None) -> None:
        """Write all of it to a file, which is there when it is whole. `report` is called after each piece with its
        length."""
        self._portal.call(self._opened.save(path, report=report))


class Queue:
    """`rota.Queue`, each of its calls made through the portal. What they return is data, or is sync itself."""

    def __init__(self, queue: client.Queue, portal: Portal) -> None:
        self._queue = queue
        self._portal = portal

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    @property
    def tenant(self) -> str:
        return self._queue.tenant

    @property
    def actor(self) -> str:
        return self._queue.actor

    @property
    def clock(self) -> Clock:
        return self._queue.clock

    def for_tenant(self, tenant: str) -> Queue:
        """The same store, for another tenant. Closing either closes the store of both."""
        return Queue(self._queue.for_tenant(tenant), self._portal)

    def bind(self, function: functions.TaskFunction[P, R]) -> TaskFunction[P, R]:
        """The function, submitted to this queue: `queue.bind(function).submit(…)`."""
        return TaskFunction(self._queue.bind(function), self._portal)

    def open_artifact(self, task_id: str, name: str) -> OpenArtifact:
        """As `rota.Queue.open_artifact`; what it gives is sync itself."""
        return OpenArtifact(self._portal.call(self._queue.open_artifact(task_id, name)), self._portal)

    def close(self) -> None:
        """Close the store and end the portal. A second call does nothing."""
        self._portal.close(self._queue.close)


class TaskFunction(Generic[P, R]):
    """`rota.TaskFunction`, bound to a queue, without `await`."""

    def __init__(self, function: functions.TaskFunction[P, R], portal: Portal) -> None:
        self._function = function
        self._portal = portal

    def options(self, *, connection: Any = None, **options: Unpack[SubmitOptions]) -> TaskFunction[P, R]:
        """The same function, submitted with these options, as in `Queue.submit`."""
        return TaskFunction(self._function.options(connection=connection, **options), self._portal)

    def args(self, *args: P.args, **kwargs: P.kwargs) -> functions.Arguments[P]:
        """The arguments of one of the calls that are given to `map`."""
        return self._function.args(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit a task that calls the function with these arguments. What is injected is left out."""
        return Handle(self._portal.call(self._function.submit(*args, **kwargs)), self._portal)

    def map(self, items: Iterable[Any]) -> list[Handle[R]]:
        """Submit a task for each item, all in one transaction. An item is the function's first argument, or what
        `function.args(…)` gives."""
        return [Handle(each, self._portal) for each in self._portal.call(self._function.map(items))]


class Handle(Generic[R]):
    """`rota.Handle`, without `await`."""

    def __init__(self, handle: functions.Handle[R], portal: Portal) -> None:
        self._handle = handle
        self._portal = portal

    @property
    def task(self) -> Task:
        """As it was submitted."""
        return self._handle.task

    @property
    def id(self) -> str:
        return self._handle.id

    def get(self) -> Task:
        """The task as it is now."""
        return self._portal.call(self._handle.get())

    def cancel(self, reason: str = "") -> Task:
        """As `Queue.cancel`."""
        return self._portal.call(self._handle.cancel(reason))

    def result(self, timeout: Duration | None = None) -> R:
        """What the function returned, once it has; `TaskFailed` if it did not, TimeoutError if that takes too long."""
        return self._portal.call(self._handle.result(timeout))


def _bridged(name: str, method: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """The method, called on the asynchronous queue through the portal."""

    @wraps(method, assigned=("__name__", "__doc__", "__annotations__"))
    def call(self: Queue, *args: Any, **kwargs: Any) -> T:
        answer: T = self._portal.call(getattr(self._queue, name)(*args, **kwargs))
        return answer

    call.__qualname__ = f"{Queue.__qualname__}.{name}"
    return call


for _name, _method in inspect.getmembers(client.Queue, inspect.iscoroutinefunction):
    if not _name.startswith("_") and _name not in vars(Queue):
        setattr(Queue, _name, _bridged(_name, _method))


def _closed() -> Unavailable:
    return Unavailable("this queue is closed: open another with rota.sync.connect()", is_final=True)


def connect(
    store: str | None = None,
    *,
    bucket: str | None = None,
    tenant: str = "default",
    actor: str | None = None,
    app: App | None = None,
) -> Queue:
    """As `rota.connect`, without `await`."""
    portal = Portal()

    async def opening() -> client.Queue:
        return await client.connect(store, bucket=bucket, tenant=tenant, actor=actor, app=app)

    try:
        return Queue(portal.call(opening()), portal)
    except BaseException:
        portal.close()
        raise
