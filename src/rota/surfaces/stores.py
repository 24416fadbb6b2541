"""From an address to an open store. What a store needs is imported only when that store is asked for."""

from __future__ import annotations

import re

from ..domain.errors import Invalid
from ..engine.clock import SteadyClock
from ..stores.base import Store
from . import settings

__all__ = ["BUCKETS", "in_role", "make_store", "open_store", "shown"]

_ACCEPTED = (
    "accepted are sqlite:///file.db (sqlite:////absolute/file.db), postgresql://user@host/database,"
    " s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder and memory:"
)
BUCKETS = ("s3", "gs", "az", "file", "memory-bucket")
_USER = re.compile(r"://[^/@:]*:(?=.*@)", re.DOTALL)
_SECRET = re.compile(r"([?&][^=&]*(?:password|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)
_SERVICE = re.compile(r"([?&]endpoint=)[^&]*(?:@|%40)")


async def open_store(address: str | None, clock: SteadyClock) -> Store:
    """The store at this address, or else where the settings say (ROTA_STORE, rota.toml, or the file rota.db); open,
    and with its schema up to date."""
    store = make_store(settings.load()["store"] if address is None else address, clock)
    await store.open()
    return store


def make_store(address: str, clock: SteadyClock) -> Store:
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
        return _postgres(address, clock)
    if scheme in BUCKETS:
        return _bucket(address, clock)
    raise Invalid("store", f"{shown(address)!r:.60} has an unknown scheme", _ACCEPTED)


def shown(address: str) -> str:
    """An address without what may be a secret in it: passwords, and options so named."""
    return _SERVICE.sub(r"\1***@", _SECRET.sub(r"\1***", _without_password(address)))


def _without_password(address: str) -> str:
    """Without all up to the last `@`: a password may hold slashes (Amazon's do), a `?`, and an `@`. One `@` may be part
    of an option that is a secret; then that ends where the option does."""
    user = _USER.search(address)
    if user is None:
        return address
    end = address.rindex("@")
    for option in _SECRET.finditer(address):
        if option.end(1) <= end < option.end():
            end = option.end()
    return f"{address[: user.end()]}***{address[end:]}"


def in_role(address: str, role: str) -> str:
    """The address for a process of this role: servers that show who is connected then show it. An address that says
    something else itself is left as it is."""
    scheme, _, rest = address.partition("://")
    query = rest.partition("?")[2]
    named = any(part.partition("=")[0] in ("role", "application_name") for part in query.split("&"))
    if scheme not in ("postgresql", "postgres") or named:
        return address
    return f"{address}{'&' if query else '' if address.endswith('?') else '?'}role={role}"


def _bucket(address: str, clock: SteadyClock) -> Store:
    try:
        from ..stores.bucket.store import BucketStore
    except ModuleNotFoundError as missing:
        if missing.name != "obstore":
            raise
        raise Invalid("store", "a bucket needs obstore", "install it with: pip install 'rota[s3]'") from None
    return BucketStore.from_url(address, clock)


def _postgres(address: str, clock: SteadyClock) -> Store:
    try:
        from ..stores.postgres.store import PostgresStore
    except ModuleNotFoundError as missing:
        if missing.name != "asyncpg":
            raise
        raise Invalid(
            "store", "PostgreSQL needs asyncpg", "install it with: pip install 'rota[postgres]'"
        ) from None
    return PostgresStore.from_url(address, clock)
