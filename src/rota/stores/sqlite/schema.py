"""The schema of a SQLite file: which migrations it has, and applying the others under the write lock."""

from __future__ import annotations

from datetime import datetime

import apsw

from ...domain.errors import Corrupt
from ..codec import TABLES
from ..sql_files import Applied, Migration, check_complete, load, migrations, pending

_SQL = load("sqlite")


def migrate(db: apsw.Connection, store: str, now: datetime) -> list[str]:
    """Apply what is missing, all or nothing; the names of what was applied now."""
    if not _missing(db, store):
        return []
    db.execute(_SQL["begin_write"])
    try:
        missing = _missing(db, store)
        _check_own(db, store)
        db.execute(_SQL["create_migration_table"])
        for step in missing:
            db.execute(step.sql)
            db.execute(_SQL["record_migration"], (step.number, step.name, step.checksum, now.isoformat()))
        db.execute(_SQL["commit"])
    finally:
        if db.in_transaction:
            db.execute(_SQL["rollback"])
    return [step.name for step in missing]


def plan(db: apsw.Connection, store: str) -> str:
    """The SQL that `migrate` would run."""
    missing = _missing(db, store)
    parts = [f"-- {step.name}\n{step.sql.strip()}" for step in missing]
    return "\n\n".join(["begin immediate;", *parts, "commit;"]) + "\n" if parts else ""


def check(db: apsw.Connection, store: str) -> None:
    """The schema is the one that this version knows."""
    check_complete(store, migrations("sqlite"), _applied(db))


def _check_own(db: apsw.Connection, store: str) -> None:
    """A file without migrations has no tables that they will make: else those are another program's."""
    if _applied(db):
        return
    own = {table.name for table in TABLES.values()}
    for name in (row[0] for row in db.execute(_SQL["table_names"])):
        if name.lower() in own:
            about = f"it has a table {name!r} that Rota did not make"
            raise Corrupt(f"{store} is not a Rota database ({about}): choose another file")


def _missing(db: apsw.Connection, store: str) -> list[Migration]:
    return pending(store, migrations("sqlite"), _applied(db))


def _applied(db: apsw.Connection) -> list[Applied]:
    if not db.execute(_SQL["migration_table_exists"]).get:
        return []
    return [Applied(*row) for row in db.execute(_SQL["applied_migrations"])]
