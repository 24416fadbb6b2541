"""What is wrong with a value of a request, in plain words: what was given, and what is accepted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...domain.limits import NAME_RULE, shown

__all__ = ["wrong_value"]

_TYPES = {
    "scheduleType": "once, recurring, cron, interval and rrule",
    "target": "task, workflow and template",
}
"""Of what has one of several shapes: what its `type` may be."""

_KINDS = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "date": "a time",
    "datetime": "a time",
}
Words = Callable[[Any, Mapping[str, Any]], str]
_WORDS: Mapping[str, Words] = {
    "missing": lambda given, about: "it is missing",
    "extra_forbidden": lambda given, about: "there is no such field",
    "string_too_short": lambda given, about: f"it is too short; the least is {about['min_length']} character",
    "string_too_long": lambda given, about: (
        f"{len(given):,} characters are too many; the most is {about['max_length']:,}"
    ),
    "string_pattern_mismatch": lambda given, about: f"{_json(given)} is not a valid name; {NAME_RULE}",
    "string_unicode": lambda given, about: "it holds a character that UTF-8 cannot carry; give valid text",
    "greater_than_equal": lambda given, about: f"{_json(given)} is too small; the least is {about['ge']:g}",
    "less_than_equal": lambda given, about: f"{_json(given)} is too large; the most is {about['le']:,}",
    "literal_error": lambda given, about: f"{_json(given)} is not known; {_choices(about['expected'])}",
    "enum": lambda given, about: f"{_json(given)} is not known; {_choices(about['expected'])}",
    "too_long": lambda given, about: f"there are too many; the most is {about['max_length']}",
    "none_required": lambda given, about: f"{_json(given)} is not accepted; leave it out",
    "value_error": lambda given, about: str(about["error"]),
}


def wrong_value(error: Mapping[str, Any], place: list[str]) -> str:
    """`error` is one of pydantic's, `place` the field that it is about."""
    kind: str = error["type"]
    given: Any = error.get("input")
    about: Mapping[str, Any] = error.get("ctx", {})
    if kind.startswith("union_tag"):
        problem = f"{_json(given.get('type'))} is not known" if "type" in given else "it is missing"
        return f"{problem}; accepted are {_TYPES[place[-1]]}"
    words = _WORDS.get(kind)
    if words is not None:
        return words(given, about)
    wanted = _KINDS.get(kind.partition("_")[0], "another value")
    return f"{_json(given)} is not accepted; give {wanted}"


def _choices(expected: str) -> str:
    """From `'a', 'b' or 'c'`."""
    return f"accepted are {expected.replace(chr(39), '').replace(' or ', ' and ')}"


def _json(value: object) -> str:
    """As it was written, cut short."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return shown(value)
    return text if len(text) <= 60 else text[:59] + "…"
