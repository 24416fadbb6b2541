"""A bucket: the few requests that the store makes of one, and what their answers mean.

- `get` is None where nothing is. obstore repeats reads itself, with backoff, because they change nothing.
- `create` writes only where nothing is. It is sent *once*: a repeated one would meet its own first success and take
  it for another node's. `Taken` is only a hint, since some services answer 409 although nothing was written. After
  `Unavailable` the object may have been written. In both cases only reading tells.
- Every error is a sentence with the bucket and the key. `Denied` is an error that does not go away by waiting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from obstore import exceptions as obs

from ....domain.errors import StoreError, Unavailable
from .requests import FetchedObject, ListedObject, Requests

__all__ = ["Bucket", "Denied", "Taken", "first_line"]


_METADATA = "169.254.169.254"
"""Where machines of Amazon and Azure learn who they are. It is asked when nothing else says so."""

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
    """The service says that something is there already: read it before believing it."""


class Denied(Unavailable):
    """The service refuses us. Nothing was done, and repeating it does not help."""


class Bucket:
    """Requests with meaning."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    @property
    def name(self) -> str:
        return self._requests.name

    def get(self, key: str) -> bytes | None:
        found = self.find(key)
        return None if found is None else found.body

    def find(self, key: str) -> FetchedObject | None:
        try:
            with self._in_words("read", key):
                return self._requests.get(key)
        except FileNotFoundError:
            return None

    def create(self, key: str, body: bytes) -> None:
        with self._in_words(_CONDITIONAL, key):
            self._requests.create(key, body)

    def replace(self, key: str, body: bytes, etag: str) -> None:
        """Write where an object with this etag is."""
        with self._in_words(_CONDITIONAL, key):
            self._requests.replace(key, body, etag)

    def put(self, key: str, body: bytes) -> None:
        with self._in_words("put", key):
            self._requests.put(key, body)

    def delete(self, keys: Iterable[str]) -> None:
        """Gone, whether they were there or not."""
        chosen = list(keys)
        for start in range(0, len(chosen), 1000):
            batch = chosen[start : start + 1000]
            with self._in_words("delete", batch[0]):
                self._requests.delete(batch)

    def list_objects(self, prefix: str) -> list[tuple[str, ListedObject]]:
        with self._in_words("list", prefix):
            return list(self._requests.list_objects(prefix))

    def list(self, prefix: str, after: str | None = None) -> list[str]:
        """Keys under a prefix, in order, behind `after` (which some services ignore: filtered again)."""
        with self._in_words("list", prefix):
            keys = list(self._requests.list(prefix, after))
        return sorted(key for key in keys if after is None or key > after)

    def date(self) -> datetime | None:
        with self._in_words("ask the time of", ""):
            return self._requests.date()

    @contextmanager
    def _in_words(self, act: str, key: str) -> Iterator[None]:
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
    """What happened, where obstore says around it in many words that something did, and adds pages of debugging. Of
    what the service says in XML, the name that it gives to it."""
    text = str(error)
    line = text.partition("\n")[0].partition(": <")[0]
    made, named = _MADE.search(line), _NAMED.search(text)
    if made is not None:
        what = made["what"].removeprefix(_ANSWERED) + (f" {named[1]}" if named else "")
        after = f", after {made['retries']} retries" if made["retries"] else ""
        line = f"{what} to {made['method']} {made['url']}{after}"
    return line[:300]
