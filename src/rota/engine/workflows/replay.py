"""Replay: the code of one workflow, run over what is recorded of it. No store, no clock, no I/O.

1. The code runs until it waits for answers (`event_loop.py`). What it asks its context for is a `WorkflowCall` with a
   key, which is reserved when the call is made.
2. Of the asks that have a recorded answer, the one that was answered first is answered now; then the code runs on.
3. When no recorded answer is left, everything recorded must have been asked for (`unasked` is empty). This is the
   barrier: before it nothing new is run. What is unasked then is a change of the code.
4. From here on the code is where it was, and what it asks for is new. `runner.py` answers it with `record`.

A cancel is an answer, too: every ask that has none raises, now and later, except those that undo.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from heapq import heappop, heappush
from typing import Any

import msgspec
from msgspec.structs import replace

from ...domain import workflow
from ...domain.errors import Refused, StepFailed
from ...domain.model import (
    RetryPolicy,
    StepKind,
    Task,
)
from ...domain.workflow import UNDO, Step, StepStatus, Wait
from ..guard import name_of, text_of
from .event_loop import CodeBranch, WorkflowLoop

CANCELLED = "the workflow is cancelled"


class Restart(BaseException):
    """Raised through the code of a workflow that asked to begin again. No `except Exception` catches it."""

    def __init__(self, input: Any) -> None:
        super().__init__("the workflow begins again")
        self.input = input


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """A function to run, and how often and how long it may try."""

    function: Callable[[], Any]
    retries: int
    retry_policy: RetryPolicy
    timeout: timedelta | None = None


class WorkflowCall(msgspec.Struct, eq=False):
    """One call of the context that has no answer yet. It has `attempts` if it is a step, else a `wait`."""

    key: str
    kind: StepKind
    future: asyncio.Future[Any]
    attempts: Attempts | None = None
    wait: Wait | None = None
    undo: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None
    step: Step | None = None
    branch: CodeBranch | None = None
    answered: int | None = None


class Replay:
    """The code of a workflow, and what is recorded of it."""

    def __init__(self, task: Task, steps: Sequence[Step]) -> None:
        self.task = task
        self.loop = WorkflowLoop()  # type: ignore[abstract]  # what it lacks is refused
        self.asks: dict[str, WorkflowCall] = {}
        self.is_cancelled = False
        self.not_undone: list[str] = []
        self.number = 1 + max((step.number or 0 for step in steps), default=0)
        self._recorded = {step.key: step for step in steps}
        self._unasked = {step.key: step for step in steps if step.kind is not StepKind.UNDO}
        self._answers: list[tuple[float, str, str]] = []
        self._delivered: list[Step] = []
        self._undoable: list[tuple[Step, Callable[[Any], Any], Attempts]] = []
        self._keys: set[str] = set()
        self._unawaited: dict[str, Coroutine[Any, Any, Any]] = {}
        self._latest: dict[str, WorkflowCall] = {}
        self._repeats: dict[str, int] = {}
        self._bytes = sum(len(msgspec.json.encode(step.output)) for step in steps if step.output is not None)
        self._is_closed = False
        self._main: asyncio.Task[Any] | None = None

    def begin(self, code: Coroutine[Any, Any, Any]) -> None:
        self._main = self.loop.create_task(code, context=contextvars.copy_context())

    def advance(self) -> None:
        """Run the code as far as what is recorded leads."""
        self.loop.run_ready()
        while self._answers:
            _, _, key = heappop(self._answers)
            ask = self.asks.pop(key, None)
            if ask is not None and not ask.future.done():
                self._deliver(ask)
                self.loop.run_ready()

    @property
    def main(self) -> asyncio.Task[Any]:
        assert self._main is not None, "it has begun"
        return self._main

    @property
    def is_over(self) -> bool:
        return self.main.done()

    @property
    def is_replaying(self) -> bool:
        """Whether the code is still where it has been before."""
        return bool(self._answers or self._unasked)

    @property
    def unasked(self) -> list[str]:
        """The steps that are recorded and were not asked for, in the order of the answers."""
        found = sorted(self._unasked.values(), key=lambda step: (step.number is None, step.number or 0))
        return [step.key for step in found]

    def new_asks(self) -> list[str]:
        """The steps that the code asks for and that are not recorded."""
        return [key for key, ask in self.asks.items() if ask.step is None]

    def forgotten(self) -> Refused | None:
        """The calls that the code made and never awaited, when it has ended: they may not have been done. None:
        nothing."""
        calls = [
            key
            for key, each in self._unawaited.items()
            if inspect.getcoroutinestate(each) == inspect.CORO_CREATED
        ]
        return Refused("not_awaited", calls=workflow.listed(calls)) if calls else None

    def change(self) -> Refused | None:
        """How the code differs from what is recorded; None: not at all. Asked when it can get no further."""
        if not self._unasked:
            return None
        ended = ""
        if self.is_over:
            problem = None if self.main.cancelled() else self.main.exception()
            ended = "has ended" if problem is None else f"raises {name_of(problem)}: {text_of(problem)}"
        return workflow.changed(self.unasked, self.new_asks(), ended)

    def record(self, step: Step) -> None:
        """The runner has an answer, or knows more about a wait."""
        ask = self.asks.get(step.key)
        if ask is None or (ask.step is not None and ask.step.is_over):
            return
        ask.step = self._recorded[step.key] = step
        if step.is_over:
            self._bytes += 0 if step.output is None else len(msgspec.json.encode(step.output))
            self._push(step)

    def take_delivered(self) -> list[Step]:
        """Answers that the code got and whose place in the order is not stored yet. They go with the next write, since
        nothing that is stored before it can depend on them."""
        taken, self._delivered = self._delivered, []
        return taken

    def put_back(self, delivered: Sequence[Step]) -> None:
        """That write was not made."""
        self._delivered = [*delivered, *self._delivered]

    def cancel(self) -> None:
        """Raise in every ask that has no answer. Steps in flight have ended by now."""
        self.is_cancelled = True
        for ask in list(self.asks.values()):
            if ask.kind is not StepKind.UNDO and not (ask.step is not None and ask.step.is_over):
                ask.future.cancel(CANCELLED)

    def compensate(self) -> None:
        """After the code has ended: undo what it did."""
        self._main = self.loop.create_task(self.undo_all())

    async def undo_all(self) -> None:
        """Undo what has an undo, the last first. One that gives up is remembered, and the others follow."""
        for step, undo, attempts in reversed(self._undoable):
            key = f"{UNDO}{step.key}"
            if key in self._keys:
                continue
            output = step.output
            again = replace(attempts, function=lambda undo=undo, output=output: undo(output))
            try:
                await self.ask(StepKind.UNDO, key, explicit=True, attempts=again)
            except StepFailed:
                self.not_undone.append(step.key)

    def close(self) -> None:
        """The run ends here, or goes on elsewhere."""
        self._is_closed = True
        for coroutine in self._unawaited.values():
            coroutine.close()
        self.loop.shut()

    def check_inside(self) -> None:
        """Only the code of the workflow may call its context, and only as long as it runs."""
        if self._is_closed or asyncio._get_running_loop() is not self.loop:
            raise Refused("workflow_outside")

    def ask(
        self,
        kind: StepKind,
        name: str,
        *,
        explicit: bool = False,
        attempts: Attempts | None = None,
        wait: Callable[[str], Wait] | None = None,
        undo: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Reserve a key, now; the answer, when it is awaited: `decode` makes it of what is stored. An `explicit` key is
        taken once; without, repeats are numbered, as long as they come one after the other."""
        self.check_inside()
        key = name if explicit else self._numbered(name)
        if key in self._keys:
            raise Refused("step_key_taken", key=key)
        if kind is not StepKind.UNDO:
            self._check_room(kind)
        ask = WorkflowCall(
            key,
            kind,
            self.loop.create_future(),
            attempts=attempts,
            wait=None if wait is None else wait(key),
            undo=undo,
            decode=decode,
            step=self._recorded.get(key),
        )
        self._keys.add(key)
        if not explicit:
            self._latest[name] = ask
        self.asks[key] = ask
        self._unasked.pop(key, None)
        if ask.step is not None and ask.step.is_over:
            self._push(ask.step)
        elif self.is_cancelled and kind is not StepKind.UNDO:
            ask.future.cancel(CANCELLED)
        answer = self._unawaited[key] = self._answer(ask)
        return answer

    async def _answer(self, ask: WorkflowCall) -> Any:
        self._unawaited.pop(ask.key, None)
        ask.branch = self._here()
        if ask.branch is not None:
            ask.branch.waits.append(self.loop.branches.moment())
        try:
            answer = await ask.future
            return answer if ask.decode is None else ask.decode(answer)
        finally:
            self.asks.pop(ask.key, None)

    def _numbered(self, name: str) -> str:
        """The key of an unkeyed call. A repeat that does not come after the call before it has none that would be the
        same next time. What is recorded was well the first time."""
        before = self._latest.get(name)
        if before is None:
            return name
        count = self._repeats.get(name, 1) + 1
        key = f"{name}#{count}"
        if key not in self._recorded and not self._is_left_or_behind(before):
            raise Refused("concurrent_repeat", name=name)
        self._repeats[name] = count
        return key

    def _is_left_or_behind(self, call: WorkflowCall) -> bool:
        return call.future.cancelled() or self.loop.branches.comes_after(
            self._here(), call.branch, call.answered
        )

    def _here(self) -> CodeBranch | None:
        return self.loop.branches.of(asyncio.current_task(self.loop))

    def _check_room(self, kind: StepKind) -> None:
        if len(self._keys) >= workflow.MOST_STEPS:
            raise Refused("too_many_steps", has=f"{workflow.MOST_STEPS:,} steps")
        if self._bytes > workflow.MOST_BYTES:
            raise Refused("too_many_steps", has=f"{workflow.MOST_BYTES:,} bytes of results")
        if kind is StepKind.CHILD:
            children = sum(ask.kind is StepKind.CHILD for ask in self.asks.values())
            if children >= workflow.MOST_CHILDREN:
                raise Refused("too_many_children", most=workflow.MOST_CHILDREN)

    def _push(self, step: Step) -> None:
        """By their place in the order; what has none yet, by when it came."""
        place = float("inf") if step.number is None else step.number
        heappush(
            self._answers,
            (place, "" if step.completed_at is None else step.completed_at.isoformat(), step.key),
        )

    def _deliver(self, ask: WorkflowCall) -> None:
        step = ask.step
        assert step is not None
        ask.answered = self.loop.branches.moment()
        if step.number is None:
            step = replace(step, number=self.number)
            self._delivered.append(step)
        self.number = max(self.number, (step.number or 0) + 1)
        if step.status is StepStatus.COMPLETED:
            if ask.undo is not None and ask.attempts is not None:
                self._undoable.append((step, ask.undo, ask.attempts))
            ask.future.set_result(copy.deepcopy(step.output))
        elif ask.kind is StepKind.RECEIVE:
            ask.future.set_exception(TimeoutError(step.error.message if step.error else ""))
        else:
            ask.future.set_exception(StepFailed(step.key, step.error))
            ask.future.exception()  # looked at: a branch that was left does not have to
