"""The words for what a record is in, and for the policies that a schedule can have."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "LIVE",
    "MissedRunPolicy",
    "OverlapPolicy",
    "Role",
    "RunReason",
    "RunStatus",
    "RunTrigger",
    "Runtime",
    "ScheduleStatus",
    "TaskStatus",
    "TenantStatus",
]


class TaskStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    ARCHIVED = "archived"

    Pending = PENDING
    Running = RUNNING
    Completed = COMPLETED
    Failed = FAILED
    Cancelled = CANCELLED
    Expired = EXPIRED
    Archived = ARCHIVED


LIVE = frozenset({TaskStatus.PENDING, TaskStatus.RUNNING})


class ScheduleStatus(StrEnum):
    DRAFT = "draft"
    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"

    @classmethod
    def _missing_(cls, value: object) -> ScheduleStatus | None:
        return cls.PAUSED if value == "inactive" else None


class MissedRunPolicy(StrEnum):
    SKIP = "skip"
    EXECUTE_ONCE = "execute_once"
    CATCH_UP = "catch_up"


class OverlapPolicy(StrEnum):
    SKIP = "skip"
    ALLOW = "allow"
    CANCEL_PREVIOUS = "cancel_previous"


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class RunTrigger(StrEnum):
    SCHEDULED = "scheduled"
    MANUAL = "manual"
    CATCH_UP = "catch_up"
    BACKFILL = "backfill"


class RunReason(StrEnum):
    """Why a run is not simply `completed`."""

    MISSED = "missed"
    OVERLAP = "overlap"
    CHANGED = "changed"
    LIMIT = "limit"
    BAD_TARGET = "bad_target"
    EXPIRED = "expired"
    SUSPENDED = "suspended"


class TenantStatus(StrEnum):
    ACTIVE = "active"
    SUSPENDED = "suspended"


class Role(StrEnum):
    """What a key may do: look; run, pause, trigger and submit; or everything."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Runtime(StrEnum):
    PYTHON = "python"
    SHELL = "shell"
    HTTP = "http"
