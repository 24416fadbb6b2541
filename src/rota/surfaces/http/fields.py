"""The types that bodies are made of. Strict: a number is a number, and a text with digits is not one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from ...domain.errors import Invalid
from ...domain.limits import NAME_PATTERN, check_time
from ...domain.model import RetryPolicy
from ...domain.options import Duration, Option, RetryPolicyOptions, names_of, options_of, value_type

__all__ = [
    "Body",
    "Flag",
    "Json",
    "Kind",
    "Metadata",
    "Name",
    "RetryPolicyBody",
    "Seconds",
    "Tags",
    "Text",
    "Time",
    "Whole",
    "body_fields",
    "body_name",
    "given_options",
    "said_once",
]


def _camel(name: str) -> str:
    return to_camel(name)


class Body(BaseModel):
    """A body that is accepted in camelCase and in snake_case, and shown in camelCase. Unknown fields are refused."""

    model_config = ConfigDict(
        alias_generator=_camel, populate_by_name=True, extra="forbid", validate_by_name=True
    )

    @model_validator(mode="before")
    @classmethod
    def _said_once(cls, given: Any) -> Any:
        return said_once(given)


def said_once(given: Any) -> Any:
    """Refuse a field that is given in camelCase and in snake_case."""
    if isinstance(given, dict):
        for name in given:
            if "_" in name and _camel(name) != name and _camel(name) in given:
                raise ValueError(f"{_camel(name)}: it is given twice, in two spellings; give it once")
    return given


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
"""Without a zone: UTC."""

Text = Annotated[str, Strict(), Field(max_length=10_000)]
Name = Annotated[str, Strict(), Field(min_length=1, max_length=255)]
Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Seconds = Annotated[float, Strict(), Field(ge=0, le=3_153_600_000)]
Json = JsonValue
Metadata = dict[str, JsonValue]
Kind = Annotated[Name, Field(pattern=f"^{NAME_PATTERN}$")]
Tags = Annotated[list[Annotated[str, Strict(), Field(pattern=f"^{NAME_PATTERN}$")]], Field(max_length=32)]


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
    """What a body calls the option: a duration says that it is in seconds."""
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
        return RetryPolicy(**given_options(value, RetryPolicyOptions))
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
        return Annotated[Whole, bounds]
    if kind == Duration or kind is float:
        return Annotated[float, Strict(), bounds]
    if kind is RetryPolicy:
        return policy
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind
    return _TYPES[kind]


_TYPES: dict[Any, Any] = {
    bool: Flag,
    datetime: Time,
    Iterable[str]: Tags,
    Mapping[str, Any]: Metadata,
}


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


class RetryPolicyBody(Body):
    """How long a task waits before it is tried again."""

    __annotations__ = body_fields(RetryPolicyOptions, Body)
