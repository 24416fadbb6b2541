"""What is accepted, and what the one sentence says when it is not. Nothing but `Invalid` ever comes out."""

from __future__ import annotations

import enum
import itertools
import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain.checks import (
    check_choice,
    check_duration,
    check_flag,
    check_input,
    check_key,
    check_kind,
    check_metadata,
    check_number,
    check_queue,
    check_retry_policy,
    check_tags,
    check_text,
    check_time,
    shown,
    storable,
)
from rota.domain.errors import Invalid
from rota.domain.model import Limits, OverlapPolicy, RetryPolicy, ScheduleStatus
from rota.domain.options import TaskOptions, options_of

LIMITS = Limits()


class Level(enum.IntEnum):
    LOW = 1


class Word(str):
    __slots__ = ()


class Colour(enum.Enum):
    RED = 1


class Kind(str, enum.Enum):  # noqa: UP042  # as users of older Pythons write it
    EMAIL = "email"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def self_containing_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def self_containing_dict() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["me"] = value
    return value


def a_billion_laughs() -> list[Any]:
    value: list[Any] = ["ha"]
    for _ in range(40):
        value = [value, value]
    return value


# Names


@pytest.mark.parametrize("check", [check_kind, check_queue])
@pytest.mark.parametrize("name", ["a", "send_reminder", "Mail.v2:send/now@eu-1", "9lives", "_x", "x" * 255])
def test_names_accepted(check: Any, name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize("check", [check_kind, check_queue])
@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "-a", ".a", "x" * 256, "a\n", "é", "a\ud800", "\x00", None, 5, b"a", ["a"], 10**5000],
    ids=shown,
)
def test_names_refused(check: Any, name: object) -> None:
    with pytest.raises(Invalid, match="accepted are 1 to 255 letters, digits and _") as caught:
        check(name, "task_type")
    assert caught.value.field == "task_type"
    assert str(caught.value).startswith("task_type: ")


def test_a_name_that_is_an_enum_is_stored_as_its_text() -> None:
    assert type(check_kind(Kind.EMAIL)) is str
    assert check_kind(Kind.EMAIL) == "email"


