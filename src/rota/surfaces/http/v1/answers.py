"""The answers of `/api/v1`, in snake_case. Each is declared once: msgspec makes its JSON and its schema for OpenAPI
from that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ....domain.artifact import RESULT
from ....domain.model import Artifact, Runtime, Schedule, Task, TaskStatus, Template, TemplateTarget
from ....domain.plan import of_command
from ....domain.recurrence import After, Cron, Interval, Once, RRule, Several, Timing
from ....domain.runtimes import COMMAND_KINDS
from ...shapes import Time, shaped
from ..tenants.answers import FailureAnswer

T = TypeVar("T")
_ENDED_WITH_ARTIFACT = (TaskStatus.COMPLETED, TaskStatus.FAILED)
TimingType = Literal["once", "interval", "cron", "rrule", "several", "after"]


class SnakeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer in snake_case."""


class TemplateRetryPolicyAnswer(SnakeAnswer, frozen=True, kw_only=True):
    """How long a task waits before it is tried again."""

    initial_seconds: float
    multiplier: float
    maximum_seconds: float
    jitter: float


class TemplateAnswer(SnakeAnswer, frozen=True, kw_only=True):
    """A stored task."""

    id: str
    command: str | list[str] | dict[str, Any]
    task_type: Runtime
    name: str
    parameters: dict[str, Any]
    parameters_schema: dict[str, Any] | None
    queue: str
    priority: int
    max_retries: int | None
    max_reschedules: int | None
    retry_policy: TemplateRetryPolicyAnswer | None
    timeout_seconds: float | None
    ttl_seconds: float | None
    enabled: bool
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    limit_key: str | None
    version: int
    created_at: Time
    updated_at: Time


class TaskScheduleAnswer(SnakeAnswer, frozen=True, kw_only=True):
    """A schedule of a stored task. It has the field of its type that says when; `timezone` is left out if it is UTC,
    `parameters` if it has none of its own."""

    id: str
    task_id: str | None
    schedule_type: TimingType
    run_at: Time | UnsetType = UNSET
    interval_seconds: int | float | UnsetType = UNSET
    cron_expression: str | UnsetType = UNSET
    rrule: str | UnsetType = UNSET
    after: tuple[str, ...] | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    parameters: dict[str, Any] | UnsetType = UNSET
    enabled: bool
    next_run_at: Time | None
    last_run_at: Time | None
    created_at: Time
    updated_at: Time


class StartedAnswer(SnakeAnswer, frozen=True, kw_only=True):
    """What `$execute` started."""

    job_id: str
    status: str


class TaskSnapshot(SnakeAnswer, frozen=True, kw_only=True):
    """What was run."""

    id: str | None
    command: str | list[str] | dict[str, Any]
    task_type: Runtime
    parameters: Any


class ArtifactAnswer(SnakeAnswer, frozen=True, kw_only=True):
    """What came of it: a result, or an error with its traceback."""

    task: TaskSnapshot
    result: Any
    error: FailureAnswer | None


class JobAnswer(SnakeAnswer, frozen=True, kw_only=True):
    """One execution. `artifact` is there when it has completed or failed."""

    id: str
    status: Literal["pending", "running", "completed", "failed", "canceled", "expired"]
    task_id: str | None
    schedule_id: str | None
    submitted_at: Time
    available_at: Time
    started_at: Time | None
    finished_at: Time | None
    error: str | None
    artifact_id: str | None
    artifact: ArtifactAnswer | None


class JobFileAnswer(SnakeAnswer, frozen=True, kw_only=True):
    """A file that a job left. `digest` is the SHA-256 of its bytes."""

    name: str
    media_type: str
    size: int
    digest: str
    attempt: int
    created_at: Time


class JobArtifactAnswer(SnakeAnswer, frozen=True, kw_only=True):
    """What came of one execution: `data`, and the files that it left, to be fetched from `$files/{name}`."""

    id: str
    job_id: str
    task_id: str | None
    created_at: Time | None
    data: ArtifactAnswer
    files: list[JobFileAnswer]


class NumberedPageAnswer(SnakeAnswer, Generic[T], frozen=True, kw_only=True):
    """A page, and how many there are."""

    total: int
    page: int
    size: int
    pages: int
    items: list[T]


class JobsAnswer(NumberedPageAnswer[JobAnswer], frozen=True, kw_only=True):
    """A page of jobs."""


class JobArtifactsAnswer(NumberedPageAnswer[JobArtifactAnswer], frozen=True, kw_only=True):
    """A page of artifacts."""


