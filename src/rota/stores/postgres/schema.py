"""The schema of a PostgreSQL store: which migrations it has, and applying the others.

All of it is one transaction under an advisory lock that ends with it, so that any number of processes may try
at once, also through a transaction pooler. A schema that exists is used as it is: our role need not be allowed
to create one.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from ..sql_files import Applied, Migration, check_complete, migrations, pending
from .queries import Statements

_LOCK = 0x726F7461 << 32  # "rota"
_MADE_FIRST = (("schema_exists", "create_schema"), ("migration_table_exists", "create_migration_table"))
_PATIENCE = 86_400.0  # seconds; the driver has a timeout of its own


async def migrate(connection: Any, statements: Statements, schema: str, store: str) -> list[str]:
    """Apply what is missing, all or nothing; the names of what was applied now. Inside a transaction."""
    if not await _missing(connection, statements, store):
        return []
    await connection.execute(statements.plain["migration_patience"].sql)
    lock = statements.plain["migration_lock"].sql
    await connection.fetchval(lock, _LOCK | crc32(schema.encode()), timeout=_PATIENCE)
    missing = await _missing(connection, statements, store)
    for sql in await _sql_of(missing, connection, statements, schema):
        await connection.execute(sql, timeout=_PATIENCE)
    return [step.name for step in missing]


async def check(connection: Any, statements: Statements, store: str) -> None:
    """The schema is the one that this version knows."""
    check_complete(store, migrations("postgres"), await _applied(connection, statements))


async def plan(connection: Any, statements: Statements, schema: str, store: str) -> str:
    """The SQL that `migrate` would run, to be read or run by hand (in one transaction)."""
    missing = await _missing(connection, statements, store)
    parts = await _sql_of(missing, connection, statements, schema)
    return "\n\n".join(["begin;", *parts, "commit;"]) + "\n" if parts else ""


async def _sql_of(
    missing: list[Migration], connection: Any, statements: Statements, schema: str
) -> list[str]:
    parts: list[str] = []
    for exists, create in _MADE_FIRST:
        if missing and not await connection.fetchval(statements.plain[exists].sql):
            parts.append(statements.plain[create].sql + ";")
    for step in missing:
        parts.append(f"-- {step.name}\n{step.sql.replace('{schema}', schema).strip()}")
        parts.append(statements.plain["record_migration"].sql.format(**step._asdict()) + ";")
    return parts


async def _missing(connection: Any, statements: Statements, store: str) -> list[Migration]:
    return pending(store, migrations("postgres"), await _applied(connection, statements))


async def _applied(connection: Any, statements: Statements) -> list[Applied]:
    if not await connection.fetchval(statements.plain["migration_table_exists"].sql):
        return []
    rows = await connection.fetch(statements.plain["applied_migrations"].sql)
    return [Applied(*row) for row in rows]
