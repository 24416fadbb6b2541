"""How a backfill is answered."""

from __future__ import annotations

from ....domain.model import BackfillStatus, OverlapPolicy
from ...shapes import Answer, Time

__all__ = ["BackfillAnswer"]


class BackfillAnswer(Answer, frozen=True, kw_only=True):
    """Times of the past that a schedule runs after all, and how far it is."""

    id: str
    start: Time
    end: Time
    overlap_policy: OverlapPolicy
    status: BackfillStatus
    total: int
    started: int
    passed: int
    note: str | None
    created_by: str
    created_at: Time
    ended_at: Time | None
