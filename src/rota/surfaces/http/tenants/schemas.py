"""The bodies that the tenants' API accepts, in camelCase."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, model_validator

from ....domain.model import Runtime
from ....domain.options import (
    AlarmOptions,
    ScheduleOptions,
    SubmitOptions,
    TaskOptions,
    TemplateOptions,
    options_of,
)
from ....domain.recurrence import MOST_TIMINGS, DayMatch, DstFold, DstGap
from ....domain.schedule.definition import FIELDS, MOST_UPSTREAM
from ..fields import (
    Body,
    Flag,
    InSeconds,
    Json,
    Kind,
    Name,
    RetryPolicyBody,
    Seconds,
    Text,
    Time,
    Whole,
    body_fields,
    given_options,
)
from .answers import CreatedScheduleAnswer

Version = Annotated[Whole, Field(ge=1)]
ReadOnly = Annotated[Any, Field(json_schema_extra={"readOnly": True})]
"""A field of answers. A body may have it, so that an answer can be sent back as it came; it is ignored."""


Command = Annotated[
    Json,
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "object"}],
            "description": "python: the kind under which the function is registered. shell: a command line, or a list:"
            " a program and its arguments. http: a URL, after its method if that is not GET. Or an object with all that"
            " can be said of a shell command or a request.",
        }
    ),
]
"""The runtime says which of these it takes."""


class Once(Body):
    """At one time."""

    type: Literal["once"]
    run_at: Time
    description: ReadOnly = None


class Recurring(Body):
    """By a cron line of 5 fields, 6 with seconds first, or 7 with a year last."""

    type: Literal["recurring", "cron"]
    cron: Annotated[Text, Field(examples=["0 9 * * 1-5"])]
    timezone: Annotated[Text, Field(examples=["America/New_York"])] | None = None
    day_match: DayMatch | None = None
    dst_gap: DstGap | None = None
    dst_fold: DstFold | None = None
    end_at: Time | None = None
    description: ReadOnly = None


class Every(Body):
    """At a fixed distance, in absolute time."""

    type: Literal["interval"]
    every_seconds: Annotated[float, InSeconds(least=1)]
    end_at: Time | None = None
    description: ReadOnly = None


class Rule(Body):
    """By an RFC 5545 rule."""

    type: Literal["rrule"]
    rule: Annotated[str, Field(max_length=100_000, examples=["FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17"])]
    timezone: Text | None = None
    dst_gap: DstGap | None = None
    dst_fold: DstFold | None = None
    end_at: Time | None = None
    description: ReadOnly = None


class SeveralTimings(Body):
    """By any of these timings, each in its zone."""

    type: Literal["several"]
    timings: Annotated[
        list[Annotated[Once | Recurring | Every | Rule, Field(discriminator="type")]],
        Field(min_length=1, max_length=MOST_TIMINGS),
    ]
    end_at: Time | None = None
    description: ReadOnly = None


class AfterOthers(Body):
    """When a run of each of these schedules, by name, has ended."""

    type: Literal["after"]
    schedules: Annotated[list[Text], Field(min_length=1, max_length=MOST_UPSTREAM, examples=[["extract"]])]
    on: Literal["success", "failure", "end"] = "success"
    delay_seconds: Seconds = 0
    end_at: Time | None = None
    description: ReadOnly = None


ScheduleType = Annotated[
    Once | Recurring | Every | Rule | SeveralTimings | AfterOthers, Field(discriminator="type")
]


class _TaskOptions(Body):
    """How a task is run."""

    __annotations__ = body_fields(TaskOptions, RetryPolicyBody)


class WorkflowTargetBody(_TaskOptions):
    """Start a workflow."""

    type: Literal["workflow"]
    workflow_kind: Kind
    input: Json = None


class TaskTargetBody(_TaskOptions):
    """Submit a task."""

    type: Literal["task"]
    task_kind: Kind
    input: Json = None


class TemplateTargetBody(Body):
    """Run a stored template."""

    type: Literal["template"]
    template_id: Name
    input: dict[str, Json] | None = None


TargetBody = Annotated[WorkflowTargetBody | TaskTargetBody | TemplateTargetBody, Field(discriminator="type")]


class AlarmRulesBody(Body, json_schema_extra={"examples": [{"alarmLateSeconds": 300, "alarmFailures": 2}]}):
    """The rules of a tag."""

    __annotations__ = body_fields(AlarmOptions, RetryPolicyBody)


class _Policies(Body):
    """The options of a schedule. Its timing and its target have bodies of their own."""

    __annotations__ = body_fields(
        ScheduleOptions,
        RetryPolicyBody,
        leave_out=tuple(options_of(ScheduleOptions).keys() - FIELDS.keys() | {"status", "pause_note"}),
    )
    enabled: Flag | None = None
    status: Literal["draft", "active", "paused", "inactive", "completed"] | None = None
    max_runs: Annotated[Whole, Field(ge=1, le=1_000_000_000)] | None = None  # null says "no limit", not 0

    @model_validator(mode="after")
    def _one_end(self) -> _Policies:
        inner = getattr(getattr(self, "schedule_type", None), "end_at", None)
        if inner is not None and given_options(self, ScheduleOptions).get("end_at", inner) != inner:
            raise ValueError("endAt: it contradicts scheduleType.endAt; give one of them, or the same twice")
        return self


_ONE_TIME: dict[str, Any] = {
    "name": "year-end-report",
    "description": "Generate year-end financial report",
    "scheduleType": {"type": "once", "runAt": "2030-12-31T23:59:00Z"},
    "target": {
        "type": "workflow",
        "workflowKind": "generate-report",
        "input": {"reportType": "annual", "year": 2030},
    },
}
_RECURRING: dict[str, Any] = {
    "name": "daily-report",
    "description": "Generate daily sales report at 9 AM Eastern",
    "scheduleType": {"type": "recurring", "cron": "0 9 * * *", "timezone": "America/New_York"},
    "target": {"type": "workflow", "workflowKind": "generate-sales-report", "input": {"reportType": "daily"}},
}


class ScheduleBody(_Policies, json_schema_extra={"examples": [_RECURRING, _ONE_TIME]}):
    """A schedule: when, and what."""

    name: Name
    schedule_type: ScheduleType
    target: TargetBody


class _Answered(Body):
    """The fields that only answers have. They are accepted and ignored, so that an answer can be sent back."""

    __annotations__ = {
        name: Annotated[ReadOnly, Field(default=None)]
        for name in CreatedScheduleAnswer.__struct_fields__
        if name not in ScheduleBody.model_fields
    }


class SchedulePut(ScheduleBody, _Answered, json_schema_extra={"examples": [{**_RECURRING, "version": 1}]}):
    """A schedule as it shall be. `version`, or If-Match: only if it is still at that one."""

    version: Version | None = None


class SchedulePatch(
    _Policies,
    json_schema_extra={"examples": [{"description": "Sales, every weekday", "overlapPolicy": "allow"}]},
):
    """What shall change; the rest stays. `version`, or If-Match: only if it is still at that one."""

    name: Name | None = None
    schedule_type: ScheduleType | None = None
    target: TargetBody | None = None
    version: Version | None = None


class PauseBody(
    Body, json_schema_extra={"examples": [{"note": "the warehouse is down", "until": "2026-12-31T06:00:00Z"}]}
):
    """Why it is paused, and until when."""

    note: Text | None = None
    until: Time | None = None


class BackfillBody(
    Body, json_schema_extra={"examples": [{"start": "2026-01-01T00:00:00Z", "end": "2026-01-31T23:59:59Z"}]}
):
    """Which times of the past to run after all. `dryRun` only says what would happen."""

    start: Time
    end: Time
    overlap_policy: Literal["buffer_all", "allow"] = "buffer_all"
    at_most: Annotated[Whole, Field(ge=1, le=10_000)] = 1000
    dry_run: Flag = False


class SpreadBody(
    Body, json_schema_extra={"examples": [{"at": "2026-12-01T09:00:00Z", "overSeconds": 600, "dryRun": True}]}
):
    """Which minute to spread, and over how long: the busiest of the next 24 hours, over what helps enough, unless they
    are given. `dryRun` only says what would move; with its
    `token`, exactly that happens, or nothing."""

    at: Time | None = None
    over_seconds: Annotated[int, InSeconds(60, 86_400)] | None = None
    token: str | None = None
    dry_run: Flag = False


class QueueLimitBody(Body, json_schema_extra={"examples": [{"concurrency": 10, "rate": "50/s"}]}):
    """How many tasks at once, and how many in a while. What is not named is not limited."""

    concurrency: int | None = None
    rate: Text | None = None


class TriggerBody(Body, json_schema_extra={"examples": [{}]}):
    """Another input for this one run, if it is given."""

    input: Json = None


class PreviewBody(
    Body, json_schema_extra={"examples": [{"scheduleType": _RECURRING["scheduleType"], "n": 5}]}
):
    """When would this fire?"""

    schedule_type: ScheduleType
    start_at: Time | None = None
    end_at: Time | None = None
    n: Annotated[Whole, Field(ge=1, le=1000)] = 5


class BulkBody(Body, json_schema_extra={"examples": [{"tag": "nightly"}]}):
    """Which schedules: those that match every filter given. None given: refused, unless `all` says so."""

    status: Literal["draft", "active", "paused", "inactive", "completed"] | None = None
    target: Kind | None = None
    template_id: Name | None = None
    tag: Kind | None = None
    timezone: Name | None = None
    q: Annotated[Text, Field(min_length=1)] | None = None
    all: Flag = False
    note: Text | None = None


class _Submission(Body):
    """An execution starts now: `schedule_at` is for schedules."""

    __annotations__ = body_fields(SubmitOptions, RetryPolicyBody, leave_out=("schedule_at",))
    input: Json = None

    @model_validator(mode="before")
    @classmethod
    def _not_for_later(cls, given: Any) -> Any:
        for name in ("scheduledAt", "scheduled_at", "scheduleAt", "schedule_at"):
            if isinstance(given, dict) and name in given:
                raise ValueError(
                    f"{name}: an execution starts now; for a later time create a schedule of type once"
                    " at POST /api/tenants/{tenant}/schedules"
                )
        return given


class ExecutionBody(
    _Submission, json_schema_extra={"examples": [{"kind": "send-reminder", "input": {"userId": "123"}}]}
):
    """A task to run now."""

    kind: Kind


class WorkflowBody(_Submission, json_schema_extra={"examples": [{"kind": "my-workflow", "input": {}}]}):
    """A workflow to start now."""

    kind: Kind


class _Template(Body):
    """The options of a template, its names, and what it runs."""

    __annotations__ = body_fields(TemplateOptions, RetryPolicyBody)
    alias: Name | None = Field(default=None, description="For people; what it runs, if it is left out.")
    kind: Kind | None = Field(default=None, description="Of python templates: which function.")
    command: Command | None = None
    parameters: dict[str, Json] = Field(default_factory=dict, description="The input, by name.")
    parameters_schema: dict[str, Json] | None = Field(
        default=None,
        description="A JSON Schema for the parameters: checked when it is executed or scheduled.",
    )


class StoredTemplateBody(
    _Template,
    json_schema_extra={"examples": [{"alias": "reminder", "kind": "send-reminder", "runtime": "python"}]},
):
    """What to run: a kind of task, a shell command, an HTTP request."""

    runtime: Runtime = Runtime.PYTHON


class StoredTemplatePatch(_Template, json_schema_extra={"examples": [{"enabled": False}]}):
    """What shall change; the rest stays. `version`, or If-Match: only if it is still at that one."""

    runtime: Runtime | None = None
    version: Version | None = None


class ExecuteTemplateBody(Body, json_schema_extra={"examples": [{"input": {"userId": "123"}}]}):
    """Run it with this input laid over its parameters."""

    input: dict[str, Json] = Field(default_factory=dict)


class _Calendar(Body):
    days: list[date] = Field(default_factory=list, description="Days.", max_length=5_000)
    rules: list[Text] = Field(
        default_factory=list, description="RRULEs: the days on which they fall.", max_length=50
    )
    windows: list[Text] = Field(
        default_factory=list, description="Windows of every day, such as 22:00-06:00.", max_length=50
    )
    country: Text | None = Field(
        default=None, description="Also the public holidays of a country, by its code."
    )
    subdivision: Text | None = Field(default=None, description="With a country: those of a part of it.")
    ics: Annotated[str, Field(max_length=1_000_000)] | None = Field(
        default=None, description="Also the all-day events of an .ics file, which is the text here."
    )
    years: Annotated[int, Field(ge=0, le=20)] | None = Field(
        default=None, description="How many years ahead holidays and repeated events are taken; null: 5."
    )
    timezone: Text | None = Field(default=None, description="Whose days and hours; null: each schedule's.")
    description: Text = Field(default="", description="For people.")


class CalendarBody(
    _Calendar, json_schema_extra={"examples": [{"name": "holidays", "days": ["2027-12-24"], "windows": []}]}
):
    """Days and windows under a name."""

    name: Name


class CalendarPatch(_Calendar, json_schema_extra={"examples": [{"days": ["2027-12-24", "2027-12-25"]}]}):
    """What shall change; the rest stays. `version`, or If-Match: only if it is still at that one."""

    version: Version | None = None


class CancelBody(Body, json_schema_extra={"examples": [{"reason": "no longer needed"}]}):
    """Why, for the history."""

    reason: Text = ""


class ReplayBody(
    Body,
    json_schema_extra={
        "examples": [{"status": "failed", "kind": "send", "sinceSeconds": 3600, "dryRun": True}]
    },
):
    """Which tasks to run again: those that match everything given. `sinceSeconds`: only those that ended at most so
    long ago."""

    status: Literal["failed", "cancelled"]
    kind: Name | None = None
    queue: Name | None = None
    schedule: Name | None = None
    tag: Name | None = None
    since_seconds: Seconds | None = None
    dry_run: Flag = False


class SignalBody(Body, json_schema_extra={"examples": [{"name": "paid", "payload": {"amount": 40}}]}):
    """What a workflow receives."""

    name: Name
    payload: Json = None


class ReplayWorkflowBody(Body, json_schema_extra={"examples": [{"fromStep": "charge"}]}):
    """From which step on: its key."""

    from_step: Text | None = None


_DECLARED: Any = {
    "schedules": {"daily": {"task_type": "report", "cron": "0 9 * * 1-5", "timezone": "Europe/London"}},
    "templates": {"backup": {"http": "POST https://example.org/backup", "timeout": "5m"}},
}


class PlanBody(Body, json_schema_extra={"examples": [_DECLARED]}):
    """What there is to be, as a file has it: by name, the options of `create_schedule`, `create_template` and
    `create_calendar` in snake_case."""

    schedules: dict[Name, dict[str, Json]] = Field(default_factory=dict)
    templates: dict[Name, dict[str, Json]] = Field(default_factory=dict)
    calendars: dict[Name, dict[str, Json]] = Field(default_factory=dict)
    prune: Annotated[Flag, Field(description="Pause the schedules that were declared and no longer are.")] = (
        False
    )
    force: Annotated[Flag, Field(description="Overwrite what was edited by hand.")] = False


class ApplyBody(PlanBody, json_schema_extra={"examples": [_DECLARED]}):
    """The same, and the plan that must still hold: its `at` and its `token`."""

    at: Time | None = None
    token: Text | None = None


class KeyBody(Body, json_schema_extra={"examples": [{"name": "ci", "role": "operator"}]}):
    """A new API key of this tenant."""

    name: Name
    role: Literal["viewer", "operator", "admin"]
