"""Artifacts on their way in and out: bytes and files are measured and stored, records are opened and read.

Nothing here holds a large artifact in memory. What goes in is read twice, for its digest and for the store. What comes
out is read in pieces, and checked against the digest where all of it is read.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeVar

from ..domain import artifact as rules
from ..domain.checks import check_number, check_text, shown
from ..domain.errors import Corrupt, Invalid
from ..domain.model import Artifact, Task
from ..stores.base import Store
from .clock import Clock, new_id
from .commands import leave_artifact
from .queries import named_contents, one_artifact
from .work import commit

T = TypeVar("T")
Source = bytes | bytearray | memoryview | str | os.PathLike[str]
"""The things that can be left: bytes, a text, or the path of a file (a `pathlib.Path`; a str is a text)."""
PIECE = 1024 * 1024
_AT_ONCE = 500


async def leave(
    store: Store, clock: Clock, task: Task, name: str, source: Source, media_type: str | None = None
) -> Artifact:
    """Store what the holder of a task leaves under a name. It is durable when this returns. The same bytes again under
    the same name are not written again."""
    checked = rules.check_name(name)
    is_text = isinstance(source, str)
    type = rules.media_type_of(checked, is_text=is_text) if media_type is None else media_type
    facts: dict[str, Any] = {"media_type": rules.check_media_type(type)}
    opened = await _in_thread(_opened, source)
    with opened:
        size, digest = await _in_thread(_measure, opened)
        facts |= {"size": rules.check_size(checked, size), "digest": digest}
        if size <= rules.INLINE_BYTES:
            facts["inline"] = await _in_thread(b"".join, _chunks(opened, size, digest))
        else:
            there = await store.read(one_artifact(task.tenant, task.id, checked))
            if there is not None and (there.digest, there.media_type) == (digest, facts["media_type"]):
                return there
            facts["content"] = rules.content_key(digest, await store.now(), new_id())
            await store.contents.write(facts["content"], _chunks(opened, size, digest))
    return await commit(store, clock, leave_artifact(task, checked, facts))


def check_source(source: object) -> Source:
    if not isinstance(source, (str, bytes, bytearray, memoryview, os.PathLike)):
        raise Invalid("source", f"{shown(source)} cannot be left", "give bytes, a text or a pathlib.Path")
    return source


def _opened(given: object) -> IO[bytes]:
    source = check_source(given)
    if isinstance(source, str):
        return BytesIO(check_text("source", source, most=rules.MOST_BYTES).encode())
    if isinstance(source, (bytes, bytearray, memoryview)):
        return BytesIO(source)
    try:
        if not stat.S_ISREG(os.stat(source).st_mode):
            raise Invalid("source", f"{os.fspath(source)} is not a file", "give the path of one")
        return open(source, "rb")
    except OSError as error:
        problem = f"{os.fspath(source)} cannot be read ({error.strerror or error})"
        raise Invalid("source", problem, "give the path of a file") from error


def _measure(opened: IO[bytes]) -> tuple[int, str]:
    size, digest = 0, sha256()
    while piece := opened.read(PIECE):
        size += len(piece)
        digest.update(piece)
    return size, digest.hexdigest()


def _chunks(opened: IO[bytes], size: int, digest: str) -> Iterator[bytes]:
    """The bytes once more. They must be the same: a file may be written meanwhile."""
    opened.seek(0)
    seen = sha256()
    left = size
    while left and (piece := opened.read(min(PIECE, left))):
        left -= len(piece)
        seen.update(piece)
        if left or seen.hexdigest() == digest:
            yield piece
    if left or seen.hexdigest() != digest:
        raise Invalid("source", "the file changed while it was read", "leave it when it is finished")


class OpenArtifact:
    """An artifact that can be read: its record, and its bytes, whole or in pieces."""

    def __init__(self, store: Store, artifact: Artifact) -> None:
        self.artifact = artifact
        self._store = store

    async def chunks(self, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` up to `stop` (None: the end), in pieces."""
        size = self.artifact.size
        until = size if stop is None else min(check_number("stop", stop, 0, 2**63), size)
        begin = check_number("start", start, 0, 2**63)
        if self.artifact.content is None:
            yield (self.artifact.inline or b"")[begin:until]
        elif begin < until:
            async with aclosing(self._store.contents.read(self.artifact.content, begin, until)) as pieces:
                async for piece in pieces:
                    yield piece

    async def read(self) -> bytes:
        """All of it, in memory."""
        return b"".join([piece async for piece in self._checked()])

    async def save(
        self, path: str | os.PathLike[str], *, report: Callable[[int], None] | None = None
    ) -> None:
        """Write all of it to a file, which is there when it is whole. `report` is called after each piece with its
        length."""
        target = Path(path)
        unfinished = target.with_name(f".{target.name}.{new_id()[-8:]}.part")
        try:
            with await _in_thread(lambda: unfinished.open("xb")) as file:
                async for piece in self._checked():
                    await _in_thread(file.write, piece)
                    if report is not None:
                        report(len(piece))
            await _in_thread(unfinished.replace, target)
        except OSError as error:
            problem = f"{target} cannot be written ({error.strerror or error})"
            raise Invalid("path", problem, "give the path of a file in a folder that exists") from error
        finally:
            unfinished.unlink(missing_ok=True)

    async def _checked(self) -> AsyncIterator[bytes]:
        seen = sha256()
        async for piece in self.chunks():
            seen.update(piece)
            yield piece
        if seen.hexdigest() != self.artifact.digest:
            name, task = self.artifact.name, self.artifact.task_id
            raise Corrupt(f"artifact {name!r} of task {task} is not what was stored: its digest differs")


async def sweep_contents(store: Store) -> int:
    """Remove contents that no record names, and none will any more; how many went."""
    now = await store.now()
    begun = {key: rules.written_at(key) for key in await store.contents.keys()}
    old = [key for key, at in begun.items() if at is not None and now - at > rules.GRACE]
    gone = 0
    for first in range(0, len(old), _AT_ONCE):
        keys = old[first : first + _AT_ONCE]
        named = await store.read(named_contents(keys))
        orphans = [key for key in keys if key not in named]
        if orphans:
            await store.contents.delete(orphans)
        gone += len(orphans)
    return gone


async def _in_thread(function: Callable[..., T], *args: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, function, *args)