@pytest.mark.parametrize("key", ["a", "Täglicher Bericht (9 Uhr)", "日報", "x" * 255])
def test_keys_accepted(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key", ["", " a", "a ", "a\nb", "x" * 256, "\x00", "\ud800", None, 1, b"a"], ids=shown
)
def test_keys_refused(key: object) -> None:
    with pytest.raises(Invalid, match=r"^schedule_id: .*; accepted are 1 to 255 "):
        check_key(key)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (5, "5 is not a text"),
        ("x" * 11, "11 characters are too many; the most is 10"),
        ("\udc80", "UTF-8 cannot carry"),
    ],
)
def test_texts_refused(value: object, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        check_text("note", value, most=10)


def test_texts_accepted() -> None:
    assert check_text("note", "") == ""
    assert type(check_text("note", Word("line\nline\x00"))) is str


def test_undecodable_text_is_made_visible() -> None:
    assert storable("caf\udce9.txt") == "caf\\udce9.txt"
    assert storable("café 🎉") == "café 🎉"


# Numbers, flags, choices


def check_priority(value: object) -> Any:
    return options_of(TaskOptions)["priority"].check("priority", value)


@pytest.mark.parametrize("value", [0, 1, 255])
def test_numbers_accepted(value: int) -> None:
    assert check_priority(value) == value


@pytest.mark.parametrize(
    "value", [-1, 256, 1.0, "1", True, False, None, math.nan, 10**5000, [], Unprintable()], ids=shown
)
def test_numbers_refused(value: object) -> None:
    with pytest.raises(Invalid, match=r"^priority: .* is not accepted; give a whole number from 0 to 255$"):
        check_priority(value)


def test_a_number_names_its_own_field_and_range() -> None:
    with pytest.raises(Invalid, match=r"^max_retries: 9 is not accepted; give a whole number from 1 to 3$"):
        check_number("max_retries", 9, 1, 3)


@pytest.mark.parametrize("value", [0, 1, "true", None, []], ids=shown)
def test_flags_refused(value: object) -> None:
    assert check_flag("enabled", True) is True
    with pytest.raises(Invalid, match=r"^enabled: .* is not accepted; give True or False$"):
        check_flag("enabled", value)


def test_choices_accepted() -> None:
    assert check_choice("overlap_policy", "skip", OverlapPolicy) is OverlapPolicy.SKIP
    assert check_choice("overlap_policy", OverlapPolicy.ALLOW, OverlapPolicy) is OverlapPolicy.ALLOW
    assert check_choice("status", "inactive", ScheduleStatus) is ScheduleStatus.PAUSED


@pytest.mark.parametrize(
    "value", ["", "SKIP", "never", None, 1, [], {}, Colour.RED, "\ud800", 10**5000], ids=shown
)
def test_choices_refused(value: object) -> None:
    with pytest.raises(
        Invalid, match=r"is not known; accepted are skip, allow, .*, terminate_previous$"
    ) as caught:
        check_choice("overlap_policy", value, OverlapPolicy)
    assert caught.value.field == "overlap_policy"


# Times and durations


def test_times_are_kept_in_utc() -> None:
    east = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    checked = check_time("run_at", east)
    assert checked.tzinfo is UTC
    assert checked == east


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1),
        "2026-01-01",
        None,
        0,
        datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
    ],
    ids=shown,
)
def test_times_refused(value: object) -> None:
    with pytest.raises(Invalid, match=r"^run_at: .*; give a "):
        check_time("run_at", value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0), (1, 1), (0.5, 0.5), (timedelta(days=1), 86_400), (36_500 * 86_400, 36_500 * 86_400)],
)
def test_durations_accepted(value: object, seconds: float) -> None:
    assert check_duration("ttl", value) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (-1, "ttl: -1 s is too short; it must not be negative"),
        (timedelta(seconds=-1), "ttl: -1 s is too short; it must not be negative"),
        (timedelta.max, "ttl: 999,999,999 days are too long; the most is 100 years"),
        (1e30, "ttl: 1e+30 s is not accepted; give a number of seconds up to 100 years"),
        (10**400, "ttl: 1000"),
        (10**5000, "ttl: this int s is not accepted"),
        (math.nan, "ttl: nan s is not accepted"),
        (math.inf, "ttl: inf s is not accepted"),
        (-math.inf, "ttl: -inf s is not accepted"),
        (True, "ttl: True is not a duration; give a timedelta, a number of seconds, or a text such as 5m"),
        ("1 hour", "ttl: '1 hour' is not a duration; accepted are whole numbers with ms, s, m, h, d or w"),
        ("99999999w", "ttl: 699,999,993 days are too long; the most is 100 years"),
        ("999999999999w", "ttl: '999999999999w' is too long; the most is 100 years"),
        (None, "ttl: None is not a duration"),
        (Decimal(1), "ttl: Decimal('1') is not a duration"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_durations_refused(value: object, sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_duration("ttl", value)
    assert str(caught.value).startswith(sentence)


def test_a_duration_can_have_a_least() -> None:
    with pytest.raises(Invalid, match=r"^timeout: 0 s is too short; the least is 0.001 s$"):
        check_duration("timeout", 0, least=timedelta(milliseconds=1))


# Tags and retry policies


def test_tags_are_kept_once_and_in_order() -> None:
    assert check_tags(["b", "a", "b"]) == ("b", "a")
    assert check_tags(()) == ()
    assert check_tags(tag for tag in "xy") == ("x", "y")


@pytest.mark.parametrize(
    "value", ["abc", 5, None, [1], [""], ["a b"], b"ab", [None], [f"t{n}" for n in range(33)]], ids=shown
)
def test_tags_refused(value: object) -> None:
    with pytest.raises(Invalid, match=r"^tags: "):
        check_tags(value)


def test_endless_tags_end() -> None:
    with pytest.raises(Invalid, match=r"^tags: there are too many; the most is 32$"):
        check_tags(itertools.repeat("a"))


def test_a_retry_policy_is_kept_in_its_stored_form() -> None:
    two: Any = 2
    given_in_numbers = RetryPolicy(initial=two, multiplier=3, maximum=timedelta(minutes=1), jitter=0)
    assert check_retry_policy(given_in_numbers) == RetryPolicy(
        initial=timedelta(seconds=2), multiplier=3.0, maximum=timedelta(seconds=60), jitter=0.0
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("initial", -1),
        ("initial", "soon"),
        ("initial", math.nan),
        ("maximum", None),
        ("maximum", 1e30),
        ("multiplier", 0.5),
        ("multiplier", 1001),
        ("multiplier", "2"),
        ("multiplier", math.nan),
        ("multiplier", 10**400),
        ("multiplier", True),
        ("jitter", 1.1),
        ("jitter", -0.1),
        ("jitter", None),
    ],
)
def test_retry_policies_refused(field: str, value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        check_retry_policy(RetryPolicy(**{field: value}))
    assert caught.value.field == f"retry_policy.{field}"
    assert "; " in str(caught.value)


def test_only_a_retry_policy_is_one() -> None:
    with pytest.raises(Invalid, match=r"^retry_policy: .* is not a policy; give a rota.RetryPolicy$"):
        check_retry_policy({"initial": 1})


# Input


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (True, True),
        (0, 0),
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
        (1.5, 1.5),
        ("é🎉", "é🎉"),
        ((1, [2, (3,)]), [1, [2, [3]]]),
        ({"a": {"b": (1,)}}, {"a": {"b": [1]}}),
        (Word("w"), "w"),
        ({Word("k"): Kind.EMAIL}, {"k": "email"}),
        (Kind.EMAIL, "email"),
        (Level.LOW, 1),
        (nested(64), nested(64)),
    ],
    ids=shown,
)
def test_input_accepted_as_json_gives_it_back(value: object, stored: object) -> None:
    result = check_input(value, LIMITS)
    assert result == stored
    assert msgspec.json.decode(msgspec.json.encode(result)) == result


