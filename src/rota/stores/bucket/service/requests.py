"""The requests of a bucket, made with obstore: S3, Google, Azure, a folder, or memory.

Each service has two clients. One repeats failed requests. The other never does; it is for conditional writes.
"""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import get_ident
from typing import IO, Any, NamedTuple, Protocol

import obstore
import obstore.exceptions
from obstore.store import LocalStore, MemoryStore

__all__ = [
    "FetchedObject",
    "FolderRequests",
    "ListedObject",
    "MemoryRequests",
    "ObstoreRequests",
    "Requests",
    "ServiceRequests",
]

REPEATING: dict[str, Any] = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=5), "base": 2},
}
ONCE: dict[str, Any] = {"max_retries": 0, "retry_timeout": timedelta(0)}
_REMEMBERED = 10_000
_TRIES = 10
_DATE_TIMEOUT = timedelta(seconds=10)


class FetchedObject(NamedTuple):
    body: bytes
    etag: str | None


class ListedObject(NamedTuple):
    size: int
    etag: str | None


class Requests(Protocol):
    """The bare requests, one for each call, with the exceptions of obstore."""

    @property
    def name(self) -> str:
        """The bucket as people know it."""
        ...

    def get(self, key: str) -> FetchedObject: ...

    def create(self, key: str, body: bytes) -> None: ...

    def replace(self, key: str, body: bytes, etag: str) -> None: ...

    def put(self, key: str, body: bytes) -> None: ...

    def delete(self, keys: list[str]) -> None: ...

    def list(self, prefix: str, after: str | None) -> Iterator[str]: ...

    def list_objects(self, prefix: str) -> Iterator[tuple[str, ListedObject]]:
        """The objects under a prefix, and what a list says about them."""
        ...

    def date(self) -> datetime | None:
        """The service's clock, in whole seconds; None: it has none of its own."""
        ...


class ObstoreRequests:
    """Over any obstore client. `once` is the one that never repeats a request."""

    def __init__(self, name: str, repeating: Any, once: Any) -> None:
        self.name = name
        self._repeating = repeating
        self._once = once

    def get(self, key: str) -> FetchedObject:
        answer = obstore.get(self._repeating, key)
        return FetchedObject(bytes(answer.bytes()), answer.meta["e_tag"])

    def create(self, key: str, body: bytes) -> None:
        obstore.put(self._once, key, body, mode="create")

    def replace(self, key: str, body: bytes, etag: str) -> None:
        obstore.put(self._once, key, body, mode={"e_tag": etag})  # `version: None` beside it would raise

    def put(self, key: str, body: bytes) -> None:
        obstore.put(self._repeating, key, body, use_multipart=False)

    def delete(self, keys: list[str]) -> None:
        obstore.delete(self._repeating, keys)

    def list(self, prefix: str, after: str | None) -> Iterator[str]:
        for chunk in obstore.list(self._repeating, prefix, offset=after):
            yield from (found["path"] for found in chunk)

    def list_objects(self, prefix: str) -> Iterator[tuple[str, ListedObject]]:
        for chunk in obstore.list(self._repeating, prefix):
            yield from ((found["path"], ListedObject(found["size"], found["e_tag"])) for found in chunk)

    def date(self) -> datetime | None:
        return None


class MemoryRequests(ObstoreRequests):
    """Objects in this process, for tests. Those with a name are shared by all who use the name."""

    _named: dict[str, Any] = {}  # noqa: RUF012  shared on purpose

    def __init__(self, name: str = "") -> None:
        objects = self._named.setdefault(name, MemoryStore()) if name else MemoryStore()
        super().__init__(f"memory-bucket:{name}", objects, objects)


