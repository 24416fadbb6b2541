"""The worker: claims tasks, runs their handlers, and settles them.

A round settles the results that have gathered and claims up to the free slots. Each is one transaction for the whole
batch, and the two share a commit where the store can. Handlers run between and during rounds. A result stays here until
the store has taken it, so a store that is away loses nothing. Leases are renewed by a role of their own (`leases.py`):
a round that waits for the store holds up no renewal.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...domain.errors import Refused, Unavailable
from ...domain.model import NodeState, Task, TaskStatus
from ...domain.task import Failed, Outcome, Released
from ...domain.tenants import EVERY_TENANT
from ...stores.base import CommitOptions
from ...stores.threads import Threads
from ..app import App
from ..clock import new_id
from ..commands import Claim, Claimed, Result, claim_tasks, limited_at_once, next_to_claim, settle_tasks
from ..executor import Execution, StopReason
from ..guard import entering_handler, is_a, is_cancelled
from ..handlers.providers import Resources
from ..observe import tracing
from ..observe.telemetry import HookFailed, LeaseLost, Observer, ResultLost, TaskMoved, TaskStarted
from ..runtimes.runtimes import Runtimes
from ..workflows.calling import LeftCalls
from ..workflows.runner import WorkflowExecution
from .leases import LEASE, Leases, QueueLike, pieces

LOOK_AGAIN = timedelta(seconds=30)
PAUSE = timedelta(milliseconds=50)
"""Between two tries to settle what someone else holds: short, so that we are the next in line."""
SETTLED_AT_ONCE = 1000
LANE = "worker"


class BlockedResults:
    """Results that another transaction has locked. They are settled one by one, by a role of its own, so that they hold
    up no others."""

    def __init__(self, worker: TaskWorker) -> None:
        self.wake = asyncio.Event()
        self._worker = worker

    async def run_once(self) -> timedelta | None:
        return await self._worker.settle_blocked()


class TaskWorker:
    """One worker. `wake` is set whenever a round would have something to do."""

    def __init__(
        self,
        queue: QueueLike,
        app: App,
        *,
        worker_id: str,
        queues: Sequence[str] | None,
        concurrency: int,
        observe: Observer,
        lease: timedelta = LEASE,
        all_tenants: bool = False,
        runtimes: Runtimes | None = None,
    ) -> None:
        self.blocked = BlockedResults(self)
        self.wake = asyncio.Event()
        self.handlers_ended = asyncio.Event()
        self.accepting = True
        self.worker_id = worker_id
        self._queue = queue
        self._app = app
        self.runtimes = runtimes or Runtimes(app)
        self._queues = None if queues is None else tuple(queues)
        self._tenant = None if all_tenants else queue.tenant
        self._concurrency = concurrency
        self._observe = observe
        self._lease = lease
        self.resources = Resources(app.provided)
        self._threads = Threads(concurrency, "rota-handler", on_freed=self.wake.set)
        self._threads_of_steps = Threads(concurrency, "rota-step")  # one workflow may keep them all busy
        self._running: dict[Execution, None] = {}  # a set that keeps its order
        self.leases = Leases(queue, self._running, lease, observe, self._renewed)
        self._overrunning: list[Execution] = []  # given up, and their code still runs
        self._left_calls = LeftCalls(self.wake.set)  # of steps
        self._keeping_places: dict[
            Execution, bool | None
        ] = {}  # given up, of `_running`; None: not asked yet
        self._asked_for = 0  # slots kept for claims under way
        self._unanswered: frozenset[str] = frozenset()  # the leases of claims whose answer was lost
        self._ended: dict[Execution, Outcome] = {}
        self._settling: dict[Execution, Outcome] = {}
        self._blocked: dict[Execution, Outcome] = {}
        self._hooks: set[asyncio.Task[None]] = set()

    @property
    def held(self) -> list[Task]:
        """The tasks whose handlers run now."""
        return [execution.task for execution in self._running]

    @property
    def kinds_running(self) -> tuple[str, ...]:
        return tuple(sorted({task.kind for task in self.held}))

    def described(self, node: NodeState) -> NodeState:
        """The node, and what it does as a worker."""
        return replace(
            node,
            tenant=EVERY_TENANT if self._tenant is None else self._tenant,
            kinds=tuple(sorted(self.runtimes.defaults())),
            workflows={
                kind: (handler.accepts, handler.version)
                for kind, handler in sorted(self._app.handlers.items())
                if handler.is_workflow
            },
            queues=self._queues,
            slots=self._concurrency,
            running=dict(Counter(task.kind for task in self.held)),
        )

    @property
    def may_hold_more(self) -> bool:
        """Whether a claim may have taken tasks that it has not heard of."""
        return bool(self._unanswered)

    @property
    def is_idle(self) -> bool:
        return not (self._running or self._ended or self._settling or self._blocked or self._hooks)

    async def run_once(self) -> timedelta:
        """Settle and claim; how long until there is something to do without being woken."""
        await self._give_up_places()
        _, claimed = await _all(self._settle(), self.claim())
        next_at = None if claimed is None else await self._next_at(*claimed)
        return self._delay(None if next_at is None else next_at - await self._queue.store.now())

    async def settle_blocked(self) -> timedelta | None:
        """One try for each result that is held up; how long until the next. They stay among the blocked meanwhile, so
        that no round takes them for its own."""
        for ended in list(self._blocked.items()):
            await self._settle_alone(ended)
            self.wake.set()  # whoever waits for the end looks again
        return PAUSE if self._blocked else None

    def stop_handlers(self, reason: StopReason) -> None:
        """Ask every running handler to end."""
        for execution in self._running:
            execution.stop(reason)

    def abandon_handlers(self) -> None:
        """Stop waiting for handlers that did not end: their tasks are to be handed back."""
        for execution in list(self._keeping_places):
            self._put_away(execution)
        for execution in list(self._running):
            self._forget(execution)
            if execution.stopping is not StopReason.LEASE_LOST:
                self._ended[execution] = Released()
            execution.abandon()
        self.wake.set()

    def close(self) -> None:
        self._threads.close()
        self._threads_of_steps.close()

    async def claim_with_tick(self) -> None:
        """Claim while a tick commits. Where works share a commit, the tick's tasks are claimed by the commit that makes
        them; elsewhere nothing is found yet. A round of our own follows either way. (On SQLite the handler of a
        schedule begins after 33 ms instead of 47 ms on a busy machine: `bench/lateness.py`.)"""
        try:
            if self._free():
                await self.claim()
        finally:
            self.wake.set()

    # One round

    def _free(self) -> int:
        self._overrunning = [execution for execution in self._overrunning if execution.still_runs]
        still_run = len(self._overrunning) + len(self._left_calls)
        taken = len(self._running) + still_run + self._asked_for
        return max(0, self._concurrency - taken) if self.accepting else 0

    async def claim(self) -> tuple[Claim, datetime] | None:
        """Take what is ready, and start it. If there was less than asked for: what was asked, and as of when."""
        free = self._free()
        if not (free or self._running or self._unanswered):
            return None
        unanswered, self._unanswered = self._unanswered, frozenset()
        ask = Claim(
            worker_id=self.worker_id,
            lease_id=new_id(),
            lease=self._lease,
            limit=free,
            kinds=self.runtimes.defaults(),
            queues=self._queues,
            tenant=self._tenant,
            is_running=bool(self._running),
            begun=self._begun(),
            unanswered=unanswered,
        )
        traced_since = self._queue.clock.now() if tracing.is_on() else None
        asked = self._queue.clock.monotonic()
        self._asked_for += free
        try:
            claimed: Claimed = await self._queue.store.transact(
                claim_tasks(ask), CommitOptions(may_be_stale=not unanswered, lane=LANE)
            )
        except Unavailable:  # whether it has taken anything is unknown: the next claim finds it
            self._unanswered |= unanswered | {ask.lease_id}
            raise
        finally:
            self._asked_for -= free
        if claimed.cancelling:
            self._cancel(set(claimed.cancelling))
        is_late = self._queue.clock.monotonic() - asked >= self._lease.total_seconds()
        begun = self._begun() if claimed.tasks else frozenset()  # others than when it was asked
        for task in claimed.tasks:
            is_cancelled = task.cancel_requested and not task.is_workflow
            if is_late or not self.accepting or is_cancelled or task.id in begun:
                self._give_back(task)
            else:
                self._start(task, traced_since)
        if unanswered and claimed.tasks:
            self.leases.renew_soon()  # some of their leases have begun long ago
        if claimed.tasks and len(claimed.tasks) == free:
            return None  # full: the next claim follows when a handler ends
        return (ask, claimed.at) if free else None

    def _begun(self) -> frozenset[str]:
        """The tasks of which an attempt has begun here and not ended."""
        return frozenset(execution.task.id for execution in (*self._running, *self._overrunning))

    async def _next_at(self, ask: Claim, at: datetime) -> datetime | None:
        """Asked when the handlers have been started: they need not wait for it."""
        return await self._queue.store.transact(next_to_claim(ask, at), CommitOptions(may_be_stale=True))

    def _cancel(self, ids: set[str]) -> None:
        for execution in self._running:
            if execution.task.id in ids:
                execution.stop(StopReason.CANCEL)

    def _to_settle(self) -> list[tuple[Execution, Outcome]]:
        """A renewal that is under way comes first: what it carries belongs to the result."""
        return [ended for ended in self._ended.items() if not ended[0].renewals]

    def _renewed(self) -> None:
        if self._ended:
            self.wake.set()

    async def _settle(self) -> None:
        batch = self._to_settle()[:SETTLED_AT_ONCE]
        if not batch:
            return
        self._settling.update(batch)  # from here on they are this round's
        if len(batch) == len(self._ended):
            self._ended = {}
        else:
            for execution, _ in batch:
                del self._ended[execution]
        try:
            await self._settle_all(batch)
        finally:
            for execution, _ in batch:
                if execution in self._settling:
                    self._ended[execution] = self._settling.pop(execution)

    async def _settle_all(self, batch: Sequence[tuple[Execution, Outcome]]) -> None:
        """One result that cannot be stored must not keep the others from being stored."""
        try:
            await self._settle_now(batch)
        except Unavailable as error:
            if not error.is_busy:
                raise
            await self._settle_around(batch)
        except Exception:
            for ended in batch:
                await self._settle_alone(ended)

    async def _settle_around(self, batch: Sequence[tuple[Execution, Outcome]]) -> None:
        """Another transaction has locked some of them: they are set aside, and the rest is settled."""
        if len(batch) == 1:
            return self._set_aside(batch[0][0])
        for piece in pieces(batch):
            await self._settle_all(piece)
        return None

    def _set_aside(self, execution: Execution) -> None:
        if execution in self._settling:  # else it was set aside before
            self._blocked[execution] = self._settling.pop(execution)
            self.blocked.wake.set()

    def _put_down(self, execution: Execution) -> None:
        """Its result is stored, or never will be."""
        self._settling.pop(execution, None)
        self._blocked.pop(execution, None)

    async def _settle_alone(self, ended: tuple[Execution, Outcome]) -> None:
        try:
            await self._settle_now([ended])
        except Unavailable as error:
            if not error.is_busy:
                raise
            self._set_aside(ended[0])
        except Exception as error:
            self._put_down(ended[0])
            self._observe(ResultLost(ended[0].task, error))

    async def _settle_now(self, batch: Sequence[tuple[Execution, Outcome]]) -> None:
        results = [
            Result(
                task=execution.task,
                outcome=outcome,
                progress=execution.progress,
                logs=execution.logs,
                tries=execution.tries,
            )
            for execution, outcome in batch
        ]
        answers = await self._queue.store.transact(
            settle_tasks(results), CommitOptions(fail_if_locked=True, lane=LANE)
        )
        for (execution, outcome), answer in zip(batch, answers, strict=True):
            self._put_down(execution)
            self._report(execution, outcome, answer)

    # Handlers

    def _start(self, task: Task, traced_since: datetime | None) -> None:
        execution = self._execution(task)
        self._running[execution] = None
        self.handlers_ended.clear()
        self.leases.started()
        threads = self._threads_of_steps if execution.handler.is_workflow else self._threads
        running = execution.start(self._queue_of(task), self._queue.clock.now, threads, traced_since)
        running.add_done_callback(partial(self._handler_ended, execution))
        self._observe(TaskStarted(task))

    def _give_back(self, task: Task) -> None:
        """It is not begun. The process or the store stood still for a lease since the claim was asked, and another
        worker may have the task by now; or we heard of the claim so late that the worker ends, that the task is to be
        cancelled, or that another claim has got it before, and that attempt still runs. If it is ours still, it goes
        back to the queue, or is cancelled; if not, the store refuses."""
        self._ended[self._execution(task)] = Released()
        self.wake.set()

    def _execution(self, task: Task) -> Execution:
        handler = self.runtimes.handler(task.kind)
        if handler.is_workflow:
            shared = (self._app, self._observe, self._left_calls)
            return WorkflowExecution(*shared, task, handler, resources=self.resources, reports=self.leases)
        return Execution(task, handler, resources=self.resources, reports=self.leases)

    def _queue_of(self, task: Task) -> QueueLike:
        """The queue that a handler may reach: the queue of its own tenant and no other."""
        return self._queue if task.tenant == self._queue.tenant else self._queue.for_tenant(task.tenant)

    def _handler_ended(self, execution: Execution, _: object) -> None:
        if execution not in self._running:
            return  # abandoned
        if execution.still_runs:
            execution.call_when_ended(self.wake.set)
            if execution.task.gates and _is_ours(execution):
                self._keeping_places[execution] = None
                self.wake.set()
                return
        self._put_away(execution)

    async def _give_up_places(self) -> None:
        """A limited task whose code was given up, at its timeout or for a cancel, ends with that code: until then it
        keeps its places, so that never more than the limit are at work. If only rates limit it, it ends at once."""
        unknown = [execution for execution, keeps in self._keeping_places.items() if keeps is None]
        if unknown:
            counted = await self._queue.store.read(limited_at_once([each.task for each in unknown]))
            self._keeping_places |= {
                each: each.task.id in counted for each in unknown if each in self._running
            }
        for execution, keeps in list(self._keeping_places.items()):
            if not (keeps and execution.still_runs):
                self._put_away(execution)

    def _put_away(self, execution: Execution) -> None:
        if execution.still_runs:
            self._overrunning.append(execution)
        self._forget(execution)
        if _is_ours(execution):
            self._ended[execution] = execution.outcome()
        self.wake.set()

    def _forget(self, execution: Execution) -> None:
        del self._running[execution]
        self._keeping_places.pop(execution, None)
        if not self._running:
            self.handlers_ended.set()
        self.leases.forget(execution)

    def renew_soon(self) -> None:
        """The clock jumped: leases may look older than they are."""
        self.leases.renew_soon()
        self.wake.set()

    def _report(self, execution: Execution, outcome: Outcome, answer: Task | Refused) -> None:
        if isinstance(answer, Refused):
            self._observe(LeaseLost(execution.task))
            return  # whoever has the task now calls the hooks
        execution.settled(answer)
        self._observe(TaskMoved(answer))
        if answer.status is TaskStatus.COMPLETED:
            self._call_hooks("on_success", answer, answer.output)
        elif isinstance(outcome, Failed):
            self._call_hooks("on_error", answer, execution.error)

    def _call_hooks(self, name: str, *args: Any) -> None:
        if self._app.hooks_of(name):
            calling = asyncio.create_task(self._run_hooks(name, args))
            self._hooks.add(calling)
            calling.add_done_callback(self._hook_ended)

    async def _run_hooks(self, name: str, args: Sequence[Any]) -> None:
        entering_handler()
        await run_hooks(self._app, name, args, self._observe)

    def _hook_ended(self, calling: asyncio.Task[None]) -> None:
        self._hooks.discard(calling)
        self.wake.set()

    def _delay(self, next_in: timedelta | None) -> timedelta:
        if self._to_settle():
            return timedelta(0)
        return max(LOOK_AGAIN if next_in is None else min(next_in, LOOK_AGAIN), timedelta(0))


def _is_ours(execution: Execution) -> bool:
    """Whether what becomes of it is still to be written down, by this worker."""
    return execution.stopping is not StopReason.LEASE_LOST and not execution.is_settled


async def _all(*parts: Coroutine[Any, Any, Any]) -> list[Any]:
    """The answers of all of them. All come to their end; then the first that failed is heard."""
    answers = await asyncio.gather(*parts, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


async def run_hooks(app: App, name: str, args: Sequence[Any], observe: Observer) -> None:
    """Call the user's hooks; one that raises harms nobody."""
    for hook in app.hooks_of(name):
        try:
            await _call(hook, args)
        except BaseException as error:
            if is_a(error, asyncio.CancelledError) and is_cancelled():
                raise
            observe(HookFailed(name, error))


async def call_hooks(app: App, name: str, args: Sequence[Any]) -> None:
    """Call the user's hooks; the first that raises ends it."""
    for hook in app.hooks_of(name):
        await _call(hook, args)


async def _call(hook: Callable[..., Any], args: Sequence[Any]) -> None:
    """Call the hook with as many of the arguments as it takes."""
    answer = hook(*_fitting(hook, args))
    if inspect.iscoroutine(answer):
        await answer


def _fitting(hook: Callable[..., Any], args: Sequence[Any]) -> Sequence[Any]:
    parameters = inspect.signature(hook).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return args
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return args[: sum(p.kind in positional for p in parameters)]
