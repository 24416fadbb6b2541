"""Keeps what handlers and hooks raise from ending the worker.

**Looking at it.** To show an exception runs its code (`__str__`, its notes), which may raise or even exit: `name_of`,
`text_of` and `traceback_of` never do.

**Tasks of a handler.** asyncio lets SystemExit and KeyboardInterrupt of any task out of the event loop. A handler's own
are caught where it is called; those of the tasks that it starts (`asyncio.gather(…)`) are caught here, by a task
factory that wraps what is started inside a handler and nothing else. There they become an ordinary error, which reaches
the handler."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["entering_handler", "guarded_loop", "name_of", "text_of", "traceback_of"]

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
        if inside and asyncio.iscoroutine(coro):
            coro = _contained(coro)
        if before is not None:
            return before(loop, coro, **options)
        return asyncio.Task(coro, loop=loop, **options)

    loop.set_task_factory(factory)
    try:
        yield
    finally:
        if loop.get_task_factory() is factory:
            loop.set_task_factory(before)


async def _contained(coro: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coro
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"a task that the handler started raised {type(error).__name__}") from error


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
    """With its causes and notes, if they can be shown."""
    try:
        return _storable("".join(traceback.format_exception(error)))
    except BaseException:  # each of them may do anything
        frames = traceback.format_tb(error.__traceback__)
        return _storable("".join([*frames, f"{name_of(error)}: {text_of(error)}"]))


def _storable(text: str) -> str:
    return str.encode(text, "utf-8", "replace").decode()
