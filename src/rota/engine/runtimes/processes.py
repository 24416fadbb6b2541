"""Functions in processes of their own, which are kept warm for the next call.

A process runs one function at a time. It leads a group: at a timeout or a cancel the group is killed, children and all.
If the function can see that it is to stop (it has a context, or is async), it has `KILL_AFTER` to end by itself. A
process that ends during a call, whatever ended it, is a failed attempt, and the next call gets another one.

A worker and its processes say messages to each other: pickled, each behind its length.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing import spawn
from typing import Any

import msgspec

from ...domain.errors import PermanentError
from ...domain.model import Task
from ..clock import wait_for_any
from ..executor import AttemptFailed, Context, StopReason
from ..guard import is_a, name_of, text_of
from ..handlers.functions import running

LENGTH = struct.Struct(">I")


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """Call this function. `arguments` are pickled by themselves: to read them may fail, and then the call has."""

    module: str
    name: str
    arguments: bytes
    task: Task | None
    memory_limit: int | None


class Begun(msgspec.Struct, frozen=True):
    """The function is found, and is called now."""


class Stop(msgspec.Struct, frozen=True):
    """The attempt is to end; `reason` is one of the executor's `StopReason`s."""

    reason: str


class Reported(msgspec.Struct, frozen=True):
    """The reports that a context was told: (lease, progress, log lines)."""

    reports: tuple[Any, Any, Any]


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """Store an artifact for the function, which waits for `Left`. The path of a file is absolute."""

    name: str
    source: Any
    media_type: str | None


class Left(msgspec.Struct, frozen=True):
    """How that went: pickled (record, error)."""

    answer: bytes


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended: pickled (value, error), and what the error looked like where it was raised."""

    answer: bytes
    traceback: str | None = None


def carried(error: BaseException) -> bytes:
    """Pickled (None, error): the error itself if it can be carried; else one that says what it was."""
    try:
        answer = pickle.dumps((None, error))
        pickle.loads(answer)
    except BaseException:  # to carry it may run its code
        sentence = f"{name_of(error)}: {text_of(error)}"
        told = PermanentError(sentence) if is_a(error, PermanentError) else RuntimeError(sentence)
        return pickle.dumps((None, told))
    return answer


def framed(message: Any) -> bytes:
    data = pickle.dumps(message)
    return LENGTH.pack(len(data)) + data


KILL_AFTER = timedelta(seconds=3)
"""Shorter than the executor's `STOP_GRACE`: the process is killed before the executor gives up the call."""
GONE = timedelta(seconds=5)
"""How long a process may take to be gone after its end of the link is."""
CHILD = "rota.engine.runtimes.child"
_PREPARED = ("sys_path", "sys_argv", "dir", "init_main_from_name", "init_main_from_path")
is_importing_main = False
"""In a process, while it imports the program that runs its worker: that must not begin to work again."""


