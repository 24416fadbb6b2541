"""Derived ids: an id that a retry could repeat follows from what it stands for. (Fresh ids: `engine/ids.py`.)"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid5

__all__ = ["derived_id"]

_ROTA = UUID("6f9f0a86-32a7-5a0e-9d3b-6d1a3f0c9e11")


def derived_id(*parts: str | datetime) -> str:
    """The same id for the same parts, everywhere and always: doing it twice is doing it once."""
    words = (part.astimezone(UTC).isoformat() if isinstance(part, datetime) else part for part in parts)
    return str(uuid5(_ROTA, "\x1f".join(words)))
