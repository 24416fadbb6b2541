"""JSON as the types that annotations name, and back; with a sentence that says where it does not fit.

What msgspec knows is decoded strictly: dataclasses, structs, TypedDicts, enums, dates, UUIDs, Decimals, unions, nested
as they come. So are paths, and pydantic models: a program that has one has imported pydantic, so it is not imported
here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import PurePath
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, is_typeddict

import msgspec
from msgspec.inspect import CustomType, DataclassType, StructType, Type, TypedDictType, type_info

from ...domain.checks import shown
from ...domain.errors import Invalid

ABSENT: Any = object()
_UNTYPED = (Any, object)
_PLAIN = frozenset({str, int, float, bool, NoneType})
_SAID = re.compile(r"(?P<problem>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<number>\d+)\]|(?P<unknown>\[\.\.\.\])")
_FIELD = re.compile(r"Object (?P<about>missing required|contains unknown) field `(?P<name>.*)`")
_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
    "bytes": "bytes in base64",
    "date": "a date such as 2026-01-31",
    "time": "a time such as 12:30:00",
    "datetime": "a time such as 2026-01-31T12:30:00Z",
    "duration": "a duration such as PT5M",
    "uuid": "a UUID",
    "decimal": "a decimal number",
}
_INVALID = {
    "Invalid RFC3339 encoded datetime": "datetime",
    "Invalid RFC3339 encoded date": "date",
    "Invalid RFC3339 encoded time": "time",
    "Invalid ISO8601 duration": "duration",
    "Invalid base64 encoded string": "bytes",
    "Invalid UUID": "uuid",
    "Invalid decimal string": "decimal",
}


class Decoder:
    """Reads JSON as one type."""

    __slots__ = ("hint",)

    def __init__(self, hint: Any) -> None:
        self.hint = hint

    def __call__(self, value: Any, path: str) -> Any:
        """The value; `Invalid` names the part of it that does not fit, `path` being where it comes from."""
        try:
            return msgspec.convert(value, self.hint, str_keys=True, dec_hook=_from_json)
        except msgspec.ValidationError as error:
            raise _explained(error, value, path, {"": self.hint}) from None

    def encoded(self, value: Any, path: str) -> Any:
        """The value as JSON; `Invalid`, if that could not be read as the type again."""
        if type(value) is self.hint and self.hint in _PLAIN:
            return value  # as below: it fits
        found = encoded(value, path)
        if not self._is_right(value):
            self(found, path)
        return found

    def _is_right(self, value: Any) -> bool:
        """Whether the value is right without a look inside. A model has checked itself. A value of a subclass is of the
        type, though JSON may tell them apart (a bool is an int, a datetime is a date)."""
        if type(value) is self.hint:
            return _is_model(self.hint)
        return isinstance(self.hint, type) and not is_typeddict(self.hint) and isinstance(value, self.hint)


class FieldsDecoder:
    """Reads the fields of an object, each as its type, in one go. msgspec takes about 0.9 µs for each start: three
    fields one by one take 3.9 µs, together 1.0."""

    __slots__ = ("_hints", "_struct")

    def __init__(self, hints: Mapping[str, Any]) -> None:
        self._hints = {f".{name}": hint for name, hint in hints.items()}
        fields = [(name, hint, ABSENT) for name, hint in hints.items()]
        self._struct = msgspec.defstruct("Fields", fields, kw_only=True, gc=False)

    def __call__(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The values by name, `ABSENT` where there is none. `Invalid` names the part that does not fit."""
        try:
            found = msgspec.convert(fields, self._struct, str_keys=True, dec_hook=_from_json)
        except msgspec.ValidationError as error:
            raise _explained(error, fields, "input", self._hints) from None
        return msgspec.structs.asdict(found)


def decoder(hint: Any, name: str) -> Decoder | None:
    """The decoder of values of this type; None: any value will do. A type that JSON cannot become is refused."""
    hint = _iterable_as_list(hint)
    if hint in _UNTYPED or isinstance(hint, TypeVar):
        return None
    try:
        parts = list(_parts(type_info(hint), set()))
    except TypeError as problem:
        raise Invalid(name, f"its annotation cannot be read from JSON: {problem}") from None
    for part in parts:
        if isinstance(part, CustomType) and part.cls is not object and not _is_read(part.cls):
            accepted = f"offer it with app.provide({part.cls.__name__}, …) before, or annotate it with data"
            raise Invalid(
                name, f"nobody provides a {part.cls.__name__}, and JSON cannot become one", accepted
            )
    return Decoder(hint)


def names_in(hint: Any) -> frozenset[str] | None:
    """The names of the fields of this type as JSON has them; None: it may have any, or none."""
    known = type_info(hint)
    if isinstance(known, StructType | DataclassType | TypedDictType):
        return frozenset(field.encode_name for field in known.fields)
    return None


