"""Artifacts: what a task may leave behind, under which names, and when content that nobody names may go.

A small artifact is part of its record. The bytes of a larger one are *content*, kept beside the records under a key
that is used once: the digest of the bytes, when the writing began, and the id of the writing. Content is written first,
its record second, so a record always finds its bytes. Content that has no record after `GRACE` never gets one: a record
is refused once half of that time is over. So a sweep takes nothing that is still to be named.
"""

from __future__ import annotations

import mimetypes
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from typing import Any

import msgspec

from .checks import shown, storable
from .errors import Invalid, Refused
from .ids import derived_id
from .model import Artifact, Task
from .task import check_held

INLINE_BYTES = 8 * 1024
"""Up to so many, an artifact is part of its record. A bucket's records are in the memory of every node."""
MOST_BYTES = 5 * 1024**3
MOST_OF_TASK = 1000
GRACE = timedelta(hours=24)
RESULT = "result"
"""The name of what the handler returned. It is kept in the task, and read like any other artifact."""

_NAME_RULE = (
    "accepted are 1 to 255 printable characters without / and \\ and without blanks at the ends,"
    " and neither . nor .."
)
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}(; ?charset=[a-z0-9._-]{1,40})?")
_KEY = re.compile(r"[0-9a-f]{64}\.(\d{8}T\d{6})Z\.[0-9a-f-]{36}")
_STAMP = "%Y%m%dT%H%M%S"


def check_name(value: object) -> str:
    """A name is no path: it is shown to people and sent to browsers, which may save a file under it."""
    if not isinstance(value, str):
        raise Invalid("name", f"{shown(value)} is not a text", _NAME_RULE)
    is_plain = value.isprintable() and storable(value) == value and value == value.strip()
    if not 1 <= len(value) <= 255 or not is_plain or set(value) & {"/", "\\"} or value in (".", ".."):
        raise Invalid("name", f"{shown(value)} is not a valid name", _NAME_RULE)
    return str.__str__(value)


def check_media_type(value: object) -> str:
    if not isinstance(value, str) or not _MEDIA_TYPE.fullmatch(value.lower()):
        raise Invalid("media_type", f"{shown(value)} is not a media type", "write it as text/plain")
    return value.lower()


def media_type_of(name: str, *, is_text: bool) -> str:
    """The type that the ending of the name says, or else that of such content."""
    guessed, encoding = _known_types().guess_type(f"file:{name}")
    if guessed is None or encoding is not None:
        return "text/plain; charset=utf-8" if is_text else "application/octet-stream"
    return f"{guessed}; charset=utf-8" if is_text and guessed.startswith("text/") else guessed


@cache
def _known_types() -> mimetypes.MimeTypes:
    """The types of the standard library: what a machine adds to them plays no part."""
    return mimetypes.MimeTypes()


def check_size(name: str, size: int) -> int:
    if size > MOST_BYTES:
        raise Invalid("size", f"{name!r} has {size:,} bytes", f"the most is {MOST_BYTES:,}")
    return size


def content_key(digest: str, now: datetime, id: str) -> str:
    return f"{digest}.{now.astimezone(UTC).strftime(_STAMP)}Z.{id}"


def written_at(key: str) -> datetime | None:
    """When the writing of this content began; None: it is not ours."""
    found = _KEY.fullmatch(key)
    return None if found is None else datetime.strptime(found[1], _STAMP).replace(tzinfo=UTC)


def id_of(task_id: str, name: str) -> str:
    return derived_id("artifact", task_id, name)


def leave(
    task: Task, lease_id: str, old: Artifact | None, name: str, now: datetime, **facts: Any
) -> Artifact:
    """The record of what the holder of the lease leaves under this name. The same bytes again are what is there."""
    check_held(task, lease_id)
    begun = None if facts.get("content") is None else written_at(facts["content"])
    if begun is not None and now - begun > GRACE / 2:
        raise Refused("artifact_late", name=name, task=task.id)
    if name == RESULT:
        raise Invalid("name", f"{name!r} is what the handler returns", "choose another")
    if old is not None and (old.digest, old.media_type) == (facts["digest"], facts["media_type"]):
        return old
    return Artifact(
        id=id_of(task.id, name),
        tenant=task.tenant,
        version=0 if old is None else old.version,
        task_id=task.id,
        name=name,
        attempt=task.attempt,
        created_at=now,
        **facts,
    )


def result_of(task: Task) -> Artifact | None:
    """The result of the handler, as an artifact; None: it returned nothing."""
    if task.completed_at is None or task.is_live or task.output is None:
        return None
    body = msgspec.json.encode(task.output)
    return Artifact(
        id=id_of(task.id, RESULT),
        tenant=task.tenant,
        task_id=task.id,
        name=RESULT,
        media_type="application/json",
        size=len(body),
        digest=sha256(body).hexdigest(),
        attempt=task.attempt,
        created_at=task.completed_at,
        inline=body,
    )
