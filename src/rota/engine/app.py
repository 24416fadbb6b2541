"""App: which handler runs which kind of task, with which defaults, and which schedules a program declares."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager as AsyncEntered
from contextlib import AbstractContextManager as Entered
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from msgspec.structs import replace

from ..domain.checks import check_key, check_kind, check_number
from ..domain.errors import Invalid
from ..domain.gate import check_limit, of_kind
from ..domain.model import Limit, Task, WorkflowTarget
from ..domain.options import (
    HandlerOptions,
    ScheduleOptions,
    SubmitManyOptions,
    TimingOptions,
    UniqueOptions,
    WorkflowOptions,
    check_names,
    names_of,
    options_of,
)
from ..domain.task import Defaults
from .executor import Context, context_outside
from .handlers.functions import (
    AsyncTaskFunction,
    Handler,
    PlainTaskFunction,
    TaskFunction,
    TaskQueue,
    WorkflowFunction,
    is_async,
)
from .handlers.providers import Lifetime, Provider, provider
from .handlers.signature import Getter, Signature

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=TaskFunction[..., Any])
Hook = Callable[..., Any]
HOOKS = ("on_startup", "on_shutdown", "on_success", "on_error")
LEAST_MEMORY = 64 * 1024 * 1024
_OF_HANDLER = ("max_retries", "retry_policy", "timeout", "limit")
_TIMINGS = ("cron", "interval", "run_at", "rrule", "rule", "timings", "after")
_OF_SUBMISSION = names_of(SubmitManyOptions) & names_of(HandlerOptions) - set(_OF_HANDLER)
_WHEN = names_of(TimingOptions)
_OF_WORKFLOW: Mapping[type, Getter] = {Task: attrgetter("task")}
"""Parameters of a workflow that are filled by their type, beside provided ones. A queue or a context is not among them:
it could answer differently each time the code runs."""
_GIVE_A_TIMING = "give one of cron, interval, run_at, rrule, rule, timings and after with it"


class TaskDecorator(Protocol):
    """The decorator that `App.task("kind", …)` gives: it makes a function a task."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTaskFunction[P, R]: ...  # type: ignore[overload-overlap]  # the first that fits counts

    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTaskFunction[P, R]: ...


class WorkflowDecorator(Protocol):
    """The decorator that `App.workflow("kind", …)` gives: it makes a function a workflow."""

    def __call__(
        self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /
    ) -> WorkflowFunction[P, R]: ...


