"""Proof that a service does what the store needs, tried on the live bucket under a prefix of its own.

The log needs three things. If several nodes create one key at once, exactly one wins. A written object can be read at
once. Lists are in order. A fourth is proved as well: a replacement is refused unless the object is the one that was
read. The log does not use it, but a service that ignores that condition may ignore others.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ....domain.errors import Invalid, StoreError, Unavailable
from ...base import Proof
from .bucket import Bucket, Denied, Taken

_WRITERS = 4
_ROUNDS = 3
_TRIES = 3
_CREATED = "proof/create"


def is_begun(bucket: Bucket) -> bool:
    """Whether a store was opened here to write, though the log has no entry yet."""
    return bucket.get(_CREATED) is not None


def check_create(bucket: Bucket) -> None:
    """Check at every start that an existing object is not created again. A small object stays in the bucket for it, so
    one request tells; in a new bucket it takes two."""
    try:
        _create(bucket, _CREATED)
        _create(bucket, _CREATED)
    except (Taken, Denied):  # a node that may only read does no harm
        return
    raise Invalid(
        "store",
        f"{bucket.name} ignores If-None-Match: it wrote over an object that was to be created",
        "use a service with conditional writes (`rota doctor` says what is missing)",
    )


def _create(bucket: Bucket, key: str) -> None:
    """Create, and repeat after a failure. If the first attempt was done after all, the next is refused, which is
    proof."""
    for _ in range(_TRIES - 1):
        try:
            return bucket.create(key, b"to create this object again must be refused")
        except Denied:
            raise
        except Unavailable:
            continue
    return bucket.create(key, b"to create this object again must be refused")


def prove(bucket: Bucket) -> list[Proof]:
    """Try every behaviour."""
    prefix = f"proof/{uuid.uuid4().hex}/"
    try:
        return [
            _try("create race", lambda: _create_race(bucket, prefix)),
            _try("compare-and-set race", lambda: _replace_race(bucket, prefix)),
            _try("read after write", lambda: _read_after_write(bucket, prefix)),
            _try("list order", lambda: _list_order(bucket, prefix)),
        ]
    finally:
        with suppress(StoreError):  # the findings matter more than left-over objects
            bucket.delete(bucket.list(prefix))


def prove_rights(bucket: Bucket, written: Iterable[str], removed: str) -> Proof:
    """Whether this node has the rights that upkeep needs: each key of `written` is written and removed, and `removed`,
    where nothing is, is removed."""
    problems = [problem for key in written if (problem := _write_and_remove(bucket, key))]
    try:
        bucket.delete([removed])
    except StoreError as error:
        problems.append(str(error))
    found = "; ".join(problems) or "everything can be written and removed"
    return Proof("upkeep", not problems, found)


def _write_and_remove(bucket: Bucket, key: str) -> str | None:
    try:
        bucket.put(key, b"")
        bucket.delete([key])
    except StoreError as error:
        return str(error)
    return None


def _try(behaviour: str, proof: Callable[[], str | None]) -> Proof:
    """`proof` returns the problem, or None."""
    try:
        wrong = proof()
    except NotImplementedError:  # a folder has no replacements
        return Proof(behaviour, True, "not offered here, and not needed")
    except StoreError as error:
        return Proof(behaviour, False, str(error))
    return Proof(behaviour, wrong is None, wrong or "holds")


def _winners(write: Callable[[bytes], None]) -> list[bytes]:
    """The bodies of all writers that were told that they won."""

    def tried(body: bytes) -> bytes | None:
        try:
            write(body)
            return body
        except Taken:
            return None

    bodies = [uuid.uuid4().hex.encode() for _ in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS) as writers:
        return [body for body in writers.map(tried, bodies) if body is not None]


def _create_race(bucket: Bucket, prefix: str) -> str | None:
    for number in range(_ROUNDS):
        key = f"{prefix}create/{number}"
        winners = _winners(lambda body, key=key: bucket.create(key, body))  # type: ignore[misc]  # bound per round
        if len(winners) != 1:
            return f"of {_WRITERS} who created one key at once, {len(winners)} were told that they had"
        if bucket.get(key) != winners[0]:
            return "the object is not the one of the writer who was told that it had created it"
    return None


def _replace_race(bucket: Bucket, prefix: str) -> str | None:
    key = f"{prefix}replace"
    bucket.put(key, b"first")
    for _ in range(_ROUNDS):
        found = bucket.find(key)
        if found is None or found.etag is None:
            return "an object that was written has no ETag"
        winners = _replaced(bucket, key, found.etag) or _replaced(bucket, key, found.etag.strip('"'))
        if len(winners) != 1:
            return f"of {_WRITERS} who replaced one version at once, {len(winners)} were told that they had"
    return None


def _replaced(bucket: Bucket, key: str, etag: str) -> list[bytes]:
    """Ceph takes an ETag only without its quotation marks."""
    return _winners(lambda body: bucket.replace(key, body, etag))


def _read_after_write(bucket: Bucket, prefix: str) -> str | None:
    for number in range(_ROUNDS):
        key = f"{prefix}read/{number}"
        if bucket.get(key) is not None:
            return "there is something where nothing was written"
        bucket.create(key, b"written")
        if bucket.get(key) != b"written":
            return "what was just written cannot be read"
        if key not in bucket.list(f"{prefix}read/"):
            return "what was just written is not listed"
    return None


def _list_order(bucket: Bucket, prefix: str) -> str | None:
    keys = [f"{prefix}list/{number:012}" for number in (3, 1, 10, 2)]
    for key in keys:
        bucket.put(key, b"")
    if bucket.list(f"{prefix}list/") != sorted(keys):
        return "a list does not have the keys that were written"
    behind = bucket.list(f"{prefix}list/", sorted(keys)[1])
    return None if behind == sorted(keys)[2:] else "a list behind a key is not what comes behind it"
