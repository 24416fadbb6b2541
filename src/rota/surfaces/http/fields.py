"""The fields of requests and answers: their types and their names.

The types are strict: a number is a number, and a text with digits is not one. A duration is a number of seconds, or a
text such as 5m; its field is named `timeoutSeconds`, and accepted as `timeout`, too. The tenants' API speaks camelCase,
`/api/v1` snake_case; inside, all is snake_case."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

from fastapi import Request
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    Strict,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from ...domain.checks import DURATION_PATTERN, LONGEST, NAME_PATTERN, check_time, parsed_duration, shown
from ...domain.errors import Invalid
from ...domain.model import RetryPolicy
from ...domain.options import (
    Duration,
    Option,
    RetryPolicyOptions,
    ScheduleOptions,
    SubmitOptions,
    TaskOptions,
    TimingOptions,
    names_of,
    options_of,
    value_type,
)
from ...domain.schedule.definition import FIELDS

_UNIT = re.compile(r"(_s|S)econds$")


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def camel_keys(shape: dict[str, Any]) -> dict[str, Any]:
    """The shape with its own keys in camelCase. What users put into it (inputs, metadata) is theirs."""
    return {camel(name): value for name, value in shape.items()}


class Body(BaseModel):
    """A body that is accepted in camelCase and in snake_case, and shown in camelCase. Unknown fields are refused."""

    model_config = ConfigDict(
        alias_generator=camel, populate_by_name=True, extra="forbid", validate_by_name=True
    )

    @model_validator(mode="before")
    @classmethod
    def _said_once(cls, given: Any) -> Any:
        return said_once(cls, given, camel)


def said_once(body: type[BaseModel], given: Any, spelled: Callable[[str], str]) -> Any:
    """Refuse a field that is given in camelCase and in snake_case, or with and without its unit. What is left has the
    names that the body knows, as `spelled` has them."""
    if not isinstance(given, dict):
        return given
    for name in given:
        if "_" in name and camel(name) != name and camel(name) in given:
            raise ValueError(f"{camel(name)}: it is given twice, in two spellings; give it once")
    long = _with_unit(body, spelled)
    short = [name for name in given if name in long]
    for name in short:
        if given.keys() & {long[name], camel(long[name])}:
            raise ValueError(f"{name}: it is given twice, once in seconds; give it once")
    return {long.get(name, name): value for name, value in given.items()} if short else given


def named_as_given(place: Sequence[str], body: Any) -> list[str]:
    """A place in this body, by the names that the caller gave: of a duration with its unit, or without."""
    named: list[str] = []
    for part in place:
        if isinstance(body, list):
            body = body[int(part)] if part.isdigit() and int(part) < len(body) else None
        elif isinstance(body, dict):
            names = {camel(name): name for name in body}
            part = names.get(camel(part)) or names.get(camel(_UNIT.sub("", part)), part)
            body = body.get(part)
        named.append(part)
    return named


@cache
def _with_unit(body: type[BaseModel], spelled: Callable[[str], str]) -> dict[str, str]:
    """The names of durations without their unit, in both spellings, and the names with it."""
    fields = [name for name in body.model_fields if name.endswith("_seconds")]
    short = {name: name.removesuffix("_seconds") for name in fields}
    return {
        each: spelled(name)
        for name in fields
        if short[name] not in body.model_fields
        for each in (short[name], camel(short[name]))
    }


def _time(value: Any) -> datetime:
    if not isinstance(value, str) or "T" not in value.upper():
        raise ValueError("it is not a time; give ISO 8601, such as 2026-12-31T23:59:00Z")
    try:
        at = datetime.fromisoformat(value)
        return check_time("time", at if at.tzinfo is not None else at.replace(tzinfo=UTC))
    except Invalid:
        raise ValueError("it is out of range; give a time in the years 1 to 9999") from None
    except ValueError:
        raise ValueError("it is not a time; give ISO 8601, such as 2026-12-31T23:59:00Z") from None


Time = Annotated[
    datetime,
    BeforeValidator(_time),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-12-31T23:59:00Z"]}),
]
"""A time. Without a zone it is UTC."""

Text = Annotated[str, Strict(), Field(max_length=10_000)]
Name = Annotated[str, Strict(), Field(min_length=1, max_length=255)]
Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Json = JsonValue
Metadata = dict[str, JsonValue]
Kind = Annotated[Name, Field(pattern=f"^{NAME_PATTERN}$")]
Tags = Annotated[list[Annotated[str, Strict(), Field(pattern=f"^{NAME_PATTERN}$")]], Field(max_length=32)]


class InSeconds:
    """Marks a number in a body as a duration: given in seconds or as a text such as 5m, read as the number."""

    def __init__(self, least: float = 0, most: float = LONGEST.total_seconds()) -> None:
        self.least = least
        self.most = most

    def __get_pydantic_core_schema__(self, source: Any, handler: object) -> CoreSchema:
        number: CoreSchema = core_schema.float_schema(strict=True, ge=self.least, le=self.most)
        if source is int:
            number = core_schema.int_schema(strict=True, ge=int(self.least), le=int(self.most))
        return core_schema.no_info_before_validator_function(_in_seconds, number)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Callable[[Any], Any]) -> Any:
        text = {"type": "string", "pattern": f"^{DURATION_PATTERN}$", "examples": ["5m"]}
        return {"anyOf": [handler(schema), text]}


def _in_seconds(value: Any) -> Any:
    if isinstance(value, str):
        try:
            span = parsed_duration("", value).total_seconds()
        except Invalid as problem:
            raise ValueError(problem.problem) from None
        return int(span) if span.is_integer() else span
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        accepted = "give a number of seconds, or a text such as 5m"
        raise ValueError(f"{as_json(value)} is not a duration; {accepted}")
    return value


def as_json(value: object) -> str:
    """The value as it was written, cut short."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return shown(value)
    return text if len(text) <= 60 else text[:59] + "…"


