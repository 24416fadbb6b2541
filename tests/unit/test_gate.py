"""Gates, as tables: who passes, who waits, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from records import gate, task
from rota.domain import gate as rules
from rota.domain.errors import Invalid
from rota.domain.model import Gate, Limit, Limits, Task
from stores import START

SECOND = timedelta(seconds=1)


def asking(**values: Any) -> Task:
    return task("t", gates=("g",), **values)


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (5, "5 is not a limit"),
        (Limit(), "it limits nothing"),
        (Limit(key="customer"), "it limits nothing"),
        (Limit(concurrency=0), "0 is not accepted"),
        (Limit(concurrency=True), "True is not accepted"),
        (Limit(rate="100"), "'100' is not a rate"),
        (Limit(rate="0/m"), "'0/m' is not a rate"),
        (Limit(rate="5/w"), "'5/w' is not a rate"),
        (Limit(rate="-1/s"), "'-1/s' is not a rate"),
        (Limit(rate="1/s", key="x" * 300), "300 characters are too many"),
    ],
)
def test_what_is_no_limit(limit: object, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        rules.check_limit("limit", limit)


@pytest.mark.parametrize("rate", ["100/m", "50/s", "3/10s", "1/h", "5/d"])
def test_what_is_one(rate: str) -> None:
    limit = Limit(concurrency=5, rate=rate, key="customer_id")
    assert rules.check_limit("limit", limit) == limit


def test_which_gates_a_task_passes() -> None:
    limits = Limits(
        tasks={"kind:send": Limit(concurrency=1, key="customer"), "queue:mail": Limit(rate="1/s")}
    )

    def keys(**values: Any) -> list[tuple[str, str | None]]:
        return [(each.subject, each.key) for each in rules.gates_of(task(**values), limits, START)]

    assert keys(kind="other") == []
    assert keys(kind="send", input={"customer": 7}) == [("kind:send", "7")]
    assert keys(kind="send", input={"customer": None}) == [("kind:send", None)]
    assert keys(kind="send", input=[7]) == [("kind:send", None)]
    assert keys(kind="send", input={"customer": 7}, limit_key="x") == [("kind:send", "x")]
    assert keys(kind="send", queue="mail", limit_key="x") == [("kind:send", "x"), ("queue:mail", None)]
    one, two = (rules.gates_of(task(kind="send", tenant=name), limits, START)[0] for name in ("a", "b"))
    assert one.id != two.id


def test_the_place_and_the_line() -> None:
    free = gate("g", limit=Limit(concurrency=1))
    inside, full, _ = rules.ask(asking(), free, START)
    assert (inside.passed, inside.line, full.inside, full.has_line) == (1, None, 1, False)
    waits, line, _ = rules.ask(asking(), full, START + SECOND)
    assert (waits.passed, waits.line, waits.lined_at) == (0, "g", START), "when it was due, not when it asked"
    assert (line.inside, line.has_line) == (1, True)
    assert not waits.is_available_at(START + SECOND)
    assert rules.leave(inside, line, START).inside == 0
    assert rules.leave(waits, line, START) == line, "there may be others"
    assert rules.without_places(waits) == asking()


def test_a_moment_that_was_missed_is_asked_for_again() -> None:
    moment, given, _ = rules.ask(asking(), gate("g", limit=Limit(rate="10/s")), START)
    assert (moment.available_at, moment.slot_until) == (START, START + 0.1 * SECOND)
    assert given.next_at == START + 0.11 * SECOND
    assert not rules.has_to_ask(moment, START + 0.1 * SECOND)
    assert rules.has_to_ask(moment, START + 0.11 * SECOND)
    assert not rules.has_missed(moment, START + 0.1 * SECOND)
    assert rules.has_missed(moment, START + 0.11 * SECOND)


def test_a_clock_that_was_set_back_keeps_nobody_waiting() -> None:
    ahead = START + timedelta(hours=1)
    given = gate("g", limit=Limit(rate="1/h"), next_at=ahead + timedelta(hours=1), updated_at=ahead)
    assert rules.ask(asking(), given, START)[0].available_at == START
    left = rules.leave(asking(passed=1), given, START)
    assert rules.ask(asking(), left, START)[0].available_at == START


@given(
    count=st.integers(1, 20),
    lates=st.lists(st.floats(0, 1), min_size=25, max_size=60),
    unit=st.sampled_from("smhd"),
)
def test_never_more_than_the_rate_however_late_each_starts(count: int, lates: list[float], unit: str) -> None:
    """Each starts as late as it may, or sooner."""
    period = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND}[unit]
    state: Gate = gate("g", limit=Limit(rate=f"{count}/{unit}"))
    starts = []
    for late in lates:
        moment, state, _ = rules.ask(asking(), state, START)
        assert moment.slot_until is not None
        starts.append(moment.available_at + late * (moment.slot_until - moment.available_at))
    starts.sort()
    assert all(later - sooner >= period for sooner, later in zip(starts, starts[count:], strict=False))


@pytest.mark.parametrize(
    ("before", "key", "words"),
    [
        (0, None, "is the next of kind send (at most 1 at once)"),
        (1, "7", "waits behind 1 other of kind send, key 7 (at most 1 at once)"),
        (1200, None, "waits behind 1,200 others of kind send (at most 1 at once)"),
    ],
)
def test_why_it_waits(before: int, key: str | None, words: str) -> None:
    assert rules.describe_line(gate(key=key), before) == words


def test_another_rate_gives_a_sooner_moment_or_asks_again() -> None:
    fast = rules.with_limit(gate("g", limit=Limit(rate="1/h"), next_at=START), Limit(rate="60/m"), START)
    had = asking(passed=1, available_at=START + 60 * SECOND, slot_until=START + 61 * SECOND)
    moved, fast = rules.sooner(had, fast, START)
    assert moved.available_at == START
    slow = gate("g", limit=Limit(rate="1/d"), next_at=START + timedelta(days=1))
    kept, _ = rules.sooner(had, slow, START)
    assert kept.available_at == had.available_at
    assert rules.has_to_ask(kept, kept.available_at)


@pytest.mark.parametrize(
    ("gates", "rate", "available_in", "asks_again_in"),
    [
        (("g",), None, 0 * SECOND, None),
        (("g",), "1/s", 0 * SECOND, 0.1 * SECOND),
        (("g",), "1/d", 60 * SECOND, 60 * SECOND),
        (("g", "queue-q"), "1/s", 0 * SECOND, 0 * SECOND),
    ],
    ids=["no rate any more", "a faster rate", "no sooner moment", "another gate has to agree"],
)
def test_a_moment_under_an_old_rate(
    gates: tuple[str, ...], rate: str | None, available_in: timedelta, asks_again_in: timedelta | None
) -> None:
    then = START + 60 * SECOND
    taken = START + timedelta(hours=1) if rate == "1/d" else None
    waits = task("t", gates=gates, passed=len(gates), available_at=then, slot_until=then + SECOND)
    limited = gate("g", limit=Limit(concurrency=2, rate=rate), next_at=taken, updated_at=START)
    moved, _ = rules.sooner(waits, limited, START)
    assert moved.available_at == START + available_in
    at = None if asks_again_in is None else START + asks_again_in
    assert rules.has_to_ask(moved, START + available_in) is (asks_again_in == available_in)
    assert (moved.asks_at is None) is (at is None)
    if at is not None:
        assert rules.has_to_ask(moved, at + timedelta(microseconds=1))
