"""How often someone may ask: a token bucket for each, in this process."""

from __future__ import annotations

from collections import OrderedDict
from math import ceil

__all__ = ["Limiter"]

REMEMBERED = 10_000


class Limiter:
    """`rate` requests per second on average, `burst` at once, for each name. The least recent names are forgotten
    first: a bucket that is not remembered is full."""

    def __init__(self, rate: float, burst: float, remembered: int = REMEMBERED) -> None:
        self._rate = rate
        self._burst = burst
        self._remembered = remembered
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, now: float) -> int | None:
        """None: go on. Else in how many whole seconds to ask again. `now` is a monotonic time in seconds."""
        left, since = self._buckets.get(name, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        self._buckets[name] = (left - 1 if left >= 1 else left, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > self._remembered:
            self._buckets.popitem(last=False)
        return None if left >= 1 else max(1, ceil((1 - left) / self._rate))
