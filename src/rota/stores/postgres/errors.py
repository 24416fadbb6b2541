"""Errors of the driver as errors of the contract: Conflict, Unavailable or Corrupt.

Every message names the place and what was being done. After `Unavailable` from a commit the outcome is unknown, unless
the server itself refused the commit. Any earlier failure was rolled back by the server. The caller does the same in
both cases: repeat with the same ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from ...domain.errors import Conflict, Corrupt, StoreError, Unavailable

COMMITTING = "committing"
"""The one thing to be `doing` after which the outcome may be unknown."""

_CHANGED = "RT001"
_BLOCKED = "55P03"
_RETRIED = {
    _CHANGED: "changed or removed by someone else",
    "23505": "an id or a key is taken already",
    "40001": "it crossed with another transaction",
    "40P01": "it and another transaction waited for each other",
}
_POOLER = "there is a transaction pooler in between, it seems: add pgbouncer=1 to the options of the address"
_REASONS = {
    "26000": _POOLER,
    "42P05": _POOLER,
    "25006": "it is read-only for now (a standby, perhaps before it takes over)",
    "25P03": "the transaction was idle for too long",
    "28000": "it does not let us in",
    "28P01": "the password is wrong",
    "3D000": "there is no such database",
    "42501": "our role may not do that",
    "42P01": "its tables are missing: run `rota migrate`",
    "3F000": "its tables are missing: run `rota migrate`",
    "53100": "its disk is full",
    "53300": "it has too many connections",
    "55P03": "a lock was not to be had",
    "57014": "the statement took too long",
    "57P01": "it is shutting down",
    "57P02": "it crashed",
    "57P03": "it is starting up or shutting down",
}
_LACKING: dict[str, dict[str, Any]] = {"42P01": {"lacks": "its tables"}, "3F000": {"lacks": "its tables"}}
_CORRUPT = ("XX001", "XX002")
_UNDECIDED = ("08", "57P", "40003")
"""Codes of a server that stops in the middle of a statement: the commit may have been done just before."""
_UNKNOWN = " (whether it was done is unknown)"
FAILURES = (
    asyncpg.PostgresError,
    OSError,
    EOFError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""Errors of the driver: the server reports one, or does not answer."""


class Blocked(Unavailable):
    """Another transaction kept a lock for longer than a group of works waits. Nothing was done."""


def is_lost(error: BaseException) -> bool:
    """Whether the connection is of no more use: it is gone, or its server refuses work."""
    if not isinstance(error, asyncpg.PostgresError):
        return True
    state = str(error.sqlstate)
    return state.startswith(("08", "57P")) or state in ("25006", "25P03", "53300")


def as_store_error(error: BaseException, place: str, doing: str) -> StoreError:
    """The error of the contract for an error of the driver at `place`, while `doing` something."""
    if isinstance(error, asyncpg.PostgresError):
        state = str(error.sqlstate)
        if doing == COMMITTING:
            doing += _UNKNOWN if state.startswith(_UNDECIDED) else " (nothing was written)"
        if state in _RETRIED:
            return Conflict(f"{_RETRIED[state]} ({error})")
        if state in _CORRUPT:
            return Corrupt(f"PostgreSQL ({place}) cannot read what it stored, while {doing}: {error}")
        reason = _REASONS.get(state)
        if "startup parameter" in str(error):
            reason = _POOLER
        [words, *_] = str(error).splitlines() or [repr(error)]  # the hints that follow are about the driver
        who_says = "" if isinstance(error, asyncpg.PostgresConnectionError) else "it said: "
        said = f"{reason} ({words})" if reason else f"{who_says}{words}"
        message = f"PostgreSQL ({place}) could not be used while {doing}: {said}"
        is_busy = state == _BLOCKED
        kind = Blocked if is_busy else Unavailable
        return kind(message, is_busy=is_busy, place=place, **_LACKING.get(state, {}))
    if doing == COMMITTING:
        doing += _UNKNOWN
    said = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
    return Unavailable(f"PostgreSQL ({place}) cannot be reached while {doing}: {said}", place=place)


@contextmanager
def driver_errors_translated(place: str, doing: str) -> Iterator[None]:
    """Errors of the driver leave as errors of the contract."""
    try:
        yield
    except FAILURES as error:
        raise as_store_error(error, place, doing) from error
