"""Where the arguments of a handler come from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Optional

import pytest

import rota
from rota.engine.handlers.signature import Signature, injected

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]  # for checkers only


class Context:
    queue = "the queue"


CONTEXT = Context()
DAY = date(2026, 1, 31)


@dataclass
class Address:
    name: str


def signature(function: Callable[..., Any]) -> Signature:
    return Signature("kind", function, inject={Context: lambda context: context})


def typed(day: date, to: list[Address], n: int = 3) -> None: ...
def only(day: date, /, *, name: str = "x") -> None: ...
def whole(input: list[date], ctx: Any) -> None: ...
def rest(n: int, **others: date) -> None: ...
def first(c: Context, day: date) -> None: ...
def maybe(day: date, c: Optional[Context] = None) -> None: ...  # noqa: UP045  the old spelling works, too
def by_name(day: date, context: Missing) -> None: ...


CALLS: list[tuple[Callable[..., Any], Any, list[Any], dict[str, Any]]] = [
    (lambda: 0, None, [], {}),
    (lambda input: 0, {"a": 1}, [], {"input": {"a": 1}}),
    (lambda input, ctx: 0, {"a": 1}, [], {"input": {"a": 1}, "ctx": CONTEXT}),
    (lambda input, ctx: 0, {"ctx": 1}, [], {"input": {"ctx": 1}, "ctx": 1}),
    (lambda name, ctx: 0, "Ada", [], {"name": "Ada", "ctx": CONTEXT}),
    (lambda name, n=5: 0, {"name": "Ada", "other": 1}, [], {"name": "Ada", "n": 5}),
    (lambda context, name: 0, "Ada", [], {"context": CONTEXT, "name": "Ada"}),
    (lambda **all: 0, {"a": 1}, [], {"a": 1}),
    (
        typed,
        {"day": "2026-01-31", "to": [{"name": "A"}]},
        [],
        {"day": DAY, "to": [Address("A")], "n": 3},
    ),
    (only, {"day": "2026-01-31"}, [DAY], {"name": "x"}),
    (only, "2026-01-31", [DAY], {"name": "x"}),
    (whole, ["2026-01-31"], [], {"input": [DAY], "ctx": CONTEXT}),
    (rest, {"n": 1, "a": "2026-01-31"}, [], {"n": 1, "a": DAY}),
    (first, {"day": "2026-01-31"}, [], {"c": CONTEXT, "day": DAY}),
    (first, "2026-01-31", [], {"c": CONTEXT, "day": DAY}),
    (maybe, {"day": "2026-01-31"}, [], {"c": CONTEXT, "day": DAY}),
    (by_name, {"day": "2026-01-31"}, [], {"context": CONTEXT, "day": DAY}),
    (functools.partial(typed, n=9), {"day": "2026-01-31", "to": []}, [], {"day": DAY, "to": [], "n": 9}),
]


@pytest.mark.parametrize(("function", "input", "args", "kwargs"), CALLS)
def test_arguments_are_filled_by_name_and_by_type(
    function: Callable[..., Any], input: Any, args: list[Any], kwargs: dict[str, Any]
) -> None:
    assert signature(function).arguments(input, CONTEXT) == (args, kwargs)


def flow(ctx: Any, day: date, n: int = 1) -> None: ...


def test_a_workflow_gets_its_context_first() -> None:
    found = Signature("kind", flow, inject={}, context_first=True)
    assert found.arguments({"day": "2026-01-31"}, CONTEXT) == ([CONTEXT], {"day": DAY, "n": 1})
    assert found.arguments("2026-01-31", CONTEXT) == ([CONTEXT], {"day": DAY, "n": 1})
    assert found.input_for((DAY,), {}) == {"day": "2026-01-31"}


@pytest.mark.parametrize(
    ("function", "input", "sentence"),
    [
        (typed, {"day": "2026-01-31"}, "input: the input of kind has no 'to', which its handler asks for"),
        (typed, {"day": 5, "to": []}, "input.day: expected a date such as 2026-01-31, got 5"),
        (typed, {"day": "2026-01-31", "to": [{"name": 5}]}, "input.to[0].name: expected a text, got 5"),
        (whole, ["x"], "input[0]: expected a date such as 2026-01-31, got 'x'"),
        (rest, {"n": 1, "a": 5}, "input.a: expected a date such as 2026-01-31, got 5"),
        (first, 5, "input: expected a date such as 2026-01-31, got 5"),
    ],
)
def test_what_does_not_fit_is_refused_before_and_fails_for_good_after(
    function: Callable[..., Any], input: Any, sentence: str
) -> None:
    found = signature(function)
    with pytest.raises(rota.Invalid) as refused:
        found.check(input)
    with pytest.raises(rota.PermanentError) as failed:
        found.arguments(input, CONTEXT)
    assert str(refused.value) == str(failed.value)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "input"),
    [
        (typed, (DAY, [Address("A")]), {}, {"day": "2026-01-31", "to": [{"name": "A"}]}),
        (typed, (DAY,), {"to": [], "n": 1}, {"day": "2026-01-31", "to": [], "n": 1}),
        (whole, ([DAY],), {}, ["2026-01-31"]),
        (lambda input, ctx: 0, ({"a": 1},), {}, {"a": 1}),
        (rest, (1,), {"a": DAY}, {"n": 1, "a": "2026-01-31"}),
        (first, (DAY,), {}, {"day": "2026-01-31"}),
        (lambda: 0, (), {}, {}),
    ],
)
def test_arguments_become_an_input(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], input: Any
) -> None:
    found = signature(function)
    assert found.input_for(args, kwargs) == input
    found.check(input)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "sentence"),
    [
        (typed, (DAY,), {}, "input: kind: missing a required argument: 'to'; it takes (day: 'date', to: "),
        (typed, (DAY, [], 1, 2), {}, "input: kind: too many positional arguments; it takes"),
        (typed, (DAY, []), {"colour": 1}, "input: kind: got an unexpected keyword argument 'colour'"),
        (typed, ("oops", []), {}, "input.day: expected a date such as 2026-01-31, got 'oops'"),
        (typed, (DAY, [object()]), {}, "input.to: [<object object"),
        (first, (CONTEXT, DAY), {}, "input: kind: too many positional arguments"),
        (lambda input, n=1: 0, (1, 2), {}, "n: the parameter input gets the whole input"),
    ],
)
def test_a_call_that_cannot_be_submitted_gets_one_sentence(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(rota.Invalid) as refused:
        signature(function).input_for(args, kwargs)
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)


def test_values_without_an_annotation_are_left_as_they_are() -> None:
    assert signature(lambda day: 0).input_for((DAY,), {}) == {"day": DAY}  # the submission refuses it


class Database: ...


def asks(database: Database) -> None: ...
def asks_by_default(n: int = injected) -> None: ...
def asks_for_anything(n=injected) -> None: ...  # type: ignore[no-untyped-def]  # a beginner's mistake


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (asks, "kind(database): nobody provides a Database"),
        (
            asks_by_default,
            "kind(n): nobody provides a int; annotate it with rota.Context, rota.Queue, rota.Task",
        ),
        (asks_for_anything, "kind(n): nobody provides it: it has no annotation"),
        (lambda *days: 0, "kind(*days): it would get nothing: the values of an input have names; write a"),
        (lambda day, *others: 0, "kind(*others): it would get nothing"),
    ],
)
def test_what_nobody_provides_is_refused_at_registration(function: Any, sentence: str) -> None:
    with pytest.raises(rota.Invalid) as refused:
        signature(function)
    assert str(refused.value).startswith(sentence)


def test_a_workflow_has_no_others_but_its_context_either() -> None:
    with pytest.raises(rota.Invalid, match=r"^kind\(\*names\): it would get nothing"):
        Signature("kind", lambda ctx, *names: 0, inject={}, context_first=True)
    passed_on = Signature("kind", lambda *args: 0, inject={}, context_first=True)
    assert passed_on.arguments({"a": 1}, CONTEXT) == ([CONTEXT], {})


def test_a_wrapper_that_takes_anything_gets_what_has_a_name() -> None:
    assert signature(lambda *args, **kwargs: 0).arguments({"a": 1}, None) == ([], {"a": 1})


def test_a_name_that_is_defined_later_is_resolved_when_it_is_needed() -> None:
    def handler(to: Later) -> None: ...  # type: ignore[name-defined]  # noqa: F821  that is the point

    found = signature(handler)
    globals()["Later"] = Address
    try:
        assert found.arguments({"to": {"name": "A"}}, CONTEXT) == ([], {"to": Address("A")})
    finally:
        del globals()["Later"]


def test_a_name_that_is_there_for_checkers_only_is_refused_when_it_is_needed() -> None:
    def handler(to: Missing) -> None: ...

    found = signature(handler)
    for use in (lambda: found.check({"to": 1}), lambda: found.input_for((1,), {})):
        with pytest.raises(
            rota.Invalid, match=r"^kind\(to\): its annotation 'Missing' cannot be resolved: .*Missing"
        ):
            use()


def test_classes_that_are_local_to_a_function_are_found() -> None:
    @dataclass
    class Local:
        name: str

    app = rota.App()

    @app.task
    def handler(to: Local) -> Local:
        return to

    signature = app.handlers["handler"].signature
    assert signature.arguments({"to": {"name": "A"}}, None) == ([], {"to": Local("A")})


@pytest.mark.parametrize(
    ("function", "output", "stored"),
    [
        (typed, None, None),
        (lambda: 0, DAY, DAY),  # refused when it is stored
        (functools.partial(only), None, None),
    ],
)
def test_without_an_annotation_an_output_is_left_as_it_is(
    function: Callable[..., Any], output: Any, stored: Any
) -> None:
    assert signature(function).encoded_output(output) == stored


def test_outputs_are_encoded_and_decoded_by_annotation() -> None:
    def handler() -> list[Address]:
        return []

    found = signature(handler)
    assert found.encoded_output([Address("A")]) == [{"name": "A"}]
    assert found.decoded_output([{"name": "A"}]) == [Address("A")]
    with pytest.raises(rota.Invalid, match=r"^output\[0\].name: expected a text, got 5"):
        found.decoded_output([{"name": 5}])
    with pytest.raises(rota.Invalid, match=r"^output\[1\].name: expected a text, got 5"):
        found.encoded_output([Address("A"), Address(5)])  # type: ignore[arg-type]  # the mistake


def test_a_class_may_be_defined_after_the_function_that_returns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler() -> Later: ...  # type: ignore[name-defined]  # noqa: F821  it comes later

    found = signature(handler)
    monkeypatch.setitem(globals(), "Later", Address)
    assert found.encoded_output(Address("A")) == {"name": "A"}
    assert found.decoded_output({"name": "A"}) == Address("A")


def test_what_only_checkers_know_says_nothing_of_an_output() -> None:
    def handler() -> Missing: ...

    assert signature(handler).encoded_output({"n": 1}) == {"n": 1}
