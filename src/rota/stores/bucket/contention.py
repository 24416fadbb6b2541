"""Contention: nodes that write to the same log at the same time.

Each number has exactly one winner, so contention never stops progress. It wastes requests, and it is unfair: the
winner is the first to start for the next number, while a loser has to read first. So the *winner* pauses before its
next write, longer the more nodes wrote lately. A loser tries again after a short random pause, which is shorter the
more often it lost. Meanwhile works gather, and the next entry carries more of them.

Four busy nodes, 30 ms from their bucket, wait 1.8 s at most for a commit of theirs; without the winner's pauses up to
7.7 s. The price is a third of the entries per second.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from .service.clock import Moment, Stopwatch

__all__ = ["Contention"]

_LATELY = timedelta(seconds=2)
_WINS_IN_A_ROW = 8
_BUSY = 4
_WITHIN = timedelta(seconds=1)


class Contention:
    """The other nodes that wrote lately, and the pauses for them."""

    def __init__(self, watch: Stopwatch, sleep: Callable[[float], object]) -> None:
        self._watch = watch
        self._sleep = sleep
        self._others: dict[str, Moment] = {}
        self._won_at: Moment | None = None
        self._wins = 0
        self._won_lately: deque[Moment] = deque(maxlen=_BUSY)
        self.round_trip = 0.0
        """How long a write takes lately, in seconds. Pauses are in proportion to it."""

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
        """Whether we write so often that other nodes hardly win unless we read before each write."""
        return len(self._won_lately) == _BUSY and self._watch.since(self._won_lately[0]) < _WITHIN

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
        pause -= self._watch.since(self._won_at).total_seconds()
        if pause > 0:
            self._sleep(pause)
        return True
