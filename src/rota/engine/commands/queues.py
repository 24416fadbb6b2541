"""Works on queues. A queue needs no record; one that is paused has one, which every claim looks at."""

from __future__ import annotations

from msgspec.structs import replace

from ...domain.model import PausedQueue
from ...domain.serving import pause, paused_id
from ...stores.base import Tx, Work
from .shared import audit

__all__ = ["pause_queue", "resume_queue"]


def pause_queue(act: str, tenant: str, queue: str, actor: str, note: str) -> Work[PausedQueue]:
    """Let no worker take its tasks. Pausing again changes the note, and keeps since when and by whom. `act` is the id
    of this call: a queue has no version that the audit could count by."""

    async def work(tx: Tx) -> PausedQueue:
        old = await tx.get(PausedQueue, paused_id(tenant, queue))
        if old is not None and (not note or note == old.note):
            return old
        new = pause(tenant, queue, tx.now, actor, note)
        if old is not None:
            new = replace(old, note=note)
        paused = tx.put(new)
        audit(tx, "paused", actor, old, paused, note, act=act)
        return paused

    return work


def resume_queue(act: str, tenant: str, queue: str, actor: str) -> Work[bool]:
    """Let workers take its tasks again; whether it was paused."""

    async def work(tx: Tx) -> bool:
        old = await tx.get(PausedQueue, paused_id(tenant, queue))
        if old is None:
            return False
        tx.delete(old)
        audit(tx, "resumed", actor, old, None, act=act)
        return True

    return work