def test_input_is_a_copy() -> None:
    given_list = {"a": [1]}
    result = check_input(given_list, LIMITS)
    given_list["a"].append(2)
    assert result == {"a": [1]}


BAD_INPUT = {
    "nan": (math.nan, "nan is not JSON"),
    "inside": ({"a": [math.inf]}, "inf is not JSON"),
    "huge int": (2**64, "does not fit 64 bits; give it as a text"),
    "small int": (-(2**63) - 1, "does not fit 64 bits"),
    "vast int": (10**5000, "the number this int does not fit 64 bits"),
    "int key": ({1: 2}, "the key 1 is not a text; JSON has only texts as keys"),
    "None key": ({None: 2}, "the key None is not a text"),
    "tuple key": ({(1,): 2}, "the key (1,) is not a text"),
    "bytes": (b"x", "a value of type bytes is not JSON"),
    "bytearray": (bytearray(b"x"), "a value of type bytearray is not JSON"),
    "set": ({1}, "a value of type set is not JSON; give texts, numbers, booleans, None, lists and dicts"),
    "frozenset": ([frozenset()], "a value of type frozenset is not JSON"),
    "datetime": (datetime(2026, 1, 1), "a value of type datetime is not JSON"),
    "Decimal": (Decimal(1), "a value of type Decimal is not JSON"),
    "object": (object(), "a value of type object is not JSON"),
    "unprintable": (Unprintable(), "a value of type Unprintable is not JSON"),
    "struct": (Limits(), "a value of type Limits is not JSON"),
    "generator": ((x for x in "a"), "a value of type generator is not JSON"),
    "enum": (Colour.RED, "a value of type Colour is not JSON"),
    "complex": (1j, "a value of type complex is not JSON"),
    "surrogate": ("\ud800", "it holds a character that UTF-8 cannot carry; give valid Unicode text"),
    "surrogate key": ({"\udfff": 1}, "it holds a character that UTF-8 cannot carry"),
    "deep": (nested(65), "it is nested too deeply; the most is 64 levels"),
    "very deep": (nested(100_000), "it is nested too deeply"),
    "list in itself": (self_containing_list(), "it is nested too deeply"),
    "dict in itself": (self_containing_dict(), "it is nested too deeply"),
    "large": ("x" * 1024 * 1024, "1,048,578 bytes are too many; the most is 1,048,576 bytes of JSON"),
    "escaped to large": ("\x01" * 200_000, "1,200,002 bytes are too many"),
}


