"""Threads that work for an event loop: one that owns a file, or as many as may run handlers at once.

They do what `loop.run_in_executor` does, at half its price. A call has one future, which its caller awaits. Answers
that come in while the loop is busy reach it together, with a single wake-up. The threads are daemons: a function that
never returns keeps its thread, but not the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from .base import VirtualTime

T = TypeVar("T")


class Call(NamedTuple, Generic[T]):
    function: Callable[..., T]
    args: tuple[Any, ...]
    answer: asyncio.Future[T]


class Threads:
    """At most `most` threads. They are started when needed, and kept. They belong to the event loop that first uses
    them. `on_freed` is called there when a function ends and its caller no longer waits."""

    def __init__(self, most: int, name: str, on_freed: Callable[[], None] = lambda: None) -> None:
        self._most = most
        self._name = name
        self._on_freed = on_freed
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._calls: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._ended: deque[tuple[Call[Any], Any, BaseException | None]] = deque()
        self._waking = False
        self._current: Call[Any] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether anyone still waits for the call that the thread runs now. The thread itself may ask."""
        current = self._current
        return current is None or not current.answer.done()

    def call(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Call the function in a thread. The answer is its result, or what it raised."""
        loop = asyncio.get_running_loop()
        self._busy += 1
        if len(self._threads) < min(self._busy, self._most):
            self._start_one(loop)
        answer: asyncio.Future[T] = loop.create_future()
        _hold(loop, answer)
        self._calls.put(Call(function, args, answer))
        return answer

    def close(self, *, wait: bool = False) -> None:
        """Threads end when they have nothing left to do."""
        ending, self._threads = self._threads, []
        for _ in ending:
            self._calls.put(None)
        for thread in ending if wait else ():
            thread.join()

    def _start_one(self, loop: asyncio.AbstractEventLoop) -> None:
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=self._work, args=(loop,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (call := self._calls.get()) is not None:
            self._current = call
            try:
                self._ended.append((call, call.function(*call.args), None))
            except BaseException as error:  # whatever it is, it belongs to the caller
                self._ended.append((call, None, error))
            self._current = None
            del call
            if not self._waking:
                self._waking = True
                try:
                    loop.call_soon_threadsafe(self._hand_over)
                except RuntimeError:  # the loop is closed: nobody waits any more
                    return

    def _hand_over(self) -> None:
        self._waking = False  # before looking: whatever ends from here on wakes us again
        while self._ended:
            call, value, error = self._ended.popleft()
            self._busy -= 1
            if call.answer.done():
                self._on_freed()
            elif error is not None:
                call.answer.set_exception(error)
            else:
                call.answer.set_result(value)


def _hold(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any]) -> None:
    """On a virtual loop, time stands still until there is an answer, or nobody waits for it any more."""
    if isinstance(loop, VirtualTime):
        hold = loop.hold()
        hold.__enter__()
        answer.add_done_callback(lambda _: hold.__exit__(None, None, None))
