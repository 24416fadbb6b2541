"""Migrations: numbered, forward-only, checked.

A migration is a file `sql/migrations/<dialect>/0001_core.sql`. A released one is never edited: the table
`rota_migration` remembers the checksum of each that was applied. `pending` compares what a database has
with what this version knows and says what is left to do, or refuses: a database that knows more was written
by a newer version, and one that knows something else was changed by hand. Applying is the store's part,
under its write lock, so any number of processes may try at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from ..domain.errors import Refused

__all__ = ["Applied", "Migration", "migrations", "pending"]


class Migration(NamedTuple):
    """One step of the schema."""

    number: int
    name: str
    sql: str
    checksum: str


class Applied(NamedTuple):
    """What a database says about a step it has."""

    number: int
    name: str
    checksum: str


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """All steps of a dialect, in order."""
    folder = files(__package__).joinpath("sql", "migrations", dialect)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(_read(name, folder.joinpath(name).read_text("utf-8")) for name in names)


def _read(file_name: str, text: str) -> Migration:
    name = file_name.removesuffix(".sql")
    sql = text.replace("\r\n", "\n")
    return Migration(int(name.partition("_")[0]), name, sql, sha256(sql.encode()).hexdigest())


def pending(store: str, known: Iterable[Migration], applied: Iterable[Applied]) -> list[Migration]:
    """What is left to apply to the database at `store`."""
    steps = {step.number: step for step in known}
    done = list(applied)
    newest = max((each.number for each in done), default=0)
    if newest > max(steps, default=0):
        raise Refused("newer_schema", store=store, found=newest, known=max(steps, default=0))
    for each in done:
        if each.number not in steps or steps[each.number].checksum != each.checksum:
            raise Refused("other_schema", store=store, migration=each.name)
    numbers = {each.number for each in done}
    return [step for number, step in sorted(steps.items()) if number not in numbers]
