"""Numbers with labels, cheap enough to be counted for every task, and labels that cannot grow without end.

A metric has a series for every combination of its labels, kept for as long as the process lives, and names come from
users. So of each label the first `most` names are shown as they are, the rest as `other`. Which are shown is decided
once, when they are first seen: a counter that moved to `other` later would seem to have been reset.

Series are plain numbers, counted on the thread of the event loop without a lock (that of prometheus-client costs more
than the counting); they become families of prometheus-client when someone collects them, from any thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

__all__ = ["OTHER", "Count", "Counts", "Names", "Spread", "Spreads"]

OTHER = "other"

S = TypeVar("S", "Count", "Spread")


class Names:
    """One label: which of its values are shown."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def shown(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name


class Count:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, number: int = 1) -> None:
        self.value += number


class Spread:
    """How many values fell between which bounds, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class _Family(Collector, Generic[S]):
    """A metric. Called with the values of its labels it gives the series to add to."""

    def __init__(self, name: str, about: str, labels: Mapping[str, Names], new: Callable[[], S]) -> None:
        self._name = name
        self._about = about
        self._labels = dict(labels)
        self._new: Callable[[], S] = new
        self._asked: dict[tuple[str, ...], S] = {}  # by the values as given, where they are shown as given
        self._series: dict[tuple[str, ...], S] = {}
        if not labels:
            self()

    def __call__(self, *values: str) -> S:
        return self._asked.get(values) or self._shown(values)

    def _shown(self, values: tuple[str, ...]) -> S:
        shown = tuple(names.shown(value) for names, value in zip(self._labels.values(), values, strict=True))
        series = self._series.get(shown)
        if series is None:
            series = self._series[shown] = self._new()
        if shown == values:
            self._asked[values] = series
        return series


class Counts(_Family[Count]):
    """A counter. Its name comes out with `_total` behind it."""

    def __init__(self, name: str, about: str, labels: Mapping[str, Names]) -> None:
        super().__init__(name, about, labels, Count)

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._about, labels=list(self._labels))
        for values, series in list(self._series.items()):
            family.add_metric(values, series.value)
        yield family


class Spreads(_Family[Spread]):
    """A histogram."""

    def __init__(self, name: str, about: str, labels: Mapping[str, Names], bounds: tuple[float, ...]) -> None:
        super().__init__(name, about, labels, lambda: Spread(bounds))
        self._ends = [*map(floatToGoString, bounds), "+Inf"]

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._about, labels=list(self._labels))
        for values, series in list(self._series.items()):
            counted = accumulate(list(series.counts))
            family.add_metric(values, list(zip(self._ends, counted, strict=True)), series.total)
        yield family