class FolderRequests(ObstoreRequests):
    """A folder of one machine. An object is on the disk before it counts: the text, then its name, and the names of its
    folders. So an entry of the log never names a segment that was lost in a power cut."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        super().__init__(self._folder.as_uri(), None, None)
        self._synced: set[Path] = set()
        with suppress(FileNotFoundError):
            self._look()

    def create(self, key: str, body: bytes) -> None:
        try:
            self._write(key, body, os.link)
        except FileExistsError as error:
            raise obstore.exceptions.AlreadyExistsError(str(error)) from error

    def put(self, key: str, body: bytes) -> None:
        self._write(key, body, os.replace)

    def _write(self, key: str, body: bytes, name: Callable[[Path, Path], None]) -> None:
        """Write the text to the disk, then give it its name. So no reader ever finds half of it."""
        path = self._folder / key
        half = path.with_name(f"{path.name}#{os.getpid()}{get_ident()}")  # a name that lists leave out
        try:
            with self._begin(half) as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            name(half, path)
        finally:
            half.unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # removed already by another, with its folder
            _sync(path.parent)

    def _begin(self, half: Path) -> IO[bytes]:
        """Open a file. Another process may just be removing its empty folder; then a new folder is made."""
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError, FileExistsError):  # gone while it was looked at
                self._make(half.parent)
                return half.open("wb")
        self._make(half.parent)
        return half.open("wb")

    def _make(self, home: Path) -> None:
        """Make a folder for keys, and sync it. One that exists may not have been synced yet by the process that made
        it."""
        if home in self._synced and home.is_dir():
            return
        missing = [each for each in (self._folder, *self._folder.parents) if not each.exists()]
        home.mkdir(parents=True, exist_ok=True)
        for each in missing:
            _sync(each.parent)
        self._look()
        for folder in (home, *home.parents):
            if folder == self._folder:
                break
            _sync(folder.parent)
        with suppress(PermissionError):  # what lies above is not ours, and need not be readable
            _sync(self._folder.parent)
        if len(self._synced) >= _REMEMBERED:
            self._synced.clear()
        self._synced.add(home)

    def delete(self, keys: list[str]) -> None:
        """Delete each key, even if others fail, and the folders that are empty then."""
        problems: list[Exception] = []
        for key in keys:
            try:
                self._look()
                super().delete([key])
            except FileNotFoundError:
                pass
            except (OSError, obstore.exceptions.BaseError) as error:
                problems.append(error)
            self._clear(self._folder / key)
        for problem in problems:
            raise problem

    def _clear(self, path: Path) -> None:
        """Remove empty folders, except those at the top (`log/` and the like)."""
        with suppress(OSError):  # something is left there
            for folder in path.parents:
                if self._folder in (folder, folder.parent):
                    break
                folder.rmdir()

    def get(self, key: str) -> FetchedObject:
        self._look()
        return super().get(key)

    def list(self, prefix: str, after: str | None) -> Iterator[str]:
        with suppress(FileNotFoundError):
            self._look()
            yield from super().list(prefix, after)

    def list_objects(self, prefix: str) -> Iterator[tuple[str, ListedObject]]:
        with suppress(FileNotFoundError):
            self._look()
            yield from super().list_objects(prefix)

    def _look(self) -> None:
        """Open the folder. A reader makes none: FileNotFoundError if it is not there."""
        if self._repeating is None:
            self._folder.stat()
            self._repeating = self._once = LocalStore(str(self._folder), mkdir=True)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class ServiceRequests(ObstoreRequests):
    """A service somewhere else, with a clock of its own, which obstore does not show: a signed request made
    without it does."""

    def __init__(self, name: str, make: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(name, make(REPEATING), make(ONCE))

    def delete(self, keys: list[str]) -> None:
        try:
            super().delete(keys)
        except FileNotFoundError:  # some services say so, and leave open what became of the others
            for key in keys:
                with suppress(FileNotFoundError):
                    super().delete([key])

    def date(self) -> datetime | None:
        try:
            url = obstore.sign(self._once, "HEAD", "clock", timedelta(minutes=1))
        except (obstore.exceptions.BaseError, NotImplementedError, ValueError):
            return self._date_of_an_object()  # these credentials cannot sign
        request = urllib.request.Request(url, method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=_DATE_TIMEOUT.total_seconds()) as answer:
                said = answer.headers["Date"]
        except urllib.error.HTTPError as error:  # "not found" has a date, too
            said = error.headers["Date"]
            error.close()
        except http.client.HTTPException:  # something on the way speaks another language
            return None
        try:
            return None if said is None else parsedate_to_datetime(said).astimezone(UTC)
        except ValueError:  # something on the way says it, and not in words of HTTP
            return None

    def _date_of_an_object(self) -> datetime:
        obstore.put(self._once, "clock", b"")
        return obstore.head(self._once, "clock")["last_modified"].astimezone(UTC).replace(microsecond=0)
