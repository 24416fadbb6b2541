"""Snapshots: `snapshot/{number}.json`, the whole state after entry `number`, so that nobody reads the log from
its beginning. Beyond a size they are compressed (`.json.gz`). The newest is never removed."""

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
from .service.objects import Bucket

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


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    segment: Segment
    dead: list[tuple[str, str]]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything but the records, which follow."""

    number: int
    at: datetime
    node: str
    floor: int
    snapshots: dict[int, datetime]
    archived: list[Archived]
    dropped: list[str] = []


class _Whole(Snapshot, frozen=True, kw_only=True):
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
    """Where it may stand: plain, and compressed."""
    key = f"{SNAPSHOTS}{number:012}.json"
    return key, f"{key}.gz"


def number_of(key: str) -> int:
    """Of a snapshot or of an entry of the log."""
    return int(key.rpartition("/")[2].partition(".")[0])


def numbered(keys: list[str]) -> list[str]:
    """Without what somebody else put there."""
    return [key for key in keys if key.rpartition("/")[2].partition(".")[0].isdigit()]


def newest(bucket: Bucket) -> str | None:
    return max(numbered(bucket.list(SNAPSHOTS)), default=None)


def restore(bucket: Bucket, key: str) -> Restored | None:
    """None: it was removed meanwhile, since there is a newer one."""
    for _ in range(READS - 1):
        with suppress(Corrupt):
            return _restore(bucket, key)
    return _restore(bucket, key)


def _restore(bucket: Bucket, key: str) -> Restored | None:
    body = bucket.get(key)
    if body is None:
        return None
    place = f"{bucket.name}/{key}"
    text = parse(place, lambda: gzip.decompress(body) if key.endswith(".gz") else body)
    whole = parse(place, lambda: msgspec.json.decode(text, type=_Whole))
    if whole.number != number_of(key):
        raise Corrupt(f"{place} says that it is snapshot {whole.number}", key=key)
    rows = rows_in(place, whole.put)
    segments = [(each.segment, set(each.dead)) for each in whole.archived]
    return Restored(whole.number, whole.floor, len(body), rows, segments, whole.snapshots, whole.dropped)
