"""How often a node asks the service: the settings, and the pauses, odds and intervals that are made from them.

`Tuning` has the numbers. `RetryPauses` are between the attempts of one request, `Contention` has the pauses between
writes, `ReadOdds` say whether a read before a write is worth its request, and `LogPoller` reads the log while a caller
waits. The figures are of requests that take 30 ms.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from ...domain.errors import Invalid
from ..threads import Threads
from ..waiting import poll_later
from .service.clock import Moment, Stopwatch

_LEAST_WINDOWS = 4


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers by which a store on a bucket works. The defaults are for a service some milliseconds away.

    `window` is far below `retention`, so that a node that was asleep notices it before it writes.

    `retention` is also far above the time after which a service refuses an old request for its date (15 minutes at
    Amazon and Azure) or its token (an hour at Google). A node whose clocks stood still while it slept cannot know that
    it slept; the service refuses its requests.
    """

    poll_shortest: timedelta = timedelta(milliseconds=100)
    poll_longest: timedelta = timedelta(seconds=2)
    fresh_for: timedelta = timedelta(seconds=2)
    """A state that was current this long ago is still used. A commit finds out if it is not."""

    give_up_after: timedelta = timedelta(seconds=60)
    """A commit is tried this long while the service fails or other nodes win."""

    shortest_pause: timedelta = timedelta(milliseconds=1)
    longest_pause: timedelta = timedelta(seconds=2)

    window: timedelta = timedelta(minutes=5)
    """A node that has not seen the end of the log for this long asks for the newest snapshot."""

    retention: timedelta = timedelta(hours=2)
    """The log is kept this long after a snapshot has made it unnecessary."""

    snapshot_every: int = 256
    archive_after: timedelta = timedelta(minutes=10)
    archive_at_least: int = 1000
    archive_at_most: int = 4000
    archive_bytes: int = 4 * 2**20
    """A segment is written when its records have this much text, however few they are. It has no more, except for a
    single larger record."""

    archive_in_memory: int = 16 * 2**20
    """This many bytes of the segments that were read last stay in memory."""

    views: str = "on"
    """`on`, `off`, or `tasks` (also a view for each task that has ended)."""

    views_every: timedelta = timedelta(seconds=1)

    rebuild_every: timedelta = timedelta(days=1)
    """The janitor compares the views with the records once after a start, and then this often. It takes a LIST."""

    def __post_init__(self) -> None:
        if self.retention < _LEAST_WINDOWS * self.window or self.window <= timedelta(0):
            raise Invalid(
                "retention",
                f"{self.retention} is less than {_LEAST_WINDOWS} times the window of {self.window}, so that a node"
                " which slept could miss entries that were removed",
                "keep the log longer, or make the window shorter",
            )


class RetryPauses:
    """Growing pauses with jitter, until `give_up_after` has passed."""

    def __init__(
        self, tuning: Tuning, stopwatch: Stopwatch, sleep: Callable[[float], object], first: float = 0.0
    ) -> None:
        self._tuning = tuning
        self._stopwatch = stopwatch
        self._sleep = sleep
        self._began = stopwatch.moment()
        self._ceiling = max(first, tuning.shortest_pause.total_seconds())
        self._slept = 0.0

    @property
    def exhausted(self) -> bool:
        give_up_after = self._tuning.give_up_after
        return (
            self._slept > give_up_after.total_seconds() or self._stopwatch.since(self._began) > give_up_after
        )

    def take(self) -> None:
        pause = self._ceiling * random.uniform(0.5, 1.5)
        self._ceiling = min(2 * self._ceiling, self._tuning.longest_pause.total_seconds())
        self._slept += pause
        self._sleep(pause)


_LATELY = timedelta(seconds=2)
_WINS_IN_A_ROW = 8


class Contention:
    """The other nodes that wrote to the log lately, and the pauses for them.

    Each number has exactly one winner, so contention never stops progress. It wastes requests, and it is unfair: the
    winner is the first to start for the next number, while a loser has to read first. So the *winner* pauses before its
    next write, longer the more nodes wrote lately. A loser tries again after a short random pause, which is shorter the
    more often it lost. Meanwhile works gather, and the next entry carries more of them.

    Of four busy nodes none waits longer than 1 to 2.6 s for a commit; without the winner's pauses 6 to 7 s. The price
    is half of the entries per second. A winner pauses now and then even if it sees no other node: otherwise it may
    shut them out, so that they wait for 12 s. The loser's pauses save 16 % of the dollars of such commits.
    """

    def __init__(self, stopwatch: Stopwatch, sleep: Callable[[float], object]) -> None:
        self._stopwatch = stopwatch
        self._sleep = sleep
        self._others: dict[str, Moment] = {}
        self._won_at: Moment | None = None
        self._wins = 0
        self.round_trip = 0.0
        """How long a write takes lately, in seconds. Pauses are in proportion to it."""

    def seen(self, node: str) -> None:
        """Another node wrote an entry."""
        self._others[node] = self._stopwatch.moment()

    def took(self, duration: timedelta) -> None:
        """A write took this long."""
        self.round_trip += (min(duration.total_seconds(), 1.0) - self.round_trip) / 4

    @property
    def others(self) -> int:
        """How many other nodes wrote lately."""
        for node, at in list(self._others.items()):
            if self._stopwatch.since(at) > _LATELY:
                self._others.pop(node, None)
        return len(self._others)

    def won(self) -> None:
        self._won_at = self._stopwatch.moment()
        self._wins += 1

    def lost(self, times: int) -> None:
        """Pause after this many losses in a row."""
        self._wins = 0
        self._sleep(random.uniform(0, self.round_trip * max(1.0, (self.others + 1) / times)))

    def give_way(self) -> bool:
        """Pause before the next write if other nodes write, or might; whether to read before it."""
        others = self.others
        if self._won_at is None or (not others and self._wins % _WINS_IN_A_ROW):
            return others > 0
        pause = random.uniform(0, 2 * self.round_trip * (others + 1))
        pause -= self._stopwatch.since(self._won_at).total_seconds()
        if pause > 0:
            self._sleep(pause)
        return True


