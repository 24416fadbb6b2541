"""Running works on stores that never suspend inside one: memory, SQLite, buckets.

`run_work` is the contract's "run again after a conflict": it makes a fresh transaction for each try, drives
the work straight through, and hands its writes to `flush`. Nothing of a failed try remains.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ..domain.errors import Conflict
from .base import Work

__all__ = ["ATTEMPTS", "drive", "run_work"]

ATTEMPTS = 5
"""How often a work is run before its conflict reaches the caller."""

T = TypeVar("T")
X = TypeVar("X")


def drive(work: Work[T], tx: Any) -> T:
    """Run a work to its end without an event loop. A work that waits for anything but its `tx` is a
    mistake."""
    steps: Generator[Any, Any, T] = work(tx).__await__()
    try:
        steps.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    steps.close()
    name = getattr(work, "__qualname__", repr(work))
    raise AssertionError(f"a work waits for nothing but its tx: {name} awaited something else")


def run_work(work: Work[T], begin: Callable[[], X], flush: Callable[[X], None]) -> T:
    """The work's answer, its writes flushed; tried again from the start while it meets conflicts."""
    for _ in range(ATTEMPTS - 1):
        tx = begin()
        try:
            value = drive(work, tx)
            flush(tx)
            return value
        except Conflict:
            continue
    tx = begin()
    value = drive(work, tx)
    flush(tx)
    return value
