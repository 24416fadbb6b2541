"""Fresh ids: UUIDv7 text, in order of creation. Made before a work runs, never inside it."""

from __future__ import annotations

from collections.abc import Callable

from uuid_utils import uuid7

__all__ = ["NewId", "new_id"]

NewId = Callable[[], str]


def new_id() -> str:
    return str(uuid7())
