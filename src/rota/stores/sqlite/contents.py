"""The contents of large artifacts, as files in a folder next to the database: `rota.db-artifacts/`.

A file is written under a temporary name, brought to the disk, and then given its own. A write that was cut short leaves
the temporary name behind. It counts as a key like any other: no record names it, so it is removed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...domain.errors import Unavailable
from ..base import Contents, no_content
from ..threads import Threads

T = TypeVar("T")
PIECE = 1024 * 1024
_UNFINISHED = ".part"
_THREADS = 4


class FolderContents(Contents):
    """One file for each key, in a folder for each beginning of a key. The folder is made by the first write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._threads = Threads(_THREADS, "rota-contents")

    def close(self) -> None:
        self._threads.close(wait=True)

    async def write(self, key: str, chunks: Iterator[bytes]) -> None:
        await self._run(lambda: self._write(self._path(key), chunks))

    async def read(self, key: str, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        try:
            file = await self._run(lambda: self._path(key).open("rb", buffering=0))
        except FileNotFoundError:
            raise no_content(str(self.folder), key) from None
        with file:
            for at in range(start, stop, PIECE):
                yield await self._run(partial(os.pread, file.fileno(), min(PIECE, stop - at), at))

    async def keys(self) -> list[str]:
        return await self._run(self._keys)

    async def delete(self, keys: Sequence[str]) -> None:
        def delete() -> None:
            for path in map(self._path, keys):
                path.unlink(missing_ok=True)
                path.with_name(path.name + _UNFINISHED).unlink(missing_ok=True)

        await self._run(delete)

    async def _run(self, function: Callable[[], T]) -> T:
        try:
            return await self._threads.call(function)
        except FileNotFoundError:
            raise
        except OSError as error:
            problem = f"the artifacts in {self.folder} cannot be read or written ({error.strerror or error})"
            raise Unavailable(f"{problem}: check the folder and its disk") from error

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _write(self, path: Path, chunks: Iterator[bytes]) -> None:
        for folder in (self.folder, path.parent):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
                _sync(folder.parent)
        unfinished = path.with_name(path.name + _UNFINISHED)
        with open(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        _sync(path.parent)

    def _keys(self) -> list[str]:
        found = self.folder.glob("[0-9a-f][0-9a-f]/*")
        return sorted({path.name.removesuffix(_UNFINISHED) for path in found})


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
