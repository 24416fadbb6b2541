"""What an app offers to handlers by type: `app.provide(Database, connect)`.

A factory is a function, an async function or a class. It runs on the event loop. It may give an async context manager,
or one made by `contextlib.contextmanager`: that is entered, and left at the end. Its value is made when it is first
asked for, and lives as long as the worker; or it is made for each attempt at a task. The parameters of a factory are
filled by type, too, also with values that were provided before it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, _GeneratorContextManager
from typing import Any, Literal

import msgspec

from ...domain.checks import shown
from ...domain.errors import Invalid
from .signature import Getter, Signature

Lifetime = Literal["worker", "task"]


class Provider(msgspec.Struct, frozen=True, eq=False):
    """How one type is made, and for how long."""

    factory: Callable[..., Any]
    signature: Signature
    per: Lifetime


def provider(
    cls: type,
    factory: Callable[..., Any],
    per: Lifetime,
    *,
    inject: Mapping[type, Getter],
    provided: Mapping[type, Provider],
) -> Provider:
    """A checked provider. What lives as long as the worker cannot ask for what belongs to a task."""
    if not isinstance(cls, type):
        raise Invalid("provide", f"{shown(cls)} is not a class", "give the class that handlers ask for")
    if cls in inject or cls in provided:
        raise Invalid("provide", f"{cls.__name__} is provided already", "provide each class once")
    if per not in ("worker", "task"):
        raise Invalid("per", f"{shown(per)} is not known", "accepted are worker and task")
    if not callable(factory):
        raise Invalid("provide", f"{shown(factory)} cannot be called", "give a function that makes one")
    known = provided if per == "task" else {each: made for each, made in provided.items() if made.per == per}
    asks = Signature(
        f"provide({cls.__name__})", factory, inject=inject if per == "task" else {}, provided=known
    )
    try:
        asks.check({})
    except Invalid:
        problem = f"the factory of {cls.__name__} has parameters that nobody fills"
        raise Invalid(
            "provide", problem, "give them defaults, or annotate them with what is provided"
        ) from None
    return Provider(factory, asks, per)


class Resources:
    """The values that one worker has made with the factories of its app."""

    def __init__(self, provided: Mapping[type, Provider]) -> None:
        self._provided = provided
        self._kept: dict[type, _Kept] = {}

    async def arguments(self, signature: Signature, context: Any, stack: AsyncExitStack) -> dict[str, Any]:
        """The things that the function asks for, by parameter. Those of the task are closed by the stack."""
        return await self._asked(signature, context, stack, {})

    async def close(self) -> None:
        """Close what was made for the worker, the last first; the others, too, if one cannot be closed. What is asked
        for afterwards is made anew."""
        async with AsyncExitStack() as closing:
            while self._kept:
                closing.push_async_callback(self._kept.pop(next(iter(self._kept))).close)

    async def _asked(
        self, signature: Signature, context: Any, stack: AsyncExitStack, made: dict[type, Any]
    ) -> dict[str, Any]:
        """`made` is what the task has already."""
        for cls in signature.asks_for.values():
            if self._provided[cls].per == "worker":
                made[cls] = await self._of_worker(cls)
            elif cls not in made:
                made[cls] = await self._make(self._provided[cls], context, stack, made)
        return {name: made[cls] for name, cls in signature.asks_for.items()}

    async def _of_worker(self, cls: type) -> Any:
        """Made by the first who asks. If that fails, the next one tries again."""
        kept = self._kept.get(cls)
        if kept is None:
            kept = self._kept[cls] = _Kept(lambda stack: self._make(self._provided[cls], None, stack, {}))
        made, problem = await asyncio.shield(kept.value)
        if problem is not None:
            if self._kept.get(cls) is kept:
                del self._kept[cls]
            raise problem
        return made

    async def _make(
        self, provided: Provider, context: Any, stack: AsyncExitStack, made: dict[type, Any]
    ) -> Any:
        asked = await self._asked(provided.signature, context, stack, made)
        args, kwargs = provided.signature.arguments({}, context, asked)
        answer = provided.factory(*args, **kwargs)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, AbstractAsyncContextManager):
            return await stack.enter_async_context(answer)
        if isinstance(answer, _GeneratorContextManager):
            return stack.enter_context(answer)
        return answer


class _Kept:
    """Something that is entered and left by one asyncio task, as context managers may require. What goes wrong is
    passed on as a value: asyncio lets SystemExit of a task out of the loop, and a future takes no StopIteration."""

    def __init__(self, make: Callable[[AsyncExitStack], Awaitable[Any]]) -> None:
        self.value: asyncio.Future[tuple[Any, BaseException | None]]
        self.value = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._keeping = asyncio.create_task(self._keep(make), name="rota-provided")

    async def _keep(self, make: Callable[[AsyncExitStack], Awaitable[Any]]) -> BaseException | None:
        try:
            async with AsyncExitStack() as stack:
                self.value.set_result((await make(stack), None))
                await self._closing.wait()
        except BaseException as error:
            if self.value.done():
                return error
            self.value.set_result((None, error))
        return None

    async def close(self) -> None:
        self._closing.set()
        if not self.value.done():  # nobody waits for it any more
            self._keeping.cancel()
        if (problem := await self._keeping) is not None:
            raise problem
