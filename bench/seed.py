"""Many schedules at once: as `create_schedule` makes them, but a thousand to a commit."""

from __future__ import annotations

from collections.abc import Sequence

from rota import Queue
from rota.domain.model import Limits, Schedule, TaskTarget
from rota.domain.recurrence import Timing
from rota.domain.schedule import definition
from rota.engine.clock import new_id
from rota.stores.base import Tx, Work

KIND = "noop"
AT_ONCE = 1000


async def make_schedules(queue: Queue, timings: Sequence[Timing]) -> None:
    for start in range(0, len(timings), AT_ONCE):
        await queue.store.transact(_create(start, timings[start : start + AT_ONCE]))


def _create(start: int, timings: Sequence[Timing]) -> Work[None]:
    ids = [new_id() for _ in timings]

    async def work(tx: Tx) -> None:
        for number, (id, timing) in enumerate(zip(ids, timings, strict=True), start):
            tx.put(_schedule(tx, id, f"bench-{number}", timing))

    return work


def _schedule(tx: Tx, id: str, key: str, timing: Timing) -> Schedule:
    target = TaskTarget(kind=KIND)
    return definition.create(
        id, key, timing, target, {}, tenant="default", now=tx.now, actor="user:bench", limits=Limits()
    )
