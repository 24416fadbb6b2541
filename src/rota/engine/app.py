"""App: which handler runs which kind of task, with which defaults, and which schedules a program declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from ..domain.errors import Invalid, PermanentError
from ..domain.limits import check_duration, check_key, check_kind, check_number, check_retry_policy
from ..domain.model import RetryPolicy
from ..domain.task import DEFAULT_MAX_RETRIES, Defaults

__all__ = ["App", "Handler"]

F = TypeVar("F", bound=Callable[..., Any])
Hook = Callable[..., Any]
HOOKS = ("on_startup", "on_shutdown", "on_success", "on_error")


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A registered function. `takes` names its parameters, in order; None: it accepts any by name."""

    kind: str
    function: Callable[..., Any]
    defaults: Defaults
    is_async: bool
    parameters: tuple[inspect.Parameter, ...]
    is_workflow: bool = False

    def arguments(self, input: Any, context: Any) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with: nothing, (input), (input, context), or parameters filled by name."""
        names = [parameter.name for parameter in self.parameters]
        if "input" in names or (not isinstance(input, dict) and names not in ([], ["context"])):
            return self._whole(input, context)
        return [], self._by_name(input if isinstance(input, dict) else {}, context)

    def _whole(self, input: Any, context: Any) -> tuple[list[Any], dict[str, Any]]:
        given = {"input": input, "context": context}
        values = [given.get(p.name, p.default) for p in self.parameters if p.kind in _POSITIONAL]
        if "input" not in {p.name for p in self.parameters}:
            values = [input, context][: len(values)]
        by_name = {
            p.name: given[p.name] for p in self.parameters if p.kind is p.KEYWORD_ONLY and p.name in given
        }
        return values, by_name

    def _by_name(self, input: dict[str, Any], context: Any) -> dict[str, Any]:
        given: dict[str, Any] = {**input, "context": context}
        if any(p.kind is p.VAR_KEYWORD for p in self.parameters):
            return given if any(p.name == "context" for p in self.parameters) else input
        wanted = {p.name: p for p in self.parameters if p.kind is not p.VAR_POSITIONAL}
        missing = [name for name, p in wanted.items() if name not in given and p.default is p.empty]
        if missing:
            raise PermanentError(
                f"the input of {self.kind} has no {missing[0]!r}, which its handler asks for;"
                " name the parameter 'input' to get the whole input"
            )
        return {name: given[name] for name in wanted if name in given}


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class App:
    """The registry of a program: `@app.task("kind")`, `@app.workflow("kind")`, `app.schedule("key", …)`, hooks."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.schedules: dict[str, dict[str, Any]] = {}
        self.hooks: dict[str, list[Hook]] = {name: [] for name in HOOKS}

    def task(
        self,
        kind: str,
        *,
        max_retries: int = DEFAULT_MAX_RETRIES,
        retry_policy: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
    ) -> Callable[[F], F]:
        """Register a handler, sync or async, for tasks of this kind."""
        return self._register(kind, False, max_retries, retry_policy, timeout)

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

    def schedule(self, schedule_id: str, **options: Any) -> None:
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
        )

        def register(function: F) -> F:
            self.handlers[kind] = Handler(
                kind=kind,
                function=function,
                defaults=defaults,
                is_async=_is_async(function),
                parameters=tuple(inspect.signature(function).parameters.values()),
                is_workflow=is_workflow,
            )
            return function

        return register


def _is_async(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004  an object with an async __call__ counts too
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
