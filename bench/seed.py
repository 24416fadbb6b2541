"""Many schedules at once: as `create_schedule` makes them, but a thousand to a commit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rota import Queue
from rota.domain.model import Limits, Schedule, TaskTarget
from rota.domain.recurrence import Timing
from rota.domain.schedule import definition
from rota.engine.clock import new_id
from rota.stores.base import Tx, Work

KIND = "noop"
AT_ONCE = 1000
BURST_AIMS = {1_000: 0.2, 10_000: 1.5, 100_000: 15.0}
"""Of so many that are due at one instant, after how many seconds the last has started."""


async def make_schedules(queue: Queue, timings: Sequence[Timing], **fields: Any) -> None:
    for start in range(0, len(timings), AT_ONCE):
        await queue.store.transact(_create(start, timings[start : start + AT_ONCE], fields))


async def make_burst(queue: Queue, timing: Timing, number: int) -> None:
    """So many of one timing. A busy machine may take longer than the usual grace of a minute for a hundred thousand:
    those behind it would be missed, and never start."""
    fields = {"misfire_grace": timedelta(hours=1)} if number > 10_000 else {}
    await make_schedules(queue, [timing] * number, **fields)


def burst_lead(number: int, asked: int) -> int:
    """Seconds until they are due: what was asked for, or enough to make them first."""
    return asked or 15 + number // 1_000


def burst_aims(number: int, seconds: float) -> dict[str, bool]:
    return {f"start <= {aim} s": seconds <= aim for size, aim in BURST_AIMS.items() if size == number}


def _create(start: int, timings: Sequence[Timing], fields: dict[str, Any]) -> Work[None]:
    ids = [new_id() for _ in timings]

    async def work(tx: Tx) -> None:
        for number, (id, timing) in enumerate(zip(ids, timings, strict=True), start):
            tx.put(_schedule(tx, id, f"bench-{number}", timing, fields))

    return work


def _schedule(tx: Tx, id: str, key: str, timing: Timing, fields: dict[str, Any]) -> Schedule:
    target = TaskTarget(kind=KIND)
    return definition.create(
        id, key, timing, target, fields, tenant="default", now=tx.now, actor="user:bench", limits=Limits()
    )
