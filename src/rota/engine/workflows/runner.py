"""Runs one workflow until it ends or has nothing to do but wait.

Each round: the code runs as far as its answers lead; steps that it asks for are started; what ends becomes an answer,
and is recorded before anything new begins. If the code has ended by then, it is recorded with that, in the worker's
commit: a workflow of three steps has 5 commits instead of 6, one of one step 3 instead of 4. If no step is in flight,
the waits are recorded and the task is parked, in one transaction; if what is waited for has come meanwhile, it is the
answer, and the run goes on. While steps are in flight waits are looked after, too: at their time, and when the store
has changed.

A cancel lets steps in flight end, then raises in the code, and then what was done is undone.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, TypeVar

from ...domain import workflow
from ...domain.checks import check_input
from ...domain.errors import Invalid, PermanentError, Refused, Unavailable
from ...domain.model import (
    Failure,
    StepKind,
    Task,
)
from ...domain.task import Cancelled, Failed, Outcome, Released, backoff
from ...domain.workflow import Step, Tried, Tries, Wait
from ...stores.base import Store, Work
from ...stores.threads import Threads
from ..app import App
from ..clock import sleep, wait_for_any
from ..commands import Parting, Waited, record_steps, restart_workflow, steps_of, wait_or_park
from ..executor import OUTPUT_LIMITS, STOP_GRACE, Context, Execution, StopReason
from ..guard import entering_handler, is_a, parts_of
from ..observe import tracing
from ..observe.telemetry import Observer, StepRecorded, WorkflowParked, WorkflowReplayed, running_task
from .calling import LeftCalls, StepCall, StepCalls
from .context import Workflow
from .replay import Replay, Restart, WorkflowCall

T = TypeVar("T")

HAND_BACK = timedelta(seconds=5)
"""How long a worker whose code is too old or too new leaves a run to others; if it meets it again, longer."""
LOOK_AGAIN = timedelta(seconds=60)
"""After which time a run whose code has changed is tried again: the code may have been put back."""
LOOK_EVERY = timedelta(seconds=1)
"""While steps run, the store is asked for signals and children at most this often."""


class Stopped(Exception):
    """The worker stops, or the task is no longer its own."""


class WorkflowExecution(Execution):
    """One stretch of a workflow, from a claim to its end or the next wait."""

    __slots__ = ("app", "calls", "observe", "store", "told", "wake")

    def __init__(self, app: App, observe: Observer, left: LeftCalls, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.app = app
        self.observe = observe
        self.calls = StepCalls(self.task, left)
        self.told: list[Step] = []  # what the code was told of its `tries`
        self.wake = asyncio.Event()

    def start(
        self, queue: Any, now: Callable[[], datetime], threads: Threads, traced_since: datetime | None
    ) -> asyncio.Task[Outcome]:
        self.store: Store = queue.store
        return super().start(queue, now, threads, traced_since)

    def stop(self, reason: StopReason) -> None:
        """The code is not cancelled: the runner sees it, and does what is right."""
        self.note_stop(reason)
        self.wake.set()

    def settled(self, task: Task) -> None:
        for step in self.told:
            self.observe(StepRecorded(task, step))

    @property
    def still_runs(self) -> bool:
        return self._running is not None and self._running.done() and bool(self.calls.under_way)

    def call_when_ended(self, tell: Callable[[], None]) -> None:
        for call in self.calls.under_way.values():
            call.add_done_callback(lambda _: tell())

    def outcome(self) -> Outcome:
        for key in list(self.calls.under_way):
            self.calls.leave(key)
        return super().outcome()

    async def wait_until_left(self) -> None:
        """Artifacts that a step left without waiting are stored before the step is recorded. If one cannot be, the step
        failed."""
        while self._leaving:
            await self._leaving[0]  # which takes it off the list

    async def _outcome(self, context: Context, threads: Threads) -> Outcome:
        """What is called from here runs code of users: the workflow's own, but also that of its input, its result, its
        errors and of what is provided. Whatever it raises, the attempt has failed."""
        running_task.set(self.task)
        entering_handler()
        runner = _Runner(self, context, threads)
        try:
            try:
                return await runner.run()
            finally:
                await runner.close()
        except Stopped:
            return Released()
        except asyncio.CancelledError as error:
            return self._stopped(error)
        except BaseException as error:
            return self._failed(error)


class _Runner:
    def __init__(self, execution: WorkflowExecution, context: Context, threads: Threads) -> None:
        self._execution = execution
        self._handler = execution.handler
        self._store = execution.store
        self._context = context
        self._threads = threads
        self._flying: dict[str, asyncio.Task[Tried]] = {}
        self._due: set[str] = set()
        self._is_compensating = False
        self._late_at: float | None = None
        self._loop = asyncio.get_running_loop()
        self._replay: Replay | None = None
        self._stack = AsyncExitStack()
        self._waking: asyncio.Future[Any] | None = None
        self._hint: asyncio.Future[None] | None = None
        self._looked_at = 0.0

    async def run(self) -> Outcome:
        task = self._execution.shown()
        unfit = workflow.misfit(task, self._handler.version, self._handler.accepts)
        if unfit is not None:
            failure = _problem("WorkflowVersion", unfit)
            return Released(failure=failure, delay=LOOK_AGAIN if failure == task.error else HAND_BACK)
        ends = workflow.deadline(task)
        if ends is not None:
            self._late_at = self._loop.time() + (ends - task.updated_at).total_seconds()
        steps = [] if task.attempt == 1 else await self._commit(steps_of(task))
        made = await self._execution.resources.arguments(self._handler.signature, self._context, self._stack)
        self._replay = replay = Replay(task, steps)
        args, kwargs = self._handler.signature.arguments(
            task.input, Workflow(replay, self._execution.app, self._context), made
        )
        replay.begin(self._handler.function(*args, **kwargs))
        began = self._loop.time()
        await self._advanced(replay)
        if steps:
            took = timedelta(seconds=self._loop.time() - began)
            self._execution.observe(WorkflowReplayed(task, len(steps), took))
        while (outcome := await self._round(replay)) is None:
            await self._advanced(replay)
        return outcome

    async def close(self) -> None:
        """Steps that are in flight are given up; they may be run again."""
        given_up, self._flying = self._flying, {}
        for each in (self._waking, self._hint, *given_up.values()):
            if each is not None:
                each.cancel()
        if given_up:
            await asyncio.wait(given_up.values(), timeout=STOP_GRACE.total_seconds())
        for key, flying in given_up.items():
            if not flying.done():
                self._execution.calls.goes_on(key, flying)
        if self._replay is not None:
            self._replay.close()
        await self._stack.aclose()

    async def _advanced(self, replay: Replay) -> None:
        """The code runs in a callback: a task cannot run inside another."""
        done: asyncio.Future[BaseException | None] = self._loop.create_future()

        def advance() -> None:
            problem = None
            try:
                replay.advance()
            except BaseException as error:  # as a value: some would end the loop
                problem = error
            if not done.done():
                done.set_result(problem)

        self._loop.call_soon(advance, context=contextvars.copy_context())
        if (problem := await done) is not None:
            raise problem

    async def _round(self, replay: Replay) -> Outcome | None:
        """One look at where the code stands. None: it goes on."""
        self._check_stopped()
        change = replay.change()
        if change is not None or not replay.is_over:
            await self._record(replay)
        if change is not None:
            return Released(failure=_problem("WorkflowChanged", change), delay=LOOK_AGAIN)
        left = self._time_left()
        if left is not None and left <= 0:
            return Failed(failure=workflow.timed_out(self._execution.task), permanent=True)
        if replay.is_over:
            return await self._ended(replay)
        if self._is_cancelling and not self._flying and not replay.is_cancelled:
            replay.cancel()
            return None
        self._start_steps(replay)
        if self._flying:
            await self._while_flying(replay)
            return None
        return await self._park(replay)

    @property
    def _is_cancelling(self) -> bool:
        return self._execution.task.cancel_requested or self._execution.stopping is StopReason.CANCEL

    def _time_left(self) -> float | None:
        """Seconds until the run's own time is up; None: it has all the time it takes, also for what is to be undone."""
        return None if self._late_at is None or self._is_cancelling else self._late_at - self._loop.time()

    @property
    def _is_stopped(self) -> bool:
        return self._execution.stopping not in (None, StopReason.CANCEL)

    def _check_stopped(self) -> None:
        if self._is_stopped:
            raise Stopped

    # Steps

    def _start_steps(self, replay: Replay) -> None:
        for key, flying in list(self._flying.items()):
            if key not in replay.asks:  # the branch that asked for it was left
                flying.cancel()
                del self._flying[key]
                self._execution.calls.leave(key, flying)
        for key, ask in replay.asks.items():
            is_new = ask.step is None or key in self._due
            may_start = ask.kind is StepKind.UNDO or not self._is_cancelling
            if ask.attempts is not None and is_new and may_start and key not in self._flying:
                self._due.discard(key)
                self._flying[key] = self._loop.create_task(self._try(ask), name=f"rota-step:{key}")

    async def _try(self, ask: WorkflowCall) -> Tried:
        """One attempt at a step. However it ends, it ends as a value."""
        execution, started_at = self._execution, self._context.now()
        try:
            with tracing.stepping(self._execution.task, ask.key):
                call = StepCall(ask, execution.calls, self._context, self._threads, execution.resources)
                output = check_input(await call.result(), OUTPUT_LIMITS, "output")
            await self._execution.wait_until_left()
        except BaseException as error:
            is_given_up = ask.key not in self._flying or self._is_stopped
            if is_a(error, asyncio.CancelledError) and is_given_up:
                raise  # else the function was cancelled by its own doing
            if is_a(error, Invalid):
                error = PermanentError(f"the step's result cannot be stored: {error}")
            failed = self._execution.failure_of(error)
            retry_in = _retry_in(ask, failed, self._execution.task)
            if retry_in is None:
                self._execution.calls.leave(ask.key)
            return Tried(
                key=ask.key, kind=ask.kind, started_at=started_at, failure=failed.failure, retry_in=retry_in
            )
        return Tried(key=ask.key, kind=ask.kind, started_at=started_at, output=output)

    async def _take(self, replay: Replay, results: Sequence[Tried]) -> None:
        """Tell the code how steps ended, to see where it goes from there. What is to be tried again is recorded."""
        execution = self._execution
        asks = (replay.asks.get(result.key) for result in results)
        known = tuple(ask.step for ask in asks if ask is not None and ask.step is not None)
        execution.tries = Tries(results=tuple(results), number=replay.number, known=known)
        if not all(result.is_final for result in results):
            await self._record(replay)
            return
        stored = {step.id: step for step in known}
        execution.told = workflow.after_tries(execution.task, stored, execution.tries, self._context.now())
        for step in execution.told:
            replay.record(step)

    async def _record(self, replay: Replay) -> None:
        """Record what the code was told, before anything that follows from it begins."""
        execution, tries = self._execution, self._execution.tries
        if not tries.results:
            return
        delivered = replay.take_delivered()
        try:
            stored = await self._commit(record_steps(execution.task, tries, delivered))
        except BaseException:
            replay.put_back(delivered)
            raise
        was_told = bool(execution.told)
        execution.task, execution.tries, execution.told = stored.task, Tries(), []
        if was_told and not workflow.are_told(stored.steps, tries):
            raise Stopped  # someone else was first: the code was told otherwise
        for step in stored.steps:
            replay.record(step)
            execution.observe(StepRecorded(stored.task, step))

    # Waits

    async def _while_flying(self, replay: Replay) -> None:
        """Wait for the next step to end, or for something else to happen."""
        waits = _waits(replay, self._flying)
        if any(replay.asks[wait.key].step is None for wait in waits):
            await self._look(replay, waits)
            return
        ended = await self._next(replay, [] if self._execution.stopping else waits)
        if ended:
            for key in [key for key, each in self._flying.items() if each in ended]:
                del self._flying[key]
            await self._take(replay, [each.result() for each in ended if not each.cancelled()])
        elif waits and not self._execution.stopping:
            await self._look(replay, waits)

    async def _next(self, replay: Replay, waits: list[Wait]) -> list[asyncio.Task[Tried]]:
        """Steps that have ended. None, if it is time to look: at a wait, at the deadline, or because of a stop."""
        self._check_stopped()  # it may have come during a commit, and `_woken` forgets what came before
        while True:
            others: list[asyncio.Future[Any]] = [self._woken()]
            at_most = self._until_due(replay, waits)
            if _are_of_others(waits):
                rest = self._looked_at + LOOK_EVERY.total_seconds() - self._loop.time()
                if self._hint is None:
                    return []  # it may have come before the run went on here
                if rest > 0:
                    at_most = rest if at_most is None else min(at_most, rest)
                else:
                    others.append(self._hint)
            limit = None if at_most is None else timedelta(seconds=at_most)
            done = await wait_for_any(*self._flying.values(), *others, at_most=limit)
            ended = [each for each in self._flying.values() if each in done]
            if ended or done or self._is_due(replay, waits):
                return ended

    def _woken(self) -> asyncio.Future[Any]:
        if self._waking is None or self._waking.done():
            self._execution.wake.clear()
            self._waking = asyncio.ensure_future(self._execution.wake.wait())
        return self._waking

    async def _listen(self) -> None:
        """Hear of changes from now on. It comes before a look: what the look does not see is then heard."""
        if self._hint is None or self._hint.done():
            self._hint = asyncio.ensure_future(self._store.wait(None))
            self._hint.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # the look meets it
            await sleep(timedelta(0))  # its first step

    def _until_due(self, replay: Replay, waits: list[Wait]) -> float | None:
        """Seconds until the next wait ends, or the run's own time is up."""
        now = self._context.now()
        left = self._time_left()
        times = [] if left is None else [left]
        for wait in waits:
            step = replay.asks[wait.key].step
            if step is not None and step.due_at is not None:
                times.append((step.due_at - now).total_seconds())
        return max(0.0, min(times)) if times else None

    def _is_due(self, replay: Replay, waits: list[Wait]) -> bool:
        left = self._until_due(replay, waits)
        return left is not None and left <= 0

    async def _look(self, replay: Replay, waits: list[Wait], *, park: bool = False) -> Waited:
        if not park and _are_of_others(waits):
            await self._listen()
        execution, delivered = self._execution, replay.take_delivered()
        parting = None
        if park:
            parting = Parting(
                progress=execution.progress, logs=execution.logs, is_cancelled=replay.is_cancelled
            )
        try:
            waited = await self._commit(
                wait_or_park(execution.task, waits, replay.number, delivered, parting)
            )
        except BaseException:
            replay.put_back(delivered)
            raise
        self._looked_at = self._loop.time()
        execution.task = waited.task
        ends = workflow.deadline(waited.task)
        if ends is not None and waited.at >= ends:
            self._late_at = self._loop.time()
        for step in waited.steps:
            replay.record(step)
            if not step.is_over and step.due_at is not None and step.due_at <= waited.at:
                self._due.add(step.key)  # a failed step is to be tried again
        return waited

    async def _park(self, replay: Replay) -> Outcome | None:
        waits = _waits(replay, {})
        if not waits:
            return Failed(failure=_problem("Refused", Refused("workflow_stuck")), permanent=True)
        waited = await self._look(replay, waits, park=True)
        if not waited.is_parked:
            return None
        self._execution.is_settled = True
        self._execution.observe(WorkflowParked(waited.task, tuple(waited.steps)))
        return Released()

    # Ends

    async def _ended(self, replay: Replay) -> Outcome | None:
        if self._is_cancelling and not self._is_compensating:
            self._is_compensating = True
            replay.cancel()
            replay.compensate()
            return None
        if self._is_compensating:
            if not replay.not_undone:
                return Cancelled()
            message = f"not undone: {', '.join(replay.not_undone)}"
            return Cancelled(Failure(type="NotUndone", message=message))
        if replay.main.cancelled():
            return self._execution.judged(None, asyncio.CancelledError())
        error = replay.main.exception()
        forgotten = replay.forgotten() if error is None else None
        if forgotten is not None:
            return Failed(failure=_problem("Refused", forgotten), permanent=True)
        parts = [] if error is None else parts_of(error)
        if len(parts) == 1 and is_a(parts[0], Restart):
            await self._record(replay)
            await self._commit(restart_workflow(self._execution.task, parts[0].input))
            self._execution.is_settled = True
            return Released()
        if error is not None and any(is_a(part, Refused) for part in parts):
            return Failed(failure=self._execution.failure_of(error).failure, permanent=True)
        return self._execution.judged(None if error is not None else replay.main.result(), error)

    async def _commit(self, work: Work[T]) -> T:
        """Repeat what may or may not have happened, for as long as the task is ours: the ids are the same."""
        pause = timedelta(milliseconds=50)
        while True:
            self._check_stopped()
            try:
                return await self._store.transact(work)
            except Unavailable:
                waking = asyncio.ensure_future(self._execution.wake.wait())
                try:
                    await wait_for_any(waking, at_most=pause)
                finally:
                    waking.cancel()
                self._execution.wake.clear()
                pause = min(pause * 2, LOOK_EVERY)
            except Refused as refused:
                if refused.code != "lease_lost":
                    raise
                self._execution.note_stop(StopReason.LEASE_LOST)
                raise Stopped from refused


def _problem(type: str, refused: Refused) -> Failure:
    return Failure(type=type, message=str(refused))


def _waits(replay: Replay, flying: dict[str, Any]) -> list[Wait]:
    """The waits of the code: also for the time to try a failed step again."""
    found = []
    for key, ask in replay.asks.items():
        if ask.step is not None and ask.step.is_over:
            continue
        if ask.wait is not None:
            found.append(ask.wait)
        elif ask.step is not None and key not in flying:
            found.append(Wait(key=key, kind=ask.kind))
    return found


def _are_of_others(waits: list[Wait]) -> bool:
    """Whether one of them ends when someone else has done something."""
    return any(wait.kind in (StepKind.RECEIVE, StepKind.CHILD) for wait in waits)


def _retry_in(ask: WorkflowCall, failed: Failed, task: Task) -> timedelta | None:
    """How long until the next try; None: this was the last."""
    assert ask.attempts is not None
    tries = 0 if ask.step is None else ask.step.attempts
    if failed.permanent or tries >= ask.attempts.retries:
        return None
    if failed.delay is not None:
        return failed.delay
    return backoff(ask.attempts.retry_policy, tries, workflow.step_id(task, ask.key))