@pytest.mark.parametrize(("value", "problem"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_input_refused(value: object, problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_input(value, LIMITS)
    assert caught.value.field == "input"
    assert str(caught.value).startswith(f"input: {problem}") or problem in str(caught.value)


def test_a_small_list_that_is_vast_as_json_is_refused_quickly() -> None:
    with pytest.raises(
        Invalid, match=r"^input: more than 10,000 bytes are too many; the most is 10,000 bytes"
    ):
        check_input(a_billion_laughs(), Limits(input_bytes=10_000))


def test_the_limit_is_the_tenants() -> None:
    largest = "x" * 98
    assert check_input(largest, Limits(input_bytes=100)) == largest
    with pytest.raises(Invalid, match=r"^output: 101 bytes are too many; the most is 100 bytes of JSON$"):
        check_input(largest + "x", Limits(input_bytes=100), "output")


# Metadata


@pytest.mark.parametrize(
    "value",
    [{}, {"a": {"b": {"c": 1}}}, {"a": [[1]]}, {f"k{n}": n for n in range(100)}],
    ids=["empty", "three levels", "lists count", "a hundred keys"],
)
def test_metadata_accepted(value: dict[str, Any]) -> None:
    assert check_metadata(value) == value


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"a": {"b": {"c": {}}}}, "metadata: it is 4 levels deep; the most is 3 levels"),
        ({"a": [{"b": [1]}]}, "metadata: it is 4 levels deep; the most is 3 levels"),
        ({f"k{n}": n for n in range(101)}, "metadata: it has 101 keys; the most is 100 keys"),
        ({"a": {f"k{n}": n for n in range(100)}}, "metadata: it has 101 keys; the most is 100 keys"),
        ([], "metadata: [] is not a dict; give a dict with texts as keys"),
        (None, "metadata: None is not a dict; give a dict with texts as keys"),
        ({1: 2}, "metadata: the key 1 is not a text; JSON has only texts as keys"),
        ({"a": {1}}, "metadata: a value of type set is not JSON"),
        ({"\ud800": 1}, "metadata: it holds a character that UTF-8 cannot carry"),
        (self_containing_dict(), "metadata: it is nested too deeply"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_metadata_refused(value: object, sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_metadata(value)
    assert str(caught.value).startswith(sentence)


# Whatever comes


ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(), max_size=20),
        st.binary(max_size=5),
        st.datetimes(),
        st.timedeltas(),
        st.just(10**400),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner),
        st.dictionaries(st.one_of(st.text(st.characters(), max_size=5), st.integers()), inner, max_size=4),
        st.frozensets(st.integers(), max_size=2),
    ),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(ANYTHING)
def test_only_invalid_ever_comes_out_and_what_is_accepted_is_json(value: object) -> None:
    checks: list[Any] = [
        check_kind,
        check_key,
        check_priority,
        check_tags,
        check_retry_policy,
        check_metadata,
        lambda v: check_input(v, LIMITS),
        lambda v: check_duration("ttl", v),
        lambda v: check_time("run_at", v),
        lambda v: check_choice("status", v, ScheduleStatus),
        lambda v: check_text("note", v),
    ]
    for check in checks:
        try:
            accepted = check(value)
        except Invalid as refused:
            sentence = str(refused)
            sentence.encode()
            continue
        assert check(accepted) == accepted
        msgspec.json.encode(accepted)
