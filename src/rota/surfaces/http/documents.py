"""What the OpenAPI document says of answers. Answers themselves are made in `answers.py`; a test holds the two
together."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

from .problems import CONTENT_TYPE

__all__ = ["Answer", "documented"]


class Answer(BaseModel):
    """In camelCase."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class ProblemDocument(BaseModel):
    """RFC 9457. `code` never changes between releases; `field` is what is wrong, if it is one field."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str
    field: str | None = None
    errors: list[dict[str, str]] | None = None


class ScheduleAnswer(Answer):
    id: str
    name: str
    description: str | None
    schedule_type: dict[str, JsonValue]
    target: dict[str, JsonValue]
    enabled: bool
    status: Literal["draft", "active", "paused", "completed"]
    next_run_at: datetime | None
    next_run_at_local: str | None
    last_run_at: datetime | None
    last_task_id: str | None
    run_count: int
    max_runs: int | None
    start_at: datetime | None
    end_at: datetime | None
    missed_run_policy: Literal["skip", "execute_once", "catch_up"]
    overlap_policy: Literal["skip", "allow", "cancel_previous"]
    misfire_grace_seconds: float | None
    catch_up_window_seconds: float
    jitter_seconds: float
    pause_on_failure: bool
    pause_note: str | None
    completed_reason: str | None
    metadata: dict[str, JsonValue]
    tenant: str
    version: int
    created_by: str | None
    updated_by: str | None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None


class SchedulesAnswer(Answer):
    items: list[ScheduleAnswer]
    next_cursor: str | None


class RunAnswer(Answer):
    id: str
    schedule_id: str
    scheduled_at: datetime
    until: datetime | None
    count: int
    trigger: Literal["scheduled", "manual", "catch_up"]
    status: Literal["running", "completed", "failed", "skipped", "cancelled"]
    reason: str | None
    target_type: Literal["task", "workflow", "template"]
    target_id: str | None
    started_at: datetime | None
    completed_at: datetime | None
    error: str | None
    created_at: datetime


class RunsAnswer(Answer):
    items: list[RunAnswer]
    next_cursor: str | None


class FailureAnswer(Answer):
    type: str
    message: str
    traceback: str | None


class RetryPolicyAnswer(Answer):
    initial_seconds: float
    multiplier: float
    maximum_seconds: float
    jitter: float


class ExecutionAnswer(Answer):
    id: str
    kind: str
    type: Literal["task", "workflow"]
    status: Literal["pending", "running", "completed", "failed", "cancelled", "expired", "archived"]
    tenant: str
    version: int
    queue: str
    priority: int
    input: JsonValue
    output: JsonValue
    error: FailureAnswer | None
    metadata: dict[str, JsonValue]
    tags: list[str]
    created_at: datetime
    available_at: datetime
    expires_at: datetime | None
    expired_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    updated_at: datetime
    attempt: int
    retries: int
    max_retries: int | None
    retry_policy: RetryPolicyAnswer | None
    reschedules: int
    max_reschedules: int | None
    timeout_seconds: float | None
    lease_expires_at: datetime | None
    worker_id: str | None
    cancel_requested: bool
    cancelled_by: str | None
    cancel_reason: str | None
    schedule_id: str | None
    run_id: str | None
    scheduled_at: datetime | None
    idempotency_key: str | None
    progress: JsonValue


class ExecutionsAnswer(Answer):
    items: list[ExecutionAnswer]
    next_cursor: str | None


class AttemptAnswer(Answer):
    attempt: int
    started_at: datetime
    worker: str
    ended_at: datetime | None
    status: str
    detail: str


class AttemptsAnswer(Answer):
    items: list[AttemptAnswer]


class LogLineAnswer(Answer):
    at: datetime
    attempt: int
    message: str


class LogsAnswer(Answer):
    items: list[LogLineAnswer]


class ChangeAnswer(Answer):
    number: int
    at: datetime
    status: str
    actor: str
    detail: str


class HistoryAnswer(Answer):
    items: list[ChangeAnswer]


class EventAnswer(Answer):
    id: str
    at: datetime
    actor: str
    action: str
    subject_type: str
    subject_id: str
    detail: str
    before: dict[str, JsonValue] | None
    after: dict[str, JsonValue] | None


class ChangesAnswer(Answer):
    items: list[EventAnswer]


class OccurrenceAnswer(Answer):
    at: datetime
    local: str
    dst: str | None


class PreviewAnswer(Answer):
    description: str
    timezone: str
    times: list[OccurrenceAnswer]
    warnings: list[str]


class WhyAnswer(Answer):
    status: str
    explanation: str
    run: RunAnswer | None


class BulkAnswer(Answer):
    changed: int
    left: int


class KeyAnswer(Answer):
    id: str
    name: str
    role: Literal["viewer", "operator", "admin"]
    tenant: str
    created_at: datetime
    created_by: str
    revoked_at: datetime | None
    revoked_by: str | None


class NewKeyAnswer(KeyAnswer):
    key: str | None


class KeysAnswer(Answer):
    items: list[KeyAnswer]
    next_cursor: str | None


_MODELS: dict[str, type[BaseModel]] = {
    "schedule": ScheduleAnswer,
    "schedules": SchedulesAnswer,
    "runs": RunsAnswer,
    "execution": ExecutionAnswer,
    "executions": ExecutionsAnswer,
    "attempts": AttemptsAnswer,
    "logs": LogsAnswer,
    "history": HistoryAnswer,
    "changes": ChangesAnswer,
    "preview": PreviewAnswer,
    "why": WhyAnswer,
    "bulk": BulkAnswer,
    "key": KeyAnswer,
    "new key": NewKeyAnswer,
    "keys": KeysAnswer,
}
_PROBLEMS = {
    400: "The body cannot be read as JSON.",
    401: "No key was given, or it is not valid.",
    403: "The key's role does not allow this, or the tenant is suspended.",
    404: "There is no such thing in this tenant.",
    409: "It conflicts with how things are: taken, ended, changed meanwhile, a limit reached.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A value is wrong: `field` says which, `detail` what is accepted.",
    429: "Asked too often; `Retry-After` says when to ask again.",
    503: "The store does not answer; repeat the request.",
}


def documented(
    status: int, *, answers_with: str | type[BaseModel] | None = None, **extra: Any
) -> dict[str, Any]:
    """The arguments of a route: its answer, and every problem that it may answer with."""
    model = _MODELS[answers_with] if isinstance(answers_with, str) else answers_with
    good: dict[str, Any] = {"description": "Done."}
    if model is not None:
        good["model"] = model
    responses: dict[int | str, dict[str, Any]] = {status: good}
    for code, words in _PROBLEMS.items():
        schema = {"$ref": "#/components/schemas/ProblemDocument"}
        responses[code] = {"description": words, "content": {CONTENT_TYPE: {"schema": schema}}}
    return {"status_code": status, "response_class": Response, "responses": responses, **extra}
