"""Records as the tenants' API answers them, field by field, in camelCase."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from typing import Any

from ....domain import recurrence
from ....domain.model import (
    ApiKey,
    Change,
    ChangeType,
    Event,
    Failure,
    LogLine,
    RetryPolicy,
    Run,
    Schedule,
    Target,
    Task,
    TaskStatus,
    TaskTarget,
    TemplateTarget,
    WorkflowTarget,
)
from ....domain.options import TaskOptions, options_of
from ....domain.recurrence import Cron, Interval, Once, RRule, Timing
from ....domain.why import Why
from ....engine.queries import Occurrence
from ...shapes import fields_of, text
from ..fields import body_name
from ..naming import camel, camel_keys

__all__ = [
    "api_key",
    "attempts",
    "event",
    "execution",
    "history",
    "log_lines",
    "occurrences",
    "run",
    "schedule",
    "why",
]

in_words = lru_cache(maxsize=10_000)(recurrence.describe)
"""To find the words takes longer than all the rest of an answer, and timings are asked for again and again."""


def schedule(record: Schedule) -> dict[str, Any]:
    at, grace = record.next_run_at, record.misfire_grace
    return {
        "id": record.id,
        "name": record.key,
        "description": record.description or None,
        "scheduleType": _schedule_type(record),
        "target": target(record.target),
        "enabled": record.enabled,
        "status": str(record.status),
        "nextRunAt": at and text(at),
        "nextRunAtLocal": at and recurrence.local(record.timing, at).replace(tzinfo=None).isoformat(),
        "lastRunAt": record.last_run_at and text(record.last_run_at),
        "lastTaskId": record.last_task_id,
        "runCount": record.run_count,
        "maxRuns": record.max_runs,
        "startAt": record.start_at and text(record.start_at),
        "endAt": record.end_at and text(record.end_at),
        "missedRunPolicy": str(record.missed_run_policy),
        "overlapPolicy": str(record.overlap_policy),
        "misfireGraceSeconds": None if grace is None else grace.total_seconds(),
        "catchUpWindowSeconds": record.catch_up_window.total_seconds(),
        "jitterSeconds": record.jitter.total_seconds(),
        "pauseOnFailure": record.pause_on_failure,
        "pauseNote": record.pause_note,
        "completedReason": record.completed_reason,
        "metadata": record.metadata,
        "tenant": record.tenant,
        "version": record.version,
        "createdBy": record.created_by,
        "updatedBy": record.updated_by,
        "createdAt": text(record.created_at),
        "updatedAt": text(record.updated_at),
        "deletedAt": record.deleted_at and text(record.deleted_at),
    }


def _schedule_type(record: Schedule) -> dict[str, Any]:
    shape = timing(record.timing)
    if record.end_at is not None and shape["type"] != "once":
        shape["endAt"] = text(record.end_at)
    return shape


def timing(of: Timing) -> dict[str, Any]:
    words = in_words(of)
    match of:
        case Once(run_at):
            return {"type": "once", "runAt": text(run_at), "description": words}
        case Cron(expression, zone):
            return {"type": "recurring", "cron": expression, "timezone": zone, "description": words}
        case Interval(every):
            return {"type": "interval", "everySeconds": every.total_seconds(), "description": words}
        case RRule(rule, _, zone):
            return {"type": "rrule", "rule": rule, "timezone": zone, "description": words}


def target(of: Target) -> dict[str, Any]:
    """As it was given: what was left out and has its default stays out."""
    match of:
        case WorkflowTarget():
            shape: dict[str, Any] = {"type": "workflow", "workflowKind": of.kind}
        case TaskTarget():
            shape = {"type": "task", "taskKind": of.kind}
        case TemplateTarget():
            shape = {"type": "template", "templateId": of.template_id}
    if of.input is not None:
        shape["input"] = of.input
    if isinstance(of, TemplateTarget):
        return shape
    usual = TaskTarget(kind=of.kind)
    for name in options_of(TaskOptions):
        value = getattr(of, name)
        if value != getattr(usual, name):
            shape[camel(body_name(TaskOptions, name))] = _option_value(value)
    return shape


def _option_value(value: Any) -> Any:
    if isinstance(value, RetryPolicy):
        return camel_keys(fields_of(value))
    return value.total_seconds() if isinstance(value, timedelta) else value


def execution(record: Task) -> dict[str, Any]:
    """A task, or a workflow, which is a task of its own type."""
    return {
        "id": record.id,
        "kind": record.kind,
        "type": "workflow" if record.is_workflow else "task",
        "status": str(record.status),
        "tenant": record.tenant,
        "version": record.version,
        "queue": record.queue,
        "priority": record.priority,
        "input": record.input,
        "output": record.output,
        "error": record.error and _failure(record.error),
        "metadata": record.metadata,
        "tags": record.tags,
        "createdAt": text(record.created_at),
        "availableAt": text(record.available_at),
        "expiresAt": record.expires_at and text(record.expires_at),
        "expiredAt": record.expired_at and text(record.expired_at),
        "startedAt": record.started_at and text(record.started_at),
        "completedAt": record.completed_at and text(record.completed_at),
        "updatedAt": text(record.updated_at),
        "attempt": record.attempt,
        "retries": record.retries,
        "maxRetries": record.max_retries,
        "retryPolicy": record.retry_policy and _option_value(record.retry_policy),
        "reschedules": record.reschedules,
        "maxReschedules": record.max_reschedules,
        "timeoutSeconds": record.timeout and record.timeout.total_seconds(),
        "leaseExpiresAt": record.lease_expires_at and text(record.lease_expires_at),
        "workerId": record.worker_id,
        "cancelRequested": record.cancel_requested,
        "cancelledBy": record.cancelled_by,
        "cancelReason": record.cancel_reason,
        "scheduleId": record.schedule_id,
        "runId": record.run_id,
        "scheduledAt": record.scheduled_at and text(record.scheduled_at),
        "idempotencyKey": record.idempotency_key,
        "progress": record.progress,
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {"type": failure.type, "message": failure.message, "traceback": failure.traceback}


def run(record: Run) -> dict[str, Any]:
    return {
        "id": record.id,
        "scheduleId": record.schedule_id,
        "scheduledAt": text(record.scheduled_at),
        "until": record.until and text(record.until),
        "count": record.count,
        "trigger": str(record.trigger),
        "status": str(record.status),
        "reason": record.reason and str(record.reason),
        "targetType": record.target_type,
        "targetId": record.target_id,
        "startedAt": record.started_at and text(record.started_at),
        "completedAt": record.completed_at and text(record.completed_at),
        "error": record.error,
        "createdAt": text(record.created_at),
    }


def occurrences(of: Timing, found: Iterable[Occurrence], warnings: Iterable[str]) -> dict[str, Any]:
    return {
        "description": in_words(of),
        "timezone": getattr(of, "timezone", "UTC"),
        "times": [
            {
                "at": text(each.at),
                "local": each.local.replace(tzinfo=None).isoformat(),
                "dst": each.dst,
            }
            for each in found
        ],
        "warnings": list(warnings),
    }


def why(answer: Why) -> dict[str, Any]:
    return {
        "status": answer.status,
        "explanation": str(answer),
        "run": None if answer.run is None else run(answer.run),
    }


def history(changes: Iterable[Change]) -> list[dict[str, Any]]:
    return [
        {
            "number": change.number,
            "at": text(change.at),
            "status": str(change.status),
            "actor": change.actor,
            "detail": change.detail,
        }
        for change in changes
    ]


def event(record: Event) -> dict[str, Any]:
    return {
        "id": record.id,
        "at": text(record.at),
        "actor": record.actor,
        "action": record.action,
        "subjectType": record.subject_type,
        "subjectId": record.subject_id,
        "detail": record.detail,
        "before": record.before,
        "after": record.after,
    }


def log_lines(lines: Iterable[LogLine]) -> list[dict[str, Any]]:
    return [{"at": text(line.at), "attempt": line.attempt, "message": line.message} for line in lines]


def attempts(record: Task) -> list[dict[str, Any]]:
    """From the history: each time that a worker took the task, and how that ended. What is running has no end yet."""
    found: list[dict[str, Any]] = []
    for change in record.history:
        if change.type is ChangeType.CLAIMED:
            found.append({"attempt": change.attempt, "startedAt": text(change.at), "worker": change.actor})
            found[-1] |= {"endedAt": None, "status": "running", "detail": ""}
        elif found and found[-1]["endedAt"] is None and change.status is not TaskStatus.RUNNING:
            ended = "retrying" if change.status is TaskStatus.PENDING else str(change.status)
            found[-1] |= {"endedAt": text(change.at), "status": ended, "detail": change.detail}
    return found


def api_key(record: ApiKey) -> dict[str, Any]:
    """Without what it takes to use it."""
    return {
        "id": record.id,
        "name": record.name,
        "role": str(record.role),
        "tenant": record.tenant,
        "createdAt": text(record.created_at),
        "createdBy": record.created_by,
        "revokedAt": record.revoked_at and text(record.revoked_at),
        "revokedBy": record.revoked_by,
    }
