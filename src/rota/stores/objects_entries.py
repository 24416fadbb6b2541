"""Reading entries of the log by their numbers: one, or several at once, up to the first that is not there.

An entry that is absent is the end, unless a later one is there: that was written after it, so it is there by now, and
is asked for once more. If it is still absent, it is a hole, until somebody puts it back. Nothing is said about a place
that is no longer to be trusted (`objects_log`): there, entries may have been removed by us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from ..domain.errors import Corrupt
from .objects_bucket import Bucket
from .objects_clock import Mark
from .objects_entry import READS, Entry, decode, entry_key
from .objects_snapshot import numbered

__all__ = ["Entries", "Place"]


class Place(NamedTuple):
    """We are behind entry `number`, and at `mark` no snapshot was ahead of it: so nothing behind it was removed then,
    nor is for `retention`. The next number can be believed in within `window` of the mark, and no longer."""

    number: int
    mark: Mark | None


class Entries:
    """Those of one bucket. `trusts` says whether a place can still be believed in."""

    def __init__(self, bucket: Bucket, trusts: Callable[[Place], bool]) -> None:
        self._bucket = bucket
        self._trusts = trusts
        self._hole = (0, "")
        """The number of an entry that is missing, and which one is there all the same."""

    def read(self, number: int) -> Entry | None:
        key = entry_key(number)
        for _ in range(READS - 1):
            body = self._bucket.get(key)
            try:
                return None if body is None else self._decode(key, body)
            except Corrupt:
                continue
        body = self._bucket.get(key)
        return None if body is None else self._decode(key, body)

    def _decode(self, key: str, body: bytes) -> Entry:
        entry = decode(f"{self._bucket.name}/{key}", body)
        if key != entry_key(entry.number):
            raise Corrupt(f"{self._bucket.name}/{key} says that it is entry {entry.number}", key=key)
        return entry

    def behind(self, place: Place, at_once: int) -> Iterator[Entry]:
        """Of so many behind a place those that are there, up to the first that is not."""
        if at_once > 1:
            yield from self._ahead(place, at_once)
            return
        number = place.number + 1
        entry = self._again(place, *self._hole) if number == self._hole[0] else self.read(number)
        if entry is not None:
            yield entry

    def _ahead(self, place: Place, at_once: int) -> Iterator[Entry]:
        numbers = range(place.number + 1, place.number + 1 + at_once)
        with ThreadPoolExecutor(at_once, thread_name_prefix="rota-log") as readers:
            answers = {number: readers.submit(self.read, number) for number in numbers}
        for number, answer in answers.items():
            entry = answer.result()
            later = [other for other in numbers if other > number and _is_there(answers[other])]
            if entry is None and later:
                entry = self._again(place, number, entry_key(later[-1]))
            if entry is None:
                return
            yield entry

    def check_hole(self, place: Place) -> None:
        """Before something is written behind a place."""
        if place.number + 1 == self._hole[0]:
            self._again(place, *self._hole)

    def check_whole(self, place: Place, number: int, keys: list[str]) -> None:
        """`number` comes behind the entries that were listed in a row: if there are later ones, it must be there, too,
        at least now (a list may be older at its beginning than at its end)."""
        later = [key for key in keys if key > entry_key(number) and numbered([key])]
        if later:
            self._again(place, number, later[-1])

    def _again(self, place: Place, number: int, later: str) -> Entry | None:
        """An entry that was not there, although a later one was: it came after we had asked, or it was taken away.
        None: we were away for too long to tell."""
        entry = self.read(number)
        if entry is None and self._trusts(place):
            self._hole = number, later
            raise Corrupt(
                f"{self._bucket.name}/{entry_key(number)} is missing, although {later} is there; rota"
                " removes nothing there, so somebody did, or a lifecycle rule",
                key=entry_key(number),
            )
        return entry


def _is_there(answer: Future[Entry | None]) -> bool:
    """Also if it cannot be read: then it is said when its turn comes."""
    problem = answer.exception()
    return isinstance(problem, Corrupt) if problem is not None else answer.result() is not None
