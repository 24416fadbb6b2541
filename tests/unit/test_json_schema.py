"""The schema of a template's parameters: what is understood, what is refused, and what the sentences say."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.errors import Invalid
from rota.domain.runtimes import check_against, check_schema

PERSON = {
    "type": "object",
    "title": "A person",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "age": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", 1]}, "minItems": 1, "maxItems": 2},
        "mode": {"const": True},
        "size": {"oneOf": [{"type": "number"}, {"type": "string"}], "not": {"const": "huge"}},
        "either": {"anyOf": [{"minimum": 5}, {"type": "string"}], "allOf": [{"maximum": 9}]},
        "never": False,
    },
    "additionalProperties": False,
    "maxProperties": 4,
}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "Ada"},
        {"name": "Ada", "age": 36, "tags": ["a", 1]},
        {"name": "Ada", "age": None, "mode": True},
        {"name": "Ada", "age": 3.0, "size": 2.5, "either": 7},
        {"name": "Ada", "either": "x", "size": "large"},
    ],
)
def test_what_fits(value: Any) -> None:
    check_schema(PERSON, "schema")
    check_against(PERSON, value, "input")


@pytest.mark.parametrize("value", [1e16, -1e300, 2**63, 10**400])
@pytest.mark.parametrize(
    "schema", [True, {}, {"type": "number"}, {"exclusiveMinimum": -1e301}, {"anyOf": [{"type": "integer"}]}]
)
def test_large_numbers_fit(schema: Any, value: Any) -> None:
    """From 2**53 on, a float less one is the same float; an int may be larger than any float."""
    check_against(schema, value, "input")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({}, "input.name: it is missing"),
        ([], "input: expected object, got []"),
        ({"name": 5}, "input.name: expected string, got 5"),
        ({"name": ""}, "input.name: 0 characters are too few; the least is 1"),
        ({"name": "Augusta"}, "input.name: 7 characters are too many; the most is 5"),
        ({"name": "Ada", "age": True}, "input.age: expected integer or null, got True"),
        ({"name": "Ada", "age": 1.5}, "input.age: expected integer or null, got 1.5"),
        ({"name": "Ada", "age": -1}, "input.age: -1 is out of range"),
        ({"name": "Ada", "age": 150}, "input.age: 150 is out of range"),
        ({"name": "Ada", "tags": []}, "input.tags: 0 items are too few"),
        ({"name": "Ada", "tags": ["a", "c"]}, "input.tags[1]: 'c' is not accepted; accepted are 'a', 'b', 1"),
        ({"name": "Ada", "tags": [True]}, "input.tags[0]: True is not accepted"),
        ({"name": "Ada", "mode": 1}, "input.mode: 1 is not accepted; accepted is True"),
        ({"name": "Ada", "size": None}, "input.size: None does not fit exactly one of what is accepted"),
        ({"name": "Ada", "size": "huge"}, "input.size: 'huge' is what must not be"),
        ({"name": "Ada", "either": 3}, "input.either: 3 fits none of what is accepted"),
        ({"name": "Ada", "either": 10}, "input.either: 10 is out of range"),
        ({"name": "Ada", "never": 1}, "input.never: there is no such parameter"),
        ({"name": "Ada", "nmae": 1}, "input.nmae: there is no such parameter; accepted are name, age, "),
        ({"name": "Ada", "a": 1, "b": 1, "c": 1, "d": 1}, "input: 5 fields are too many"),
    ],
)
def test_what_does_not(value: Any, sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_against(PERSON, value, "input")
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (5, "schema: it is not a JSON Schema"),
        ({"type": "text"}, "schema.type: there is no such type; accepted are object, array, "),
        ({"type": []}, "schema.type: there is no such type"),
        ({"pattern": "(a+)+$"}, "schema.pattern: this keyword of JSON Schema is not understood"),
        ({"$ref": "#/x"}, "schema.$ref: this keyword of JSON Schema is not understood"),
        ({"properties": []}, "schema.properties: [] is not accepted; give a dict"),
        ({"properties": {"a": {"items": 5}}}, "schema.properties.a.items: it is not a JSON Schema"),
        ({"required": "name"}, "schema.required: 'name' is not accepted; give a list"),
        ({"required": [1]}, "schema.required: it holds what is not a name"),
        ({"anyOf": [{"type": 1}]}, "schema.anyOf[0].type: there is no such type"),
        ({"enum": "abc"}, "schema.enum: 'abc' is not accepted"),
        ({"minLength": -1}, "schema.minLength: it is not a count"),
        ({"minimum": "5"}, "schema.minimum: it is not a number"),
    ],
)
def test_a_schema_that_is_not_understood_is_refused(schema: Any, sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_schema(schema, "schema")
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"anyOf": [{"const": number} for number in range(1000)]}},
        {"items": {"enum": list(range(1000))}},
        {"not": {"items": {"oneOf": [{"const": number} for number in range(1000)]}}},
    ],
)
def test_a_check_that_would_take_long_is_given_up(schema: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"^input: to check it against its schema takes too long; give less"):
        check_against(schema, [999] * 1000, "input")
