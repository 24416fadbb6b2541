"""From an address to an open store. What a store needs is imported only when that store is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..domain.errors import Invalid
from ..engine.clock import Clock
from ..stores.base import Store
from ..stores.secrets import without_secrets
from . import settings

__all__ = ["BUCKETS", "in_role", "make_store", "open_store", "without_secrets"]

_ACCEPTED = (
    "accepted are sqlite:///file.db (sqlite:////absolute/file.db), postgresql://user@host/database,"
    " s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder and memory:"
)
BUCKETS = ("s3", "gs", "az", "file", "memory-bucket")


async def open_store(address: str | None, clock: Clock) -> Store:
    """The store at this address, or else where the settings say (ROTA_STORE, rota.toml, or the file rota.db); open,
    and with its schema up to date."""
    store = make_store(settings.load()["store"] if address is None else address, clock)
    await store.open()
    return store


def make_store(address: str, clock: Clock) -> Store:
    if not isinstance(address, str):
        raise Invalid("store", f"{address!r:.60} is not an address", _ACCEPTED)
    scheme = address.partition(":")[0]
    if scheme == "memory":
        from ..stores.memory.store import MemoryStore

        return MemoryStore(clock)
    if scheme == "sqlite":
        from ..stores.sqlite.store import SqliteStore

        return SqliteStore.from_url(address, clock)
    if scheme in ("postgresql", "postgres"):
        with _needing("PostgreSQL", "asyncpg", extra="postgres"):
            from ..stores.postgres.store import PostgresStore
        return PostgresStore.from_url(address, clock)
    if scheme in BUCKETS:
        with _needing("a bucket", "obstore", extra="s3"):
            from ..stores.bucket.store import BucketStore
        return BucketStore.from_url(address, clock)
    raise Invalid("store", f"{without_secrets(address)!r:.60} has an unknown scheme", _ACCEPTED)


def in_role(address: str, role: str) -> str:
    """The address for a process of this role: servers that show who is connected then show it. An address that says
    something else itself is left as it is."""
    scheme, _, rest = address.partition("://")
    query = rest.partition("?")[2]
    named = any(part.partition("=")[0] in ("role", "application_name") for part in query.split("&"))
    if scheme not in ("postgresql", "postgres") or named:
        return address
    return f"{address}{'&' if query else '' if address.endswith('?') else '?'}role={role}"


@contextmanager
def _needing(what: str, library: str, *, extra: str) -> Iterator[None]:
    """Imports of a library that may be missing: then the error says how to install it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name != library:
            raise
        advice = f"install it with: pip install 'rota[{extra}]'"
        raise Invalid("store", f"{what} needs {library}", advice) from None
