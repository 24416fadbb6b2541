"""Durations: wherever a program gives one, a timedelta, a number of seconds and a text such as 5m are the same."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import rota
import rota.testing
from rota.domain import options
from rota.domain.errors import Invalid
from rota.domain.model import Failure
from rota.surfaces import durations
from rota.surfaces.settings import load

HOUR = timedelta(hours=1)
FORMS = (timedelta, float, str)
NOT_GIVEN = {"take_reports", "LoopClock", "VirtualLoop"}
"""Of the product itself, or a step of a clock, which may go back."""


def public_calls() -> Iterator[tuple[str, Any]]:
    """Every public function, constructor and method, by name. Records are not called by programs."""
    for module in (rota, rota.testing):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield name, found
            elif inspect.isclass(found) and not hasattr(found, "__struct_fields__"):
                for method, function in inspect.getmembers(found, inspect.isfunction):
                    if method == "__init__" or not method.startswith("_"):
                        yield f"{name}.{method}", function


def parts_of(hint: Any) -> Sequence[Any]:
    return get_args(hint) if isinstance(hint, types.UnionType) else [hint]


def test_every_argument_takes_them_in_every_form() -> None:
    found = {
        f"{name}({argument})": parts_of(hint)
        for name, function in public_calls()
        if not NOT_GIVEN & set(name.split("."))
        for argument, hint in get_type_hints(function, localns={"Failure": Failure}).items()
        if argument != "return" and timedelta in parts_of(hint)
    }
    assert len(found) > 10
    assert {name for name, parts in found.items() if not set(FORMS) <= set(parts)} == set()


def test_every_option_takes_them_in_every_form() -> None:
    shapes = [shape for name, shape in vars(options).items() if name.endswith(("Options", "Changes"))]
    found = [
        hint for shape in shapes for hint in get_type_hints(shape).values() if timedelta in parts_of(hint)
    ]
    assert len(found) > 10
    assert all(set(FORMS) <= set(parts_of(hint)) for hint in found)


@pytest.mark.parametrize("hour", [HOUR, 3600, 3600.0, "1h", "60m"])
def test_values_take_them_in_every_form(hour: timedelta | float | str) -> None:
    assert rota.RetryPolicy(initial=hour, maximum=hour) == rota.RetryPolicy(initial=HOUR, maximum=HOUR)
    kept = rota.Retention(tasks=hour, runs=hour, events=hour, schedules=hour)
    assert kept == rota.Retention(tasks=HOUR, runs=HOUR, events=HOUR, schedules=HOUR)
    assert kept.tasks == HOUR
    assert rota.Retention(tasks=None).tasks is None


@pytest.mark.parametrize("wrong", ["soon", "5", -1, float("nan")])
def test_what_is_none_is_refused(wrong: float | str) -> None:
    with pytest.raises(Invalid, match=r"^retry_policy.initial: "):
        rota.RetryPolicy(initial=wrong)
    with pytest.raises(Invalid, match=r"^runs: "):
        rota.Retention(runs=wrong)


async def test_targets_take_them_when_they_are_stored() -> None:
    wanted: Any = {"timeout": "1h", "ttl": 3600, "retry_policy": rota.RetryPolicy(initial="1h")}
    async with rota.connect("memory:") as queue:
        made = await queue.create_schedule("x", interval="1h", target=rota.TaskTarget(kind="x", **wanted))
    target = made.target
    assert isinstance(target, rota.TaskTarget)
    assert (target.timeout, target.ttl) == (HOUR, HOUR)
    assert target.retry_policy == rota.RetryPolicy(initial=HOUR)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5", 1.5), (" 30 ", 30), ("0", 0), ("2m", 120), ("1h 30m", 5400)]
)
def test_where_all_is_text_a_number_is_one_of_seconds(tmp_path: Path, text: str, seconds: float) -> None:
    assert durations.parsed("ttl", text) == timedelta(seconds=seconds)
    assert load({}, {"ROTA_LEASE": text}, tmp_path)["lease"] == timedelta(seconds=seconds)
    (tmp_path / "rota.toml").write_text(f"lease = {seconds}")
    assert load({}, {}, tmp_path)["lease"] == timedelta(seconds=seconds)


@pytest.mark.parametrize("wrong", ["-5", "1e3", "0x10", "1_000", ".5", "٣", "9" * 12, "9" * 30])
def test_a_number_that_is_no_duration_is_refused_in_text(wrong: str) -> None:
    with pytest.raises(Invalid, match=r"^ttl: "):
        durations.parsed("ttl", wrong)
