"""The log: `log/{number}.json`, each entry written only where nothing is. Whoever writes entry N has decided
what happens after N-1; everybody else reads it.

**Reading.** `catch_up` reads the next entries until there is none. After a few it reads ahead, twice as many at once
each time. Only who starts, or is far behind, lists what there is: a list costs as much as a dozen reads. Whoever lists
or reads ahead may notice an entry that is missing before others: nothing of ours removes that, so it is said
(`Corrupt`), as long as it is missing, and neither the end is taken to be there nor anything written there.

**Writing.** `append` says whether entry N is ours. The number is the arbiter: whatever the service answered, what
stands at N is what happened. So an answer that is no clear success is settled by reading N: with our commit id,
we won; with another, we lost; and if nothing is there, *the same bytes* are sent again, so that a first request
that arrives late after all meets its own twin, or finds N taken.

**Sleeping.** The log is removed behind us (`objects_removal`) when a snapshot has made it unnecessary for
`retention`. A node that slept longer would find nothing at its next number, take that for the end, and could even
write there. So "nothing there" is believed only within `window` of the last time it was seen to be true: nothing
that was absent then can have been written and removed since. Later, the snapshots are asked: if the newest is not
ahead of us, nothing that we lack is gone; else we start from it.

The same for a write. If its answer comes too late, the state is brought up to date first, and then `floor` decides:
entries are removed only after an entry of the log has announced it, so a number above the floor was never removed,
and what stands there is what happened. Below it the outcome is unknown, and an entry of ours that stands there counts
for nobody: no node reads below the floor.

**Threads.** Several follow one log, and any of them may bring it up to date while another sleeps with an old number
in its hand. So a number is never judged by how current the node is *now*, but by the `Place` that it was taken from:
both are read at once, and the place's mark decides. Decision 21 has the argument.

Reading entries of the log by their numbers: one, or several at once, up to the first that is not there.

An entry that is absent is the end, unless a later one is there: that was written after it, so it is there by now, and
is asked for once more. If it is still absent, it is a hole, until somebody puts it back. Nothing is said about a place
that is no longer to be trusted (`objects_log`): there, entries may have been removed by us.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from ...domain.errors import Corrupt, Unavailable
from ..base import no_store
from .entry import READS, TYPES, Entry, decode, entry_key, rows_in
from .pacing import Guess, Turns
from .replica import Replica
from .service.clock import Mark, Stopwatch
from .service.objects import Bucket, Denied, Taken
from .service.proof import check_create, is_begun
from .snapshot import Restored, newest, number_of, numbered, restore
from .tuning import Tuning

__all__ = [
    "Entries",
    "Log",
    "Pauses",
    "Place",
]


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


_ONE_BY_ONE = 8
_PARALLEL = 16
_FAR = 256
_LOADS = 3
_POLL, _COMMIT = "poll", "commit"


class Pauses:
    """Growing pauses with jitter, until the patience is at its end."""

    def __init__(
        self, tuning: Tuning, watch: Stopwatch, sleep: Callable[[float], object], first: float = 0.0
    ) -> None:
        self._tuning = tuning
        self._watch = watch
        self._sleep = sleep
        self._began = watch.mark()
        self._ceiling = max(first, tuning.shortest_pause.total_seconds())
        self._slept = 0.0

    @property
    def exhausted(self) -> bool:
        patience = self._tuning.patience
        return self._slept > patience.total_seconds() or self._watch.since(self._began) > patience

    def take(self) -> None:
        pause = self._ceiling * random.uniform(0.5, 1.5)
        self._ceiling = min(2 * self._ceiling, self._tuning.longest_pause.total_seconds())
        self._slept += pause
        self._sleep(pause)


class Log:
    """The log of one bucket, and the replica that follows it."""

    def __init__(
        self,
        bucket: Bucket,
        replica: Replica,
        watch: Stopwatch,
        tuning: Tuning,
        node: str,
        now: Callable[[], datetime],
        sleep: Callable[[float], object],
    ) -> None:
        self._bucket = bucket
        self._entries = Entries(bucket, self.trusts)
        self._replica = replica
        self._watch = watch
        self._tuning = tuning
        self._node = node
        self._now = now
        self._sleep = sleep
        self.may_begin = True
        """Whether a log may be begun where there is none."""
        self._placed_at: Mark | None = None
        self._current_at: Mark | None = None
        self.snapshots: dict[int, datetime] = {}
        """Snapshots that are known to exist, and since when that is known."""
        self.snapshot = 0
        """The newest of them."""
        self.floor = 0
        """Entries up to here may be gone: an entry of the log has said so."""
        self.next_floor = 0
        """What the next entry is to say."""
        self.bytes_since_snapshot = 0
        self.snapshot_bytes = 0
        self.turns = Turns(watch, sleep)
        self.guess = Guess()

    @property
    def name(self) -> str:
        return self._bucket.name

    def pauses(self) -> Pauses:
        return Pauses(self._tuning, self._watch, self._sleep, self.turns.round_trip)

    @property
    def current_at(self) -> Mark | None:
        """When the replica was last seen to be at the end of the log."""
        return self._current_at

    def is_fresh(self, current_at: Mark | None) -> bool:
        """Whether a state that was current then may be taken to be so still."""
        return current_at is not None and self._watch.since(current_at) < self._tuning.fresh

    def catch_up(self) -> bool:
        """Read what is new; whether there was anything."""
        return self._read_on(lambda read: True)

    def look(self) -> bool:
        """For a poll: as `catch_up`, but what comes behind the last entry may be left to the next look."""
        return self._read_on(
            lambda read: not read or not self._is_current() or self.guess.is_worth_now_and_then(_POLL, read),
            _POLL,
        )

    def look_before_commit(self, *, always: bool) -> bool:
        """As `catch_up`, but what is probably not there is left to the commit to find."""
        return self._read_on(
            lambda read: (always and not read) or self.guess.is_worth(_COMMIT, read), _COMMIT
        )

    def _read_on(self, is_worth: Callable[[int], bool], occasion: str = "") -> bool:
        before = self._replica.number
        for _ in range(_LOADS):
            if self._follow(is_worth, occasion):
                return self._replica.number != before
            self._load()
        raise Unavailable(f"{self._bucket.name} cannot be read within {self._tuning.window}")

    def _follow(self, is_worth: Callable[[int], bool], occasion: str) -> bool:
        """To the end of the log; False: we were away for too long to tell where it is."""
        read, unlisted, at_once = 0, 0, 1
        while self.trusts(place := self.place()):
            if not is_worth(read):
                return True
            asked = self._watch.mark()
            found = self._read_some(place, at_once)
            if found is None:
                break
            if occasion:
                self._learn_odds(occasion, read, found, at_once)
            if found < at_once:
                self._confirm(place.number + found, asked)
                return True
            read, unlisted = read + found, unlisted + found
            at_once = 1 if read < _ONE_BY_ONE else min(2 * at_once, _PARALLEL)
            if unlisted >= _FAR:
                self._read_many()
                unlisted, at_once = 0, 1
        return False

    def _read_some(self, place: Place, at_once: int) -> int | None:
        """How many of so many entries behind a place there were: fewer mean that the log ends there. None: it took so
        long that nobody knows. (All answers are judged by the place: what holds behind it holds behind later ones.)"""
        found = 0
        for entry in self._entries.behind(place, at_once):
            if not self.trusts(place):
                return None
            self._arrived(entry)
            found += 1
        return found if self.trusts(place) else None

    def _learn_odds(self, occasion: str, read: int, found: int, at_once: int) -> None:
        for more in range(found):
            self.guess.saw(occasion, read + more, True)
        if found < at_once:
            self.guess.saw(occasion, read + found, False)

    def _is_current(self) -> bool:
        at = self._current_at
        return at is not None and self._watch.since(at) < self._tuning.fresh / 2

    def append(self, place: Place, commit: str, body: bytes) -> bool:
        """Whether the entry behind `place` is ours; then the replica is to apply it. The place is the one from which
        the entry was made, and not where other threads have brought the replica meanwhile."""
        number = place.number + 1
        self._entries.check_hole(place)
        asked = self._watch.mark()
        pauses = self.pauses()
        while True:
            ours, problem = self._try(place, commit, body)
            if ours is not None:
                self.guess.answer(_COMMIT, not ours)
                break
            if isinstance(problem, Denied):
                raise problem
            if pauses.exhausted:
                raise Unavailable(
                    f"whether {self._bucket.name}/{entry_key(number)} was written is unknown ({problem})",
                    key=entry_key(number),
                ) from problem
            pauses.take()
        if not self.trusts(place):
            self._settle_late(number)
        elif ours:
            self._confirm(place.number, asked)
            self.bytes_since_snapshot += len(body)
        return ours

    def _settle_late(self, number: int) -> None:
        """What the service said about `number` stands, if no entry of that number can have been removed. The end of
        the log is looked for only now, after the answer: it has told of every removal before that."""
        self.catch_up()
        if self.floor >= number:
            with suppress(Unavailable):
                self._bucket.delete([entry_key(number)])
            raise Unavailable(
                f"{self._bucket.name}/{entry_key(number)} was answered too late to know whether it counts",
                key=entry_key(number),
            )

    def _try(self, place: Place, commit: str, body: bytes) -> tuple[bool | None, Exception | None]:
        """Ours, another's, or None: not there, or nobody knows."""
        try:
            asked = self._watch.mark()
            self._bucket.create(entry_key(place.number + 1), body)
            self.turns.took(self._watch.since(asked))
            return True, None
        except Denied as error:
            return None, error
        except (Taken, Unavailable) as error:
            return self._whose(place, commit), error

    def _whose(self, place: Place, commit: str) -> bool | None:
        try:
            entry = self._entries.read(place.number + 1)
        except Unavailable:
            return None
        if entry is None or entry.commit == commit:
            return None if entry is None else True
        if self.trusts(place):
            self._arrived(entry)
        return False

    def place(self) -> Place:
        """Where we are, and since when we have not made sure of it: both of the same moment."""
        with self._replica.lock:
            return Place(self._replica.number, self._placed_at)

    def trusts(self, place: Place) -> bool:
        """Whether what is said about the number behind this place can still be believed."""
        return place.mark is not None and self._watch.since(place.mark) < self._tuning.window

    def _confirm(self, number: int, at: Mark) -> None:
        with self._replica.lock:
            if self._replica.number == number:
                self._placed_at = self._current_at = at

    def _arrived(self, entry: Entry) -> None:
        """An entry that was read. Another thread may have been faster."""
        rows = rows_in(f"{self._bucket.name}/{entry_key(entry.number)}", entry.put)
        deletes = [(TYPES[name], id) for name, ids in entry.delete.items() for id in ids]
        with self._replica.lock:
            if entry.number == self._replica.number + 1:
                self._replica.apply(entry.number, rows, deletes, entry.leave, entry.segment)
                if entry.node != self._node:
                    self.turns.seen(entry.node)
                self.bytes_since_snapshot += sum(len(row.body) for row in rows)
                self.learn(entry.snapshot, entry.floor)

    def learn(self, snapshot: int, floor: int) -> None:
        if snapshot and snapshot not in self.snapshots:
            self.snapshots[snapshot] = self._now()
            self.snapshot = max(self.snapshot, snapshot)
            self.bytes_since_snapshot = 0
        self.floor = max(self.floor, floor)
        self.next_floor = max(self.next_floor, self.floor)

    def _read_many(self) -> bool:
        """Far behind: list the log, and read in parallel. Whether there was any."""
        place = self.place()
        first = place.number
        keys = self._bucket.list("log/", entry_key(first))
        numbers = [first + 1 + n for n, key in enumerate(keys) if key == entry_key(first + 1 + n)]
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="rota-log") as readers:
            for entry in readers.map(self._entries.read, numbers):
                if entry is None or not self.trusts(place):  # removed meanwhile: the snapshots will say
                    break
                self._arrived(entry)
        self._entries.check_whole(place, first + len(numbers) + 1, keys)
        return bool(keys)

    def _load(self) -> None:
        """From the newest snapshot, if it is ahead of us, and what the log has behind it. If it is not, nothing that
        we lack was removed: what is removed lies before a snapshot, and the newest always stays."""
        asked = self._watch.mark()
        is_first = self._placed_at is None
        found = self._newest_ahead()
        with self._replica.lock:
            if found is not None and (self._placed_at is None or found.number > self._replica.number):
                self._replica.reset(found.number, found.rows, found.segments, found.dropped)
                self.snapshots = dict(found.snapshots)
                self.learn(found.number, found.floor)
                self.snapshot_bytes, self.bytes_since_snapshot = found.size, 0
            self._placed_at = asked  # and not current: what lies behind the snapshot is yet to be read
        has_more = self._read_many()
        if is_first:
            is_empty = not has_more and found is None
            if is_empty and not self.may_begin and not is_begun(self._bucket):
                raise no_store(self._bucket.name)
            check_create(self._bucket)

    def _newest_ahead(self) -> Restored | None:
        pauses = self.pauses()
        while True:
            key = newest(self._bucket)
            if key is None or (self._placed_at is not None and number_of(key) <= self._replica.number):
                return None
            found = restore(self._bucket, key)
            if found is not None:
                return found
            if pauses.exhausted:
                raise Unavailable(f"{self._bucket.name}/{key} is listed and cannot be found", key=key)
            pauses.take()
