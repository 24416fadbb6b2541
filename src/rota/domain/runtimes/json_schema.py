"""What parameters may be, as a JSON Schema says it. Pure.

Understood are the keywords below; another one is refused when the schema is given, so that none is passed over in
silence. `pattern` is not among them: a regular expression of one tenant could hold up all others. For the same reason a
check has a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Invalid

_NOTES = frozenset(
    [
        "$schema",
        "$id",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
    ]
)
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_LISTS = ("anyOf", "oneOf", "allOf")
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": lambda value: _is_number(value),
}
MOST_STEPS = 100_000
"""Schemas and parts of values that are compared at most, about a fifth of a second."""
_KNOWN = (
    *("type", "enum", "const", "properties", "required", "additionalProperties", "items", "not"),
    *_NUMBERS,
    *_COUNTS,
    *_LISTS,
)


def check_schema(schema: Any, field: str) -> None:
    """Refused, if it is not a schema that `check_against` understands all of."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise Invalid(field, "it is not a JSON Schema", "give an object, such as {'required': ['name']}")
    for name, value in schema.items():
        if name in _NOTES:
            continue
        if name not in _KNOWN:
            accepted = f"understood are {', '.join(_KNOWN)}"
            raise Invalid(f"{field}.{name}", "this keyword of JSON Schema is not understood", accepted)
        _check_keyword(name, value, f"{field}.{name}")


def _check_keyword(name: str, value: Any, field: str) -> None:
    if name == "type":
        wanted = value if isinstance(value, list) else [value]
        if not wanted or not all(isinstance(each, str) and each in _TYPES for each in wanted):
            raise Invalid(field, "there is no such type", f"accepted are {', '.join(_TYPES)}")
    elif name == "properties":
        for key, part in _of_type(value, dict, field).items():
            check_schema(part, f"{field}.{key}")
    elif name == "required":
        if not all(isinstance(each, str) for each in _of_type(value, list, field)):
            raise Invalid(field, "it holds what is not a name", "give a list of names")
    elif name in ("items", "not", "additionalProperties"):
        check_schema(value, field)
    elif name in _LISTS:
        for number, part in enumerate(_of_type(value, list, field)):
            check_schema(part, f"{field}[{number}]")
    elif name == "enum":
        _of_type(value, list, field)
    elif name in _COUNTS and not (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        raise Invalid(field, "it is not a count", "give a whole number from 0 on")
    elif name in _NUMBERS and not _is_number(value):
        raise Invalid(field, "it is not a number", "give a number")


def check_against(schema: Any, value: Any, field: str) -> None:
    """Refused, if the value is not what the schema asks for. The sentence names the place."""
    _Check(field).fits(schema, value, field)


class _Check:
    """One value against one schema. It may take `MOST_STEPS`: a list of alternatives for each part of a long list would
    hold up everybody for minutes."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._left = MOST_STEPS

    def fits(self, schema: Any, value: Any, field: str) -> None:
        if isinstance(schema, bool):
            if not schema:
                raise Invalid(field, "nothing is accepted here")
            return
        self._count(1 + len(schema.get("enum", ())) + len(schema.get("required", ())))
        _check_value(schema, value, field)
        _check_size(schema, value, field)
        if isinstance(value, dict):
            self._check_object(schema, value, field)
        if isinstance(value, list) and "items" in schema:
            for number, part in enumerate(value):
                self.fits(schema["items"], part, f"{field}[{number}]")
        self._check_combined(schema, value, field)

    def _count(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooLong(self._field, "to check it against its schema takes too long", "give less at once")

    def _check_object(self, schema: dict[str, Any], value: dict[str, Any], field: str) -> None:
        for name in schema.get("required", ()):
            if name not in value:
                raise Invalid(f"{field}.{name}", "it is missing")
        known = schema.get("properties", {})
        for name, part in value.items():
            wanted = known[name] if name in known else schema.get("additionalProperties", True)
            if wanted is False:
                accepted = f"accepted are {', '.join(known) or 'none'}"
                raise Invalid(f"{field}.{name}", "there is no such parameter", accepted)
            self.fits(wanted, part, f"{field}.{name}")

    def _check_combined(self, schema: dict[str, Any], value: Any, field: str) -> None:
        for part in schema.get("allOf", ()):
            self.fits(part, value, field)
        if "anyOf" in schema and not any(self._does_fit(part, value) for part in schema["anyOf"]):
            raise Invalid(field, f"{_shown(value)} fits none of what is accepted")
        if "oneOf" in schema and sum(self._does_fit(part, value) for part in schema["oneOf"]) != 1:
            raise Invalid(field, f"{_shown(value)} does not fit exactly one of what is accepted")
        if "not" in schema and self._does_fit(schema["not"], value):
            raise Invalid(field, f"{_shown(value)} is what must not be")

    def _does_fit(self, schema: Any, value: Any) -> bool:
        try:
            self.fits(schema, value, "")
        except _TooLong:
            raise
        except Invalid:
            return False
        return True


class _TooLong(Invalid):
    """Not an answer to whether the value fits."""


def _check_value(schema: dict[str, Any], value: Any, field: str) -> None:
    if "type" in schema:
        wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_TYPES[each](value) for each in wanted):
            raise Invalid(field, f"expected {' or '.join(wanted)}, got {_shown(value)}")
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        accepted = ", ".join(_shown(each) for each in schema["enum"])
        raise Invalid(field, f"{_shown(value)} is not accepted", f"accepted are {accepted}")
    if "const" in schema and not _same(value, schema["const"]):
        raise Invalid(field, f"{_shown(value)} is not accepted", f"accepted is {_shown(schema['const'])}")


def _check_size(schema: dict[str, Any], value: Any, field: str) -> None:
    sizes = ((str, "Length", "characters"), (list, "Items", "items"), (dict, "Properties", "fields"))
    for kind, what, words in sizes:
        if isinstance(value, kind):
            if len(value) < schema.get(f"min{what}", 0):
                raise Invalid(
                    field, f"{len(value)} {words} are too few", f"the least is {schema[f'min{what}']}"
                )
            if len(value) > schema.get(f"max{what}", len(value)):
                raise Invalid(
                    field, f"{len(value)} {words} are too many", f"the most is {schema[f'max{what}']}"
                )
    if not _is_number(value):
        return
    if value < schema.get("minimum", value) or value > schema.get("maximum", value):
        bounds = f"from {schema.get('minimum', '…')} to {schema.get('maximum', '…')}"
        raise Invalid(field, f"{_shown(value)} is out of range", f"accepted are numbers {bounds}")
    lowest, highest = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if (lowest is not None and value <= lowest) or (highest is not None and value >= highest):
        bounds = (
            f"above {schema.get('exclusiveMinimum', '…')} and below {schema.get('exclusiveMaximum', '…')}"
        )
        raise Invalid(field, f"{_shown(value)} is out of range", f"accepted are numbers {bounds}")


def _of_type(value: Any, kind: type, field: str) -> Any:
    if not isinstance(value, kind):
        raise Invalid(field, f"{_shown(value)} is not accepted", f"give a {kind.__name__}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """To Python, True and 1 are equal; to JSON they are not."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _shown(value: Any) -> str:
    return f"{value!r:.60}"
