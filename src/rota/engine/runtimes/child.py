"""A process that runs functions for a worker, one after the other: `python -m rota.engine.runtimes.child FD`.

The main thread runs them. Another reads what the worker says, so that a stop is seen meanwhile: by the context, and by
an async function as a cancellation. When the worker is gone, the process ends, and whatever it has started with it.

A copy that the function forks has no link to the worker: what it returns is no answer, and it ends there.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import spawn
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from ...domain.errors import PermanentError
from ...domain.model import Artifact, LogLine, Task
from ..artifacts import Source, check_source
from ..clock import SystemClock
from ..executor import Context, Execution, Leaving, StopReason
from ..guard import traceback_of
from . import processes
from .processes import LENGTH, Begin, Begun, Ended, Leave, Left, Reported, Stop, carried, framed

_here: list[Context] = []


def context_here() -> Context:
    """The context that takes the place of the worker's own in this process."""
    return _here[0]


class Here:
    """A call: as much of an execution as its context needs, if it has one. What that is told goes to the worker."""

    def __init__(self, begin: Begin, say: Callable[[Any, Here], bool]) -> None:
        self.begin = begin
        self.stopping: StopReason | None = None
        self.lease: Any = None
        self.progress: Any = None
        self.logs: tuple[LogLine, ...] = ()
        self.left: SimpleQueue[Left] = SimpleQueue()
        self.is_over = False
        self._leaving = threading.Lock()
        self._say = say

    @property
    def task(self) -> Task:
        assert self.begin.task is not None, "it has a context"
        return self.begin.task

    def shown(self) -> Task:
        return self.task

    def reported(self) -> None:
        reports = self.lease, self.progress, self.logs
        self.lease, self.progress, self.logs = None, None, ()
        self._say(Reported(reports), self)

    def leave(self, asked: Leave) -> Artifact:
        """Have the worker store it, and wait for that. One at a time: answers come in the order of the questions."""
        with self._leaving:
            if not self._say(asked, self):
                raise RuntimeError(
                    "only the function itself leaves artifacts: it has ended, or this is a fork of it"
                )
            stored, error = pickle.loads(self.left.get().answer)
        if error is not None:
            raise error
        return cast(Artifact, stored)

    async def flush(self) -> None:
        """It was said at once; the worker stores it within a second or so."""

    def call(self, coroutine: Any) -> Any:
        coroutine.close()
        raise RuntimeError("context.call works in threads only: a process is not on the worker's loop")


class ContextHere(Context):
    """The context of a function in a process."""

    def artifact(self, name: str, source: Source, *, media_type: str | None = None) -> Leaving:
        """As elsewhere, but it is always stored when this returns: nothing else goes on in a process meanwhile."""
        call = cast(Here, self._execution)
        return Arrived(call.leave(Leave(name=name, source=_sendable(source), media_type=media_type)))


class Arrived(Leaving):
    """An artifact that has arrived."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact

    def __await__(self) -> Generator[Any, None, Artifact]:
        yield from ()
        return self._artifact


class NoQueue:
    """Stands where a queue would."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"context.queue.{name}: a process has no queue of its worker; use rota.connect()")


