"""The answers of the tenants' API. Each is declared once: msgspec makes its JSON and its schema for OpenAPI from that.

A field whose name a record has, too, is copied from there (`shaped`). The functions below say the rest."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from ....domain import recurrence
from ....domain.model import (
    BackfillStatus,
    ExcludedPolicy,
    MissedRunPolicy,
    OverlapPolicy,
    RetryPolicy,
    RunReason,
    RunStatus,
    RunTrigger,
    Schedule,
    ScheduleStatus,
    StepKind,
    Target,
    Task,
    TaskStatus,
    TaskTarget,
    TemplateTarget,
    WorkflowTarget,
)
from ....domain.options import TaskOptions, options_of
from ....domain.serving import Waiting, WaitReason
from ....domain.workflow import StepStatus
from ...attempts import Attempt, attempts_of
from ...shapes import Answer, ItemsAnswer, PageAnswer, Time, fields_of, listed, shaped
from ..fields import body_name, camel, camel_keys
from .timing_answers import ScheduleTypeAnswer, schedule_type

_BODIES = {
    name: f"#/components/schemas/{name.capitalize()}TargetBody" for name in ("task", "workflow", "template")
}
TargetAnswer = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema={
            "oneOf": [{"$ref": each} for each in _BODIES.values()],
            "discriminator": {"propertyName": "type", "mapping": _BODIES},
        }
    ),
]
"""A target is answered in the shape in which it is given."""


class ScheduleAnswer(Answer, frozen=True, kw_only=True):
    """When to run what."""

    id: str
    name: str
    description: str | None
    schedule_type: ScheduleTypeAnswer
    target: TargetAnswer
    enabled: bool
    status: ScheduleStatus
    next_run_at: Time | None
    next_run_at_local: str | None
    last_run_at: Time | None
    last_task_id: str | None
    buffered: tuple[Time, ...]
    backfill: BackfillAnswer | None
    run_count: int
    max_runs: int | None
    start_at: Time | None
    end_at: Time | None
    missed_run_policy: MissedRunPolicy
    overlap_policy: OverlapPolicy
    misfire_grace_seconds: float | None
    catch_up_window_seconds: float
    offset_seconds: float
    jitter_seconds: float
    exclude: tuple[str, ...]
    only: tuple[str, ...]
    excluded_policy: ExcludedPolicy
    pause_on_failure: int
    heartbeat_url: str | None
    alarm_late_seconds: float | None
    alarm_no_success_seconds: float | None
    alarm_failures: int | None
    alarm_duration_seconds: float | None
    alarm_ending_seconds: float | None
    pause_note: str | None
    pause_until: Time | None
    paused_by: str | None
    paused_at: Time | None
    completed_reason: str | None
    metadata: dict[str, Any]
    tenant: str
    version: int
    created_by: str | None
    updated_by: str | None
    created_at: Time
    updated_at: Time
    deleted_at: Time | None


class SchedulesAnswer(PageAnswer[ScheduleAnswer], frozen=True, kw_only=True):
    """A page of schedules."""


class RunAnswer(Answer, frozen=True, kw_only=True):
    """One expected time of a schedule, and what became of it. Misses that follow each other are one: `until` is the
    last of them, `count` how many they are. `calendar` is the one that excluded it; `causes` are the runs whose end
    made it run, `effects` those that its end made run."""

    id: str
    schedule_id: str
    scheduled_at: Time
    until: Time | None
    count: int
    trigger: RunTrigger
    status: RunStatus
    reason: RunReason | None
    calendar: str | None
    target_type: Literal["task", "workflow", "template"]
    target_id: str | None
    started_at: Time | None
    completed_at: Time | None
    error: str | None
    causes: tuple[str, ...]
    effects: tuple[str, ...]
    created_at: Time


class RunsAnswer(PageAnswer[RunAnswer], frozen=True, kw_only=True):
    """A page of runs."""


class FailureAnswer(Answer, frozen=True, kw_only=True):
    """What went wrong in a handler."""

    type: str
    message: str
    traceback: str | None


class RetryPolicyAnswer(Answer, frozen=True, kw_only=True):
    """How long a task waits before it is tried again."""

    initial_seconds: float
    multiplier: float
    maximum_seconds: float
    jitter: float


class RunnableAnswer(Answer, frozen=True, kw_only=True):
    """The fields that the answers for tasks and for templates have in common: the options of both."""

    id: str
    kind: str
    version: int
    queue: str
    priority: int
    max_retries: int | None
    max_reschedules: int | None
    retry_policy: RetryPolicyAnswer | None
    timeout_seconds: float | None
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    limit_key: str | None
    created_at: Time
    updated_at: Time


class ExecutionAnswer(RunnableAnswer, frozen=True, kw_only=True):
    """A task, or a workflow, which is a task of its own type."""

    type: Literal["task", "workflow"]
    status: TaskStatus
    tenant: str
    input: Any
    output: Any
    error: FailureAnswer | None
    available_at: Time
    expires_at: Time | None
    expired_at: Time | None
    started_at: Time | None
    completed_at: Time | None
    attempt: int
    retries: int
    reschedules: int
    lease_expires_at: Time | None
    worker_id: str | None
    cancel_requested: bool
    cancelled_by: str | None
    cancel_reason: str | None
    schedule_id: str | None
    run_id: str | None
    scheduled_at: Time | None
    idempotency_key: str | None
    progress: Any
    workflow_version: int | None
    waits_for: tuple[str, ...]
    unread_signals: int
    parent_id: str | None


class StepAnswer(Answer, frozen=True, kw_only=True):
    """One thing that a workflow did or waits for."""

    key: str
    kind: StepKind
    status: StepStatus
    number: int | None
    attempts: int
    output: Any
    error: FailureAnswer | None
    created_at: Time
    started_at: Time | None
    due_at: Time | None
    completed_at: Time | None
    child_id: str | None


class StepsAnswer(ItemsAnswer[StepAnswer], frozen=True, kw_only=True):
    """All steps, in the order in which the workflow got the answers; what it waits for comes last."""


class WaitingAnswer(Answer, frozen=True, kw_only=True):
    """Why a task does not run."""

    reason: WaitReason
    explanation: str


class CreatedExecutionAnswer(ExecutionAnswer, frozen=True, kw_only=True):
    """A task or workflow that was just submitted. `warnings`, if there are any: no live worker handles its kind."""

    warnings: list[str] | UnsetType = UNSET


class CreatedScheduleAnswer(ScheduleAnswer, frozen=True, kw_only=True):
    """A schedule that was just created. `warnings`, if there are any: no live worker handles what it starts."""

    warnings: list[str] | UnsetType = UNSET


class OneExecutionAnswer(ExecutionAnswer, frozen=True, kw_only=True):
    """One task or workflow. `waiting` says why it does not run; null: it does, or has ended."""

    waiting: WaitingAnswer | None


class ReplayedAnswer(Answer, frozen=True, kw_only=True):
    """How many tasks matched, and how many of them were replayed: none in a dry run."""

    matching: int
    replayed: int


class ExecutionsAnswer(PageAnswer[ExecutionAnswer], frozen=True, kw_only=True):
    """A page of executions."""


class AttemptAnswer(Answer, frozen=True, kw_only=True):
    """One time that a worker took the task, and how that ended. What is running has no end yet."""

    attempt: int | None
    started_at: Time
    worker: str
    ended_at: Time | None
    status: str
    detail: str


class AttemptsAnswer(ItemsAnswer[AttemptAnswer], frozen=True, kw_only=True):
    """All attempts, oldest first."""


class LogLineAnswer(Answer, frozen=True, kw_only=True):
    """One line that a handler logged."""

    at: Time
    attempt: int
    message: str


class LogsAnswer(ItemsAnswer[LogLineAnswer], frozen=True, kw_only=True):
    """All lines, oldest first."""


class FileAnswer(Answer, frozen=True, kw_only=True):
    """What a task left under a name. `digest` is the SHA-256 of its bytes."""

    name: str
    media_type: str
    size: int
    digest: str
    attempt: int
    created_at: Time


class FilesAnswer(ItemsAnswer[FileAnswer], frozen=True, kw_only=True):
    """All that it left, by name; its result comes first."""


class ChangeAnswer(Answer, frozen=True, kw_only=True):
    """One line of a task's history."""

    number: int
    at: Time
    status: TaskStatus
    actor: str
    detail: str