class Processes:
    """As many as calls at once, started when needed."""

    def __init__(self) -> None:
        if is_importing_main:
            problem = "the program starts a worker when it is imported"
            raise PermanentError(f"{problem}; put that under: if __name__ == '__main__'")
        self._idle: list[Process] = []
        self._all: set[Process] = set()

    async def call(
        self, function: Callable[..., Any], memory_limit: int | None, args: Any, kwargs: Any
    ) -> Any:
        """Call the function in a process. Its result is returned, and its exception raised."""
        if sys.platform == "win32":
            raise PermanentError(
                "handlers in processes need process groups: run this worker on Linux or macOS"
            )
        context = running.get()
        assert isinstance(context, Context), "a worker has set it"
        has_context = any(isinstance(each, Context) for each in (*args, *kwargs.values()))
        begin = Begin(
            module=function.__module__,
            name=function.__qualname__,
            arguments=_pickled(function, args, kwargs),
            task=context.task if has_context else None,
            memory_limit=memory_limit,
        )
        process = await self._free()
        try:
            await process.link()
            can_see = has_context or inspect.iscoroutinefunction(function)
            answer = await process.call(begin, context, KILL_AFTER if can_see else timedelta(0))
        except BaseException:
            self._all.discard(process)
            await process.kill()
            raise
        self._idle.append(process)
        return _value(answer)

    async def close(self) -> None:
        """Kill them all."""
        ending, self._all, self._idle = list(self._all), set(), []
        for process in ending:
            await process.kill()

    async def _free(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            self._all.discard(process)
            await process.kill()
        process = Process()
        self._all.add(process)
        return process


class Process:
    """One process, and the link to it."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair()
        with theirs:
            self._running = subprocess.Popen(
                [sys.executable, "-m", CHILD, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def link(self) -> None:
        """Before its first call. One that is cancelled here is known already, and is killed."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(sock=self._link)
            prepared = spawn.get_preparation_data(CHILD)
            self._say({name: prepared[name] for name in _PREPARED if name in prepared})

    @property
    def is_alive(self) -> bool:
        return self._running.poll() is None

    async def call(self, begin: Begin, context: Context, grace: timedelta) -> Ended:
        """How the call ended. If it is cancelled, the function is told, and given up after `grace`."""
        self._say(begin)
        ending = asyncio.ensure_future(self._until_ended(context))
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError:
            self._say(Stop(context.stopping or StopReason.TIMEOUT))
            if not await wait_for_any(ending, at_most=grace):
                raise
        finally:
            ending.cancel()
        return ending.result()

    async def _until_ended(self, context: Context) -> Ended:
        while True:
            heard = await self._heard()
            if isinstance(heard, Ended):
                return heard
            if isinstance(heard, Begun):
                context.handler_begins()
            elif isinstance(heard, Reported):
                context.take_reports(heard.reports)
            elif isinstance(heard, Leave):
                self._say(await _left(heard, context))

    async def _heard(self) -> Any:
        assert self._streams is not None, "it is linked"
        reader, _ = self._streams
        try:
            head = await reader.readexactly(LENGTH.size)
            return pickle.loads(await reader.readexactly(*LENGTH.unpack(head)))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise AttemptFailed("ProcessEnded", _how(await self._code())) from None

    def _say(self, message: Any) -> None:
        assert self._streams is not None, "it is linked"
        self._streams[1].write(framed(message))

    async def _code(self) -> int | None:
        """Its exit code; None: it goes on, without a link."""
        try:
            return await asyncio.to_thread(self._running.wait, GONE.total_seconds())
        except subprocess.TimeoutExpired:
            return None

    async def kill(self) -> None:
        """It and whatever it has started."""
        with suppress(ProcessLookupError, PermissionError):  # macOS: a group of the dead is not permitted
            os.killpg(self._running.pid, signal.SIGKILL)
        if self._streams is None:
            self._link.close()
        else:
            self._streams[1].close()
        await self._code()


class RemoteTraceback(Exception):
    """Where an error was raised, as its process showed it."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


async def _left(asked: Leave, context: Context) -> Left:
    try:
        record = await context.artifact(asked.name, asked.source, media_type=asked.media_type)
    except Exception as problem:
        return Left(carried(problem))
    return Left(pickle.dumps((record, None)))


def _pickled(function: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
    try:
        return pickle.dumps((args, kwargs))
    except Exception as problem:
        name = function.__qualname__
        raise PermanentError(f"the arguments of {name} cannot be sent to a process: {problem}") from problem


def _value(ended: Ended) -> Any:
    value, error = pickle.loads(ended.answer)
    if error is None:
        return value
    if ended.traceback is not None:
        error.__cause__ = RemoteTraceback(ended.traceback)
    raise error


def _how(code: int | None) -> str:
    if code is None:
        return "the process closed its link to the worker before the handler ended"
    if code < 0:
        return f"the process was killed by {signal.Signals(-code).name} before the handler ended"
    return f"the process exited with code {code} before the handler ended"