class Child:
    """One process, for as long as its worker wants it."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._reading = link.makefile("rb")
        self._saying = threading.Lock()
        self._calls: SimpleQueue[Here] = SimpleQueue()
        self._execution: Here | None = None
        self._cancel: Callable[[], object] | None = None
        self._main: dict[str, Any] = {}
        self._is_copy = False
        link.set_inheritable(False)
        os.register_at_fork(after_in_child=self._become_copy)

    def run(self) -> None:
        self._main = self._heard()
        sys.path[:] = self._main.pop("sys_path")
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            call = self._calls.get()
            ended = self._ended(call)
            if self._is_copy:
                os._exit(0)
            with self._saying:
                call.is_over = True
            self._say(ended)

    def _listen(self) -> None:
        try:
            while True:
                heard = self._heard()
                if isinstance(heard, Begin):
                    self._execution = Here(heard, self._say)
                    self._calls.put(self._execution)
                elif isinstance(heard, Left) and (call := self._execution) is not None:
                    call.left.put(heard)
                elif isinstance(heard, Stop):
                    self._stop(StopReason(heard.reason))
        finally:  # the worker is gone
            os.killpg(0, signal.SIGKILL)

    def _become_copy(self) -> None:
        """Without the link: else the worker would not see its end while the copy lives."""
        if not self._is_copy:
            self._is_copy = True
            os.close(self._link.detach())

    def _stop(self, reason: StopReason) -> None:
        """A call that cannot be cancelled yet finds out when it can (`_awaited`). It may end at any moment: the main
        thread then forgets what is looked at here."""
        call, cancel = self._execution, self._cancel
        if call is not None:
            call.stopping = reason
        if cancel is not None:
            with suppress(RuntimeError):  # its loop has just been closed
                cancel()

    def _heard(self) -> Any:
        head = self._reading.read(LENGTH.size)
        if len(head) < LENGTH.size:
            raise EOFError
        return pickle.loads(self._reading.read(*LENGTH.unpack(head)))

    def _say(self, message: Any, of: Here | None = None) -> bool:
        """False: it is not said. A copy has nobody to say it to; and a thread that goes on after its call has ended
        would speak of the next one."""
        if self._is_copy:
            return False
        data = framed(message)
        with self._saying:
            if of is not None and of.is_over:
                return False
            self._link.sendall(data)
        return True

    def _ended(self, call: Here) -> Ended:
        try:
            with memory_limited(call.begin.memory_limit):
                value = self._called(call)
            return Ended(answer=_answer(call.begin.name, value))
        except BaseException as error:  # whatever it is, it belongs to the worker
            return _failed(error)
        finally:
            self._execution = self._cancel = None
            _here.clear()

    def _called(self, call: Here) -> Any:
        begin = call.begin
        if begin.task is not None:
            _here[:] = [ContextHere(cast(Execution, call), NoQueue(), SystemClock().now)]
        if begin.module == "__main__":
            self._import_main()
        function = function_named(begin.module, begin.name)
        args, kwargs = pickle.loads(begin.arguments)
        self._say(Begun())
        value = function(*args, **kwargs)
        return asyncio.run(self._awaited(value, call)) if inspect.iscoroutine(value) else value

    def _import_main(self) -> None:
        """The program that runs the worker, under another name: what it keeps for `__main__` does not run again."""
        main, self._main = self._main, {}
        processes.is_importing_main = True
        try:
            spawn.prepare(main)
        except BaseException:
            self._main = main
            raise
        finally:
            processes.is_importing_main = False

    async def _awaited(self, value: Any, call: Here) -> Any:
        running, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert running is not None, "asyncio.run made it"
        self._cancel = lambda: loop.call_soon_threadsafe(running.cancel)
        if call.stopping is not None:
            value.close()
            raise asyncio.CancelledError("asked to end before it began")
        return await value


def _answer(name: str, value: Any) -> bytes:
    try:
        return pickle.dumps((value, None))
    except Exception as problem:
        raise PermanentError(f"the result of {name} cannot be sent from its process: {problem}") from problem


def _failed(error: BaseException) -> Ended:
    return Ended(answer=carried(error), traceback=traceback_of(error))


def _sendable(source: object) -> Any:
    """A source as the worker, which may be in another folder, can read it."""
    checked = check_source(source)
    if isinstance(checked, os.PathLike):
        return Path(checked).absolute()
    return bytes(checked) if isinstance(checked, memoryview) else checked


@contextmanager
def memory_limited(most: int | None) -> Iterator[None]:
    """Meanwhile the process gets no more than this many bytes for its data."""
    if most is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def function_named(module: str, name: str) -> Callable[..., Any]:
    """The function of this name, also where a decorator has put something else that holds it as `function`."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    while not inspect.isroutine(found) and hasattr(found, "function"):
        found = found.function
    return cast(Callable[..., Any], found)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker decides
    Child(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    from rota.engine.runtimes import child

    child.main()  # not this module under its second name: contexts are pickled by the first
