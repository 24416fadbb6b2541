"""The service's clock, as a node knows it.

The service says the time in whole seconds. So one answer gives a range for the difference between its clock and ours:
its time was at least the answer when the answer came, and less than a second more when the request went. The ranges
of several answers are intersected, and grow as clocks drift. The correction is the smallest that fits. A machine
whose clock is right has none, and all nodes agree to within about a second, however wrong their clocks are.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock
from typing import NamedTuple

from ....domain.errors import StoreError
from ...base import Clock

_SECOND = timedelta(seconds=1)
_EVERY = timedelta(seconds=60)
_DRIFT = 0.0005


class Moment(NamedTuple):
    wall: datetime
    steady: float


class Stopwatch:
    """Measures the time that passed here, by two clocks: the steady one stands still in a suspended machine, the other
    one can be set. The longer time counts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def moment(self) -> Moment:
        return Moment(self._clock.now(), self._clock.monotonic())

    def since(self, moment: Moment) -> timedelta:
        return max(
            abs(self._clock.now() - moment.wall), timedelta(seconds=self._clock.monotonic() - moment.steady)
        )


class ServiceClock:
    """The time of the service. `ask` returns it in whole seconds, or None if the service has no clock; then the node's
    own clock counts. `stopwatch` measures the time that passed here."""

    def __init__(self, clock: Clock, ask: Callable[[], datetime | None]) -> None:
        self._clock = clock
        self._ask = ask
        self.stopwatch = Stopwatch(clock)
        self._asked: Moment | None = None
        self._told: Moment | None = None
        self._lock = Lock()
        self._low = self._high = self.offset = timedelta(0)

    def now(self) -> datetime:
        return self._clock.now() + self.offset

    def refresh(self) -> None:
        """Ask the service if its last answer is old. If it does not answer, nothing changes."""
        if self._asked is not None and self.stopwatch.since(self._asked) < _EVERY:
            return
        with self._lock:
            before = self.stopwatch.moment()
            try:
                said = self._ask()
            except StoreError:
                said = None
            self._asked = after = self.stopwatch.moment()
            if said is not None:
                age = None if self._told is None else self.stopwatch.since(self._told)
                self._told = after
                self._learn(said - after.wall, said + _SECOND - before.wall, age)

    def _learn(self, low: timedelta, high: timedelta, age: timedelta | None) -> None:
        """The offset lies in this range. The range that was known before still counts, and grows with its age."""
        if age is not None:
            slack = age * _DRIFT
            known_low, known_high = max(low, self._low - slack), min(high, self._high + slack)
            if known_low <= known_high:  # else a clock was set: only the new answer counts
                low, high = known_low, known_high
        self._low, self._high = low, high
        self.offset = min(max(self.offset, low), high)