class TemplatesAnswer(NumberedPageAnswer[TemplateAnswer], frozen=True, kw_only=True):
    """A page of stored tasks."""


P = TypeVar("P", bound=NumberedPageAnswer[Any])


def page(shape: type[P], items: Iterable[Any], total: int, number: int, size: int) -> P:
    return shape(items=list(items), total=total, page=number, size=size, pages=-(-total // size))


def template(record: Template) -> TemplateAnswer:
    command = of_command(record.command) or record.kind
    return shaped(TemplateAnswer, record, command=command, task_type=record.runtime, name=record.alias)


def schedule(record: Schedule) -> TaskScheduleAnswer:
    template = record.target if isinstance(record.target, TemplateTarget) else None
    return TaskScheduleAnswer(
        id=record.id,
        task_id=None if template is None else template.template_id,
        parameters=UNSET if template is None or template.input is None else template.input,
        schedule_type=timing_type(record.timing),
        enabled=record.enabled,
        next_run_at=record.next_run_at,
        last_run_at=record.last_run_at,
        created_at=record.created_at,
        updated_at=record.updated_at,
        **_timing(record.timing),
    )


def timing_type(of: Timing) -> TimingType:
    tag: TimingType = of.__struct_config__.tag  # type: ignore[assignment]  # the tags are these words
    return tag


def _timing(of: Timing) -> dict[str, Any]:
    match of:
        case Once(run_at):
            return {"run_at": run_at}
        case Interval(every):
            seconds = every.total_seconds()
            return {"interval_seconds": int(seconds) if seconds.is_integer() else seconds}
        case Cron(expression, zone):
            return {"cron_expression": expression, "timezone": _unless_utc(zone)}
        case RRule(rule, _, zone):
            return {"rrule": rule, "timezone": _unless_utc(zone)}
        case Several():
            return {"timezone": _unless_utc(of.timezone)}
        case After(schedules):
            return {"after": schedules}


def _unless_utc(zone: str) -> str | UnsetType:
    return UNSET if zone == "UTC" else zone


def started(record: Task) -> StartedAnswer:
    return StartedAnswer(job_id=record.id, status=_status(record))


def job(record: Task) -> JobAnswer:
    status = _status(record)
    return shaped(
        JobAnswer,
        record,
        status=status,
        task_id=template_id_of(record),
        submitted_at=record.created_at,
        finished_at=_finished_at(record),
        error=_error(record, status),
        artifact_id=record.id if status in _ENDED_WITH_ARTIFACT else None,
        artifact=_artifact(record) if status in _ENDED_WITH_ARTIFACT else None,
    )


def has_artifact(record: Task) -> bool:
    return _status(record) in _ENDED_WITH_ARTIFACT


def job_artifact(record: Task, left: Sequence[Artifact]) -> JobArtifactAnswer:
    return JobArtifactAnswer(
        id=record.id,
        job_id=record.id,
        task_id=template_id_of(record),
        created_at=_finished_at(record),
        data=_artifact(record),
        files=[shaped(JobFileAnswer, each) for each in left if each.name != RESULT],
    )


def template_id_of(record: Task) -> str | None:
    found = record.metadata.get("template_id")
    return found if isinstance(found, str) else None


def _status(record: Task) -> str:
    """The status in the words of this API. An archived task is shown as it ended."""
    status = record.status
    if status is TaskStatus.ARCHIVED:
        ends = (change.status for change in reversed(record.history) if change.status is not status)
        status = next(ends, TaskStatus.COMPLETED)
        if status is TaskStatus.PENDING:  # it had expired before anyone marked it so
            status = TaskStatus.EXPIRED
    return "canceled" if status is TaskStatus.CANCELLED else str(status)


def _finished_at(record: Task) -> datetime | None:
    at = record.completed_at or record.expired_at
    return record.expires_at if at is None and record.status is TaskStatus.EXPIRED else at


def _error(record: Task, status: str) -> str | None:
    """The reason in one line. A task that will be tried again has that of its last attempt."""
    if status == "canceled":
        return record.cancel_reason or None
    return None if status == "completed" or record.error is None else str(record.error)


def _artifact(record: Task) -> ArtifactAnswer:
    return ArtifactAnswer(
        task=TaskSnapshot(
            id=template_id_of(record),
            command=record.kind if record.command is None else of_command(record.command),
            task_type=Runtime(COMMAND_KINDS.get(record.kind, "python")),
            parameters=record.input,
        ),
        result=record.output,
        error=None if record.error is None else shaped(FailureAnswer, record.error),
    )
