"""Runs one handler and turns however it ends into an `Outcome`. No exception of a handler gets past here.

An async handler is awaited on the event loop; a sync one runs in a thread, which cannot be killed: after a
timeout its result is ignored, but it occupies its slot (`still_runs`) until the thread ends. Until then its worker
starts no other attempt at the task. A task that is limited stays at work until then.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from concurrent import futures
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import msgspec

from ..domain.checks import check_duration, check_input
from ..domain.errors import Invalid, PermanentError, RescheduleError, RetryableError
from ..domain.model import Artifact, Failure, Limits, LogLine, Task, TaskStatus
from ..domain.options import Duration
from ..domain.task import LOGS_KEPT, Completed, Failed, Outcome, Released, Rescheduled
from ..domain.workflow import Tries
from ..stores.threads import Threads
from .artifacts import Source, leave
from .clock import SystemClock, wait_for_any
from .guard import contained, entering_handler, is_a, name_of, parts_of, text_of, traceback_of
from .handlers.functions import Handler, running
from .handlers.providers import Resources
from .observe import tracing
from .observe.telemetry import running_task

T = TypeVar("T")

TRACEBACK_KEPT = 16_000
MESSAGE_KEPT = 4_000
OUTPUT_LIMITS = Limits()
STOP_GRACE = timedelta(seconds=5)
START_GRACE = timedelta(minutes=1)
"""How long a process may take to start and to import its function, before that counts into the timeout."""
NO_TRIES = Tries()
Reports = tuple[timedelta | None, Any, tuple[LogLine, ...]]
Ending = tuple[Any, BaseException | None]


class StopReason(StrEnum):
    """Why a handler is being stopped from outside. Of several, the one further down counts."""

    TIMEOUT = "timeout"
    RELEASE = "release"
    CANCEL = "cancel"
    LEASE_LOST = "lease_lost"


class AttemptFailed(Exception):
    """An attempt that ended as a failure and left an `output`, which is stored with it. `type` names the failure to
    people. There is no traceback: nothing of the product went wrong."""

    def __init__(
        self,
        type: str,
        message: str,
        output: Any = None,
        *,
        is_permanent: bool = False,
        delay: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.output = output
        self.is_permanent = is_permanent
        self.delay = delay


class Flush:
    """Awaiting it stores what was reported right away; without `await` it is stored within a second or so."""

    def __init__(self, flush: Callable[[], Awaitable[None]]) -> None:
        self._flush = flush

    def __await__(self) -> Generator[Any, None, None]:
        return self._flush().__await__()


class Leaving:
    """An artifact on its way to the store. Awaiting it gives its record, or raises what went wrong."""

    def __init__(self, storing: asyncio.Future[Artifact], on_await: Callable[[Leaving], None]) -> None:
        self.storing = storing
        self._on_await = on_await

    def __await__(self) -> Generator[Any, None, Artifact]:
        self._on_await(self)
        return self.storing.__await__()


class TakesReports(Protocol):
    """The part of a worker that stores what handlers report."""

    def note_report(self, execution: Execution, /) -> None: ...

    async def flush(self, execution: Execution, /) -> None: ...


class Context:
    """The context of a handler: what it may know and say while it runs. Its methods may be called from any thread."""

    def __init__(self, execution: Execution, queue: Any, now: Callable[[], datetime]) -> None:
        self.queue = queue
        self._execution = execution
        self._now = now

    def now(self) -> datetime:
        return self._now()

    @property
    def task(self) -> Task:
        """As it was when it was claimed or last renewed."""
        return self._execution.shown()

    @property
    def attempt(self) -> int:
        return self._execution.task.attempt

    @property
    def scheduled_at(self) -> datetime | None:
        """The time of the schedule that this task runs for, however late or often; None: no schedule started it."""
        return self._execution.task.scheduled_at

    @property
    def is_cancellation_requested(self) -> bool:
        """Someone asked for the task to be cancelled."""
        return self._execution.stopping is StopReason.CANCEL

    @property
    def is_stopping(self) -> bool:
        """The attempt is to end: for a cancel, or because the worker stops and waits no longer, its time is up, or its
        lease is lost."""
        return self._execution.stopping is not None

    def check(self) -> None:
        """End the attempt here if it is to end: a cancelled task is then cancelled, and one whose worker stops goes
        back to the queue. It raises `asyncio.CancelledError`, which `except Exception` lets through."""
        if self.is_stopping:
            raise asyncio.CancelledError(f"asked to end: {self._execution.stopping}")

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """For sync handlers: run a coroutine, such as `context.queue.submit(…)`, on the worker's loop, and wait."""
        return self._execution.call(coroutine)

    def progress(self, value: Any, message: str | None = None) -> Flush:
        """Say how far it is: any JSON value, with a message if you like."""
        shown = value if message is None else {"value": value, "message": message}
        self._execution.progress = check_input(shown, OUTPUT_LIMITS, "progress")
        return self._reported()

    def log(self, message: object) -> Flush:
        """Add a line to the task's log."""
        line = LogLine(at=self._now(), attempt=self.attempt, message=text_of(message)[:MESSAGE_KEPT])
        self._execution.logs = (*self._execution.logs, line)[-LOGS_KEPT:]
        return self._reported()

    def artifact(self, name: str, source: Source, *, media_type: str | None = None) -> Leaving:
        """Leave something under a name, for readers of the task: bytes, a text, or a file by its `pathlib.Path`. The
        last under a name counts. `media_type`: what the ending of the name says, unless given.

        A sync handler has stored it when this returns, an async one when it has awaited it. What is not awaited is
        stored before the task ends."""
        queue = self.queue
        return self._execution.leave(leave(queue.store, queue.clock, self.task, name, source, media_type))

    def extend_lease(self, duration: Duration | None = None) -> Flush:
        """Ask to keep the task for this long from now (default: the worker's lease) without a renewal. Worth a
        call before something that blocks the event loop."""
        if duration is not None:
            self._execution.lease = check_duration("duration", duration, least=timedelta(seconds=1))
        return self._reported()

    @property
    def stopping(self) -> StopReason | None:
        """Why the attempt is to end, if it is."""
        return self._execution.stopping

    def handler_begins(self) -> None:
        """A handler in another process is called: its timeout counts from now on."""
        self._execution.begins()

    def take_reports(self, reports: Reports) -> None:
        """Take what a handler in another process told its own context."""
        self._execution.lease, progress, logs = reports[0] or self._execution.lease, reports[1], reports[2]
        self._execution.progress = self._execution.progress if progress is None else progress
        self._execution.logs = (*self._execution.logs, *logs)[-LOGS_KEPT:]
        self._execution.reported()

    def __reduce__(self) -> tuple[Callable[[], Context], tuple[()]]:
        """In another process it becomes the context of the attempt there."""
        from .runtimes.child import context_here

        return context_here, ()

    def _reported(self) -> Flush:
        self._execution.reported()
        return Flush(self._execution.flush)


