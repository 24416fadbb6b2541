"""Event loops for fixtures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["tidy_runner"]


@contextmanager
def tidy_runner() -> Iterator[asyncio.Runner]:
    """An event loop. At the end nothing may be left on it."""
    before = set(threading.enumerate())
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        yield runner
        left = asyncio.all_tasks(loop)
        assert not left, f"tasks were left: {left}"
    threads = set(threading.enumerate()) - before
    assert not {thread for thread in threads if not thread.name.startswith("asyncio")}, "threads were left"
