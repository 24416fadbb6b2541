"""One call of the command line: its settings, its way to the store, and where its answer goes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .render import Screen

if TYPE_CHECKING:
    from ..client import Queue
    from ..settings import Settings

__all__ = ["Session", "with_session"]

T = TypeVar("T")


class Session:
    """`flags` are the global options that were given, wherever they stood."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self.flags = flags
        self.as_json: bool = bool(flags.get("as_json"))
        self.screen = Screen()

    def settings(self, **flags: Any) -> Settings:
        """All settings; `flags` are the command's own."""
        from ..settings import load

        return load({**self.flags, **flags})

    def run(self, work: Callable[[Queue], Awaitable[T]]) -> T:
        """Open the store, do the work with its queue, close it."""
        import asyncio

        return asyncio.run(self._with_queue(work))

    async def _with_queue(self, work: Callable[[Queue], Awaitable[T]]) -> T:
        from ..client import connect
        from ..stores import in_role

        settings = self.settings()
        async with connect(in_role(settings["store"], "cli"), tenant=settings["tenant"]) as queue:
            return await work(queue)


def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command its `Session` as first argument."""

    @click.pass_context
    def called(ctx: click.Context, /, *args: Any, **kwargs: Any) -> Any:
        return ctx.invoke(function, Session(ctx.find_object(dict) or {}), *args, **kwargs)

    return update_wrapper(called, function)