class HistoryAnswer(ItemsAnswer[ChangeAnswer], frozen=True, kw_only=True):
    """All changes of a task, oldest first."""


class EventAnswer(Answer, frozen=True, kw_only=True):
    """What a person or a program did."""

    id: str
    at: Time
    actor: str
    action: str
    subject_type: str
    subject_id: str
    detail: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ChangesAnswer(ItemsAnswer[EventAnswer], frozen=True, kw_only=True):
    """All changes of a schedule, oldest first."""


class WhyAnswer(Answer, frozen=True, kw_only=True):
    """What became of an expected time. `run` is the row of the ledger that the explanation rests on, if any."""

    status: str
    explanation: str
    run: RunAnswer | None


class BulkAnswer(Answer, frozen=True, kw_only=True):
    """How many schedules were changed, and how many refused the change."""

    changed: int
    left: int


def schedule(record: Schedule) -> ScheduleAnswer:
    at = record.next_run_at
    return shaped(
        ScheduleAnswer,
        record,
        description=record.description or None,
        schedule_type=schedule_type(record),
        target=target(record.target),
        next_run_at_local=at and recurrence.local(record.timing, at).replace(tzinfo=None).isoformat(),
    )


def created_schedule(record: Schedule, warnings: list[str]) -> CreatedScheduleAnswer:
    return CreatedScheduleAnswer(**asdict(schedule(record)), warnings=warnings or UNSET)


def created_execution(record: Task, warnings: list[str]) -> CreatedExecutionAnswer:
    return CreatedExecutionAnswer(**asdict(execution(record)), warnings=warnings or UNSET)


def target(of: Target) -> dict[str, Any]:
    """A target as it was given: options that have their default are left out."""
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


def execution(record: Task) -> ExecutionAnswer:
    return shaped(ExecutionAnswer, record, **_of_execution(record))


def one_execution(record: Task, waiting: Waiting | None) -> OneExecutionAnswer:
    about = None if waiting is None else WaitingAnswer(reason=waiting.reason, explanation=str(waiting))
    return shaped(OneExecutionAnswer, record, waiting=about, **_of_execution(record))


def _of_execution(record: Task) -> dict[str, Any]:
    waits = tuple(str(wait) for wait in record.waits_for)
    return {"type": "workflow" if record.is_workflow else "task", "waits_for": waits}


def attempts(record: Task) -> AttemptsAnswer:
    return listed(AttemptsAnswer, attempts_of(record.history), _attempt)


def _attempt(found: Attempt) -> AttemptAnswer:
    ended = found.ended
    status = "running" if ended is None else "retrying" if ended.status == "pending" else str(ended.status)
    return AttemptAnswer(
        attempt=found.number,
        started_at=found.began_at,
        worker=found.worker,
        ended_at=None if ended is None else ended.at,
        status=status,
        detail="" if ended is None else ended.detail,
    )


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
