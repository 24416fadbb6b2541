"""Runs works on the stores that never suspend inside one: memory, SQLite, buckets.

`run_work` does what the contract says about conflicts. Each try has a fresh transaction, runs the work straight
through, and gives its writes to `flush`. Nothing of a failed try remains.
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
    """Run a work to its end without an event loop. A work that waits for anything but its `tx` is a mistake."""
    steps: Generator[Any, Any, T] = work(tx).__await__()
    try:
        steps.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    steps.close()
    raise AssertionError(f"a work waits for nothing but its tx: {work} awaited something else")


def run_work(work: Work[T], begin: Callable[[], X], flush: Callable[[X], None]) -> T:
    """Run the work and flush its writes. After a conflict it is tried again from the start."""
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
