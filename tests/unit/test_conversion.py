"""JSON as the types that annotations name, and one sentence where it does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

import rota
from rota.engine.handlers.conversion import decoder, encoded


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


@dataclass
class Address:
    name: str
    zip: int = 0
    lines: list[str] = field(default_factory=list)


@dataclass
class Parcel(Address):
    weight: int = 5


class Order(msgspec.Struct, forbid_unknown_fields=True):
    to: Address
    parts: dict[str, Address] = {}


class Movie(TypedDict):
    title: str
    year: int


class Point(NamedTuple):
    x: int
    y: int


class Model(pydantic.BaseModel):
    n: int
    tags: list[str] = []


class Aliased(pydantic.BaseModel):
    first_name: str = pydantic.Field(alias="firstName")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    day: date


class Computed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    n: int

    @pydantic.computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated properties
    @property
    def twice(self) -> int:
        return 2 * self.n


@dataclass
class Holder:
    model: Model


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


class Database:
    pass


Id = NewType("Id", int)
UUID_TEXT = "6f9f0a86-32a7-5a0e-9d3b-6d1a3f0c9e11"

THERE_AND_BACK: list[tuple[Any, Any, Any]] = [
    (str, "Ada", "Ada"),
    (int, 5, 5),
    (float, 5.5, 5.5),
    (bool, True, True),
    (date, "2026-01-31", date(2026, 1, 31)),
    (time, "12:30:00", time(12, 30)),
    (datetime, "2026-01-31T12:30:00Z", datetime(2026, 1, 31, 12, 30, tzinfo=UTC)),
    (timedelta, "PT300S", timedelta(minutes=5)),
    (UUID, UUID_TEXT, UUID(UUID_TEXT)),
    (Decimal, "1.50", Decimal("1.50")),
    (bytes, "aGk=", b"hi"),
    (Path, "a/b", Path("a/b")),
    (Colour, "red", Colour.RED),
    (Level, 1, Level.LOW),
    (Literal["a", "b"], "b", "b"),
    (Id, 7, 7),
    (int | None, None, None),
    (date | int, "2026-01-31", date(2026, 1, 31)),
    (Cat | Dog, {"type": "Dog", "name": "Rex"}, Dog("Rex")),
    (list[date], ["2026-01-31"], [date(2026, 1, 31)]),
    (Sequence[int], [1], [1]),
    (Iterable[int], [1], [1]),
    (Mapping[str, date], {"a": "2026-01-31"}, {"a": date(2026, 1, 31)}),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (set[int], [1], {1}),
    (tuple[int, str], [1, "a"], (1, "a")),
    (Point, [1, 2], Point(1, 2)),
    (Address, {"name": "Ada", "zip": 5, "lines": []}, Address("Ada", 5)),
    (list[Address], [{"name": "Ada", "zip": 0, "lines": ["x"]}], [Address("Ada", 0, ["x"])]),
    (Order, {"to": {"name": "A", "zip": 0, "lines": []}, "parts": {}}, Order(Address("A"))),
    (Movie, {"title": "Alien", "year": 1979}, {"title": "Alien", "year": 1979}),
    (Model, {"n": 1, "tags": ["a"]}, Model(n=1, tags=["a"])),
    (Model | None, {"n": 1, "tags": []}, Model(n=1)),
    (Aliased, {"first_name": "Ada"}, Aliased(firstName="Ada")),
    (list[Aliased], [{"first_name": "Ada"}], [Aliased(firstName="Ada")]),
    (Computed, {"n": 1}, Computed(n=1)),
    (Strict, {"day": "2026-01-31"}, Strict(day=date(2026, 1, 31))),
    (Holder, {"model": {"n": 1, "tags": []}}, Holder(Model(n=1))),
    (list[Model], [{"n": 1, "tags": []}], [Model(n=1)]),
    (Annotated[int, msgspec.Meta(ge=1)], 1, 1),
]


@pytest.mark.parametrize(("hint", "json", "value"), THERE_AND_BACK, ids=str)
def test_values_are_decoded_by_their_type_and_encoded_again(hint: Any, json: Any, value: Any) -> None:
    read = decoder(hint, "p")
    assert read is not None
    found = read(json, "input.p")
    assert (found, type(found)) == (value, type(value))
    assert msgspec.json.encode(read.encoded(value, "input.p")) == msgspec.json.encode(json)


class Name(str):
    pass


class Number(float):
    pass


class Hides(pydantic.BaseModel):
    n: int
    hidden: int = pydantic.Field(exclude=True)


@pytest.mark.parametrize(
    ("hint", "value", "json"),
    [
        (str, Name("Ada"), "Ada"),
        (float, Number(1.5), 1.5),
        (int, True, True),
        (date, datetime(2026, 1, 31, 12, 30), "2026-01-31T12:30:00"),
        (Address, Parcel("Ada"), {"name": "Ada", "zip": 0, "lines": [], "weight": 5}),
        (Hides, Hides(n=1, hidden=2), {"n": 1}),
    ],
    ids=str,
)
def test_what_has_a_subclass_of_the_type_or_is_a_model_fits(hint: Any, value: Any, json: Any) -> None:
    read = decoder(hint, "p")
    assert read is not None
    found = read.encoded(value, "output")
    assert (found, type(found)) == (json, type(json))


def test_a_model_is_read_by_its_aliases_too() -> None:
    read = decoder(Aliased, "p")
    assert read is not None
    assert read({"firstName": "Ada"}, "input") == Aliased(firstName="Ada")


@pytest.mark.parametrize("hint", [Any, object])
def test_what_says_nothing_is_not_decoded(hint: Any) -> None:
    assert decoder(hint, "p") is None


REFUSED: list[tuple[Any, Any, str]] = [
    (str, 5, "input: expected a text, got 5"),
    (int, "5", "input: expected a whole number, got '5'"),
    (int, True, "input: expected a whole number, got True"),
    (int, 5.5, "input: expected a whole number, got 5.5"),
    (float, "x", "input: expected a number, got 'x'"),
    (bool, 1, "input: expected true or false, got 1"),
    (int | None, "x", "input: expected a whole number or null, got 'x'"),
    (date, "oops", "input: expected a date such as 2026-01-31, got 'oops'"),
    (datetime, "oops", "input: expected a time such as 2026-01-31T12:30:00Z, got 'oops'"),
    (timedelta, 5, "input: expected a duration such as PT5M, got 5"),
    (UUID, "x", "input: expected a UUID, got 'x'"),
    (Decimal, "x", "input: expected a decimal number, got 'x'"),
    (Path, 5, "input: expected Path, got 5"),
    (Colour, "green", "input: 'green' is not one of the accepted values; accepted are 'red', 'blue'"),
    (Literal["a"], "b", "input: 'b' is not one of the accepted values; accepted are 'a'"),
    (list[Colour], ["green"], "input[0]: 'green' is not one of the accepted values"),
    (list[str], ["a", "b", 5], "input[2]: expected a text, got 5"),
    (list[str], "a", "input: expected a list, got 'a'"),
    (tuple[int, str], [1], "input: expected a list of length 2, got [1]"),
    (Annotated[int, msgspec.Meta(ge=10)], 5, "input: expected a whole number >= 10, got 5"),
    (dict[int, int], {"x": 1}, "input: expected a whole number as a key, got a text"),
    (dict[str, int], {"x": "1"}, "input[...]: expected a whole number, got a text"),
    (Address, {"zip": 1}, "input.name: it is missing"),
    (Order, {"to": {"name": 1}}, "input.to.name: expected a text, got 1"),
    (Order, {"to": {"name": "A", "lines": ["a", None]}}, "input.to.lines[1]: expected a text, got None"),
    (Order, {"to": {"name": "A"}, "from": 1}, "input.from: there is no such field"),
    (Cat | Dog, {"type": "Cow", "name": "x"}, "input.type: 'Cow' is not one of the accepted values"),
    (Movie, {"title": "Alien"}, "input.year: it is missing"),
    (Holder, {"model": {"n": "x"}}, "input.model.n: input should be a valid integer"),
    (list[Model], [{"n": 1, "tags": ["a", 5]}], "input[0].tags[1]: input should be a valid string, got 5"),
]


@pytest.mark.parametrize(("hint", "json", "sentence"), REFUSED, ids=str)
def test_what_does_not_fit_is_named_with_its_place(hint: Any, json: Any, sentence: str) -> None:
    read = decoder(hint, "p")
    assert read is not None
    with pytest.raises(rota.Invalid) as refused:
        read(json, "input")
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("hint", "sentence"),
    [
        (Database, "p: nobody provides a Database, and JSON cannot become one; offer it with app.provide"),
        (list[Database], "p: nobody provides a Database"),
        (Callable[[], int], "p: nobody provides a Callable"),
        (
            Address | Order,
            "p: its annotation cannot be read from JSON: Type unions may not contain more than",
        ),
    ],
    ids=str,
)
def test_types_that_json_cannot_become_are_refused(hint: Any, sentence: str) -> None:
    with pytest.raises(rota.Invalid) as refused:
        decoder(hint, "p")
    assert str(refused.value).startswith(sentence)


def test_what_cannot_be_json_is_refused() -> None:
    with pytest.raises(rota.Invalid, match=r"^output: .*Database.* cannot be JSON"):
        encoded(Database(), "output")
