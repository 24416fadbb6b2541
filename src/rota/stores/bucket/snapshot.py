"""Snapshots: `snapshot/{number}.json` is the whole state after entry `number`, so that no node reads the log from its
beginning. Large ones are compressed (`.json.gz`). The newest snapshot is never removed.
"""

from __future__ import annotations

import gzip
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import msgspec

from ...domain.errors import Corrupt
from ..codec import TABLES
from ..memory.state import Row
from .archive.segment import Segment
from .entry import READS, lines, parse, rows_in
from .service.bucket import Bucket

__all__ = [
    "SNAPSHOTS",
    "Restored",
    "Snapshot",
    "encode_snapshot",
    "newest",
    "number_of",
    "numbered",
    "restore",
    "snapshot_keys",
]

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
    number: int
    floor: int
    size: int
    rows: list[Row]
    segments: list[tuple[Segment, set[tuple[str, str]]]]
    snapshots: dict[int, datetime]
    dropped: list[str]


def encode_snapshot(snapshot: Snapshot, rows: list[Row]) -> tuple[str, bytes]:
    """Its key and its text."""
    by_name: dict[str, list[bytes]] = {}
    for row in rows:
        by_name.setdefault(TABLES[type(row.record)].name, []).append(row.body)
    text = b"".join([msgspec.json.encode(snapshot)[:-1], b',\n"put": ', lines(by_name), b"}\n"])
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
    for _ in range(READS - 1):
        with suppress(Corrupt):
            return _restore(bucket, key)
    return _restore(bucket, key)


def _restore(bucket: Bucket, key: str) -> Restored | None:
    body = bucket.get(key)
    if body is None:
        return None
    name = f"{bucket.name}/{key}"
    text = parse(name, lambda: gzip.decompress(body) if key.endswith(".gz") else body)
    found = parse(name, lambda: msgspec.json.decode(text, type=_SnapshotObject))
    if found.number != number_of(key):
        raise Corrupt(f"{name} says that it is snapshot {found.number}", key=key)
    rows = rows_in(name, found.put)
    segments = [(each.segment, set(each.obsolete)) for each in found.archived]
    return Restored(found.number, found.floor, len(body), rows, segments, found.snapshots, found.dropped)
