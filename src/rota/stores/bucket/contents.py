"""The contents of large artifacts, as objects of their own: `artifacts/{key}`.

They are no part of the log, and no node keeps them in memory. A large one is sent in parts, so that a node holds a few
parts of it at a time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence

from ..base import Contents, no_content
from ..threads import Threads
from .service.bucket import Bucket

CONTENTS = "artifacts/"
PIECE = 4 * 1024 * 1024
_THREADS = 4


class BucketContents(Contents):
    """Objects under a prefix of the bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._threads = Threads(_THREADS, "rota-contents")

    def close(self) -> None:
        self._threads.close(wait=True)

    async def write(self, key: str, chunks: Iterator[bytes]) -> None:
        await self._threads.call(self._bucket.put_parts, f"{CONTENTS}{key}", chunks)

    async def read(self, key: str, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        for at in range(start, stop, PIECE):
            found = await self._threads.call(
                self._bucket.get_range, f"{CONTENTS}{key}", at, min(at + PIECE, stop)
            )
            if found is None:
                raise no_content(self._bucket.name, key)
            yield found

    async def keys(self) -> list[str]:
        found = await self._threads.call(self._bucket.list, CONTENTS)
        return [key.removeprefix(CONTENTS) for key in found]

    async def delete(self, keys: Sequence[str]) -> None:
        await self._threads.call(self._bucket.delete, [f"{CONTENTS}{key}" for key in keys])
