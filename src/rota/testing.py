"""Virtual time, for testing your own schedules: hours pass in microseconds.

    def test_the_report_is_written_at_six() -> None:
        async def main(clock: LoopClock) -> None:
            ...                                   # start a store and the loops with this clock
            await sleep_until(datetime(2026, 1, 1, 6, tzinfo=UTC))
            assert ...

        run(main)

On a `VirtualLoop` time stands still while anything can happen. When nothing can, it jumps to the next
timer.

- **Threads.** While a function runs in an executor (`run_in_executor`, `asyncio.to_thread`) time stands
  still, and the loop really waits for it, even if nobody awaits it any more. Threads that the loop knows
  nothing of are waited for inside `with virtual_loop().hold():`. A thread that does not come back within
  `patience` (real time) raises `Deadlock`.
- **Nothing left.** No callback ready, no timer set (but for stores that look whether others did something), no
  thread at work: the test would hang. `Deadlock` is raised out of `run` instead, and says where each task is
  waiting; of `queue.wait(id)`, which is what hangs without a worker, also for what.
  A worker has timers of its own, so beside one that lacks the handler `queue.wait(id)` goes on for ever: give it a
  `timeout`, which in virtual time costs nothing to wait for.
- **Real I/O.** Sockets, pipes and subprocesses live in real time and are refused with `RealIO`. Use them
  from a thread.
- **Exactness.** Time moves in whole microseconds and without drift: a timer for 06:00 finds the clock at
  06:00:00.000000.

`run` cleans up like `asyncio.run`: it cancels what still runs and shuts down async generators and the
executor.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import Any, NoReturn, TypeVar, TypeVarTuple
from weakref import WeakSet

from .domain.checks import check_duration
from .domain.errors import NotFound
from .domain.model import Task
from .domain.options import Duration
from .domain.workflow import Step
from .engine import clock
from .engine.app import App
from .engine.clock import LoopClock
from .engine.workflows.context import check_run
from .surfaces.python.calls.tasks import TaskCalls

__all__ = [
    "Deadlock",
    "LoopClock",
    "RealIO",
    "VirtualLoop",
    "advance",
    "check_replay",
    "run",
    "settle",
    "sleep_until",
    "virtual_loop",
]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START = datetime(2026, 1, 1, tzinfo=UTC)
FRUITLESS_POLLS = 1000


class Deadlock(RuntimeError):
    """Nothing can happen any more, and something is still waiting."""


class RealIO(RuntimeError):
    """A socket, pipe or subprocess was used in virtual time."""


def run(
    main: Callable[[LoopClock], Coroutine[Any, Any, T]] | Coroutine[Any, Any, T], *, start: datetime = START
) -> T:
    """Run `main` in virtual time, which begins at `start`. A function is called with the clock."""
    with asyncio.Runner(loop_factory=partial(VirtualLoop, start)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(main(loop.clock) if callable(main) else main)


def virtual_loop() -> VirtualLoop:
    """The running loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise RuntimeError("time is real here; start the test with rota.testing.run(main)")
    return loop


async def settle() -> None:
    """Let everything happen that can happen without time passing, in threads too."""
    await virtual_loop().settled()


async def advance(by: Duration) -> None:
    """Let `by` pass and everything happen that falls due until then, the last moment included."""
    virtual_loop()
    await clock.sleep(check_duration("by", by))
    await settle()


async def sleep_until(when: datetime) -> None:
    """`advance` until the clock that `main` was given reads `when`, or is past it already."""
    await settle()
    while (left := clock.aware(when) - virtual_loop().clock.now()) > timedelta(0):
        await advance(left)


