"""The calls of a run's steps: each in a thread or on the loop, with what is provided, within its time.

No two calls of one step are at work in one worker. A call that was given up may go on: then the next try waits for it
(`StepCalls`), and so does another attempt at the run (`LeftCalls`).
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from ...domain import workflow
from ...domain.model import Task
from ...stores.threads import Threads
from ..clock import sleep, wait_for_any
from ..executor import STOP_GRACE, Context, Ending, over_time
from ..guard import entering_handler, is_cancelled
from ..handlers.functions import TaskFunction, is_async, running
from ..handlers.providers import Resources
from .context import current_step
from .replay import WorkflowCall


class LeftCalls:
    """Calls that still run, and that no attempt in this worker waits for. Each keeps a slot of the worker."""

    def __init__(self, on_ended: Callable[[], None]) -> None:
        self._on_ended = on_ended
        self._calls: dict[tuple[str, str], asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def of(self, task_id: str, key: str) -> asyncio.Future[Any] | None:
        return self._calls.get((task_id, key))

    def add(self, task_id: str, key: str, call: asyncio.Future[Any]) -> None:
        if (task_id, key) in self._calls:
            return  # the call only waited for that one
        self._calls[task_id, key] = call
        call.add_done_callback(functools.partial(self._has_ended, (task_id, key)))

    def _has_ended(self, step: tuple[str, str], call: asyncio.Future[Any]) -> None:
        del self._calls[step]
        self._on_ended()


class StepCalls:
    """Those of an attempt at a run that are under way, by step: it is tried again after them."""

    def __init__(self, task: Task, left: LeftCalls) -> None:
        self.task = task
        self.under_way: dict[str, asyncio.Future[Any]] = {}
        self._left = left

    def before(self, key: str) -> asyncio.Future[Any] | None:
        """What the step has to wait for."""
        return self.under_way.get(key) or self._left.of(self.task.id, key)

    def goes_on(self, key: str, call: asyncio.Future[Any]) -> None:
        self.under_way[key] = call
        call.add_done_callback(functools.partial(self._has_ended, key))

    def leave(self, key: str, trying: asyncio.Future[Any] | None = None) -> None:
        """This attempt waits for it no longer; one that comes to the step anew does. On the loop, the try is the
        call."""
        call = self.under_way.pop(key, trying)
        if call is not None and not call.done():
            self._left.add(self.task.id, key, call)

    def _has_ended(self, key: str, call: asyncio.Future[Any]) -> None:
        if self.under_way.get(key) is call:
            del self.under_way[key]


class StepCall:
    """One call of a step's function, and its turn at a thread."""

    def __init__(
        self, ask: WorkflowCall, calls: StepCalls, context: Context, threads: Threads, resources: Resources
    ) -> None:
        assert ask.attempts is not None
        self._key, self._attempts = ask.key, ask.attempts
        self._calls = calls
        self._context = context
        self._threads = threads
        self._resources = resources
        self._loop = asyncio.get_running_loop()
        self._asked: asyncio.Future[None] = self._loop.create_future()
        """For a thread."""
        self._begun: asyncio.Future[None] = self._loop.create_future()
        """In a thread. Cancelled: it is not to begin any more."""

    async def result(self) -> Any:
        if (before := self._calls.before(self._key)) is not None:
            await asyncio.wait({before})
        current_step.set(workflow.step_id(self._calls.task, self._key))
        running.set(self._context)
        entering_handler()
        calling, limit = self._called_with_provided(), self._attempts.timeout
        result, error = await (calling if limit is None else self._within(limit, calling))
        if is_cancelled():  # the function did it last of all: heard here, it is an error as any other
            await sleep(timedelta(0))
        if error is not None:
            raise error
        return result

    async def _within(self, limit: timedelta, calling: Coroutine[Any, Any, Ending]) -> Ending:
        """A call that is over its time is cancelled, and given up if it does not let itself be cancelled. To wait for a
        thread takes none of it: it counts for what is provided, and anew from where the function begins."""
        running = asyncio.ensure_future(calling)
        try:
            if await wait_for_any(running, self._asked, at_most=limit):
                await wait_for_any(running, self._begun, at_most=None)
                if await wait_for_any(running, at_most=limit):
                    return running.result()
            running.cancel()
            await wait_for_any(running, at_most=STOP_GRACE)
        except asyncio.CancelledError:  # the try is given up, and goes on until the call has ended
            running.cancel()
            await wait_for_any(running, at_most=None)
            raise
        if not running.done():
            self._calls.goes_on(self._key, running)
        raise over_time(limit, still_runs=self._key in self._calls.under_way)

    async def _called_with_provided(self) -> Ending:
        """A task that is a step gets what its app provides, too."""
        function = self._attempts.function
        task = function.func if isinstance(function, functools.partial) else None
        if not isinstance(task, TaskFunction) or not task.signature.asks_for:
            return await self._called(function)
        assert isinstance(function, functools.partial)
        given = inspect.signature(task.function).bind_partial(*function.args, **function.keywords).arguments
        if task.signature.asks_for.keys() <= given.keys():
            return await self._called(function)
        try:
            async with AsyncExitStack() as stack:
                made = await self._resources.arguments(task.signature, self._context, stack)
                left_out = {name: value for name, value in made.items() if name not in given}
                result, error = await self._called(functools.partial(function, **left_out))
                if error is not None:
                    raise error
                return result, None
        except BaseException as error:
            return None, error

    async def _called(self, function: Callable[[], Any]) -> Ending:
        """The result or what was raised, as a value: asyncio lets SystemExit of a task out of the loop."""
        try:
            if is_async(function):
                return await function(), None
            run = contextvars.copy_context().run
            answer = self._threads.call(functools.partial(run, self._call_in_thread, function))
            self._calls.goes_on(self._key, answer)
            self._asked.set_result(None)
            try:
                result, error = await asyncio.shield(answer)  # a thread goes on, whoever is cancelled
            finally:
                self._begun.cancel()
            if error is not None:
                return None, error
            return (await result if inspect.isawaitable(result) else result), None
        except BaseException as error:
            return None, error

    def _call_in_thread(self, function: Callable[[], Any]) -> Ending:
        if self._begun.cancelled():  # it was given up while it waited for this thread
            return None, asyncio.CancelledError()
        try:
            self._loop.call_soon_threadsafe(self._begins)
            return function(), None
        except BaseException as error:
            return None, error

    def _begins(self) -> None:
        if not self._begun.done():
            self._begun.set_result(None)