def encoded(value: Any, path: str) -> Any:
    """The value as JSON."""
    if type(value) in _PLAIN:
        return value  # most are, and msgspec takes 0.5 µs to say so
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_to_json)
    except (TypeError, ValueError, RecursionError) as problem:
        raise Invalid(path, f"{shown(value)} cannot be JSON: {problem}") from None


def _iterable_as_list(hint: Any) -> Any:
    """An Iterable is read as a list: JSON has nothing else to iterate over."""
    if get_origin(hint) is Iterable:
        return list[get_args(hint)[0]]  # type: ignore[misc]  # a type that is known at run time
    return list if hint is Iterable else hint


def _parts(known: Type, seen: set[int]) -> Iterator[Type]:
    """The type and every type inside."""
    if id(known) in seen:
        return
    seen.add(id(known))
    yield known
    for name in known.__struct_fields__:
        inner = getattr(known, name)
        for each in inner if isinstance(inner, tuple) else (inner,):
            if isinstance(each, msgspec.inspect.Field):
                each = each.type
            if isinstance(each, Type):
                yield from _parts(each, seen)


def _is_model(cls: type) -> bool:
    """Whether it is a pydantic model."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


def _is_read(cls: type) -> bool:
    return isinstance(cls, type) and (issubclass(cls, PurePath) or _is_model(cls))


class _ModelProblem(ValueError):
    """A problem that pydantic has with a value, and where in it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.path = path


def _from_json(cls: Any, value: Any) -> Any:
    if issubclass(cls, PurePath) and isinstance(value, str):
        return cls(value)
    if not _is_model(cls):
        return value  # msgspec says what it is instead
    try:
        return cls.model_validate_json(msgspec.json.encode(value), **_names_of_models())
    except sys.modules["pydantic"].ValidationError as error:
        first = error.errors()[0]
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        problem = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        raise _ModelProblem("".join(steps), f"{problem}, got {shown(first['input'])}") from None


@cache
def _names_of_models() -> dict[str, bool]:
    """Models are written with the names of their fields; they are read with those, or with their aliases. Before
    pydantic 2.11 a model has to say that itself."""
    version = tuple(int(number) for number in sys.modules["pydantic"].VERSION.split(".")[:2])
    return {"by_alias": True, "by_name": True} if version >= (2, 11) else {}


def _to_json(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, str):  # a subclass, as the next ones
        return str.__str__(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if _is_model(type(value)):
        is_strict = value.model_config.get("extra") == "forbid"  # then it would refuse what it computes
        return value.model_dump(mode="json", round_trip=is_strict)
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


def _explained(error: msgspec.ValidationError, value: Any, path: str, hints: Mapping[str, Any]) -> Invalid:
    """msgspec's sentence in our words: `input.to[2]: expected a text, got 5`. `hints` are the types at some places."""
    said = _SAID.fullmatch(str(error))
    assert said is not None, "it matches everything"
    where, problem = path + (said["path"] or ""), said["problem"]
    if isinstance(error.__cause__, _ModelProblem):
        return Invalid(where + error.__cause__.path, str(error.__cause__))
    field = _FIELD.fullmatch(problem)
    if field is not None:
        missing = field["about"].startswith("missing")
        return Invalid(f"{where}.{field['name']}", "it is missing" if missing else "there is no such field")
    found, is_found = _found(value, said["path"] or "")
    got = shown(found) if is_found and not said["key"] else _in_words(problem.rpartition(", got ")[2])
    if problem.startswith(("Invalid enum value", "Invalid value")):  # the second is of tags
        choices = ", ".join(map(shown, _choices(hints.get(said["path"] or ""))))
        return Invalid(
            where, f"{got} is not one of the accepted values", choices and f"accepted are {choices}"
        )
    expected = _INVALID.get(problem)
    wanted = (
        _WORDS[expected] if expected else _in_words(problem.partition(", got ")[0].removeprefix("Expected "))
    )
    return Invalid(where, f"expected {wanted}{' as a key' if said['key'] else ''}, got {got}")


def _choices(hint: Any) -> Iterable[Any]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [member.value for member in hint]
    return get_args(hint) if get_origin(hint) is Literal else ()


def _in_words(text: str) -> str:
    """`int | null` as `a whole number or null`."""
    return re.sub(
        r"`([^`]+)`",
        lambda named: " or ".join(_WORDS.get(each, each) for each in named[1].split(" | ")),
        text,
    )


def _found(value: Any, path: str) -> tuple[Any, bool]:
    """(what is at the path, whether it could be found): msgspec does not name the keys of dicts."""
    for step in _STEP.finditer(path):
        try:
            value = value[step["field"]] if step["field"] else value[int(step["number"])]
        except (KeyError, IndexError, TypeError):
            return None, False
    return value, True
