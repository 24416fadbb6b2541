"""Event loops for fixtures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["tidy_runner"]

PATIENCE = 60.0


@contextmanager
def tidy_runner() -> Iterator[asyncio.Runner]:
    """An event loop. At the end nothing may be left on it, and threads that were told to end do so."""
    before = set(threading.enumerate())
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        yield runner
        left = asyncio.all_tasks(loop)
        assert not left, f"tasks were left: {left}"
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith("asyncio"):
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"{thread.name} was left"
