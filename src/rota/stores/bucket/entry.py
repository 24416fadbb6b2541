"""One entry of the log: the changes of a group of works, as JSON that a person can read, one record per line.

`commit` is unique to the attempt that wrote the entry, so a node can tell its own entry from another's. `snapshot` and
`floor` tell other nodes, without a request, which snapshots there are and which part of the log is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from ...domain.errors import Corrupt
from ...domain.model import Record
from ..codec import TABLES
from ..memory.state import Row
from .archive.segment import Segment

__all__ = [
    "READS",
    "TYPES",
    "EntryHeader",
    "LogEntry",
    "decode",
    "encode",
    "entry_key",
    "lines",
    "parse",
    "rows_in",
]

T = TypeVar("T")

READS = 3
"""An object that cannot be parsed is read this many times before it is called corrupt: the answer may have been cut."""

TYPES: dict[str, type[Record]] = {table.name: of_type for of_type, table in TABLES.items()}


class EntryHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields about the entry itself."""

    number: int
    commit: str
    at: datetime
    node: str
    snapshot: int = 0
    floor: int = 0


class LogEntry(EntryHeader, frozen=True, kw_only=True, omit_defaults=True):
    """The whole entry. `leave`: the records that moved to `segment`, an object of the archive."""

    put: dict[str, list[msgspec.Raw]] = {}
    delete: dict[str, list[str]] = {}
    leave: dict[str, list[str]] = {}
    segment: Segment | None = None


_decoder = msgspec.json.Decoder(LogEntry)


def entry_key(number: int) -> str:
    return f"log/{number:012}.json"


def encode(
    header: EntryHeader,
    puts: Iterable[Row],
    deletes: Iterable[Record],
    leave: Mapping[str, list[str]],
    segment: Segment | None,
) -> bytes:
    put: dict[str, list[bytes]] = {}
    delete: dict[str, list[str]] = {}
    for row in puts:
        put.setdefault(TABLES[type(row.record)].name, []).append(row.body)
    for record in deletes:
        delete.setdefault(TABLES[type(record)].name, []).append(record.id)
    parts = [msgspec.json.encode(header)[:-1], b',\n"put": ', lines(put)]
    parts += [b',\n"delete": ', msgspec.json.encode(delete)] if delete else []
    if segment is not None:
        parts += [
            b',\n"segment": ',
            msgspec.json.encode(segment),
            b',\n"leave": ',
            msgspec.json.encode(leave),
        ]
    return b"".join([*parts, b"}\n"])


def lines(bodies: Mapping[str, list[bytes]]) -> bytes:
    """Lists of records by name, each record on its line."""
    parts = (b'"%s": [\n%s\n]' % (name.encode(), b",\n".join(each)) for name, each in bodies.items())
    return b"{%s}" % b",\n".join(parts)


def decode(key: str, body: bytes) -> LogEntry:
    return parse(key, lambda: _decoder.decode(body))


def parse(key: str, read: Callable[[], T]) -> T:
    """What `read` makes of the object at `key`; Corrupt, naming it, if it cannot be read."""
    try:
        return read()
    except Corrupt as error:
        raise Corrupt(f"{key} cannot be read: {error}", key=key) from error
    except (msgspec.DecodeError, ValueError, KeyError, EOFError, OSError) as error:
        raise Corrupt(f"{key} cannot be read: {error}", key=key) from error


def rows_in(key: str, put: Mapping[str, Iterable[msgspec.Raw]]) -> list[Row]:
    """The records of an object, as a state keeps them."""

    def read() -> list[Row]:
        return [
            Row(TABLES[TYPES[name]].decode(body), body)
            for name, raws in put.items()
            for body in map(bytes, raws)
        ]

    return parse(key, read)
