"""Taking turns with other nodes that write to the same log.

Each number has exactly one winner, so contention never stops progress; it only wastes requests, and it is unjust:
who has just won starts first into the next race, and who lost reads first. So it is the *winner* who pauses, in
proportion to how many others wrote lately, before he writes again; who lost goes again after a short random
time, and the sooner the more often he lost. Meanwhile works gather, and the next entry carries more of them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from .objects_clock import Mark, Stopwatch

__all__ = ["Turns"]

_LATELY = timedelta(seconds=2)
_WINS_IN_A_ROW = 8
_BUSY = 4
_WITHIN = timedelta(seconds=1)


class Turns:
    """Who else is there, and whose turn it is."""

    def __init__(self, watch: Stopwatch, sleep: Callable[[float], object]) -> None:
        self._watch = watch
        self._sleep = sleep
        self._others: dict[str, Mark] = {}
        self._won_at: Mark | None = None
        self._wins = 0
        self._won_lately: deque[Mark] = deque(maxlen=_BUSY)
        self.round_trip = 0.0
        """How long a write takes lately, in seconds: pauses are in proportion."""

    def seen(self, node: str) -> None:
        """Another node wrote an entry."""
        self._others[node] = self._watch.mark()

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
        self._won_at = self._watch.mark()
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
