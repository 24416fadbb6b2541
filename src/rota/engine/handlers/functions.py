"""A decorated function can be called as before, and submitted as a task. Its arguments are checked and typed. A
submission gives a handle to the result.

It is submitted to the first of these queues that there is: the one that it was bound to (`queue.bind(function)`), the
one of the running handler, the one that its app is connected to.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

import msgspec

from ...domain.errors import Invalid, Refused, TaskFailed
from ...domain.model import Task, TaskStatus
from ...domain.options import Duration, SubmitManyOptions, SubmitOptions, check_names
from ...domain.task import Defaults
from ...domain.workflow import Step
from .signature import Signature

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
_A = TypeVar("_A", contravariant=True)


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A registered function, and what its app knows of it."""

    kind: str
    function: Callable[..., Any]
    defaults: Defaults
    is_async: bool
    signature: Signature
    is_workflow: bool = False
    version: int = 1
    accepts: int = 1
    run_in: Literal["process"] | None = None
    memory_limit: int | None = None


def is_async(function: Callable[..., Any]) -> bool:
    """Whether to call it gives a coroutine. An object with an async `__call__` counts, too."""
    inner = function.func if isinstance(function, functools.partial) else function
    call = getattr(inner, "__call__", None)  # noqa: B004  it is looked at, not called
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(call)


