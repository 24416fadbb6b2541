"""The bodies that `/api/v1` accepts: in snake_case, and in camelCase, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from ....domain.model import Runtime
from ....domain.options import RetryPolicyOptions, TemplateOptions
from ..fields import Flag, InSeconds, Json, Name, Text, Time, as_json, body_fields, camel, said_once
from ..problems import wrong
from ..tenants.schemas import Command, ReadOnly, Version


class SnakeBody(BaseModel):
    """A body that is documented in snake_case, and accepted in camelCase, too. Unknown fields are refused."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(name, camel(name))),
        extra="forbid",
    )

    @model_validator(mode="before")
    @classmethod
    def _said_once(cls, given: Any) -> Any:
        return said_once(cls, given, str)


def _task_type(value: object) -> object:
    if value not in list(Runtime):
        raise ValueError(f"{as_json(value)} is not known; accepted are {', '.join(Runtime)}")
    return value


TaskType = Annotated[Literal["python", "shell", "http"], BeforeValidator(_task_type)]
Parameters = dict[str, Json]


class RetryPolicyV1(SnakeBody):
    """How long a task waits before it is tried again."""

    __annotations__ = body_fields(RetryPolicyOptions, SnakeBody)


class _Options(SnakeBody):
    """The options of a stored task. `command` is the kind here."""

    __annotations__ = body_fields(TemplateOptions, RetryPolicyV1, leave_out=("command",))
    name: Name = Field(default_factory=str, description="For people; its command, if it is left out.")
    alias: Name = Field(default_factory=str, description="Another word for name.")
    parameters: Parameters = Field(default_factory=dict, description="The function's arguments, by name.")
    parameters_schema: dict[str, Json] | None = Field(
        default=None,
        description="A JSON Schema for the parameters: checked when it is executed or scheduled.",
    )

    @model_validator(mode="after")
    def _one_name(self) -> _Options:
        if {"name", "alias"} <= self.model_fields_set and self.name != self.alias:
            raise wrong("alias", "alias: it contradicts name; give one of them")
        return self


_BACKUP: dict[str, Any] = {"command": "backup_database", "task_type": "python"}


class TemplateBody(_Options, json_schema_extra={"examples": [_BACKUP]}):
    """A task that is stored, to be executed and scheduled later."""

    task_type: TaskType
    command: Command


class TemplatePut(
    TemplateBody,
    json_schema_extra={"examples": [{**_BACKUP, "parameters": {"compress": True}, "version": 1}]},
):
    """The task as it shall be. `version`, or If-Match: only if it is still at that one."""

    version: Version | None = None
    id: ReadOnly = None
    created_at: ReadOnly = None
    updated_at: ReadOnly = None


class TemplatePatch(_Options, json_schema_extra={"examples": [{"enabled": False}]}):
    """What shall change; the rest stays. `version`, or If-Match: only if it is still at that one."""

    command: Command = Field(default_factory=str)
    task_type: TaskType = "python"
    version: Version | None = None


class ExecuteBody(SnakeBody, json_schema_extra={"examples": [{"parameters": {"compress": True}}]}):
    """Run it with these parameters laid over its own; now, or not before `schedule_at`."""

    parameters: Parameters = Field(default_factory=dict)
    schedule_at: Time | None = None


FIELD_OF = {"once": "run_at", "interval": "interval_seconds", "cron": "cron_expression"}
"""The field that says when, for each type."""


class _Scheduled(SnakeBody):
    """The field of its own type is needed, those of other types may only be null."""

    enabled: Flag = True
    parameters: Parameters = Field(
        default_factory=dict, description="Laid over those of the task at each run."
    )

    @model_validator(mode="before")
    @classmethod
    def _fitting(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        kind = _given(given, "schedule_type")
        known = {spelled for name in (*cls.model_fields, "interval") for spelled in (name, camel(name))}
        for other, name in FIELD_OF.items():
            value = _given(given, name)
            if other == kind and value is None and given.keys() <= known:  # an unknown name may be why
                raise wrong(name, f"{name} required for '{kind}' schedules")
            if other != kind and value is not None:
                raise wrong(name, f"{name} is for '{other}' schedules; this one is of type '{kind}'")
        return given


IntervalSeconds = Annotated[int, InSeconds(least=1)]


class OnceV1(_Scheduled):
    """At one time, which is in the future. Without a zone: UTC."""

    schedule_type: Literal["once"]
    run_at: Time
    interval_seconds: None = None
    cron_expression: None = None


class IntervalV1(_Scheduled):
    """Every so many seconds, the first time after that long."""

    schedule_type: Literal["interval"]
    interval_seconds: IntervalSeconds
    run_at: None = None
    cron_expression: None = None


class CronV1(_Scheduled):
    """By a cron line of 5 fields, or 6 with seconds first, on the clock of `timezone`."""

    schedule_type: Literal["cron"]
    cron_expression: Annotated[Text, Field(examples=["0 2 * * *"])]
    timezone: Annotated[Text, Field(examples=["Europe/Oslo"])] | None = None
    run_at: None = None
    interval_seconds: None = None


def _schedule_type(given: Any) -> str:
    """The one of the three types that is meant."""
    if not isinstance(given, dict):
        return "once"  # whatever it is, it is refused there
    kind = _given(given, "schedule_type")
    if not isinstance(kind, str) or kind not in FIELD_OF:
        problem = "it is missing" if kind is None else f"{as_json(kind)} is not known"
        raise wrong("schedule_type", f"schedule_type: {problem}; accepted are once, interval and cron")
    return kind


def _given(body: Mapping[str, Any], name: str) -> Any:
    short = name.removesuffix("_seconds")
    found = (body.get(each) for each in (name, camel(name), short))
    return next((value for value in found if value is not None), None)


ScheduleV1 = Annotated[
    Annotated[OnceV1, Tag("once")] | Annotated[IntervalV1, Tag("interval")] | Annotated[CronV1, Tag("cron")],
    Discriminator(_schedule_type),
]
SCHEDULE_EXAMPLES: dict[str, Any] = {
    "cron": {"value": {"schedule_type": "cron", "cron_expression": "0 2 * * *", "enabled": True}},
    "interval": {"value": {"schedule_type": "interval", "interval_seconds": 3600, "enabled": True}},
    "once": {"value": {"schedule_type": "once", "run_at": "2030-10-20T14:00:00Z", "enabled": True}},
}


class TaskSchedulePatch(SnakeBody, json_schema_extra={"examples": [{"enabled": False}]}):
    """Enable or disable it; or, for an admin, give it another time. Another type of time needs `schedule_type`."""

    enabled: Flag | None = None
    schedule_type: Literal["once", "interval", "cron"] | None = None
    run_at: Time | None = None
    interval_seconds: IntervalSeconds | None = None
    cron_expression: Text | None = None
    timezone: Text | None = None
