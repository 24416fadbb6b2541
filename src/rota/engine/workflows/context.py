"""What the code of a workflow may call: `ctx`. Every call reserves its key when it is made, and is answered when it is
awaited, so that `asyncio.gather` and a TaskGroup work as usual."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar, overload

from ...domain import workflow
from ...domain.checks import check_duration, check_input, check_number, check_retry_policy, shown
from ...domain.errors import Invalid, PermanentError
from ...domain.ids import derived_id
from ...domain.model import (
    Limits,
    RetryPolicy,
    StepKind,
    Task,
)
from ...domain.options import Duration, SubmitOptions, names_of
from ...domain.task import Submission, check_submission
from ...domain.workflow import Step, Wait
from ..app import App
from ..executor import Context
from ..handlers.functions import Handler, TaskFunction
from ..handlers.signature import injected
from .replay import Attempts, Replay, Restart

R = TypeVar("R")

STEP_RETRIES = 3
SHORTEST = timedelta(milliseconds=1)
_NAME = re.compile(r"[\w][\w .@/-]{0,99}")
_SECONDS = {"ttl_seconds": "ttl", "timeout_seconds": "timeout"}
_DEFAULT_LIMITS = Limits()

current_step: ContextVar[str | None] = ContextVar("rota_current_step", default=None)
"""The id of the step that runs here."""


class Workflow:
    """The context of a workflow: what its code does durably, it does through this."""

    def __init__(self, replay: Replay, app: App, context: Context | None) -> None:
        self._replay = replay
        self._app = app
        self._context = context

    @property
    def task(self) -> Task:
        """As it was when it was claimed."""
        return self._replay.task

    @property
    def version(self) -> int:
        """The version of the code with which this run began."""
        return self._replay.task.workflow_version or 1

    @property
    def idempotency_key(self) -> str:
        """For services that take one: inside a step the same for every try of it, elsewhere that of the run."""
        return current_step.get() or derived_id("run", self.task.id, str(self.task.rewinds))

    def step(
        self,
        fn: Callable[..., Any],
        *args: Any,
        name: str | None = None,
        key: str | int | None = None,
        retries: int = STEP_RETRIES,
        retry_policy: RetryPolicy | None = None,
        timeout: Duration | None = None,
        undo: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Call a function, sync or async, once: when its result is recorded it does not run again. Its result is JSON.
        If it fails for good, `StepFailed` is raised. `undo` is called with the result if the run is cancelled."""
        called = _checked_name(name or getattr(fn, "__name__", ""))
        attempts = Attempts(
            function=functools.partial(fn, *args, **kwargs),
            retries=check_number("retries", retries, 0, 1_000_000),
            retry_policy=RetryPolicy() if retry_policy is None else check_retry_policy(retry_policy),
            timeout=None if timeout is None else check_duration("timeout", timeout, least=SHORTEST),
        )
        return self._replay.ask(
            StepKind.STEP, _keyed(called, key), explicit=key is not None, attempts=attempts, undo=undo
        )

    @overload
    def child(
        self,
        kind: TaskFunction[..., R],
        input: Any = None,
        *,
        key: str | int | None = None,
        **options: Any,
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def child(
        self,
        kind: str | Callable[..., Any],
        input: Any = None,
        *,
        key: str | int | None = None,
        **options: Any,
    ) -> Coroutine[Any, Any, Any]: ...

    def child(
        self,
        kind: str | Callable[..., Any],
        input: Any = None,
        *,
        key: str | int | None = None,
        **options: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Submit a task or start a workflow, and wait for its output. Options as in `queue.submit`; other names are
        fields of its input. Of a function of this app, the input and the output are of the types that it names."""
        handler = self._app.handler_of(kind)
        asked = self._submission(kind, handler, input, options)
        decode = None if handler is None else handler.signature.decoded_output
        return self._wait(StepKind.CHILD, f"child:{asked.kind}", key, decode=decode, child=asked)

    @overload
    async def map(
        self,
        kind: TaskFunction[..., R],
        items: Iterable[Any],
        *,
        key: Callable[[Any], str | int],
        limit: int = 50,
        **options: Any,
    ) -> list[R]: ...

    @overload
    async def map(
        self,
        kind: str | Callable[..., Any],
        items: Iterable[Any],
        *,
        key: Callable[[Any], str | int],
        limit: int = 50,
        **options: Any,
    ) -> list[Any]: ...

    async def map(
        self,
        kind: str | Callable[..., Any],
        items: Iterable[Any],
        *,
        key: Callable[[Any], str | int],
        limit: int = 50,
        **options: Any,
    ) -> list[Any]:
        """A child for every item, at most `limit` at a time; their outputs, in the order of the items."""
        room = asyncio.Semaphore(check_number("limit", limit, 1, workflow.MOST_CHILDREN))

        async def one(item: Any) -> Any:
            async with room:
                return await self.child(kind, item, key=key(item), **options)

        return list(await asyncio.gather(*[one(item) for item in items]))

    def sleep(
        self, duration: Duration | datetime, *, key: str | int | None = None
    ) -> Coroutine[Any, Any, None]:
        """Wait for so long, or until a time. It holds no worker."""
        if isinstance(duration, datetime):
            until = duration.astimezone(UTC)
            return self._wait(StepKind.SLEEP, "sleep", key, until=until)
        return self._wait(StepKind.SLEEP, "sleep", key, delay=check_duration("duration", duration))

    def receive(
        self, name: str, *, timeout: Duration | None = None, key: str | int | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Wait for a signal of this name; its payload. `TimeoutError` if none comes in time."""
        called = _checked_name(name)
        delay = None if timeout is None else check_duration("timeout", timeout)
        return self._wait(StepKind.RECEIVE, f"receive:{called}", key, name=called, delay=delay)

    async def first(self, **waits: Coroutine[Any, Any, Any]) -> tuple[str, Any]:
        """Wait until the first of some calls is answered: (its label, its value). The others are given up."""
        if not waits:
            raise Invalid("waits", "there are none", "give calls by label, such as paid=ctx.receive('paid')")
        racing = {label: asyncio.ensure_future(wait) for label, wait in waits.items()}
        try:
            await asyncio.wait(racing.values(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            done = [label for label, each in racing.items() if each.done()]
            for each in racing.values():
                each.cancel()
        return done[0], racing[done[0]].result()

    async def undo(self) -> None:
        """Undo what was done so far, the last first: for a workflow that gives up by itself. A cancel does it, too."""
        await self._replay.undo_all()
        if self._replay.not_undone:
            raise PermanentError(f"not undone: {', '.join(self._replay.not_undone)}")

    async def restart(self, input: Any = None) -> NoReturn:
        """Begin again with another input: the same run, without its steps. Signals that were not received stay."""
        self._replay.check_inside()
        raise Restart(check_input(input, _DEFAULT_LIMITS))

    def progress(self, value: Any, message: str | None = None) -> None:
        """Say how far it is. Silent while the code is replayed."""
        if self._context is not None and not self._replay.is_replaying:
            self._context.progress(value, message)

    def log(self, message: object) -> None:
        """Add a line to the log. Silent while the code is replayed."""
        if self._context is not None and not self._replay.is_replaying:
            self._context.log(message)

    def _wait(
        self,
        kind: StepKind,
        base: str,
        key: str | int | None,
        decode: Callable[[Any], Any] | None = None,
        **fields: Any,
    ) -> Coroutine[Any, Any, Any]:
        return self._replay.ask(
            kind,
            _keyed(base, key),
            explicit=key is not None,
            wait=lambda reserved: Wait(key=reserved, kind=kind, **fields),
            decode=decode,
        )

    def _submission(
        self, kind: str | Callable[..., Any], handler: Handler | None, input: Any, given: dict[str, Any]
    ) -> Submission:
        fields = {name: value for name, value in given.items() if name not in names_of(SubmitOptions)}
        options = {_SECONDS.get(name, name): value for name, value in given.items() if name not in fields}
        if fields and input is not None:
            raise Invalid(min(fields), "there is no such option", "give the input whole, or by its fields")
        if handler is None and not isinstance(kind, str):
            raise Invalid("kind", f"{shown(kind)} is no handler of this app", "register it, or give its kind")
        if "unique_for" in options or "unique_by" in options:
            raise Invalid("unique_by", "a child belongs to one step of one run", "leave it out")
        asked = Submission(
            kind=handler.kind if handler is not None else str(kind),
            input=check_input(
                handler.signature.input_for((), fields) if handler and fields else fields or input,
                _DEFAULT_LIMITS,
            ),
            is_workflow=handler is not None and handler.is_workflow,
            **options,
        )
        return check_submission(asked)


def _checked_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        rule = "give name= of letters, digits, blanks and _ . @ / -, at most 100"
        raise Invalid("name", f"{shown(value)} cannot be the name of a step", rule)
    return value


def _keyed(base: str, key: str | int | None) -> str:
    if key is None:
        return base
    if isinstance(key, bool) or not isinstance(key, (str, int)) or not 1 <= len(str(key)) <= 200:
        raise Invalid(
            "key", f"{shown(key)} is not accepted", "give a text of 1 to 200 characters or a number"
        )
    return f"{base}[{key}]"


def check_run(app: App, handler: Handler, task: Task, steps: Sequence[Step]) -> None:
    """`Refused`, if the code of the handler does not fit the steps of this run."""
    unfit = workflow.misfit(task, handler.version, handler.accepts)
    if unfit is not None:
        raise unfit
    replay = Replay(task, [step for step in steps if step.rewinds == task.rewinds])
    try:
        nothing = dict.fromkeys(handler.signature.asks_for, injected)
        args, kwargs = handler.signature.arguments(task.input, Workflow(replay, app, None), nothing)
        replay.begin(handler.function(*args, **kwargs))
        replay.advance()
        change = replay.change()
        if change is not None:
            raise change
    finally:
        replay.close()
