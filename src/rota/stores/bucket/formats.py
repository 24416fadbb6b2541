"""Entries of the log, and snapshots: JSON that a person can read, one record per line.

`log/{number}.json` has the changes of a group of works. `commit` is unique to the attempt that wrote the entry, so a
node can tell its own entry from another's. `snapshot` and `floor` tell other nodes, without a request, which snapshots
there are and which part of the log is gone.

`snapshot/{number}.json` is the whole state after entry `number`, so that no node reads the log from its beginning.
Large ones are compressed (`.json.gz`). The newest snapshot is never removed.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from ...domain.errors import Corrupt
from ...domain.model import Record
from ..codec import TABLES
from ..memory.state import Row
from .archive.segments import Segment
from .service.bucket import Bucket

T = TypeVar("T")

_READS = 3
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
    delete: dict[str, list[str]] = {}
    for record in deletes:
        delete.setdefault(TABLES[type(record)].name, []).append(record.id)
    parts = [msgspec.json.encode(header)[:-1], b',\n"put": ', lines(puts)]
    parts += [b',\n"delete": ', msgspec.json.encode(delete)] if delete else []
    if segment is not None:
        parts += [
            b',\n"segment": ',
            msgspec.json.encode(segment),
            b',\n"leave": ',
            msgspec.json.encode(leave),
        ]
    return b"".join([*parts, b"}\n"])


def lines(rows: Iterable[Row]) -> bytes:
    """Lists of records by name, each record on its line."""
    bodies: dict[str, list[bytes]] = {}
    for row in rows:
        bodies.setdefault(row.table.name, []).append(row.body)
    parts = (b'"%s": [\n%s\n]' % (name.encode(), b",\n".join(each)) for name, each in bodies.items())
    return b"{%s}" % b",\n".join(parts)


def read_object(bucket: Bucket, key: str, read: Callable[[bytes], T]) -> T | None:
    """The object at `key`, as `read` makes it of the text; None where nothing is."""
    for _ in range(_READS - 1):
        with suppress(Corrupt):
            body = bucket.get(key)
            return None if body is None else read(body)
    body = bucket.get(key)
    return None if body is None else read(body)


def decode(key: str, body: bytes) -> LogEntry:
    return parse(key, lambda: _decoder.decode(body))


def parse(key: str, read: Callable[[], T]) -> T:
    """The answer of `read`. If the text cannot be read, Corrupt names the object."""
    try:
        return read()
    except (Corrupt, msgspec.DecodeError, ValueError, KeyError, EOFError, OSError) as error:
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


SNAPSHOTS = "snapshot/"
_COMPRESSED_BEYOND = 65_536


class SnapshotSegment(msgspec.Struct, frozen=True, kw_only=True):
    segment: Segment
    obsolete: list[tuple[str, str]] = msgspec.field(name="dead")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything but the records, which follow."""

    number: int
    at: datetime
    node: str
    floor: int
    snapshots: dict[int, datetime]
    archived: list[SnapshotSegment]
    dropped: list[str] = []


class _SnapshotObject(Snapshot, frozen=True, kw_only=True):
    put: dict[str, list[msgspec.Raw]]


class Restored(NamedTuple):
    """A snapshot that was read: its records, and the size of its object."""

    about: Snapshot
    rows: list[Row]
    size: int


def encode_snapshot(snapshot: Snapshot, rows: list[Row]) -> tuple[str, bytes]:
    """Its key and its text."""
    text = b"".join([msgspec.json.encode(snapshot)[:-1], b',\n"put": ', lines(rows), b"}\n"])
    key = snapshot_keys(snapshot.number)[0]
    if len(text) <= _COMPRESSED_BEYOND:
        return key, text
    return f"{key}.gz", gzip.compress(text, compresslevel=3, mtime=0)


def snapshot_keys(number: int) -> tuple[str, str]:
    """The two keys a snapshot may have: plain and compressed."""
    key = f"{SNAPSHOTS}{number:012}.json"
    return key, f"{key}.gz"


def number_of(key: str) -> int:
    """Of a snapshot or of an entry of the log."""
    return int(key.rpartition("/")[2].partition(".")[0])


def numbered(keys: list[str]) -> list[str]:
    """The keys without foreign objects."""
    return [key for key in keys if key.rpartition("/")[2].partition(".")[0].isdigit()]


def newest(bucket: Bucket) -> str | None:
    return max(numbered(bucket.list(SNAPSHOTS)), default=None)


def restore(bucket: Bucket, key: str) -> Restored | None:
    """The state in a snapshot. None means that it was removed meanwhile, since there is a newer one."""
    return read_object(bucket, key, lambda body: _restore(f"{bucket.name}/{key}", key, body))


def _restore(name: str, key: str, body: bytes) -> Restored:
    text = parse(name, lambda: gzip.decompress(body) if key.endswith(".gz") else body)
    found = parse(name, lambda: msgspec.json.decode(text, type=_SnapshotObject))
    if found.number != number_of(key):
        raise Corrupt(f"{name} says that it is snapshot {found.number}", key=key)
    return Restored(found, rows_in(name, found.put), len(body))
