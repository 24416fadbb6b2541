"""Threads for sync handlers: as many as may run at once, started when needed, kept.

What `loop.run_in_executor` does, at a third of its price: calls carry no futures and conditions of their own, and
results that come in while the loop is busy are handed over all at once, with a single wake-up. The threads are
daemons: a handler that never returns keeps its slot, but not the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any, NamedTuple

__all__ = ["HandlerThreads"]


class Call(NamedTuple):
    function: Callable[[], Any]
    answer: asyncio.Future[Any]


class HandlerThreads:
    """Belongs to the event loop that first uses it. `on_freed` is called there when a thread ends whose caller had
    given up waiting."""

    def __init__(self, most: int, on_freed: Callable[[], None]) -> None:
        self._most = most
        self._on_freed = on_freed
        self._started = 0
        self._busy = 0
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._ended: deque[tuple[Call, Any, BaseException | None]] = deque()
        self._waking = False

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call it in a thread; its result, or what it raised."""
        loop = asyncio.get_running_loop()
        self._busy += 1
        if self._busy > self._started and self._started < self._most:
            self._started += 1
            name = f"rota-handler_{self._started - 1}"
            threading.Thread(target=self._work, args=(loop,), name=name, daemon=True).start()
        call = Call(function, loop.create_future())
        hold = getattr(loop, "hold", nullcontext)  # on a virtual loop, time stands still meanwhile
        with hold():
            self._calls.put(call)
            return await call.answer

    def close(self) -> None:
        """Threads end when they have nothing left to do; nobody waits for them."""
        for _ in range(self._started):
            self._calls.put(None)
        self._started = 0

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._ended.append((call, call.function(), None))
            except BaseException as error:  # whatever it is, it belongs to the caller
                self._ended.append((call, None, error))
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
                continue
            if error is not None:
                call.answer.set_exception(error)
            else:
                call.answer.set_result(value)