class Execution:
    """One attempt at a task: the handler while it runs, and what the worker must know about it."""

    __slots__ = (
        "_begun",
        "_calling",
        "_in_thread",
        "_leaving",
        "_loop",
        "_reports",
        "_running",
        "_shown",
        "error",
        "handler",
        "is_settled",
        "lease",
        "logs",
        "progress",
        "renewals",
        "resources",
        "stopping",
        "task",
        "tries",
    )

    def __init__(
        self,
        task: Task,
        handler: Handler,
        *,
        resources: Resources,
        reports: TakesReports,
    ) -> None:
        self.task = task
        self.resources = resources
        self.handler = handler
        self.lease: timedelta | None = None
        self.renewals = 0  # under way, each with what was reported until then
        self.stopping: StopReason | None = None
        self.progress: Any = None
        self.logs: tuple[LogLine, ...] = ()
        self.error: BaseException | None = None
        self.is_settled = False  # what became of it is stored already
        self.tries = NO_TRIES  # of steps, to be recorded with the outcome
        self._reports = reports
        self._begun: asyncio.Future[None] | None = None  # of a handler in a process that has a timeout
        self._in_thread = False
        self._leaving: tuple[Leaving, ...] = ()  # not awaited
        self._calling: asyncio.Task[Any] | None = None
        self._running: asyncio.Task[Outcome] | None = None
        self._loop = asyncio.get_running_loop()
        self._shown: tuple[Task, Task] | None = None

    def shown(self) -> Task:
        """The task for code of users: a copy, since `task` is what will be stored, and its input can be changed."""
        if self._shown is None or self._shown[0] is not self.task:
            self._shown = self.task, _copy(self.task, Task)
        return self._shown[1]

    def start(
        self, queue: Any, now: Callable[[], datetime], threads: Threads, traced_since: datetime | None
    ) -> asyncio.Task[Outcome]:
        """`traced_since` is when its claim began; None: this program does not trace."""
        context = Context(self, queue, now)
        if traced_since is None:
            running = self._outcome(context, threads)
        else:
            running = tracing.traced(self.task, traced_since, lambda: self._outcome(context, threads))
        self._running = self._loop.create_task(running, name=f"rota:{self.task.kind}")
        return self._running

    def stop(self, reason: StopReason) -> None:
        """Ask the handler to end. An async one gets a CancelledError; a sync one sees it in its context."""
        before = self.stopping
        self.note_stop(reason)
        if before is None and self._running is not None and self.handler.is_async:
            self._running.cancel()

    def note_stop(self, reason: StopReason) -> None:
        self.stopping = max(self.stopping or reason, reason, key=list(StopReason).index)

    def outcome(self) -> Outcome:
        """When what `start` gave has ended. Its asyncio task is let go here: the context of that leads back to this
        object, and only the garbage collector could free them."""
        ended, self._running = self._running, None
        assert ended is not None, "it was started"
        try:
            return ended.result()
        except asyncio.CancelledError as error:  # before its first step, or by its own doing at its end
            return self._stopped(error)
        except BaseException as error:  # a GeneratorExit from something awaited passes all but the outermost
            return self._failed(error)

    def settled(self, task: Task) -> None:
        """Its outcome is stored."""

    def abandon(self) -> None:
        """Stop waiting for a handler that cannot be stopped."""
        if self._running is not None:
            self._running.cancel()

    @property
    def still_runs(self) -> bool:
        """Whether its thread still runs, or it did not let itself be cancelled. Asked when it has ended."""
        return self._in_thread or (self._calling is not None and not self._calling.done())

    def call_when_ended(self, tell: Callable[[], None]) -> None:
        """For coroutines. The end of a thread is told by the pool of threads (`on_freed`)."""
        if self._calling is not None and not self._calling.done():
            self._calling.add_done_callback(lambda _: tell())

    def begins(self) -> None:
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if _is_on(self._loop):  # it would wait for itself, and the worker with it
            coroutine.close()
            raise RuntimeError("context.call is for sync handlers: on the worker's loop, await the coroutine")
        try:
            return asyncio.run_coroutine_threadsafe(contained(coroutine), self._loop).result()
        except futures.CancelledError as error:  # an `Exception`, and not what asyncio raises
            raise asyncio.CancelledError(*error.args) from None

    def leave(self, storing: Coroutine[Any, Any, Artifact]) -> Leaving:
        """Store an artifact: on the loop while its caller goes on, in a thread before it does."""
        if _is_on(self._loop):
            leaving = Leaving(self._loop.create_task(storing), self._awaited)
            self._leaving = (*self._leaving, leaving)
            return leaving
        stored = self.call(storing)
        done: asyncio.Future[Artifact] = self._loop.create_future()
        self._loop.call_soon_threadsafe(done.set_result, stored)
        return Leaving(done, self._awaited)

    def _awaited(self, leaving: Leaving) -> None:
        """The caller awaits it, and hears what goes wrong."""
        self._leaving = tuple(each for each in self._leaving if each is not leaving)

    def reported(self) -> None:
        """There is something to store; called from any thread."""
        self._loop.call_soon_threadsafe(self._reports.note_report, self)

    async def flush(self) -> None:
        await self._reports.flush(self)

    def taken_reports(self) -> Reports:
        """All that was reported since the last time, to be stored now."""
        reports = self.lease, self.progress, self.logs
        self.lease, self.progress, self.logs = None, None, ()
        return reports

    def put_back(self, reports: Reports) -> None:
        """It could not be stored: keep it for the next time, behind what was reported meanwhile."""
        lease, progress, logs = reports
        self.lease = self.lease or lease
        self.progress = progress if self.progress is None else self.progress
        self.logs = (*logs, *self.logs)[-LOGS_KEPT:]

    async def _outcome(self, context: Context, threads: Threads) -> Outcome:
        running_task.set(self.task)
        running.set(context)
        timeout = self.task.timeout
        if timeout is None:  # the usual case, and a timer that never rings is not free
            ending = await self._ending(context, threads)
        else:
            ending = await self._ending_within(timeout, context, threads)
        try:
            return self.judged(*ending)
        except BaseException as error:  # looking at what a handler returned or raised runs its code again
            return self._failed(error)

    async def _ending_within(self, limit: timedelta, context: Context, threads: Threads) -> Ending:
        """A handler that is over its time is cancelled, and given up if it does not let itself be cancelled."""
        calling = asyncio.create_task(self._ending(context, threads), name=f"rota:{self.task.kind}")
        self._calling = calling
        try:
            if self.handler.run_in == "process":
                self._begun = self._loop.create_future()
                await wait_for_any(calling, self._begun, at_most=START_GRACE)
            if await wait_for_any(calling, at_most=limit):
                return calling.result()
        except asyncio.CancelledError as error:
            await self._cancelled(calling)
            return calling.result() if calling.done() else (None, error)
        self.stopping = self.stopping or StopReason.TIMEOUT
        await self._cancelled(calling)
        return None, over_time(limit, still_runs=self._in_thread or not calling.done())

    async def _cancelled(self, calling: asyncio.Task[Ending]) -> None:
        calling.cancel()
        await wait_for_any(calling, at_most=STOP_GRACE)

    async def _ending(self, context: Context, threads: Threads) -> Ending:
        """The result of the handler, or its error, as a value: asyncio lets SystemExit and KeyboardInterrupt of a task
        out of the event loop."""
        entering_handler()
        try:
            if self.handler.signature.asks_for:
                ending: Ending = await self._called_with_resources(context, threads), None
            else:
                ending = await self._called_with({}, context, threads), None
        except BaseException as error:
            ending = None, error
        return await self._when_left(ending) if self._leaving else ending

    async def _when_left(self, ending: Ending) -> Ending:
        """Artifacts that the handler left without waiting are stored before its task ends. If one cannot be, the
        attempt failed. A handler that was cancelled waits no longer."""
        storing = asyncio.gather(*(each.storing for each in self._leaving), return_exceptions=True)
        if is_a(ending[1], asyncio.CancelledError):
            storing.cancel()
        try:
            left = await storing
        except asyncio.CancelledError as error:
            return None, error
        problem = next((each for each in left if isinstance(each, BaseException)), None)
        return ending if problem is None or ending[1] is not None else (None, problem)

    async def _called_with_resources(self, context: Context, threads: Threads) -> Any:
        async with AsyncExitStack() as stack:
            made = await self.resources.arguments(self.handler.signature, context, stack)
            return await self._called_with(made, context, threads)

    async def _called_with(self, made: Mapping[str, Any], context: Context, threads: Threads) -> Any:
        args, kwargs = self.handler.signature.arguments(_copy(self.task.input), context, made)
        if self.handler.is_async:
            return await self.handler.function(*args, **kwargs)
        run = contextvars.copy_context().run
        self._in_thread = True
        result, error = await threads.call(functools.partial(run, self._call_in_thread, *args, **kwargs))
        if error is not None:
            raise error
        return await result if inspect.iscoroutine(result) else result

    def _call_in_thread(self, *args: Any, **kwargs: Any) -> Ending:
        """As a value: some exceptions cannot be carried by a future, or end more than the coroutine that awaits it."""
        try:
            return self.handler.function(*args, **kwargs), None
        except BaseException as error:
            return None, error
        finally:
            self._in_thread = False

    def judged(self, output: Any, error: BaseException | None) -> Outcome:
        if error is None:
            return self._completed(output)
        if is_a(error, asyncio.CancelledError):
            return self._stopped(error)
        return _rescheduled(error) if is_a(error, RescheduleError) else self._failed(error)

    def _completed(self, output: Any) -> Outcome:
        try:
            encoded = self.handler.signature.encoded_output(output)
            return Completed(None if encoded is None else check_input(encoded, OUTPUT_LIMITS, "output"))
        except Invalid as unfit:
            return self._failed(PermanentError(f"the handler's result cannot be stored: {unfit}"))

    def _stopped(self, error: asyncio.CancelledError) -> Outcome:
        if self.stopping is StopReason.CANCEL:
            return Completed(None)  # the record says that a cancel was requested: it ends as cancelled
        if self.stopping is not None:
            return Released()
        return self._failed(error)

    def _failed(self, error: BaseException) -> Failed:
        self.error = error
        if is_a(error, AttemptFailed):
            failure = Failure(type=error.type, message=text_of(error)[:MESSAGE_KEPT])
            return Failed(
                failure=failure, output=error.output, permanent=error.is_permanent, delay=error.delay
            )
        return self.failure_of(error)

    def failure_of(self, error: BaseException) -> Failed:
        """An error, as it can be stored. A group says what is in it, and is permanent if something of it is."""
        parts, message = parts_of(error), text_of(error)
        if is_a(error, BaseExceptionGroup):
            message += "".join(f"; {name_of(part)}: {text_of(part)}" for part in parts)
        failure = Failure(
            type=name_of(error),
            message=message[:MESSAGE_KEPT],
            traceback=traceback_of(error)[-TRACEBACK_KEPT:],
        )
        is_permanent = any(is_a(part, PermanentError) for part in parts)
        return Failed(failure=failure, permanent=is_permanent, delay=_delay_asked(error))


