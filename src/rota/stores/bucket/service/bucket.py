"""A bucket: the few requests that the store makes of one, and what their answers mean.

`Requests` are the bare requests. They are made with obstore: S3, Google, Azure, a folder, or memory. Each service has
two clients. One repeats failed requests. The other never does; it is for conditional writes. `Bucket` gives the answers
their meaning:

- `get` is None where nothing is. obstore repeats reads itself, with backoff, because they change nothing.
- `create` writes only where nothing is. It is sent *once*: a repeated one would meet its own first success and take
  it for another node's. `Taken` is only a hint, since some services answer 409 although nothing was written. After
  `Unavailable` the object may have been written. In both cases only reading tells.
- Every error is a sentence with the bucket and the key. `Denied` is an error that does not go away by waiting.
"""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import get_ident
from typing import IO, Any, NamedTuple
from weakref import finalize

import obstore
from obstore import exceptions as obs
from obstore.store import LocalStore, MemoryStore

from ....domain.errors import StoreError, Unavailable

REPEATING: dict[str, Any] = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=5), "base": 2},
}
ONCE: dict[str, Any] = {"max_retries": 0, "retry_timeout": timedelta(0)}
PART = 5 * 1024 * 1024
"""The least that S3 takes as a part of an object."""
PARTS_AT_ONCE = 3
_REMEMBERED = 10_000
_TRIES = 10
_PART = ".part"
"""At the end of the name of a large object of a folder while it is written."""
_UNFINISHED = re.compile(r"#[0-9]+$")
"""At the end of the name of any other object of a folder while it is written. Lists leave these names out."""
_DATE_TIMEOUT = timedelta(seconds=10)


class FetchedObject(NamedTuple):
    body: bytes
    etag: str | None


class ListedObject(NamedTuple):
    size: int
    etag: str | None


class Requests:
    """The bare requests, one for each call, over any obstore client and with its exceptions. `once` is the client that
    never repeats a request. `name` is the bucket as people know it."""

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

    def put_parts(self, key: str, chunks: Iterator[bytes]) -> None:
        """Write an object that may be large, in parts. It is there when all of them are."""
        obstore.put(self._repeating, key, chunks, chunk_size=PART, max_concurrency=PARTS_AT_ONCE)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        return bytes(obstore.get_range(self._repeating, key, start=start, end=stop))

    def delete(self, keys: list[str]) -> None:
        obstore.delete(self._repeating, keys)

    def list(self, prefix: str, after: str | None) -> Iterator[str]:
        for chunk in obstore.list(self._repeating, prefix, offset=after):
            yield from (found["path"] for found in chunk)

    def list_objects(self, prefix: str) -> Iterator[tuple[str, ListedObject]]:
        """The objects under a prefix, and what a list says about them."""
        for chunk in obstore.list(self._repeating, prefix):
            yield from ((found["path"], ListedObject(found["size"], found["e_tag"])) for found in chunk)

    def remove_unfinished(self, before: datetime) -> None:
        """Remove half-written objects of processes that died before this time. Only a folder has such files; no list
        finds them."""

    def date(self) -> datetime | None:
        """The service's clock, in whole seconds. None means that it has no clock of its own."""
        return None


class MemoryRequests(Requests):
    """Objects in this process, for tests. Those with a name are shared by all who use the name."""

    _named: dict[str, Any] = {}  # noqa: RUF012  shared on purpose

    def __init__(self, name: str = "") -> None:
        objects = self._named.setdefault(name, MemoryStore()) if name else MemoryStore()
        super().__init__(f"memory-bucket:{name}", objects, objects)


