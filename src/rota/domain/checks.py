"""What is accepted: names, numbers, sizes, shapes. Each check raises `Invalid` with one sentence, or returns
the value in its stored form: exact texts and numbers, times in UTC, durations as timedeltas, data as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from math import isfinite
from typing import Any, TypeVar

import msgspec

from .errors import Invalid
from .model import Limits, RetryPolicy

MAX_DEPTH = 64
METADATA_DEPTH = 3
METADATA_KEYS = 100
MAX_TAGS = 32
MAX_TEXT = 10_000
LONGEST = timedelta(days=36_500)

DURATIONS = "accepted are whole numbers with ms, s, m, h, d or w, such as 30s, 5m, 1h30m, 7d or 2w"
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = re.compile(r"([0-9]{1,12})(ms|[smhdw])")
DURATION_PATTERN = r"([0-9]{1,12}(ms|[smhdw])\s*)+"
_WHOLE = re.compile(DURATION_PATTERN)

_E = TypeVar("_E", bound=StrEnum)
UNIQUE_PARTS = ("kind", "queue", "input")
_UNIQUE_RULE = "accepted are kind, queue, input, and parts of the input such as input.customer"
NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,254}"
_NAME = re.compile(NAME_PATTERN)
NAME_RULE = "accepted are 1 to 255 letters, digits and _ . : / @ -, beginning with a letter, a digit or _"


def check_kind(value: object, field: str = "kind") -> str:
    return _name(field, value)


def check_queue(value: object, field: str = "queue") -> str:
    return _name(field, value)


def check_key(value: object, field: str = "schedule_id") -> str:
    """A schedule's key is for people: any printable text of 1 to 255 characters."""
    if not isinstance(value, str):
        raise Invalid(field, f"{shown(value)} is not a text", "accepted are 1 to 255 characters")
    if not 1 <= len(value) <= 255 or not value.isprintable() or value != value.strip():
        rule = "accepted are 1 to 255 printable characters without blanks at the ends"
        raise Invalid(field, f"{shown(value)} is not a valid name", rule)
    return str.__str__(value)


def check_schedule_ids(field: str, value: object) -> tuple[str, ...]:
    """One, or several of them."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Iterable):
        raise Invalid(field, f"{shown(value)} names no schedule", "give a schedule_id, or several")
    return tuple(names)


def check_idempotency_key(field: str, value: object) -> str:
    if value == "":
        raise Invalid(field, "it is empty", "give a text of 1 to 255 characters")
    return check_text(field, value, most=255)


def check_text(field: str, value: object, *, most: int = MAX_TEXT) -> str:
    """Any text that can be stored."""
    if not isinstance(value, str):
        raise Invalid(
            field, f"{shown(value)} is not a text", f"accepted are texts of up to {most:,} characters"
        )
    if len(value) > most:
        raise Invalid(field, f"{len(value):,} characters are too many", f"the most is {most:,}")
    if storable(value) != value:
        raise Invalid(field, "it holds a character that UTF-8 cannot carry", "give valid Unicode text")
    return str.__str__(value)


def check_number(field: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Invalid(field, f"{shown(value)} is not accepted", f"give a whole number from {least} to {most}")
    return int(value)


def check_time(field: str, value: object) -> datetime:
    """An aware datetime, in UTC; what a naive one means is for the surfaces to say."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise Invalid(field, f"{shown(value)} is not a time", "give a datetime with a time zone")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Invalid(
            field, f"{shown(value)} is out of range", "give a time in the years 1 to 9999"
        ) from None


def check_choice(field: str, value: object, enum: type[_E]) -> _E:
    """A member of the enum, or its value."""
    try:
        return enum(str.__str__(value) if isinstance(value, str) else "")
    except ValueError:
        raise Invalid(field, f"{shown(value)} is not known", f"accepted are {', '.join(enum)}") from None


def check_flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise Invalid(field, f"{shown(value)} is not accepted", "give True or False")
    return value


