"""The log: `log/{number}.json`. An entry is written only where nothing is, so each number has one writer. The writer of
entry N decides what happens after N-1, and all other nodes read it.

**Reading.** `catch_up` reads the next entries one by one until there is none. A node that starts or is more than a few
entries behind lists the log and reads the rest in parallel. (A list costs as much as a dozen reads.)

**Missing entries.** The log ends where an entry is absent, unless a list has shown a later one. Then the absent one is
read once more: it may have been written after the list passed it. If it is still absent, somebody has removed it. Rota
never removes an entry there, so this is `Corrupt` until the entry is back, and nothing is written at its number.

**Writing.** `append` says whether entry N is ours. The object at N decides, not the service's answer. After an answer
that is no clear success, N is read. If it has our commit id, we won; if it has another, we lost. If nothing is there,
*the same bytes* are sent again: a first request that arrives late then meets an equal one, or finds N taken.

**Sleeping.** Old entries are removed (`log_removal`) when a snapshot has made them unnecessary for `retention`. A
node that slept longer would find nothing at its next number, take that for the end, and could write there. So
"nothing there" is believed only within `window` of the last time it was seen to be true: no entry can be written and
removed in that time. After the window the node asks for the newest snapshot. If that is ahead of the node, the node
starts from it. Otherwise no entry that the node lacks has been removed.

A write whose answer came too late is judged by `floor`. Entries are removed only after an entry of the log has
announced it, so a number above the floor was never removed, and the object there counts. Below the floor the outcome
is unknown, and an entry of ours there counts for nobody: no node reads below the floor.

**Threads.** Several threads follow one log. One of them may bring the replica up to date while another sleeps and
still holds an old number. So a number is judged by the `LogPosition` it was taken from, and not by how current the
node is now.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from ...domain.errors import Corrupt, Unavailable
from ..base import no_store
from .formats import (
    TYPES,
    LogEntry,
    Restored,
    decode,
    entry_key,
    newest,
    number_of,
    numbered,
    read_object,
    restore,
    rows_in,
)
from .replica import Replica
from .service.bucket import Bucket, Denied, Taken
from .service.clock import Moment, ServiceClock
from .service.proof import check_create, is_begun
from .tuning import Contention, ReadOdds, RetryPauses, Tuning


class LogPosition(NamedTuple):
    """The replica is at entry `number`, and at `moment` no snapshot was ahead of that. So no later entry was removed
    then, or will be for `retention`. The next number is trusted for `window` after the moment."""

    number: int
    moment: Moment | None


class LogReader:
    """Reads the entries of one bucket. `is_trusted` says whether the node can still rely on a position."""

    def __init__(self, bucket: Bucket, is_trusted: Callable[[LogPosition], bool]) -> None:
        self._bucket = bucket
        self._is_trusted = is_trusted
        self._hole = (0, "")
        """The number of a missing entry, and the key of a later one that is there."""

    def read(self, number: int) -> LogEntry | None:
        key = entry_key(number)
        return read_object(self._bucket, key, lambda body: self._decode(key, body))

    def _decode(self, key: str, body: bytes) -> LogEntry:
        entry = decode(f"{self._bucket.name}/{key}", body)
        if key != entry_key(entry.number):
            raise Corrupt(f"{self._bucket.name}/{key} says that it is entry {entry.number}", key=key)
        return entry

    def next(self, position: LogPosition) -> LogEntry | None:
        """The entry behind a position."""
        number = position.number + 1
        return self._read_missing(position, *self._hole) if number == self._hole[0] else self.read(number)

    def check_hole(self, position: LogPosition) -> None:
        """Called before an entry is written behind a position."""
        if position.number + 1 == self._hole[0]:
            self._read_missing(position, *self._hole)

    def check_complete(self, position: LogPosition, number: int, keys: list[str]) -> None:
        """`number` follows the entries that were listed without a gap. If later ones were listed, it must be there
        now. (It may have been written after the list passed it.)"""
        later = [key for key in keys if key > entry_key(number) and numbered([key])]
        if later:
            self._read_missing(position, number, later[-1])

    def _read_missing(self, position: LogPosition, number: int, later: str) -> LogEntry | None:
        """Read an entry that was absent although a later one was there. None means that the position is no longer
        trusted, so the entry may rightly have been removed."""
        entry = self.read(number)
        if entry is None and self._is_trusted(position):
            self._hole = number, later
            raise Corrupt(
                f"{self._bucket.name}/{entry_key(number)} is missing, although {later} is there; rota"
                " removes nothing there, so somebody did, or a lifecycle rule",
                key=entry_key(number),
            )
        return entry


_ONE_BY_ONE = 8
_PARALLEL = 16
_LOADS = 3


class Log:
    """The log of one bucket, and the replica that follows it, by the time of the service. `node` names this node in its
    entries."""

    def __init__(
        self,
        bucket: Bucket,
        replica: Replica,
        time: ServiceClock,
        tuning: Tuning,
        node: str,
        sleep: Callable[[float], object],
    ) -> None:
        self.bucket = bucket
        self.replica = replica
        self.time = time
        self.tuning = tuning
        self.node = node
        self._sleep = sleep
        self._entries = LogReader(bucket, self.is_trusted)
        self.may_begin = True
        """Whether a log may be begun where there is none."""
        self._position_at: Moment | None = None
        self._current_at: Moment | None = None
        self.snapshots: dict[int, datetime] = {}
        """Snapshots that are known to exist, and since when that is known."""
        self.snapshot = 0
        """The newest of them."""
        self.floor = 0
        """Entries up to here may be gone: an entry of the log has announced it."""
        self.next_floor = 0
        """The floor that our next entry announces."""
        self.entries_read = 0
        """How many entries and snapshots were read and applied: others wrote them, or we did without an answer."""
        self.bytes_since_snapshot = 0
        self.snapshot_bytes = 0
        self.contention = Contention(time.stopwatch, sleep)
        self._odds = ReadOdds()

    def pauses(self) -> RetryPauses:
        return RetryPauses(self.tuning, self.time.stopwatch, self._sleep, self.contention.round_trip)

    @property
    def current_at(self) -> Moment | None:
        """When the replica was last seen to be at the end of the log."""
        return self._current_at

    def is_fresh(self, current_at: Moment | None) -> bool:
        """Whether a state that was current then may be taken to be so still."""
        return current_at is not None and self.time.stopwatch.since(current_at) < self.tuning.fresh_for

    def catch_up(self) -> bool:
        """Read all new entries; whether there were any."""
        return self._read_on(None)

    def look_before_commit(self) -> bool:
        """As `catch_up`, but a read that is probably in vain is left out: the commit finds the entry."""
        return self._read_on(self._odds)

    def _read_on(self, odds: ReadOdds | None) -> bool:
        before = self.replica.number
        for _ in range(_LOADS):
            if self._follow(odds):
                return self.replica.number != before
            self._load()
        raise Unavailable(f"{self.bucket.name} cannot be read within {self.tuning.window}")

    def _follow(self, odds: ReadOdds | None) -> bool:
        """Read to the end of the log. False means that the position is no longer trusted."""
        read = 0
        while self.is_trusted(position := self.position()):
            if odds is not None and not odds.is_worth(read):
                return True
            asked = self.time.stopwatch.moment()
            entry = self._entries.next(position)
            if not self.is_trusted(position):
                break
            if odds is not None:
                odds.saw(read, entry is not None)
            if entry is None:
                self._confirm(position.number, asked)
                return True
            self._apply(entry)
            read += 1
            if read % _ONE_BY_ONE == 0:
                self._read_many()
        return False

    def append(self, position: LogPosition, commit: str, body: bytes) -> bool:
        """Whether the entry behind `position` is ours; then the replica is to apply it. The entry was made from this
        position. Other threads may have brought the replica further meanwhile."""
        number = position.number + 1
        self._entries.check_hole(position)
        asked = self.time.stopwatch.moment()
        ours = self._send(position, commit, body)
        self._odds.wrote(ours)
        if not self.is_trusted(position):
            self._settle_late(number)
        elif ours:
            self._confirm(position.number, asked)
            self.bytes_since_snapshot += len(body)
        return ours

    def _settle_late(self, number: int) -> None:
        """The service's answer about `number` stands, if no entry of that number can have been removed. The log is
        read to its end after the answer, so that it has announced every removal before that."""
        self.catch_up()
        if self.floor >= number:
            with suppress(Unavailable):
                self.bucket.delete([entry_key(number)])
            raise Unavailable(
                f"{self.bucket.name}/{entry_key(number)} was answered too late to know whether it counts",
                key=entry_key(number),
            )

    def _send(self, position: LogPosition, commit: str, body: bytes) -> bool:
        """Send the entry until it is known whose is there; whether it is ours."""
        key = entry_key(position.number + 1)
        pauses = self.pauses()
        while True:
            asked = self.time.stopwatch.moment()
            try:
                self.bucket.create(key, body)
                self.contention.took(self.time.stopwatch.since(asked))
                return True
            except Denied:
                raise
            except (Taken, Unavailable) as problem:
                ours = self._is_ours(position, commit)
                if ours is not None:
                    return ours
                if pauses.exhausted:
                    message = f"whether {self.bucket.name}/{key} was written is unknown ({problem})"
                    raise Unavailable(message, key=key) from problem
            pauses.take()

    def _is_ours(self, position: LogPosition, commit: str) -> bool | None:
        """Whether the entry behind the position is ours; None: nothing is there, or it cannot be read."""
        try:
            entry = self._entries.read(position.number + 1)
        except Unavailable:
            return None
        if entry is None:
            return None
        if entry.commit == commit:
            return True
        if self.is_trusted(position):
            self._apply(entry)
        return False

    def position(self) -> LogPosition:
        """The replica's number and when it was last confirmed, read together."""
        with self.replica.lock:
            return LogPosition(self.replica.number, self._position_at)

    def is_trusted(self, position: LogPosition) -> bool:
        """Whether the node can still rely on "nothing there" behind this position."""
        return position.moment is not None and self.time.stopwatch.since(position.moment) < self.tuning.window

    def _confirm(self, number: int, at: Moment) -> None:
        with self.replica.lock:
            if self.replica.number == number:
                self._position_at = self._current_at = at

    def _apply(self, entry: LogEntry) -> None:
        """Apply an entry that was read, unless another thread was faster."""
        rows = rows_in(f"{self.bucket.name}/{entry_key(entry.number)}", entry.put)
        deletes = [(TYPES[name], id) for name, ids in entry.delete.items() for id in ids]
        with self.replica.lock:
            if entry.number == self.replica.number + 1:
                self.replica.apply(entry.number, rows, deletes, entry.leave, entry.segment)
                self.entries_read += 1
                if entry.node != self.node:
                    self.contention.seen(entry.node)
                self.bytes_since_snapshot += sum(len(row.body) for row in rows)
                self.learn(entry.snapshot, entry.floor)

    def learn(self, snapshot: int, floor: int) -> None:
        if snapshot and snapshot not in self.snapshots:
            self.snapshots[snapshot] = self.time.now()
            self.snapshot = max(self.snapshot, snapshot)
            self.bytes_since_snapshot = 0
        self.floor = max(self.floor, floor)
        self.next_floor = max(self.next_floor, self.floor)

    def _read_many(self) -> bool:
        """List the log and read it in parallel, when far behind; whether there were entries."""
        position = self.position()
        first = position.number
        keys = self.bucket.list("log/", entry_key(first))
        numbers = [first + 1 + n for n, key in enumerate(keys) if key == entry_key(first + 1 + n)]
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="rota-log") as readers:
            for entry in readers.map(self._entries.read, numbers):
                if entry is None or not self.is_trusted(position):  # removed meanwhile: a snapshot is ahead
                    break
                self._apply(entry)
        self._entries.check_complete(position, first + len(numbers) + 1, keys)
        return bool(keys)

    def _load(self) -> None:
        """Load the newest snapshot if it is ahead of us, and the log behind it. If it is not ahead, no entry that we
        lack was removed: entries are removed only before a snapshot, and the newest snapshot always stays."""
        asked = self.time.stopwatch.moment()
        is_first = self._position_at is None
        found = self._newest_ahead()
        with self.replica.lock:
            if found is not None and (self._position_at is None or found.about.number > self.replica.number):
                self.replica.reset(found)
                self.entries_read += 1
                self.snapshots = dict(found.about.snapshots)
                self.learn(found.about.number, found.about.floor)
                self.snapshot_bytes, self.bytes_since_snapshot = found.size, 0
            self._position_at = asked  # and not current: what lies behind the snapshot is yet to be read
        has_more = self._read_many()
        if is_first:
            is_empty = not has_more and found is None
            if is_empty and not self.may_begin and not is_begun(self.bucket):
                raise no_store(self.bucket.name)
            check_create(self.bucket)

    def _newest_ahead(self) -> Restored | None:
        pauses = self.pauses()
        while True:
            key = newest(self.bucket)
            if key is None or (self._position_at is not None and number_of(key) <= self.replica.number):
                return None
            found = restore(self.bucket, key)
            if found is not None:
                return found
            if pauses.exhausted:
                raise Unavailable(f"{self.bucket.name}/{key} is listed and cannot be found", key=key)
            pauses.take()
