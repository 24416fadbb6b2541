"""From an address to an open store. What a store needs is imported only when that store is asked for."""

from __future__ import annotations

import os

from ..domain.errors import Invalid
from ..engine.clock import SteadyClock
from ..stores.base import Store

__all__ = ["DEFAULT_STORE", "make_store", "open_store"]

DEFAULT_STORE = "sqlite:///rota.db"
_ACCEPTED = "accepted are sqlite:///file.db (sqlite:////absolute/file.db) and memory:"


async def open_store(address: str | None, clock: SteadyClock) -> Store:
    """The store at this address (or at ROTA_STORE, or in rota.db), open and with its schema up to date."""
    store = make_store(address or os.environ.get("ROTA_STORE") or DEFAULT_STORE, clock)
    await store.open()
    return store


def make_store(address: str, clock: SteadyClock) -> Store:
    if not isinstance(address, str):
        raise Invalid("store", f"{address!r:.60} is not an address", _ACCEPTED)
    scheme = address.partition(":")[0]
    if scheme == "memory":
        from ..stores.memory import MemoryStore

        return MemoryStore(clock)
    if scheme == "sqlite":
        from ..stores.sqlite import SqliteStore

        return SqliteStore.from_url(address, clock)
    raise Invalid("store", f"{address!r:.60} has an unknown scheme", _ACCEPTED)
