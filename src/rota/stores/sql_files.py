"""The SQL files of a store: its statements and its migrations.

Every statement has a name (`-- name: put_task`). Those that both dialects have are in `statements.sql` beside this
module, the others in `<dialect>/statements.sql`. The files are loaded once.

A migration is a file `<dialect>/migrations/0001_core.sql`. A released one is never edited: the database remembers the
checksum of each that was applied. `pending` compares the database with what this version knows and says what is left to
apply. It refuses a database that a newer version has written, or that was changed by hand. The store applies
migrations under its write lock, so any number of processes may try at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from ..domain.errors import Refused, Unavailable
from .base import no_store

_NAME = re.compile(r"^-- name: (?P<part>part )?(?P<name>\w+)$", re.MULTILINE)
_IN_DIALECT: dict[str, dict[str, str]] = {
    "postgres": {
        r"from run indexed by \w+": "from {schema}.schedule_run",
        r"from (\w+) indexed by \w+": r"from {schema}.\1",
    },
    "sqlite": {
        r"::\w+(\[\])?": "",
        r"= any\((:\w+)\)": r"in (select value from json_each(\1))",
        r" \{lock\}": "",
    },
}
"""Patterns that are replaced in the statements that both dialects have."""


@cache
def load(dialect: str) -> dict[str, str]:
    """All statements of a dialect, by name. A `part` is text that others include as `{name}`."""
    text = files(__package__).joinpath("statements.sql").read_text("utf-8")
    for found, written in _IN_DIALECT[dialect].items():
        text = re.sub(found, written, text)
    text += files(__package__).joinpath(dialect, "statements.sql").read_text("utf-8")
    headings = list(_NAME.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    statements: dict[str, str] = {}
    parts: dict[str, str] = {}
    for heading, end in zip(headings, ends, strict=True):
        body = _without_comments(text[heading.end() : end])
        (parts if heading["part"] else statements)[heading["name"]] = body
    return {name: _include(body, parts) for name, body in statements.items()}


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()


def _include(body: str, parts: dict[str, str]) -> str:
    for name, part in reversed(parts.items()):  # a part may include those before it
        body = body.replace(f"{{{name}}}", part)
    return body


class Migration(NamedTuple):
    """One step of the schema."""

    number: int
    name: str
    sql: str
    checksum: str


class Applied(NamedTuple):
    """A step that a database says it has."""

    number: int
    name: str
    checksum: str


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """All steps of a dialect, in order."""
    folder = files(__package__).joinpath(dialect, "migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(_read(name, folder.joinpath(name).read_text("utf-8")) for name in names)


def _read(file_name: str, text: str) -> Migration:
    name = file_name.removesuffix(".sql")
    sql = text.replace("\r\n", "\n")
    return Migration(int(name.partition("_")[0]), name, sql, sha256(sql.encode()).hexdigest())


def pending(store: str, known: Iterable[Migration], applied: Iterable[Applied]) -> list[Migration]:
    """The steps that are left to apply to the database at `store`."""
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


def check_complete(store: str, known: Iterable[Migration], applied: Sequence[Applied]) -> None:
    """The schema of the database at `store` is the one that this version knows."""
    if not applied:
        raise no_store(store)
    if missing := pending(store, known, applied):
        names = ", ".join(step.name for step in missing)
        message = f"the store at {store} lacks {names}: run `rota migrate`"
        raise Unavailable(message, is_final=True, lacks=names)
