"""What a worker and its processes say to each other: pickled, each behind its length."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import msgspec

from ...domain.model import Task

__all__ = ["LENGTH", "Begin", "Begun", "Ended", "Reported", "Stop", "framed"]

LENGTH = struct.Struct(">I")


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """Call this function. `arguments` are pickled by themselves: to read them may fail, and then the call has."""

    module: str
    name: str
    arguments: bytes
    task: Task | None
    memory_limit: int | None


class Begun(msgspec.Struct, frozen=True):
    """The function is found, and is called now."""


class Stop(msgspec.Struct, frozen=True):
    """The attempt is to end; `reason` is one of the executor's `StopReason`s."""

    reason: str


class Reported(msgspec.Struct, frozen=True):
    """What a context was told: (lease, progress, log lines)."""

    reports: tuple[Any, Any, Any]


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended: pickled (value, error), and what the error looked like where it was raised."""

    answer: bytes
    traceback: str | None = None


def framed(message: Any) -> bytes:
    data = pickle.dumps(message)
    return LENGTH.pack(len(data)) + data
