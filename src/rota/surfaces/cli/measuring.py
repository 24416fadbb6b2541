"""Metrics of a running process: served on a port of their own, by the HTTP API, or not at all."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ...engine.loops import Deaf, keep_running
from ...engine.observed import ObservedStore
from ...engine.telemetry import LoopFailed, Observer, Signal
from ..client import Queue
from .session import Session

if TYPE_CHECKING:
    from ...engine.metrics import Metrics

__all__ = ["Measures", "Watch", "measured", "observers_of"]

KEPT = 10_000


@dataclass(frozen=True)
class Watch:
    """How a running process can be watched: where its metrics are served (port None: nowhere), and from which level on
    it logs."""

    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    log_level: str | None = None


class Measures:
    """What is to be counted, before there is something that counts: the roles begin at once, and what they do is kept
    until the metrics, which take a while to import, have `arrived`. `store` is the store, not observed."""

    def __init__(self, queue: Queue) -> None:
        self.store = queue.store
        self.metrics: Metrics | None = None
        self._kept: deque[Callable[[Metrics], None]] = deque(maxlen=KEPT)
        self._measuring: asyncio.Task[None] | None = None
        queue.store = ObservedStore(self.store, self._answered, self._failed, queue.clock)

    def observe(self, signal: Signal) -> None:
        self._tell(lambda metrics: metrics.observe(signal))

    def arrived(self, metrics: Metrics) -> None:
        self.metrics = metrics
        while self._kept:
            self._kept.popleft()(metrics)
        self._measuring = asyncio.create_task(self._keep_measuring(metrics), name="rota-loop-lag")

    def end(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()

    def _tell(self, what: Callable[[Metrics], None]) -> None:
        if self.metrics is None:
            self._kept.append(what)
        else:
            what(self.metrics)

    def _answered(self, operation: str, seconds: float) -> None:
        self._tell(lambda metrics: metrics.store_answered(operation, seconds))

    def _failed(self, operation: str, code: str) -> None:
        self._tell(lambda metrics: metrics.store_failed(operation, code))

    async def _keep_measuring(self, metrics: Metrics) -> None:
        def failed(error: BaseException, again_in: timedelta) -> None:
            metrics.observe(LoopFailed("loop lag", error, again_in))

        await keep_running(metrics.loop_lag, Deaf(), stop=asyncio.Event(), on_error=failed)


@asynccontextmanager
async def measured(
    session: Session, watch: Watch, queue: Queue, *, is_served: bool
) -> AsyncIterator[Measures | None]:
    """Serves the metrics of this process meanwhile, if a port was named. `is_served`: the HTTP API will show them."""
    if watch.metrics_port is None and not is_served:
        yield None
        return
    measures = Measures(queue)
    try:
        if watch.metrics_port is None:
            yield measures
            return
        from ..metrics_port import make_metrics, metrics_served

        measures.arrived(metrics := make_metrics("metrics_port"))
        async with metrics_served(metrics, queue.store, watch.metrics_host, watch.metrics_port) as address:
            session.screen.remark(f"metrics: {address}")
            yield measures
    finally:
        measures.end()


def observers_of(measures: Measures | None) -> tuple[Observer, ...]:
    return () if measures is None else (measures.observe,)
