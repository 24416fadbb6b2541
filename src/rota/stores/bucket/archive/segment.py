"""A segment of the archive: records that have ended, in one object that never changes.

A node keeps of each segment only this summary: which ids may be in it (eight bytes for each), which schedules,
tenants and subjects, over which times, and how many tasks of each status. It answers most questions with "not
here"; only the others load the object.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from hashlib import blake2b

import msgspec
import uuid_utils

from ....domain.model import Event, Record, Run, Task
from ...codec import micros

__all__ = [
    "SEGMENTS",
    "Fingerprints",
    "Segment",
    "Span",
    "fingerprint",
    "made_at",
    "segment_key",
    "summarize",
]

SEGMENTS = "archive/"


def segment_key(now: datetime) -> str:
    return f"{SEGMENTS}{micros(now):016}-{uuid_utils.uuid7()}.json.gz"


def made_at(key: str) -> int:
    """When a segment was written, in microseconds. A foreign object counts as new, so it is never removed."""
    time = key.removeprefix(SEGMENTS).partition("-")[0]
    return int(time) if time.isdigit() else sys.maxsize


_WIDTH = 8


class Fingerprints:
    """A set of texts, eight bytes each, in order: never says no to a member, hardly ever yes to another."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    @staticmethod
    def of(texts: Iterable[str]) -> bytes:
        return b"".join(sorted({fingerprint(text) for text in texts}))

    def __len__(self) -> int:
        return len(self._packed) // _WIDTH

    def __contains__(self, text: str) -> bool:
        return self.has(fingerprint(text))

    def has(self, wanted: bytes) -> bool:
        """The same, of a fingerprint."""
        at = _WIDTH * bisect_left(range(len(self)), wanted, key=self._nth)
        return self._packed[at : at + _WIDTH] == wanted

    def _nth(self, number: int) -> bytes:
        return self._packed[_WIDTH * number : _WIDTH * (number + 1)]


def fingerprint(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_WIDTH).digest()


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The first and the last time."""

    first: datetime
    last: datetime


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """`ids` and `groups` are packed fingerprints by record name; `spans` by record name and field."""

    key: str
    ids: dict[str, bytes]
    groups: dict[str, bytes]
    spans: dict[str, Span]
    counts: dict[str, int]
    """Tasks by `tenant/status`."""


def summarize(key: str, records: Iterable[Record]) -> Segment:
    by_name: dict[str, list[Record]] = {}
    times: dict[str, list[datetime]] = {}
    for record in records:
        name = type(record).__name__.lower()
        by_name.setdefault(name, []).append(record)
        for field in ("created_at", "completed_at", "scheduled_at", "at"):
            if (time := getattr(record, field, None)) is not None:
                times.setdefault(f"{name}.{field}", []).append(time)
    tasks = [record for record in by_name.get("task", []) if isinstance(record, Task)]
    return Segment(
        key=key,
        ids={name: Fingerprints.of(each.id for each in found) for name, found in by_name.items()},
        groups={name: Fingerprints.of(_groups(found)) for name, found in by_name.items()},
        spans={name: Span(min(found), max(found)) for name, found in times.items()},
        counts=dict(Counter(f"{task.tenant}/{task.status}" for task in tasks)),
    )


def _groups(records: Iterable[Record]) -> Iterable[str]:
    """What the listings ask for: a tenant's tasks, a schedule's runs, the events about a subject."""
    for record in records:
        if isinstance(record, Task):
            yield record.tenant
        elif isinstance(record, Run):
            yield record.schedule_id
        elif isinstance(record, Event):
            yield record.tenant
            yield f"{record.tenant}/{record.subject_id}"
