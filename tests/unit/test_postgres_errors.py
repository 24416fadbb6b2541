"""What the server says, in our words."""

from __future__ import annotations

import asyncpg
import pytest

from rota.domain.errors import Unavailable
from rota.stores.postgres.errors import COMMITTING, as_store_error

REFUSED = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.QueryCanceledError,
    asyncpg.LockNotAvailableError,
    asyncpg.DiskFullError,
)
UNDECIDED = (
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.StatementCompletionUnknownError,
    ConnectionResetError,
    TimeoutError,
)


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_a_commit_that_the_server_refused_was_not_done(kind: type[Exception]) -> None:
    said = as_store_error(kind("no"), "shop on db", COMMITTING)
    assert isinstance(said, Unavailable)
    assert "while committing (nothing was written): " in str(said)


@pytest.mark.parametrize("kind", UNDECIDED, ids=lambda kind: kind.__name__)
def test_a_commit_that_nobody_answered_may_have_been_done(kind: type[Exception]) -> None:
    said = as_store_error(kind("gone"), "shop on db", COMMITTING)
    assert "while committing (whether it was done is unknown): " in str(said)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InvalidSQLStatementNameError('prepared statement "a" does not exist\nHINT: …\n\nsix lines'),
        asyncpg.DuplicatePreparedStatementError('prepared statement "a" already exists'),
        asyncpg.ProtocolViolationError("unsupported startup parameter: plan_cache_mode"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_transaction_pooler_is_recognised(error: Exception) -> None:
    said = str(as_store_error(error, "shop on db", "reading"))
    assert "add pgbouncer=1 to the options of the address" in said
    assert "\n" not in said


@pytest.mark.parametrize("kind", [asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError])
def test_missing_tables_are_a_fact_beside_the_words(kind: type[Exception]) -> None:
    said = as_store_error(kind("no"), "shop on db", "reading")
    assert "run `rota migrate`" in str(said)
    assert said.details["lacks"] == "its tables"