class FolderRequests(Requests):
    """A folder of one machine. An object is on the disk before it counts: the text, then its name, and the names of its
    folders. So an entry of the log never names a segment that was lost in a power cut.

    A folder that is no longer the one that was opened, or whose log is not, is refused: it would be made anew, with a
    log that begins in the middle, and nobody could read what was acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        super().__init__(self._folder.as_uri(), None, None)
        self._synced: set[Path] = set()
        self._opened: dict[Path, int] = {}
        with suppress(FileNotFoundError):
            self._open_folder()

    def create(self, key: str, body: bytes) -> None:
        try:
            self._write(key, [body], os.link)
        except FileExistsError as error:
            raise obs.AlreadyExistsError(str(error)) from error

    def put(self, key: str, body: bytes) -> None:
        self._write(key, [body], os.replace)

    def put_parts(self, key: str, chunks: Iterator[bytes]) -> None:
        """Write in parts. If the process dies meanwhile, the part that is there is listed under the key and deleted
        with it."""
        self._write(key, chunks, os.replace, _PART)

    def _write(
        self, key: str, chunks: Iterable[bytes], name: Callable[[Path, Path], None], suffix: str | None = None
    ) -> None:
        """Write the text to the disk, then give it its name. So no reader ever finds half of it."""
        self._check_place()
        path = self._folder / key
        suffix = suffix or f"#{os.getpid()}{get_ident()}"
        unfinished = path.with_name(path.name + suffix)
        try:
            with self._open_new(unfinished) as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
            name(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # removed already by another, with its folder
            _sync(path.parent)
        if (problem := self._gone()) is not None:  # it may have been written, before or after that
            raise Unavailable(problem, is_final=True)

    def _check_place(self) -> None:
        if (problem := self._gone()) is not None:
            raise Denied(problem, is_final=True)

    def _gone(self) -> str | None:
        """The problem, if the path of the folder or of its log leads to another folder by now, or to none."""
        for folder in (self._folder, self._folder / "log"):
            if folder not in self._opened:
                self._open_for_good(folder)
            elif not _is_same(folder, self._opened[folder]):
                return (
                    f"{folder} was deleted, moved or replaced while it was open, so nothing is written to it: put it"
                    " back, or stop what uses the old one and open the store anew"
                )
        return None

    def _open_for_good(self, folder: Path) -> None:
        """While it is open, no other folder gets its number."""
        with suppress(FileNotFoundError):
            self._opened[folder] = os.open(folder, os.O_RDONLY)
            finalize(self, os.close, self._opened[folder])

    def _open_new(self, unfinished: Path) -> IO[bytes]:
        """Open a file. Another process may just be removing its empty folder; then a new folder is made."""
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError, FileExistsError):  # gone while it was looked at
                self._make_folder(unfinished.parent)
                return unfinished.open("wb")
        self._make_folder(unfinished.parent)
        return unfinished.open("wb")

    def _make_folder(self, home: Path) -> None:
        """Make a folder for keys, and sync it. One that exists may not have been synced yet by the process that made
        it."""
        if home in self._synced and home.is_dir():
            return
        missing = [each for each in (self._folder, *self._folder.parents) if not each.exists()]
        home.mkdir(parents=True, exist_ok=True)
        for each in missing:
            _sync(each.parent)
        self._open_folder()
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
                self._open_folder()
                (self._folder / f"{key}{_PART}").unlink(missing_ok=True)
                super().delete([key])
            except FileNotFoundError:
                pass
            except (OSError, obs.BaseError) as error:
                problems.append(error)
            self._remove_empty_folders(self._folder / key)
        for problem in problems:
            raise problem

    def _remove_empty_folders(self, path: Path) -> None:
        """Remove empty folders, except those at the top (`log/` and the like)."""
        with suppress(OSError):  # something is left there
            for folder in path.parents:
                if self._folder in (folder, folder.parent):
                    break
                folder.rmdir()

    def remove_unfinished(self, before: datetime) -> None:
        for home, _, names in os.walk(self._folder):  # it passes over folders that are removed meanwhile
            for path in (Path(home, name) for name in names if _UNFINISHED.search(name)):
                with suppress(FileNotFoundError):  # its writer lives, or another removes it
                    if path.stat().st_mtime < before.timestamp():
                        path.unlink()
                        self._remove_empty_folders(path)

    def get(self, key: str) -> FetchedObject:
        self._open_folder()
        return super().get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        self._open_folder()
        return super().get_range(key, start, stop)

    def list(self, prefix: str, after: str | None) -> Iterator[str]:
        with suppress(FileNotFoundError):
            self._open_folder()
            yield from (key.removesuffix(_PART) for key in super().list(prefix, after))

    def list_objects(self, prefix: str) -> Iterator[tuple[str, ListedObject]]:
        with suppress(FileNotFoundError):
            self._open_folder()
            yield from super().list_objects(prefix)

    def _open_folder(self) -> None:
        """Open the folder. A reader makes none: FileNotFoundError if it is not there."""
        self._check_place()
        if self._repeating is None:
            self._folder.stat()
            self._repeating = self._once = LocalStore(str(self._folder), mkdir=True)


def _is_same(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(opened))
    except FileNotFoundError:
        return False


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class ServiceRequests(Requests):
    """A service on the network. It has a clock of its own. obstore does not show it, so `date` makes a signed request
    without obstore."""

    def __init__(self, name: str, make: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(name, make(REPEATING), make(ONCE))

    def delete(self, keys: list[str]) -> None:
        try:
            super().delete(keys)
        except FileNotFoundError:  # some services say so, and not whether the others were removed
            for key in keys:
                with suppress(FileNotFoundError):
                    super().delete([key])

    def date(self) -> datetime | None:
        try:
            url = obstore.sign(self._once, "HEAD", "clock", timedelta(minutes=1))
        except (obs.BaseError, NotImplementedError, ValueError):
            return self._date_of_an_object()  # these credentials cannot sign
        request = urllib.request.Request(url, method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=_DATE_TIMEOUT.total_seconds()) as answer:
                said = answer.headers["Date"]
        except urllib.error.HTTPError as error:  # "not found" has a date, too
            said = error.headers["Date"]
            error.close()
        except http.client.HTTPException:  # a proxy answers, and not in HTTP
            return None
        try:
            return None if said is None else parsedate_to_datetime(said).astimezone(UTC)
        except ValueError:  # a proxy answers, and not with a date of HTTP
            return None

    def _date_of_an_object(self) -> datetime:
        obstore.put(self._once, "clock", b"")
        return obstore.head(self._once, "clock")["last_modified"].astimezone(UTC).replace(microsecond=0)


_METADATA = "169.254.169.254"
"""The address where machines of Amazon and Azure ask for their role. It is asked if no credentials are set."""

_DENIED = ("status code: 401", "status code: 403")
_MISSING = "status code: 404"
_CONDITIONAL = "write"
_ANSWERED = "Server returned non-2xx status code: "
_MADE = re.compile(
    r"Error performing (?P<method>[A-Z]+) (?P<url>[^ ?]+)\S* in \S+?"
    r"(?:, after (?P<retries>\d+) retries.*?)? +- (?P<what>.+)"
)
_NAMED = re.compile(r"<Code>(\w+)</Code>")


class Taken(StoreError):
    """The service says that an object is there already. Only reading tells."""


class Denied(Unavailable):
    """The service refuses the request. Nothing was done, and to repeat it does not help."""


class Bucket:
    """The requests, with the meaning of their answers."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    @property
    def name(self) -> str:
        return self._requests.name

    def get(self, key: str) -> bytes | None:
        found = self.find(key)
        return None if found is None else found.body

    def find(self, key: str) -> FetchedObject | None:
        with suppress(FileNotFoundError), self._translate_errors("read", key):
            return self._requests.get(key)
        return None

    def create(self, key: str, body: bytes) -> None:
        with self._translate_errors(_CONDITIONAL, key):
            self._requests.create(key, body)

    def replace(self, key: str, body: bytes, etag: str) -> None:
        """Write where an object with this etag is."""
        with self._translate_errors(_CONDITIONAL, key):
            self._requests.replace(key, body, etag)

    def put(self, key: str, body: bytes) -> None:
        with self._translate_errors("put", key):
            self._requests.put(key, body)

    def put_parts(self, key: str, chunks: Iterator[bytes]) -> None:
        with self._translate_errors("put", key):
            self._requests.put_parts(key, chunks)

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        """Some bytes of an object; None where nothing is."""
        with suppress(FileNotFoundError), self._translate_errors("read", key):
            return self._requests.get_range(key, start, stop)
        return None

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. It is no error if they are not there."""
        chosen = list(keys)
        for start in range(0, len(chosen), 1000):
            batch = chosen[start : start + 1000]
            with self._translate_errors("delete", batch[0]):
                self._requests.delete(batch)

    def remove_unfinished(self, before: datetime) -> None:
        with self._translate_errors("delete", ""):
            self._requests.remove_unfinished(before)

    def list_objects(self, prefix: str) -> list[tuple[str, ListedObject]]:
        with self._translate_errors("list", prefix):
            return list(self._requests.list_objects(prefix))

    def list(self, prefix: str, after: str | None = None) -> list[str]:
        """The keys under a prefix, in order, behind `after`. Some services ignore `after`, so it is applied again."""
        with self._translate_errors("list", prefix):
            keys = list(self._requests.list(prefix, after))
        return sorted(key for key in keys if after is None or key > after)

    def date(self) -> datetime | None:
        with self._translate_errors("ask the time of", ""):
            return self._requests.date()

    @contextmanager
    def _translate_errors(self, act: str, key: str) -> Iterator[None]:
        name = f"{self.name}/{key}" if key else self.name
        try:
            yield
        except (obs.AlreadyExistsError, obs.PreconditionError) as error:
            if act != _CONDITIONAL:
                raise Unavailable(f"cannot {act} {name}: {first_line(error)}", key=key) from error
            raise Taken(f"{name} is taken: {first_line(error)}", key=key) from error
        except (obs.PermissionDeniedError, obs.UnauthenticatedError) as error:
            raise Denied(f"cannot {act} {name}: access denied ({first_line(error)})", key=key) from error
        except obs.BaseError as error:
            if _METADATA in str(error):
                raise Denied(
                    f"cannot {act} {name}: no credentials were found in the environment, and this machine has no role",
                    key=key,
                ) from error
            if any(code in str(error) for code in _DENIED):  # a list has no exception of its own for it
                raise Denied(f"cannot {act} {name}: access denied ({first_line(error)})", key=key) from error
            if act == "list" and _MISSING in str(error):  # an empty list is no error
                raise Unavailable(f"cannot list {name}: there is no such bucket", key=key) from error
            raise Unavailable(f"cannot {act} {name}: {first_line(error)}", key=key) from error
        except FileNotFoundError as error:
            if act == "read":
                raise
            raise Unavailable(f"cannot {act} {name}: there is no such bucket", key=key) from error
        except OSError as error:
            raise Unavailable(f"cannot {act} {name}: {first_line(error)}", key=key) from error


def first_line(error: BaseException) -> str:
    """The error in one line. obstore adds much around it, and pages of debugging. Of an answer in XML it is the
    service's name for the error."""
    text = str(error)
    line = text.partition("\n")[0].partition(": <")[0]
    made, named = _MADE.search(line), _NAMED.search(text)
    if made is not None:
        what = made["what"].removeprefix(_ANSWERED) + (f" {named[1]}" if named else "")
        after = f", after {made['retries']} retries" if made["retries"] else ""
        line = f"{what} to {made['method']} {made['url']}{after}"
    return line[:300]