class App:
    """The registry of a program: `@app.task`, `@app.workflow("kind")`, `app.schedule("key", …)`, `app.provide(…)`,
    hooks. `queue` is the one that it is connected to."""

    def __init__(self) -> None:
        self.inject: Mapping[type, Getter] = {Context: lambda context: context, Task: attrgetter("task")}
        self.handlers: dict[str, Handler] = {}
        self.schedules: dict[str, ScheduleOptions] = {}
        self.provided: dict[type, Provider] = {}
        self.queue: TaskQueue | None = None
        self.hooks: dict[str, list[Hook]] = {name: [] for name in HOOKS}
        self._parent: App | None = None

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTaskFunction[P, R]: ...  # type: ignore[overload-overlap]  # the first that fits counts

    @overload
    def task(self, function: Callable[P, R], /) -> PlainTaskFunction[P, R]: ...

    @overload
    def task(self, kind: str | None = None, **options: Unpack[HandlerOptions]) -> TaskDecorator: ...

    def task(self, kind: Any = None, **options: Unpack[HandlerOptions]) -> Any:
        """Register a handler, sync or async, for tasks of this kind; without one, it is the function's name. What it
        gives back can be called as before, and submitted: `await function.submit(…)`.

        Options that a submission has count for `function.submit`. With a timing the task has a schedule of its kind's
        name, and the options are those of `schedule`, too."""
        if callable(kind):
            return self._task(kind, None, {}, Defaults(), {}, _names_around())
        if kind is not None:
            self._check_new(kind)
        given = _checked(options, HandlerOptions)
        defaults = _defaults_in(given)
        place = _checked_place(given.pop("run_in", None), given.pop("memory_limit", None))
        return lambda function: self._task(function, kind, given, defaults, place, _names_around())

    @overload
    def workflow(
        self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /
    ) -> WorkflowFunction[P, R]: ...

    @overload
    def workflow(self, kind: str | None = None, **options: Unpack[WorkflowOptions]) -> WorkflowDecorator: ...

    def workflow(self, kind: Any = None, **options: Unpack[WorkflowOptions]) -> Any:
        """Register a workflow: an async function whose first parameter is its context. Runs keep the `version` with
        which they began; this code runs those from `accepts` on. `timeout` is for the whole run, waits included. The
        other options are those of `task`, and what it gives back can be submitted in the same way."""
        if callable(kind):
            return self._workflow(kind, None, {}, Defaults(), 1, _names_around())
        if kind is not None:
            self._check_new(kind)
        given = _checked(options, WorkflowOptions)
        newest = given.pop("version", 1)
        oldest = check_number("accepts", given.pop("accepts", 1), 1, newest)
        defaults = replace(_defaults_in(given), workflow_version=newest)
        return lambda function: self._workflow(function, kind, given, defaults, oldest, _names_around())

    def handler_of(self, kind: object) -> Handler | None:
        """The handler of a kind, or of a function, decorated or not."""
        if isinstance(kind, TaskFunction):
            kind = kind.kind
        if isinstance(kind, str):
            return self.handlers.get(kind)
        return next((each for each in self.handlers.values() if each.function == kind), None)

    def schedule(self, schedule_id: str, **options: Unpack[ScheduleOptions]) -> None:
        """Declare a schedule; a worker that starts creates it, or brings it up to date. Options as in
        `Queue.create_schedule`."""
        key = check_key(schedule_id)
        if key in self.schedules:
            raise Invalid("schedule_id", f"{key!r} is declared twice", "give each schedule its own name")
        self.schedules[key] = options

    def provide(
        self,
        cls: type[T],
        factory: Callable[..., T | Awaitable[T] | AsyncEntered[T] | Entered[T] | Awaitable[AsyncEntered[T]]]
        | None = None,
        *,
        per: Lifetime = "worker",
    ) -> None:
        """Offer something to handlers: a parameter annotated with `cls` gets what `factory` makes (without one, the
        class is called), once for each worker or for each attempt at a task. What it makes may be a context manager,
        made by `contextlib`, or any async one: it is left at the end. Provide a class before handlers ask for it."""
        make = cls if factory is None else factory
        self.provided[cls] = provider(cls, make, per, inject=self.inject, provided=self.provided)

    def on_startup(self, hook: Hook) -> Hook:
        return self._hook("on_startup", hook)

    def on_shutdown(self, hook: Hook) -> Hook:
        return self._hook("on_shutdown", hook)

    def on_success(self, hook: Hook) -> Hook:
        return self._hook("on_success", hook)

    def on_error(self, hook: Hook) -> Hook:
        return self._hook("on_error", hook)

    def hooks_of(self, name: str) -> list[Hook]:
        return [*(self._parent.hooks_of(name) if self._parent else ()), *self.hooks[name]]

    def derived(self) -> App:
        """The same handlers and schedules, with room for hooks of its own."""
        child = App()
        child.handlers, child.schedules, child._parent = self.handlers, self.schedules, self
        child.inject, child.provided = self.inject, self.provided
        return child

    def check(self) -> None:
        """Refused, if an annotation of a handler names what is not there, or a limit a field that is not."""
        for handler in self.handlers.values():
            handler.signature.check_resolved()
            _check_limit_key(handler)

    def connected(self) -> TaskQueue | None:
        """The queue that it is connected to, if it is."""
        return self.queue or (self._parent.connected() if self._parent else None)

    def limits(self) -> dict[str, Limit | None]:
        """The limits of its handlers, by what they limit. None: the handler has none."""
        return {of_kind(kind): handler.defaults.limit for kind, handler in self.handlers.items()}

    def defaults(self) -> Mapping[str, Defaults]:
        return {kind: handler.defaults for kind, handler in self.handlers.items()}

    def _hook(self, name: str, hook: Hook) -> Hook:
        self.hooks[name].append(hook)
        return hook

    def _task(
        self,
        function: Any,
        kind: str | None,
        options: Mapping[str, Any],
        defaults: Defaults,
        place: Mapping[str, Any],
        names: Mapping[str, Any],
    ) -> TaskFunction[..., Any]:
        function, kind = self._named(function, kind)
        if place:
            _check_findable(function)
        handler = Handler(
            kind=kind,
            function=function,
            defaults=defaults,
            is_async=is_async(function),
            signature=Signature(kind, function, inject=self.inject, provided=self.provided, namespace=names),
            **place,
        )
        return self._registered(
            AsyncTaskFunction if handler.is_async else PlainTaskFunction, handler, options
        )

    def _workflow(
        self,
        function: Any,
        kind: str | None,
        options: Mapping[str, Any],
        defaults: Defaults,
        accepts: int,
        names: Mapping[str, Any],
    ) -> WorkflowFunction[..., Any]:
        function, kind = self._named(function, kind)
        _check_workflow(kind, function)
        version = defaults.workflow_version or 1
        handler = Handler(
            kind=kind,
            function=function,
            defaults=replace(defaults, workflow_version=version),
            is_async=True,
            signature=Signature(
                kind,
                function,
                inject=_OF_WORKFLOW,
                provided=self.provided,
                namespace=names,
                context_first=True,
            ),
            is_workflow=True,
            version=version,
            accepts=accepts,
        )
        return self._registered(WorkflowFunction, handler, options)

    def _named(self, function: Any, kind: str | None) -> tuple[Any, str]:
        """The function, not decorated, and its kind, which is new."""
        function = function.function if isinstance(function, TaskFunction) else function
        kind = _name_of(function) if kind is None else kind
        self._check_new(kind)
        return function, kind

    def _registered(self, made: type[F], handler: Handler, options: Mapping[str, Any]) -> F:
        _check_limit_key(handler)
        self._declare(handler, options)
        self.handlers[handler.kind] = handler
        own = {name: value for name, value in options.items() if name in _OF_SUBMISSION}
        return made(handler.kind, handler.function, handler.signature, own, self.connected, context_outside)

    def _declare(self, handler: Handler, options: Mapping[str, Any]) -> None:
        """The schedule of a decorator that has a timing."""
        if not any(name in options for name in _TIMINGS):
            if extra := options.keys() - _OF_SUBMISSION:
                raise Invalid(min(extra), "it belongs to a schedule, and no timing was given", _GIVE_A_TIMING)
            return
        if handler.signature.is_resolved:  # else it is checked when the schedule is created
            handler.signature.check(options.get("input"))
        schedule: Any = {
            name: value for name, value in options.items() if name not in names_of(UniqueOptions)
        }
        if handler.is_workflow:
            self.schedule(handler.kind, target=WorkflowTarget(kind=handler.kind), **schedule)
        else:
            self.schedule(handler.kind, task_type=handler.kind, **schedule)

    def _check_new(self, kind: str) -> None:
        check_kind(kind)
        if kind in self.handlers:
            raise Invalid("kind", f"{kind!r} already has a handler", "register each kind once")


