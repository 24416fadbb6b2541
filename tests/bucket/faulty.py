"""Requests that fail on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any

from obstore import exceptions as obs

from rota.stores.bucket.service.bucket import FetchedObject, ListedObject, Requests


class Fault(StrEnum):
    BEFORE = "the request never arrives"
    AFTER = "it is done, the answer is lost"
    THROTTLED = "503 SlowDown"
    TAKEN = "409 or 412, although nothing is there"
    TAKEN_AFTER = "done, repeated by something on the way, and then 412 for our own"
    TRUNCATED = "the answer is cut"
    DENIED = "403"
    SLOW = "the answer takes minutes"


Plan = Callable[[int, str], Fault | None]


def never(number: int, kind: str) -> Fault | None:
    return None


class FaultyRequests(Requests):
    """Passes everything on; the plan says which request fails, and how. `slow` is called when one is."""

    def __init__(self, inner: Requests, plan: Plan = never, slow: Callable[[], None] = lambda: None) -> None:
        super().__init__(inner.name, None, None)
        self._inner = inner
        self.plan = plan
        self.slow = slow
        self.made: list[tuple[str, str]] = []

    def do(self, kind: str, key: str, request: Callable[[], Any]) -> Any:
        self.made.append((kind, key))
        match self.plan(len(self.made), kind):
            case Fault.BEFORE:
                raise obs.GenericError("injected: connection refused")
            case Fault.THROTTLED:
                raise obs.GenericError("injected: 503 SlowDown")
            case Fault.DENIED:
                raise obs.PermissionDeniedError("injected: 403")
            case Fault.AFTER:
                request()
                raise obs.GenericError("injected: connection reset")
            case Fault.TAKEN if kind == "create":
                raise obs.AlreadyExistsError("injected: 409")
            case Fault.TAKEN_AFTER if kind == "create":
                request()
                raise obs.AlreadyExistsError("injected: 412")
            case Fault.TRUNCATED if kind == "get":
                found = request()
                return FetchedObject(found.body[: len(found.body) // 2], found.etag)
            case Fault.SLOW:
                answer = request()
                self.slow()
                return answer
        return request()

    def get(self, key: str) -> FetchedObject:
        found: FetchedObject = self.do("get", key, lambda: self._inner.get(key))
        return found

    def create(self, key: str, body: bytes) -> None:
        self.do("create", key, lambda: self._inner.create(key, body))

    def replace(self, key: str, body: bytes, etag: str) -> None:
        self.do("replace", key, lambda: self._inner.replace(key, body, etag))

    def put(self, key: str, body: bytes) -> None:
        self.do("put", key, lambda: self._inner.put(key, body))

    def put_parts(self, key: str, chunks: Iterator[bytes]) -> None:
        self.do("put", key, lambda: self._inner.put_parts(key, chunks))

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        found: bytes = self.do("get range", key, lambda: self._inner.get_range(key, start, stop))
        return found

    def delete(self, keys: list[str]) -> None:
        self.do("delete", keys[0], lambda: self._inner.delete(keys))

    def list(self, prefix: str, after: str | None) -> Iterator[str]:
        keys: Iterator[str] = self.do("list", prefix, lambda: list(self._inner.list(prefix, after)))
        return iter(keys)

    def list_objects(self, prefix: str) -> Iterator[tuple[str, ListedObject]]:
        return iter(self.do("list", prefix, lambda: list(self._inner.list_objects(prefix))))

    def remove_unfinished(self, before: datetime) -> None:
        self._inner.remove_unfinished(before)

    def date(self) -> datetime | None:
        date: datetime | None = self.do("date", "", self._inner.date)
        return date


class ManualClock:
    """A clock that is moved by hand, wall and stopwatch alike."""

    def __init__(self, at: datetime) -> None:
        self.at = at
        self.steady = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        self.steady += 1e-6  # no two moments are the same
        return self.steady
