"""Looking for what other nodes wrote: while somebody waits, often after a change, then more and more rarely.

How often at first is learned: where changes come every second, ten looks a second would find nothing nine times. After
a pause nothing is known, and looks are frequent again.

A look is one request in the store's reader thread. None is made if a commit or a read has just shown the same.

Is it worth a request to ask whether there is one more entry?

Before a write, the write itself finds out: it is refused where an entry is. So asking first is a question of cost
alone, and what happened lately tells. Occasions differ (before a commit, at a poll), and so does it how many entries
were read already: a client finds what became of its last task, and then nothing more.

Taking turns with other nodes that write to the same log.

Each number has exactly one winner, so contention never stops progress; it only wastes requests, and it is unjust:
who has just won starts first into the next race, and who lost reads first. So it is the *winner* who pauses, in
proportion to how many others wrote lately, before he writes again; who lost goes again after a short random
time, and the sooner the more often he lost. Meanwhile works gather, and the next entry carries more of them.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import timedelta
from typing import Any

from ..waiting import poll_later
from .service.clock import Moment, Stopwatch
from .tuning import Tuning

__all__ = [
    "Contention",
    "Guess",
    "Poller",
]

_LEARNS = 0.25
_WORTH = 0.1
"""A lost race costs a write and a read, and a write costs as much as ten reads."""

_ASK_ANYWAY = 8


class Guess:
    """How likely there was one more, by occasion and by how many entries had been read. Unknown: even odds."""

    def __init__(self) -> None:
        self._odds: dict[tuple[str, int], float] = {}
        self._unasked: dict[str, tuple[str, int]] = {}
        self._left_out = 0

    def is_worth(self, occasion: str, read: int) -> bool:
        """If not, `answer` is to be called when it turns out."""
        self._unasked.pop(occasion, None)
        if self._odds.get((occasion, read), 0.5) >= _WORTH:
            return True
        self._unasked[occasion] = (occasion, read)
        return False

    def is_worth_now_and_then(self, occasion: str, read: int) -> bool:
        """Where nothing turns out by itself: asked anyway, from time to time."""
        if self.is_worth(occasion, read):
            return True
        self._left_out += 1
        return self._left_out % _ASK_ANYWAY == 0

    def saw(self, occasion: str, read: int, more: bool) -> None:
        odds = self._odds.get((occasion, read), 0.5)
        self._odds[occasion, read] = odds + (more - odds) * _LEARNS

    def answer(self, occasion: str, more: bool) -> None:
        """What was not asked last has turned out."""
        unasked = self._unasked.pop(occasion, None)
        if unasked is not None:
            self.saw(*unasked, more)


_LATELY = timedelta(seconds=2)
_WINS_IN_A_ROW = 8
_BUSY = 4
_WITHIN = timedelta(seconds=1)


class Contention:
    """Who else is there, and whose turn it is."""

    def __init__(self, watch: Stopwatch, sleep: Callable[[float], object]) -> None:
        self._watch = watch
        self._sleep = sleep
        self._others: dict[str, Moment] = {}
        self._won_at: Moment | None = None
        self._wins = 0
        self._won_lately: deque[Moment] = deque(maxlen=_BUSY)
        self.round_trip = 0.0
        """How long a write takes lately, in seconds: pauses are in proportion."""

    def seen(self, node: str) -> None:
        """Another node wrote an entry."""
        self._others[node] = self._watch.moment()

    def took(self, duration: timedelta) -> None:
        self.round_trip += (min(duration.total_seconds(), 1.0) - self.round_trip) / 4

    @property
    def others(self) -> int:
        """How many other nodes wrote lately."""
        for node, at in list(self._others.items()):
            if self._watch.since(at) > _LATELY:
                self._others.pop(node, None)
        return len(self._others)

    def won(self) -> None:
        self._won_at = self._watch.moment()
        self._wins += 1
        self._won_lately.append(self._won_at)

    @property
    def is_busy(self) -> bool:
        """Whether we write so often that others hardly get a turn unless we look for them."""
        return len(self._won_lately) == _BUSY and self._watch.since(self._won_lately[0]) < _WITHIN

    def lost(self, times: int) -> None:
        """Pause after so many losses in a row."""
        self._wins = 0
        self._sleep(random.uniform(0, self.round_trip * max(1.0, (self.others + 1) / times)))

    def give_way(self) -> bool:
        """Before the next write: let others go first, if they are there or might be. Whether to look for them."""
        others = self.others
        if self._won_at is None or (not others and self._wins % _WINS_IN_A_ROW):
            return others > 0
        pause = random.uniform(0, 2 * self.round_trip * (others + 1))
        pause -= self._watch.since(self._won_at).total_seconds()
        if pause > 0:
            self._sleep(pause)
        return True


_GROWTH = 1.6
_GAPS = 8
_LOOKS_PER_GAP = 2
_FORGETS_AFTER = 4
"""In longest intervals: a gap so long is a pause, and says nothing about what comes then."""


class Poller:
    """`look` says whether something came; then `changed` is called. So it is after an error: those who wait will
    meet it themselves, and say so better."""

    def __init__(
        self,
        executor: Executor,
        look: Callable[[timedelta], bool],
        changed: Callable[[], None],
        tuning: Tuning,
    ) -> None:
        self._executor = executor
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
        loop = asyncio.get_running_loop()
        self._timer = poll_later(loop, self._interval * random.uniform(0.9, 1.1), self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiting:
            self._looking = loop.run_in_executor(self._executor, self._look, self._interval)
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
        usual = timedelta(seconds=sorted(self._gaps)[1])  # but one of them all were longer
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