def check_replay(app: App, task: Task, steps: Sequence[Step]) -> None:
    """Does the code of today still fit what is recorded of a workflow? `Refused` says what does not. Nothing is run: it
    is for a test before a deploy, with `queue.get(id)` and `queue.steps(id)` of runs that are under way."""
    handler = app.handlers.get(task.kind)
    if handler is None or not handler.is_workflow:
        raise NotFound("workflow", task.kind)
    check_run(app, handler, task, steps)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that has its own time. `clock` is at `start` when the loop is made."""

    def __init__(self, start: datetime = START, *, patience: timedelta = timedelta(minutes=1)) -> None:
        self._microseconds = 0
        self._held = 0
        self._settling: list[asyncio.Future[None]] = []
        self._pool: ThreadPoolExecutor | None = None
        self._polls: WeakSet[asyncio.TimerHandle] = WeakSet()
        self._polls_in_a_row = 0
        super().__init__(_VirtualSelector(self, patience))
        # Timers due within the resolution fire. Asyncio's nanosecond is lost in the float after half a year:
        # then none would, ever. Ours is more than rounding to a microsecond can leave, and less than one.
        self._clock_resolution = 0.75e-6
        self.clock = LoopClock(start, loop=self)

    def time(self) -> float:
        return self._microseconds / 1_000_000

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Time stands still inside: the loop really waits, for a thread to call `call_soon_threadsafe`."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def poll_later(self, delay: float, callback: Callable[[*Ts], object], *args: *Ts) -> asyncio.TimerHandle:
        """As `call_later`, for a look at what others may have done: without others, nothing comes of it."""
        timer = self.call_later(delay, callback, *args)
        self._polls.add(timer)
        return timer

    def settled(self) -> asyncio.Future[None]:
        """Done as soon as nothing more can happen without time passing."""
        waiter: asyncio.Future[None] = self.create_future()
        self._settling.append(waiter)
        return waiter

    def _idle(self, timeout: float | None) -> None:
        """Nothing can happen now. Tell those who settle, else let time pass until the next timer."""
        if self._settling:
            self._wake_settled()
        elif timeout is None:
            raise Deadlock(
                "no callback is ready, no timer is set and no thread is at work, but these wait:"
                + self._waiting()
            )
        else:
            self._check_for_others()
            self._microseconds += round(timeout * 1_000_000)

    def _check_for_others(self) -> None:
        """A poll may still see what was done before; so many in a row, and nothing else, see nothing any more."""
        timers = (timer for timer in self._scheduled if not timer.cancelled())  # type: ignore[attr-defined]  # asyncio's
        self._polls_in_a_row = (
            self._polls_in_a_row + 1 if all(timer in self._polls for timer in timers) else 0
        )
        if self._polls_in_a_row > FRUITLESS_POLLS:
            raise Deadlock(
                f"only polls of stores are left, and see nothing new, but these wait:{self._waiting()}"
            )

    def _stuck(self, patience: timedelta) -> NoReturn:
        raise Deadlock(
            f"time was held for a thread that has not come back for {patience} (real); these wait:"
            + self._waiting()
        )

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        job = (executor or self._default_pool()).submit(func, *args)
        answer = asyncio.wrap_future(job, loop=self)
        self._held += 1
        job.add_done_callback(self._job_done)  # behind wrap_future's: first the answer, then time goes on
        return answer

    def set_default_executor(self, executor: Any) -> None:
        self._pool = executor
        super().set_default_executor(executor)

    async def shutdown_default_executor(self, *_timeout: float | None) -> None:
        with self.hold():
            await super().shutdown_default_executor()

    async def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        _refuse_real_io()

    # These open something first and give it to the selector later: to be refused there would be too late.
    create_connection = create_unix_connection = create_datagram_endpoint = connect_accepted_socket = _refuse
    create_server = create_unix_server = connect_read_pipe = connect_write_pipe = _refuse
    subprocess_exec = subprocess_shell = _refuse

    def _default_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self.set_default_executor(ThreadPoolExecutor(thread_name_prefix="rota-virtual"))
        assert self._pool is not None
        return self._pool

    def _job_done(self, job: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        self._held -= 1

    def _wake_settled(self) -> None:
        settling, self._settling = self._settling, []
        for waiter in settling:
            if not waiter.done():
                waiter.set_result(None)

    def _waiting(self) -> str:
        return "".join(sorted(f"\n  {_place(task)}" for task in asyncio.all_tasks(self)))


class _VirtualSelector(selectors.DefaultSelector):
    """Where an event loop waits. It knows one file: the loop's own, through which threads wake it."""

    def __init__(self, loop: VirtualLoop, patience: timedelta) -> None:
        super().__init__()
        self._loop = loop
        self._patience = patience

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.get_map():
            _refuse_real_io()
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
            return []  # what threads have told the loop is among its callbacks already
        heard = super().select(0)
        if heard:
            return heard
        if self._loop._held:
            return super().select(self._patience.total_seconds()) or self._loop._stuck(self._patience)
        self._loop._idle(timeout)
        return []


def _refuse_real_io() -> NoReturn:
    raise RealIO(
        "sockets, pipes and subprocesses live in real time; in virtual time use them from a thread, or a fake"
    )


def _place(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    where = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "an unknown place"
    name = f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')}) at {where}"
    awaited = next((about for frame in _awaiting(task.get_coro()) if (about := _awaited_task(frame))), "")
    return f"{name}{awaited}"


def _awaiting(coroutine: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of those that it awaits."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None:
            yield frame
        coroutine = getattr(coroutine, "cr_await", None)


def _awaited_task(frame: FrameType) -> str:
    """Of `queue.wait(id)`: for which task."""
    if frame.f_code is not TaskCalls.wait.__code__:
        return ""
    task = frame.f_locals.get("task")
    about = f", which is {task.status}: is there a worker for {task.kind}?" if task is not None else ""
    return f", for the end of task {frame.f_locals['task_id']}{about}"