def check_duration(field: str, value: object, *, least: timedelta = timedelta(0)) -> timedelta:
    """A timedelta, a number of seconds, or a text such as 5m."""
    if isinstance(value, str):
        value = parsed_duration(field, value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        value = _seconds(field, value)
    if not isinstance(value, timedelta):
        accepted = "give a timedelta, a number of seconds, or a text such as 5m"
        raise Invalid(field, f"{shown(value)} is not a duration", accepted)
    if value < least:
        at_least = "it must not be negative" if not least else f"the least is {least.total_seconds():g} s"
        raise Invalid(field, f"{value.total_seconds():g} s is too short", at_least)
    if value > LONGEST:
        raise Invalid(field, f"{value.days:,} days are too long", "the most is 100 years")
    return value


def parsed_duration(field: str, text: str) -> timedelta:
    """`1h30m` as a timedelta."""
    if not _WHOLE.fullmatch(text.strip()):
        raise Invalid(field, f"{text!r:.60} is not a duration", DURATIONS)
    try:
        return sum((int(number) * _UNITS[unit] for number, unit in _PART.findall(text)), timedelta())
    except OverflowError:
        raise Invalid(field, f"{text!r:.60} is too long", "the most is 100 years") from None


def check_tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise Invalid("tags", f"{shown(value)} is not a list", "give a list of texts")
    given = list(islice(value, MAX_TAGS + 1))
    if len(given) > MAX_TAGS:
        raise Invalid("tags", "there are too many", f"the most is {MAX_TAGS}")
    return tuple(dict.fromkeys(_name("tags", tag) for tag in given))


def check_unique_by(field: str, value: object) -> tuple[str, ...]:
    """The parts that make two submissions the same, in one order."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise Invalid(field, f"{shown(value)} is not a list", f"give a list of texts; {_UNIQUE_RULE}")
    parts = list(value)
    for part in parts:
        if not isinstance(part, str) or not (
            part in UNIQUE_PARTS or part.removeprefix("input.") not in ("", part)
        ):
            raise Invalid(field, f"{shown(part)} is not known", _UNIQUE_RULE)
    if not parts:
        raise Invalid(field, "it is empty", _UNIQUE_RULE)
    return tuple(sorted(set(parts)))


def check_retry_policy(value: object, field: str = "retry_policy") -> RetryPolicy:
    if not isinstance(value, RetryPolicy):
        raise Invalid(field, f"{shown(value)} is not a policy", "give a rota.RetryPolicy")
    return RetryPolicy(
        initial=check_duration(f"{field}.initial", value.initial),
        maximum=check_duration(f"{field}.maximum", value.maximum),
        multiplier=check_ratio(f"{field}.multiplier", value.multiplier, 1, 1000),
        jitter=check_ratio(f"{field}.jitter", value.jitter, 0, 1),
    )


def check_input(value: object, limits: Limits, field: str = "input") -> Any:
    """The value as JSON will give it back; refused if it cannot be JSON or is too large."""
    result = plain(field, value, most=limits.input_bytes)
    try:
        size = len(msgspec.json.encode(result))
    except UnicodeEncodeError:
        raise Invalid(
            field, "it holds a character that UTF-8 cannot carry", "give valid Unicode text"
        ) from None
    if size > limits.input_bytes:
        raise _too_large(field, f"{size:,}", limits.input_bytes)
    return result


def check_metadata(value: object, field: str = "metadata") -> dict[str, Any]:
    """A small dict of facts: at most 3 levels of dicts and lists, at most 100 keys in all."""
    if not isinstance(value, dict):
        raise Invalid(field, f"{shown(value)} is not a dict", "give a dict with texts as keys")
    if not value:
        return {}
    result: dict[str, Any] = check_input(value, Limits(), field)
    keys, depth = _measure(result)
    if depth > METADATA_DEPTH:
        raise Invalid(field, f"it is {depth} levels deep", f"the most is {METADATA_DEPTH} levels")
    if keys > METADATA_KEYS:
        raise Invalid(field, f"it has {keys} keys", f"the most is {METADATA_KEYS} keys")
    return result


def plain(field: str, value: object, *, most: int) -> Any:
    """A copy as JSON will give it back. Refused is what JSON cannot carry: NaN, numbers past 64 bits, keys
    that are no texts, foreign objects, and what has more parts than `most` bytes can hold."""
    return _Copy(field, most).of(value, 0)


def stored_bytes(value: object) -> bytes:
    """As it is stored, for comparing: to Python, True and 1 are equal. The order of keys makes no difference."""
    return msgspec.json.encode(value, order="deterministic")


def changed_fields(record: msgspec.Struct, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, in stored form, that differ from the record's own."""
    return {
        name: value
        for name, value in values.items()
        if stored_bytes(value) != stored_bytes(getattr(record, name))
    }


def check_fields(what: str, given: Iterable[str], accepted: Iterable[str]) -> None:
    """Refused, if `what`, such as a schedule, has no field of one of these names."""
    known = sorted(accepted)
    for name in given:
        if name not in known:
            raise Invalid(name, f"{what} has no such field", f"accepted are {', '.join(known)}")


def shown(value: object) -> str:
    """A value as a message can show it: short, on one line, whatever it is."""
    try:
        text = " ".join(storable(repr(value)).split())
    except (
        Exception
    ):  # a foreign __repr__ may raise anything, and a long int or a deep list refuses to be shown
        return f"this {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "…"


def storable(text: str) -> str:
    """The text with what UTF-8 cannot carry (lone surrogates, as in undecodable file names) made visible."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


class _Copy:
    """Copies data into plain JSON data, and counts: a list that holds another many times over can be vast."""

    def __init__(self, field: str, most: int) -> None:
        self._field = field
        self._most = most
        self._left = most // 2 + 1  # each part of a list takes a byte, and a comma or a bracket

    def of(self, value: object, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _too_large(self._field, f"more than {self._most:,}", self._most)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, (int, float)):
            return self._number(value)
        if isinstance(value, (dict, list, tuple)):
            return self._container(value, depth + 1)
        kind = type(value).__name__
        rule = "give texts, numbers, booleans, None, lists and dicts"
        raise Invalid(self._field, f"a value of type {kind} is not JSON", rule)

    def _number(self, value: float) -> float:
        if isinstance(value, int):
            if not -(2**63) <= value < 2**64:
                problem = f"the number {shown(value)} does not fit 64 bits"
                raise Invalid(self._field, problem, "give it as a text")
            return int(value)
        if not isfinite(value):
            raise Invalid(self._field, f"{value} is not JSON", "give finite numbers")
        return float(value)

    def _container(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Invalid(self._field, "it is nested too deeply", f"the most is {MAX_DEPTH} levels")
        if not isinstance(value, dict):
            return [self.of(part, depth) for part in value]
        return {self._key(key): self.of(part, depth) for key, part in value.items()}

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise Invalid(self._field, f"the key {shown(key)} is not a text", "JSON has only texts as keys")
        return str.__str__(key)


def _name(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise Invalid(field, f"{shown(value)} is not a text", NAME_RULE)
    if not _NAME.fullmatch(value):
        raise Invalid(field, f"{shown(value)} is not a valid name", NAME_RULE)
    return str.__str__(value)


def _seconds(field: str, value: float) -> timedelta:
    if not abs(value) <= LONGEST.total_seconds():  # "not <=", because NaN is neither
        raise Invalid(field, f"{shown(value)} s is not accepted", "give a number of seconds up to 100 years")
    return timedelta(seconds=value)


def check_ratio(field: str, value: object, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise Invalid(field, f"{shown(value)} is not accepted", f"give a number from {least:g} to {most:g}")
    return float(value)


def _too_large(field: str, size: str, most: int) -> Invalid:
    return Invalid(field, f"{size} bytes are too many", f"the most is {most:,} bytes of JSON")


def _measure(value: object) -> tuple[int, int]:
    """(keys in all, levels of dicts and lists)"""
    if isinstance(value, dict):
        own, parts = len(value), list(value.values())
    elif isinstance(value, list):
        own, parts = 0, value
    else:
        return 0, 0
    below = [_measure(part) for part in parts]
    return own + sum(keys for keys, _ in below), 1 + max((depth for _, depth in below), default=0)