class _NoExecution(Execution):
    """An execution without a worker, of a function that is called: a first attempt at a task that nobody stores."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.stopping = None
        self.logs = ()
        self._shown = task, task

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(coroutine)

    def reported(self) -> None:
        pass

    async def flush(self) -> None:
        pass


def context_outside(kind: str, queue: Any) -> Context:
    """For a function that is called without a worker; what it reports is not stored."""
    clock = SystemClock()
    now = clock.now()
    status = TaskStatus.RUNNING
    task = Task(id="", kind=kind, status=status, attempt=1, created_at=now, available_at=now, updated_at=now)
    return Context(_NoExecution(task), queue, clock.now)


def over_time(limit: timedelta, *, still_runs: bool) -> TimeoutError:
    """The error of an attempt that had no more time."""
    problem = f"ran longer than its timeout of {limit.total_seconds():g} s"
    if still_runs:
        problem += ", and still runs: this worker starts no other attempt before it has ended"
    return TimeoutError(problem)


def _copy(value: Any, type: Any = Any) -> Any:
    """A copy of what a store gave: it can be JSON."""
    return msgspec.json.decode(msgspec.json.encode(value), type=type)


def _is_on(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller is code of this event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _delay_asked(error: BaseException) -> timedelta | None:
    """Before the next attempt; None: not said, or not in a way that can be understood."""
    if not is_a(error, RetryableError):
        return None
    try:
        seconds = error.delay_seconds
        return None if seconds is None else timedelta(seconds=max(0.0, seconds))
    except BaseException:  # to read it may run code of the handler
        return None


def _rescheduled(asked: RescheduleError) -> Rescheduled:
    return Rescheduled(
        delay=timedelta(seconds=max(0.0, asked.delay_seconds)),
        extend_expiration=timedelta(seconds=asked.extend_expiration_seconds),
        detail=text_of(asked)[:MESSAGE_KEPT],
    )