def _defaults_in(given: dict[str, Any]) -> Defaults:
    """The options of the handler itself, taken out of those that are given and checked."""
    own = {name: given.pop(name) for name in _OF_HANDLER if name in given}
    if "limit" in own:
        own["limit"] = check_limit("limit", own["limit"])
    return Defaults(**own)


def _check_limit_key(handler: Handler) -> None:
    limit = handler.defaults.limit
    if limit is not None and limit.key is not None and handler.signature.is_resolved:
        handler.signature.check_key("limit.key", limit.key)


def _checked(options: Mapping[str, Any], shape: type) -> dict[str, Any]:
    """The options that are given. Timings are read when the schedule is declared."""
    check_names(shape, options)
    known = {name: option for name, option in options_of(shape).items() if name not in _WHEN}
    given = {name: value for name, value in options.items() if value is not None}
    return given | {name: known[name].check(name, value) for name, value in given.items() if name in known}


def _names_around() -> Mapping[str, Any]:
    """The names that stand where a decorator is used, for annotations that are texts. (In a module: nothing new.)"""
    frame = sys._getframe(2)
    return {} if frame.f_locals is frame.f_globals else frame.f_locals


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise Invalid("kind", "this function has no name", 'give one: @app.task("kind")')
    return name


def _checked_place(run_in: object, memory_limit: object) -> dict[str, Any]:
    """Where the handler runs, if not in the worker's own process."""
    if run_in not in (None, "process"):
        raise Invalid("run_in", f"{run_in!r:.60} is not known", 'give "process", or leave it out')
    if memory_limit is not None:
        check_number("memory_limit", memory_limit, LEAST_MEMORY, 2**60)
        if run_in is None:
            raise Invalid("memory_limit", "it holds for processes only", 'give run_in="process", too')
    return {} if run_in is None else {"run_in": run_in, "memory_limit": memory_limit}


def _check_findable(function: Callable[..., Any]) -> None:
    """A process finds the function by the names of its module and its own."""
    name = getattr(function, "__qualname__", "<")
    if "<" in name or not hasattr(function, "__module__"):
        problem = f"a process cannot find {name if name != '<' else 'this'}"
        raise Invalid("run_in", problem, "define the function with def at the top of a module")


def _check_workflow(kind: str, function: Callable[..., Any]) -> None:
    shape = "write `async def name(ctx, input)`: the first parameter is its context"
    if not is_async(function):
        raise Invalid("function", f"the workflow {kind!r} is not an async function", shape)
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD) or first.name == "input":
        raise Invalid("function", f"the workflow {kind!r} has no parameter for its context", shape)