Seconds = Annotated[float, InSeconds()]


def body_fields(shape: type, policy: type[BaseModel], *, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """The annotations of a body that takes the options of a declared shape. None means that nothing is given, or, where
    the option says so, that what was there goes."""
    return {
        body_name(shape, name): Annotated[
            _body_type(shape, name, option, policy) | None, Field(default=None, description=option.help)
        ]
        for name, option in options_of(shape).items()
        if name not in leave_out
    }


def body_name(shape: type, name: str) -> str:
    """The name of an option in bodies and answers. A duration says that its numbers are seconds."""
    return f"{name}_seconds" if value_type(shape, name) == Duration else name


def given_options(body: BaseModel, shape: type) -> dict[str, Any]:
    """The options of the shape that the body gives, as Python's calls take them. Where a call takes seconds, too, it
    gets them, so that a refusal names what was given."""
    found: dict[str, Any] = {}
    for name in options_of(shape):
        given = body_name(shape, name)
        if given in body.model_fields_set:
            value = getattr(body, given)
            takes_seconds = given != name and given in names_of(shape)
            found[given if takes_seconds else name] = (
                value if takes_seconds else _option_value(shape, name, value)
            )
    return found


def _option_value(shape: type, name: str, value: Any) -> Any:
    if isinstance(value, BaseModel):
        policy = given_options(value, RetryPolicyOptions)
        return RetryPolicy(**{part: given for part, given in policy.items() if given is not None})
    if value is not None and value_type(shape, name) == Duration:
        return timedelta(seconds=value)
    return value


def _body_type(shape: type, name: str, option: Option, policy: type[BaseModel]) -> Any:
    kind = value_type(shape, name)
    bounds = Field(ge=option.least, le=option.most)
    if kind is str:
        length = Field(min_length=_whole(option.least), max_length=_whole(option.most))
        return Kind if option.pattern else Annotated[str, Strict(), length]
    if kind is int:
        number = Annotated[Whole, bounds]
        return number if option.alone is None else Annotated[Flag | number, _flag_or_number(option)]
    if kind == Duration:
        return Annotated[float, InSeconds(option.least or 0, option.most or LONGEST.total_seconds())]
    if kind is float:
        return Annotated[float, Strict(), bounds]
    if kind is RetryPolicy:
        return policy
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind
    return _TYPES[kind]


_TYPES: dict[Any, Any] = {bool: Flag, datetime: Time, Iterable[str]: Tags, Mapping[str, Any]: Metadata}


def _flag_or_number(option: Option) -> WrapValidator:
    """One sentence for the field, where pydantic has one for each of the two, under names of its own."""

    def check(value: Any, handle: Callable[[Any], Any]) -> Any:
        try:
            return handle(value)
        except ValidationError:
            accepted = f"true, false or a whole number from {option.least} to {option.most:,}"
            raise ValueError(f"{as_json(value)} is not accepted; give {accepted}") from None

    return WrapValidator(check)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


class RetryPolicyBody(Body):
    """How long a task waits before it is tried again."""

    __annotations__ = body_fields(RetryPolicyOptions, Body)


SLASH = "\ue000"
"""Stands for a slash inside a name while the path is taken apart; no name can have it."""

_NAMES = names_of(ScheduleOptions) | names_of(SubmitOptions)
_SECONDS = {
    name: f"{name}_seconds"
    for name in options_of(ScheduleOptions)
    if value_type(ScheduleOptions, name) == Duration
}
_OF_TARGET = (names_of(TaskOptions) | {"input", "template_id"}) - {"metadata"}
_PLACES = {
    **_SECONDS,
    **{name: f"target.{_SECONDS.get(name, name)}" for name in _OF_TARGET},
    "schedule_id": "name",
    "key": "name",
    **{name: f"schedule_type.{name}" for name in options_of(TimingOptions).keys() - FIELDS.keys()},
    "interval": "schedule_type.every_seconds",
    "rrule": "schedule_type.rule",
    "after": "schedule_type.schedules",
    "after_on": "schedule_type.on",
    "after_delay": "schedule_type.delay_seconds",
    "task_type": "target.task_kind",
}
"""The place of each field of the domain in the body of a schedule, in the tenants' API."""

_WORDS = sorted({"schedule_id", "template_id", "next_cursor"} | {name for name in _NAMES if "_" in name})
_FIELD = re.compile(rf"(?<!['\"\w])({'|'.join(_WORDS)})(?!['\"\w])")
"""Fields as the domain's sentences name them beside the one that they are about."""

_PLACES_V1 = {
    "timeout": "timeout_seconds",
    "cron": "cron_expression",
    "interval": "interval_seconds",
    "kind": "command",
    "input": "parameters",
}
_NUMBER = re.compile(r"\[([0-9]+)\]")
_OF_USERS = {"input", "parameters", "parameters_schema", "metadata"}
"""Fields inside which the names are those of users."""


def as_given(field: str, request: Request) -> str:
    """A field of the domain under the name that it has in this request."""
    first, *inner = _NUMBER.sub(r".\1", field).split(".")
    if "/api/v1/" in request.url.path:
        return ".".join([_PLACES_V1.get(first, first), *inner])
    if _has_schedule(request):
        place = _PLACES.get(first, first)
        if first == "timings":  # each is a small timing of its own
            inner = [_PLACES.get(part, part).removeprefix("schedule_type.") for part in inner]
    elif first in ("schedule_id", "task_id", "key_id"):
        place = "id"  # the one in the path
    else:
        place = _SECONDS.get(first, first)
    if first not in _OF_USERS:
        inner = [camel(part) for part in inner]
    return ".".join([*(camel(part) for part in place.split(".")), *inner])


def _has_schedule(request: Request) -> bool:
    """Whether the body is that of a schedule."""
    path = request.url.path
    is_change = request.method in ("PUT", "PATCH") and "/schedules/" in path
    return is_change or path.endswith(("/schedules", "/preview"))


def in_words_of(sentence: str, request: Request, details: Mapping[str, object]) -> str:
    """A sentence of the domain with the names that its fields have in this request. What is quoted stays, and so do
    `details`: names that users gave."""
    if "/api/v1/" in request.url.path:
        return sentence
    theirs = details.values()
    return _FIELD.sub(
        lambda found: found[0] if found[0] in theirs else camel(_SECONDS.get(found[0], found[0])), sentence
    )