class TaskQueue(Protocol):
    """The part of a queue that a function needs."""

    async def submit(
        self, kind: str, input: Any = None, /, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> Task: ...

    async def submit_many(
        self, tasks: Iterable[tuple[str, Any]], /, **options: Unpack[SubmitManyOptions]
    ) -> list[Task]: ...

    async def start_workflow(
        self, kind: str, input: Any = None, /, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> Task: ...

    async def start_workflows(
        self, workflows: Iterable[tuple[str, Any]], /, **options: Unpack[SubmitManyOptions]
    ) -> list[Task]: ...

    async def signal(
        self, task_id: str, name: str, payload: Any = None, /, *, idempotency_key: str | None = None
    ) -> Task: ...

    async def steps(self, task_id: str, /) -> list[Step]: ...

    async def get(self, task_id: str, /) -> Task: ...

    async def wait(self, task_id: str, /, timeout: Duration | None = None) -> Task: ...  # noqa: ASYNC109  a word of the API

    async def cancel(self, task_id: str, /, reason: str = "") -> Task: ...


class Running(Protocol):
    """The handler that runs, as far as functions need it: a `Context`."""

    queue: Any


running: ContextVar[Running | None] = ContextVar("rota_running", default=None)
"""The context of the handler that runs here."""


class Handle(Generic[R]):
    """A submitted task, and its result to come."""

    def __init__(self, task: Task, queue: TaskQueue, signature: Signature) -> None:
        self.task = task
        self._queue = queue
        self.signature = signature

    def __repr__(self) -> str:
        return f"<rota.Handle of {self.task.kind} {self.task.id}>"

    @property
    def id(self) -> str:
        return self.task.id

    async def get(self) -> Task:
        """The task as it is now."""
        return await self._queue.get(self.task.id)

    async def cancel(self, reason: str = "") -> Task:
        """As `Queue.cancel`."""
        return await self._queue.cancel(self.task.id, reason)

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109  a word of the API
        """The result of the function, once it has one; `TaskFailed` if it failed, TimeoutError if that takes too
        long."""
        task = await self._queue.wait(self.task.id, timeout)
        ended = task.history[-1].was if task.status is TaskStatus.ARCHIVED and task.history else task.status
        if ended is not TaskStatus.COMPLETED:
            raise TaskFailed(task.id, task.kind, str(ended), task.error, task.cancel_reason)
        output: R = self.signature.decoded_output(task.output)
        return output


class WorkflowHandle(Handle[R]):
    """A workflow that was started, and its result to come."""

    async def signal(self, name: str, payload: Any = None, *, idempotency_key: str | None = None) -> Task:
        """As `Queue.signal`."""
        return await self._queue.signal(self.task.id, name, payload, idempotency_key=idempotency_key)

    async def steps(self) -> list[Step]:
        """As `Queue.steps`."""
        return await self._queue.steps(self.task.id)


class Arguments(Generic[P]):
    """The arguments of one call, for `map`."""

    def __init__(self, input: Any) -> None:
        self.input = input


class _OfOne(Protocol[_A, R]):
    """A function that can be submitted with one argument."""

    async def submit(self, item: _A, /) -> Handle[R]: ...


class TaskFunction(Generic[P, R]):
    """A function that is registered as a handler: see `App.task`."""

    __name__: str
    __qualname__: str

    def __init__(
        self,
        kind: str,
        function: Callable[..., Any],
        signature: Signature,
        options: Mapping[str, Any],
        connected: Callable[[], TaskQueue | None],
        outside: Callable[[str, TaskQueue | None], Running],
    ) -> None:
        """`connected` is where its app is; `outside` makes the context of a call that no worker makes."""
        self.kind = kind
        self.function = function
        self.signature = signature
        self._options = options
        self._connected = connected
        self._outside = outside
        self._bound: TaskQueue | None = None
        self._connection: Any = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function here and now, as if it had not been decorated. What is injected may be left out."""
        return self.function(*args, **self._filled(args, kwargs))

    def __repr__(self) -> str:
        return f"<rota.TaskFunction {self.kind}>"

    def __reduce__(self) -> str:
        """It is pickled by its name, as a function is."""
        return self.__qualname__

    def options(self, *, connection: Any = None, **options: Unpack[SubmitOptions]) -> Self:
        """The same function, submitted with these options, as in `Queue.submit`."""
        check_names(SubmitOptions, options)
        return self._copy(
            _options={**self._options, **options},
            _connection=self._connection if connection is None else connection,
        )

    def args(self, *args: P.args, **kwargs: P.kwargs) -> Arguments[P]:
        """The arguments of one of the calls that are given to `map`."""
        return Arguments(self.signature.input_for(args, kwargs))

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit a task that calls the function with these arguments. What is injected is left out."""
        queue = self._queue()
        input = self.signature.input_for(args, kwargs)
        task = await queue.submit(self.kind, input, connection=self._connection, **self._options)
        return Handle(task, queue, self.signature)

    @overload
    async def map(self, items: Iterable[Arguments[P]]) -> list[Handle[R]]: ...

    @overload
    async def map(self: _OfOne[A, R], items: Iterable[A]) -> list[Handle[R]]: ...

    async def map(self, items: Iterable[Any]) -> list[Handle[R]]:
        """Submit a task for each item, all in one transaction. An item is the function's first argument, or what
        `function.args(…)` gives."""
        queue = self._queue()
        inputs = [self._input_of(item, number) for number, item in enumerate(items)]
        if self._options.get("idempotency_key") is not None:
            raise Invalid("idempotency_key", "one key cannot stand for many tasks", "leave it out")
        if self._connection is not None:
            raise Invalid(
                "connection", "many tasks cannot share a transaction of yours", "submit them one by one"
            )
        tasks = await self._submit_all(queue, inputs)
        return [Handle(task, queue, self.signature) for task in tasks]

    def _input_of(self, item: Any, number: int) -> Any:
        try:
            return item.input if isinstance(item, Arguments) else self.signature.input_for((item,), {})
        except Invalid as problem:
            raise problem.among("items", number) from None

    async def _submit_all(self, queue: TaskQueue, inputs: Sequence[Any]) -> list[Task]:
        return await queue.submit_many([(self.kind, input) for input in inputs], **self._options)

    def bound_to(self, queue: TaskQueue) -> Self:
        return self._copy(_bound=queue)

    def _queue(self) -> TaskQueue:
        context = running.get()
        queue = self._bound or (None if context is None else context.queue) or self._connected()
        if queue is None:
            raise Refused("not_connected", function=self.kind)
        found: TaskQueue = queue
        return found

    def _filled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        context = running.get() or self._outside(self.kind, self._bound or self._connected())
        return self.signature.filled(args, kwargs, context)

    def _copy(self, **changes: Any) -> Self:
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__, **changes)
        return copy


class PlainTaskFunction(TaskFunction[P, R]):
    """A function that is not async: a worker runs it in a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function(*args, **self._filled(args, kwargs))
        return result


class AsyncTaskFunction(TaskFunction[P, R]):
    """An async function: a worker runs it on its event loop."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await self.function(*args, **self._filled(args, kwargs))
        return result


class WorkflowFunction(TaskFunction[P, R]):
    """Of a workflow, whose first parameter is its context: the others are those of `submit`."""

    async def __call__(self, ctx: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as a part of another workflow, with the context of that."""
        result: R = await self.function(ctx, *args, **kwargs)
        return result

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]:
        """Start a workflow with these arguments. The context is left out."""
        queue = self._queue()
        input = self.signature.input_for(args, kwargs)
        task = await queue.start_workflow(self.kind, input, connection=self._connection, **self._options)
        return WorkflowHandle(task, queue, self.signature)

    async def _submit_all(self, queue: TaskQueue, inputs: Sequence[Any]) -> list[Task]:
        return await queue.start_workflows([(self.kind, input) for input in inputs], **self._options)
