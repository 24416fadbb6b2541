"""Keeps what handlers and hooks raise from ending the worker.

**Looking at it.** To show an exception runs its code (`__str__`, its notes), which may raise or even exit: `name_of`,
`text_of` and `traceback_of` never do. `isinstance` runs its code too (`__class__`): `is_a` does not.

**Tasks of a handler.** asyncio lets SystemExit and KeyboardInterrupt of any task out of the event loop. Those that a
handler raises itself are caught where it is called. A handler may also start tasks (`asyncio.gather(…)`): a task
factory wraps each of these, and no others, and turns such an exception into an ordinary error, which reaches the
handler. The same happens to an exception that asyncio cannot look at without running its code.

**Callbacks of a handler.** asyncio logs what a callback raises. If that cannot be shown, the error of showing it would
end the event loop: while a worker runs, the loop's exception handler contains it."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeGuard, TypeVar

log = logging.getLogger("rota")

T = TypeVar("T")

READ_BY_OTHERS = frozenset(
    ("__getattribute__", "__class__", "__cause__", "__context__", "__suppress_context__", "__traceback__")
)
"""Attributes of exceptions that asyncio, logging and traceback read and expect no error from."""

_inside: ContextVar[bool] = ContextVar("rota_inside_handler", default=False)


def entering_handler() -> None:
    """Called in the task of a handler, before it: tasks started from here on inherit it."""
    _inside.set(True)


@contextmanager
def guarded_loop() -> Iterator[None]:
    """Meanwhile the running loop contains what handlers start."""
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        context = options.get("context")
        inside = _inside.get() if context is None else context.get(_inside, False)
        is_guarded = inside and asyncio.iscoroutine(coro)
        running = contained(coro) if is_guarded else coro
        if before is not None:
            task: Any = before(loop, running, **options)
        else:
            task = asyncio.Task(running, loop=loop, **options)
        if is_guarded:
            task.add_done_callback(lambda _: coro.close())  # cancelled at once, it has never begun
        return task

    reported_before = loop.get_exception_handler()

    def report(loop: asyncio.AbstractEventLoop, problem: dict[str, Any]) -> None:
        try:
            if reported_before is not None:
                reported_before(loop, problem)
            else:
                loop.default_exception_handler(problem)
        except BaseException:  # from here it would end the loop
            what = problem.get("exception")
            log.error("%s: %s", problem.get("message"), "" if what is None else traceback_of(what))

    loop.set_task_factory(factory)
    loop.set_exception_handler(report)
    try:
        yield
    finally:
        if loop.get_task_factory() is factory:
            loop.set_task_factory(before)
        if loop.get_exception_handler() is report:
            loop.set_exception_handler(reported_before)


async def contained(coro: Coroutine[Any, Any, T]) -> T:
    """A coroutine of a handler: what it raises, and what the tasks raise that it starts, ends no loop."""
    entering_handler()
    try:
        return await coro
    except (SystemExit, KeyboardInterrupt) as error:
        if not _runs_code(error):
            raise RuntimeError(f"a task that the handler started raised {type(error).__name__}") from error
        name = name_of(error)
    except BaseException as error:
        if not _runs_code(error):
            raise
        name = name_of(error)
    raise RuntimeError(f"a task that the handler started raised {name}, which cannot be looked at")


def _runs_code(error: BaseException) -> bool:
    """Whether the class of the error, or a base of it, has code of its own for the attributes that everyone reads of an
    exception."""
    classes = type.__dict__["__mro__"].__get__(type(error))
    own = classes[: classes.index(BaseException)]
    return any(not READ_BY_OTHERS.isdisjoint(type.__dict__["__dict__"].__get__(cls)) for cls in own)


def is_a(value: object, cls: type[T]) -> TypeGuard[T]:
    """As `isinstance`, by the class that it really has: no code of the value runs."""
    return issubclass(type(value), cls)


def is_cancelled() -> bool:
    """Whether someone cancels the current asyncio task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def parts_of(error: BaseException) -> list[BaseException]:
    """The exceptions that a group was made of, as a TaskGroup raises it; else the exception itself."""
    if not is_a(error, BaseExceptionGroup):
        return [error]
    inner = BaseExceptionGroup.__dict__["exceptions"].__get__(error)
    return [part for each in inner for part in parts_of(each)]


def name_of(value: object) -> str:
    """The name that its class was given, whatever the class of the class makes of it."""
    return _storable(type.__dict__["__name__"].__get__(type(value)))


def text_of(value: object) -> str:
    """As text that can be stored."""
    try:
        return _storable(str(value))
    except BaseException:  # it may even exit
        return f"<a {name_of(value)} that cannot be shown>"


def traceback_of(error: BaseException) -> str:
    """The traceback of an error with its causes and notes, if they can be shown."""
    try:
        return _storable("".join(traceback.format_exception(error)))
    except BaseException:  # each of them may do anything
        return f"{_frames_of(error)}{name_of(error)}: {text_of(error)}"


def _frames_of(error: BaseException) -> str:
    try:
        return _storable("".join(traceback.format_tb(BaseException.__dict__["__traceback__"].__get__(error))))
    except BaseException:  # a module may have a loader of its own
        return ""


def _storable(text: str) -> str:
    return str.encode(text, "utf-8", "replace").decode()
