"""The types that bodies are made of. Strict: a number is a number, and a text with digits is not one."""

from __future__ import annotations

from datetime import UTC, datetime
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
from ...domain.limits import check_time

__all__ = [
    "Body",
    "Flag",
    "Json",
    "Metadata",
    "Name",
    "Seconds",
    "Tags",
    "Text",
    "Time",
    "Whole",
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
Tags = Annotated[
    list[Annotated[str, Strict(), Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,254}$")]],
    Field(max_length=32),
]
