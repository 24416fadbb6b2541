"""The event loop of one workflow: it runs the code until nothing more can happen without an answer from outside.

Workflow code is ordinary asyncio: `gather`, a TaskGroup, an Event. On a loop of its own all of it is *deterministic*:
callbacks run in the order in which they were called for, nothing else runs in between, and `run_ready` returns exactly
when the code waits for answers. So the same answers in the same order lead to the same calls. Time, threads and sockets
do not exist here, and say so.

The loop has no selector and no `while` of its own. It is run from a callback of the worker's loop.

**Branches.** The tasks of asyncio are branches. A branch forks another when it creates its task, and goes on after it
only if it waited for nothing of its own meanwhile: then it waited for that branch. Two branches are independent if
neither goes on after the other. Their calls may come in one order today, and in another after a crash: by then, the
answers that both waited for are there already.
"""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import Context
from typing import Any, NoReturn, TypeVarTuple
from weakref import WeakKeyDictionary

import msgspec

Ts = TypeVarTuple("Ts")


class WorkflowLoop(asyncio.AbstractEventLoop):
    """Runs coroutines step by step."""

    def __init__(self) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self.branches = Branches()

    def run_ready(self) -> None:
        """Run all that can run."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    # asyncio lets these two out of the loop; the task that raised them has kept them
                    with suppress(SystemExit, KeyboardInterrupt):
                        handle._run()
        finally:
            asyncio._set_running_loop(outer)

    def shut(self) -> None:
        """Drop the code where it stands. It is not cancelled: it goes on elsewhere, from what is recorded. Only its
        `finally` blocks run."""
        self._is_closed = True
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's: nobody is to be told
            with suppress(BaseException):  # a finally block may raise anything
                coroutine = task.get_coro()
                if coroutine is not None:
                    coroutine.close()
        self._tasks.clear()
        self._ready.clear()

    # What asyncio asks of a loop

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._is_closed:
            self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(_checked(coro), loop=self, **options)
        self.branches.fork(task, asyncio.current_task(self))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._is_closed

    def is_closed(self) -> bool:
        return self._is_closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Errors that nobody awaited: the run's own end says what went wrong."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """As above."""

    def time(self) -> float:
        _refuse_time()

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        _refuse_time()

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        _refuse_time()


def _checked(coro: Any) -> Coroutine[Any, Any, Any]:
    assert asyncio.iscoroutine(coro)
    return coro


def _refuse_time() -> NoReturn:
    raise RuntimeError(
        "inside a workflow no time passes by itself; wait with `await ctx.sleep(…)`, and race it with `ctx.first(…)`"
    )


def _refuse(self: WorkflowLoop, *args: Any, **options: Any) -> NoReturn:
    raise RuntimeError(
        "a workflow does no input or output and uses no threads by itself; do it in a step: `await ctx.step(function)`"
    )


for _name in (
    "call_soon_threadsafe",
    "run_in_executor",
    "getaddrinfo",
    "create_connection",
    "create_server",
    "create_unix_connection",
    "create_datagram_endpoint",
    "subprocess_exec",
    "subprocess_shell",
    "sock_connect",
    "sock_recv",
    "sock_sendall",
    "connect_read_pipe",
    "connect_write_pipe",
    "add_reader",
    "add_writer",
):
    setattr(WorkflowLoop, _name, _refuse)


class CodeBranch(msgspec.Struct, eq=False):
    """A task of asyncio: who forked it, and at which moments it began, was done, and waited for an answer itself."""

    forked_by: CodeBranch | None
    began: int
    done: int | None = None
    waits: list[int] = []

    def waited_during(self, other: CodeBranch) -> bool:
        assert other.done is not None
        return bisect(self.waits, other.began) < bisect(self.waits, other.done)

    def lineage(self) -> Iterator[CodeBranch]:
        """Itself, who forked it, and so on up to the code of the workflow."""
        found: CodeBranch | None = self
        while found is not None:
            yield found
            found = found.forked_by


class Branches:
    """All branches of one run. Moments are numbers in the order in which things happened."""

    def __init__(self) -> None:
        self._moment = 0
        self._of: WeakKeyDictionary[asyncio.Task[object], CodeBranch] = WeakKeyDictionary()

    def moment(self) -> int:
        self._moment += 1
        return self._moment

    def fork(self, task: asyncio.Task[object], by: asyncio.Task[object] | None) -> None:
        branch = self._of[task] = CodeBranch(self.of(by), self.moment())

        def ended(_: object) -> None:
            branch.done = self.moment()

        task.add_done_callback(ended)

    def of(self, task: asyncio.Task[object] | None) -> CodeBranch | None:
        return None if task is None else self._of.get(task)

    def comes_after(self, here: CodeBranch | None, there: CodeBranch | None, answered: int | None) -> bool:
        """Whether what is called `here` comes after a call that was awaited `there`, and `answered` then."""
        if here is None or there is None or answered is None:
            return False
        ours, theirs = list(here.lineage()), list(there.lineage())
        fork = next(branch for branch in ours if branch in theirs)
        if fork is not there:
            joined = theirs[theirs.index(fork) - 1]
            if joined.done is None or fork.waited_during(joined):
                return False
            answered = joined.done
        return fork is here or ours[ours.index(fork) - 1].began > answered
