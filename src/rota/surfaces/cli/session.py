"""One call of the command line: its settings, its way to the store, and where its answer goes."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from ...domain.errors import NotFound, Refused
from ..settings import Settings, load
from .command import Command
from .options import Named
from .render import Screen

if TYPE_CHECKING:
    from ..python.client import Page, Queue

T = TypeVar("T")
_PAGES = ("limit", "cursor", "deleted")
_FLAGS = {"kind": "type", "schedule_id": "schedule", "template_id": "template"}
"""Filters as they are typed."""


class _Found(Generic[T]):
    """The answer of a work, hidden from `asyncio.run`: that writes an answer out twice, for nobody to see, which took a
    second for a plan of 25,000 schedules."""

    def __init__(self, it: T) -> None:
        self.it = it


class Session:
    """`flags` are the global options that were given, wherever they stood."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self.flags = flags
        self.as_json: bool = bool(flags.get("as_json"))
        self.screen = Screen(
            wide=bool(flags.get("wide")), utc=bool(flags.get("utc")), for_programs=self.as_json
        )

    def settings(self, **flags: Any) -> Settings:
        """All settings; `flags` are the command's own."""
        return load({**self.flags, **flags})

    def store_settings(self, **flags: Any) -> Settings:
        """The same, for a command that works on the store itself. Refused, if a server is named."""
        settings = self.settings(**flags)
        if settings["server"] is not None:
            raise Refused("needs_store")
        return settings

    def run(
        self, work: Callable[[Queue], Awaitable[T]], *, creates: bool = False, may_be_long: bool = False
    ) -> T:
        """Open the store, do the work with its queue, close it. A store is made only by a work that `creates`
        something: any other needs what is there already. After a second there is a sign of life, unless it
        `may_be_long`."""
        import asyncio

        from .. import redaction

        redaction.hide(self.settings()["redact_fields"])
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_: self.screen.warn(str(message))
            with nullcontext() if may_be_long else self.screen.busy(f"waiting for {self._place()}"):
                return asyncio.run(self._with_queue(work, creates)).it

    def run_timed(
        self, work: Callable[[Queue], Awaitable[T]], *, creates: bool = False
    ) -> tuple[T, datetime]:
        """The same, and the time of the store after it."""

        async def timed(queue: Queue) -> tuple[T, datetime]:
            return await work(queue), await queue.now()

        return self.run(timed, creates=creates)

    def _place(self) -> str:
        from ..stores import without_secrets

        settings = self.settings()
        return without_secrets(settings["server"] or settings["store"])

    async def _with_queue(self, work: Callable[[Queue], Awaitable[T]], creates: bool) -> _Found[T]:
        from .completing import suggested

        settings = self.settings()
        async with _queue(settings) as queue:
            if settings["server"] is None:
                await queue.store.open(migrate=creates)
            try:
                return _Found(await work(queue))
            except NotFound as problem:
                raise await suggested(queue, problem) from None

    def tell(self, document: Any, words: str) -> None:
        """The document, a record or what holds some, if JSON is wanted; else the words."""
        self.screen.json(document) if self.as_json else self.screen.prose(words)

    def say_none(self, what: str, filters: Mapping[str, Any], advice: str = "") -> None:
        """Say that nothing was found: of what, where, and with which filters."""
        settings = self.settings()
        given = [
            f"{_FLAGS.get(name, name)} {value}"
            for name, value in filters.items()
            if value and name not in _PAGES
        ]
        matching = f" with {', '.join(given)}" if given else ""
        tenant = "" if settings.is_default("tenant") else f" of tenant {settings['tenant']}"
        said = f"no {what}{matching}{tenant} in {self._place()}" + (f"; {advice}" if advice else "")
        self.screen.remark(said)

    def say_more(self, page: Page[Any]) -> None:
        """Say that there may be more than the page that was shown."""
        if page.next_cursor is not None:
            self.screen.remark(click.style(f"there may be more: --limit {2 * len(page)}", dim=True))


def _queue(settings: Settings) -> Queue:
    """The queue of the server, if one is named, or else of the store, which is not open yet."""
    if settings["server"] is not None:
        from ..remote.queue import RemoteQueue

        return RemoteQueue(settings["server"], settings["key"], tenant=settings["tenant"])
    from ...engine.clock import SystemClock
    from ..python.client import Queue
    from ..stores import in_role, make_store

    clock = SystemClock()
    return Queue(make_store(in_role(settings["store"], "cli"), clock), tenant=settings["tenant"], clock=clock)


def command(*, examples: Sequence[str], **options: Any) -> Callable[[Callable[..., Any]], Command]:
    """A command of this function, with examples. It gets its `Session` as first argument, and whole ids."""

    def made(function: Callable[..., Any]) -> Command:
        @click.pass_context
        def called(ctx: click.Context, /, *args: Any, **kwargs: Any) -> Any:
            session = Session(ctx.find_object(dict) or {})
            for param in ctx.command.params:
                value = kwargs.get(param.name or "")
                if isinstance(param.type, Named) and param.type.may_begin(value):
                    kwargs[param.name] = session.run(partial(param.type.whole, value=value))
            return ctx.invoke(function, session, *args, **kwargs)

        return click.command(cls=Command, examples=examples, **options)(update_wrapper(called, function))

    return made
