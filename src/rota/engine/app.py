"""App: which handler runs which kind of task, with which defaults, and which schedules a program declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, Unpack

import msgspec

from ..domain.errors import Invalid, PermanentError
from ..domain.gate import check_limit, of_kind
from ..domain.limits import check_duration, check_key, check_kind, check_number, check_retry_policy
from ..domain.model import Limit, RetryPolicy
from ..domain.options import ScheduleOptions
from ..domain.task import DEFAULT_MAX_RETRIES, Defaults

__all__ = ["App", "Handler"]

F = TypeVar("F", bound=Callable[..., Any])
Hook = Callable[..., Any]
_EMPTY = inspect.Parameter.empty
_INPUT, _CONTEXT, _FIELD = object(), object(), object()
_NO_FIELDS: dict[str, Any] = {}
HOOKS = ("on_startup", "on_shutdown", "on_success", "on_error")


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A registered function: where its parameters come from, and whether it accepts others by name."""

    kind: str
    function: Callable[..., Any]
    defaults: Defaults
    is_async: bool
    sources: Sources
    takes_any: bool
    is_workflow: bool = False

    def arguments(self, input: Any, context: Any) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with: nothing, (input), (input, context), or parameters filled by name.

        A parameter `input` gets the whole input, `context` the context. The others are filled from the input's
        fields; if the input has none (it is a text, a number, a list), the first of them gets it whole."""
        fields = input if isinstance(input, dict) else _NO_FIELDS
        values = {**fields} if self.takes_any and not self.sources.takes_input else {}
        for name, source, default in self.sources.of(input):
            if source is _FIELD:
                value = fields.get(name, default)
                if value is _EMPTY:
                    raise self._has_no(name)
                values[name] = context if value is _CONTEXT else value
            else:
                values[name] = context if source is _CONTEXT else input
        return [values.pop(name) for name in self.sources.positional], values

    def _has_no(self, name: str) -> PermanentError:
        return PermanentError(
            f"the input of {self.kind} has no {name!r}, which its handler asks for;"
            " name the parameter 'input' to get the whole input"
        )


class Sources:
    """Where the arguments of a function come from, for each kind of input: worked out once, when it is registered."""

    def __init__(self, named: Sequence[inspect.Parameter]) -> None:
        whole = next((p.name for p in named if p.name == "input"), None)
        first = next((p.name for p in named if p.name != "context"), None)
        self.takes_input = whole is not None
        self.positional = [p.name for p in named if p.kind is p.POSITIONAL_ONLY]
        self._of_fields = _sources(named, whole)
        self._of_value = _sources(named, whole or first)

    def of(self, input: Any) -> Sequence[tuple[str, object, Any]]:
        """For each parameter its name, its source, and what it gets if the source has nothing for it."""
        return self._of_fields if input is None or isinstance(input, dict) else self._of_value


def _sources(named: Sequence[inspect.Parameter], whole: str | None) -> list[tuple[str, object, Any]]:
    second = named[1].name if whole is not None and len(named) > 1 else None
    found: list[tuple[str, object, Any]] = []
    for p in named:
        if p.name == whole:
            found.append((p.name, _INPUT, None))
        elif p.name == "context":
            found.append((p.name, _CONTEXT, None))
        elif p.name == second and p.default is _EMPTY:  # (input, ctx): a context by another name
            found.append((p.name, _FIELD, _CONTEXT))
        else:
            found.append((p.name, _FIELD, p.default))
    return found


class App:
    """The registry of a program: `@app.task("kind")`, `@app.workflow("kind")`, `app.schedule("key", …)`, hooks."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.schedules: dict[str, ScheduleOptions] = {}
        self.hooks: dict[str, list[Hook]] = {name: [] for name in HOOKS}
        self._parent: App | None = None

    def task(
        self,
        kind: str,
        *,
        max_retries: int = DEFAULT_MAX_RETRIES,
        retry_policy: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        limit: Limit | None = None,
    ) -> Callable[[F], F]:
        """Register a handler, sync or async, for tasks of this kind. `limit` holds for all workers together."""
        return self._register(kind, False, max_retries, retry_policy, timeout, limit)

    def workflow(
        self,
        kind: str,
        *,
        max_retries: int = DEFAULT_MAX_RETRIES,
        retry_policy: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
    ) -> Callable[[F], F]:
        """Register a workflow: run as a task of its own kind."""
        return self._register(kind, True, max_retries, retry_policy, timeout)

    def schedule(self, schedule_id: str, **options: Unpack[ScheduleOptions]) -> None:
        """Declare a schedule; a worker that starts creates it, or brings it up to date. Options as in
        `Queue.create_schedule`."""
        key = check_key(schedule_id)
        if key in self.schedules:
            raise Invalid("schedule_id", f"{key!r} is declared twice", "give each schedule its own name")
        self.schedules[key] = options

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
        return child

    def limits(self) -> dict[str, Limit]:
        """The limits of its handlers, by what they limit."""
        found = {of_kind(kind): handler.defaults.limit for kind, handler in self.handlers.items()}
        return {subject: limit for subject, limit in found.items() if limit is not None}

    def defaults(self) -> Mapping[str, Defaults]:
        return {kind: handler.defaults for kind, handler in self.handlers.items()}

    def _hook(self, name: str, hook: Hook) -> Hook:
        self.hooks[name].append(hook)
        return hook

    def _register(
        self,
        kind: str,
        is_workflow: bool,
        max_retries: int,
        retry_policy: RetryPolicy | None,
        timeout: timedelta | float | None,
        limit: Limit | None = None,
    ) -> Callable[[F], F]:
        check_kind(kind)
        if kind in self.handlers:
            raise Invalid("kind", f"{kind!r} already has a handler", "register each kind once")
        defaults = Defaults(
            max_retries=check_number("max_retries", max_retries, 0, 1_000_000),
            retry_policy=RetryPolicy() if retry_policy is None else check_retry_policy(retry_policy),
            timeout=None
            if timeout is None
            else check_duration("timeout", timeout, least=timedelta(milliseconds=1)),
            limit=None if limit is None else check_limit("limit", limit),
        )

        def register(function: F) -> F:
            parameters = inspect.signature(function).parameters.values()
            self.handlers[kind] = Handler(
                kind=kind,
                function=function,
                defaults=defaults,
                is_async=_is_async(function),
                sources=Sources([p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]),
                takes_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
                is_workflow=is_workflow,
            )
            return function

        return register


def _is_async(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004  an object with an async __call__ counts too
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
