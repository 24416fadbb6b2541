"""What SIGTERM and SIGINT do while a node runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def handling_signals(handler: Callable[[], None], *, enabled: bool = True) -> Iterator[None]:
    """SIGTERM and SIGINT call `handler` meanwhile, where that is possible (the main thread of a Unix process). Then
    they do what they did before: asyncio alone would let SIGTERM kill a process that still has a store to close."""
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {}
    for wanted in (signal.SIGTERM, signal.SIGINT) if enabled else ():
        did = signal.getsignal(wanted)
        try:
            loop.add_signal_handler(wanted, handler)
            before[wanted] = did
        except (NotImplementedError, RuntimeError, ValueError):
            break
    try:
        yield
    finally:
        for wanted, did in before.items():
            loop.remove_signal_handler(wanted)
            if did is not None:  # else it is one that Python does not know
                signal.signal(wanted, did)
