"""Labels that cannot grow without end: the first `most` names are shown as they are, the rest as `other`.

A metric has a time series for every combination of its labels, kept for as long as the process lives, and names come
from users. Which names are shown is decided once, when they are first seen: a counter that moved to `other` later would
seem to have been reset."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar, cast

__all__ = ["OTHER", "Family", "Names"]

OTHER = "other"

M_co = TypeVar("M_co", covariant=True)


class Labelled(Protocol[M_co]):
    """What a metric of prometheus-client offers."""

    def labels(self, *values: str) -> M_co: ...


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


class Family(Generic[M_co]):
    """A metric and its labels. Called with the values of the labels it gives the series to count in; those that are
    shown as they are, the usual case, come from a dictionary."""

    def __init__(self, metric: Labelled[M_co], *labels: Names) -> None:
        self._metric = metric
        self._labels = labels
        self._series: dict[tuple[str, ...], M_co] = {}

    def __call__(self, *values: str) -> M_co:
        series = self._series.get(values)
        return self._looked_up(values) if series is None else series

    def _looked_up(self, values: tuple[str, ...]) -> M_co:
        shown = tuple(names.shown(value) for names, value in zip(self._labels, values, strict=True))
        series = self._metric.labels(*shown) if shown else cast(M_co, self._metric)
        if shown == values:
            self._series[values] = series
        return series