_WEIGHT = 0.25
_WORTH = 0.1
"""A lost race costs a write and a read, and a write costs as much as ten reads."""


class ReadOdds:
    """The odds that there is one more entry of the log, by the number of entries that were read already.

    Before a write a read is never necessary: the write is refused where an entry is. So it is only a question of cost,
    and the last reads are a good guide: a client finds the two entries of its last task's worker, and then no more.

    With this a task that is submitted in another process takes 8.4 requests instead of 10.8 at one task a second, 22 %
    fewer (`bench/bucket_requests.py`).
    """

    def __init__(self) -> None:
        self._odds: dict[int, float] = {}
        self._unread: int | None = None

    def is_worth(self, read: int) -> bool:
        """Whether to read after `read` entries. If not, the write tells whether there was one (`wrote`)."""
        is_worth = self._odds.get(read, 0.5) >= _WORTH
        self._unread = None if is_worth else read
        return is_worth

    def saw(self, read: int, more: bool) -> None:
        odds = self._odds.get(read, 0.5)
        self._odds[read] = odds + (more - odds) * _WEIGHT

    def wrote(self, won: bool) -> None:
        """A write was refused where an entry was, or not."""
        if self._unread is not None:
            self.saw(self._unread, not won)
            self._unread = None


_GROWTH = 1.6
_GAPS = 8
_LOOKS_PER_GAP = 2
_FORGETS_AFTER = 4
"""In longest intervals. A longer gap says nothing about the next one."""


class LogPoller:
    """Reads the log for entries of other nodes while a caller waits for a change.

    `look` says whether an entry came; then `changed` is called. It is called after an error, too: the waiting callers
    will meet the error themselves. A poll is one request in a reader thread. It is left out if a commit or a read has
    just shown the end of the log.

    The interval is short after a change, and grows while nothing comes. The first interval is learned: where a change
    comes every second, nine of ten reads a second would find nothing. After a long gap nothing is known, and the first
    interval is the shortest again. With this a task that is submitted in another process takes 8.4 requests instead of
    10.1 at one task a second, 17 % fewer (`bench/bucket_requests.py`).
    """

    def __init__(
        self,
        threads: Threads,
        look: Callable[[timedelta], bool],
        changed: Callable[[], None],
        tuning: Tuning,
    ) -> None:
        self._threads = threads
        self._look = look
        self._changed = changed
        self._tuning = tuning
        self._interval = tuning.poll_shortest
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._found_at = 0.0
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Future[bool] | None = None

    def __enter__(self) -> None:
        self._waiting += 1
        if self._timer is None and self._looking is None:
            self._later()

    def __exit__(self, *about: object) -> None:
        self._waiting -= 1
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._looking is not None:
            await asyncio.wait([self._looking])

    def _later(self) -> None:
        pause = self._interval * random.uniform(0.9, 1.1)
        self._timer = poll_later(asyncio.get_running_loop(), pause, self._start)

    def _start(self) -> None:
        self._timer = None
        if self._waiting:
            self._looking = self._threads.call(self._look, self._interval)
            self._looking.add_done_callback(self._done)

    def interval_after_find(self, now: float) -> timedelta:
        gap, self._found_at = now - self._found_at, now
        shortest, longest = self._tuning.poll_shortest, self._tuning.poll_longest
        if gap > _FORGETS_AFTER * longest.total_seconds():
            self._gaps.clear()
            return shortest
        self._gaps.append(gap)
        if len(self._gaps) < _GAPS // 2:
            return shortest
        usual = timedelta(seconds=sorted(self._gaps)[1])  # all but one of them were longer
        return min(max(shortest, usual / _LOOKS_PER_GAP), longest)

    def _done(self, looked: asyncio.Future[Any]) -> None:
        self._looking = None
        if looked.cancelled():
            return
        failed = looked.exception() is not None
        if failed or not looked.result():
            self._interval = min(self._interval * _GROWTH, self._tuning.poll_longest)
        else:
            self._interval = self.interval_after_find(looked.get_loop().time())
        if failed or looked.result():
            self._changed()
        if self._waiting and self._timer is None:
            self._later()
