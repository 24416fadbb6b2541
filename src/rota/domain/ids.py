"""Ids. Random ones are UUIDv7 text (in order of creation); one that a retry could repeat is derived."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID, uuid5

from uuid_utils import uuid7

__all__ = ["NewId", "derived_id", "new_id"]

NewId = Callable[[], str]

_ROTA = UUID("6f9f0a86-32a7-5a0e-9d3b-6d1a3f0c9e11")


def new_id() -> str:
    """A fresh UUIDv7."""
    return str(uuid7())


def derived_id(*parts: str | datetime) -> str:
    """The same id for the same parts, everywhere and always: doing it twice is doing it once."""
    words = (part.astimezone(UTC).isoformat() if isinstance(part, datetime) else part for part in parts)
    return str(uuid5(_ROTA, "\x1f".join(words)))
