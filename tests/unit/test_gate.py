"""Gates, as tables: who passes, who waits, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from records import gate, task
from rota.domain import gate as rules
from rota.domain.errors import Invalid
from rota.domain.model import Gate, Limit, Limits, Moving, Task
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
    for changed in (
        rules.with_limit(given, Limit(rate="2/h"), START),
        rules.with_limit(given, Limit(rate="1/d"), START),
        rules.with_limit(given, Limit(rate="1/h", concurrency=1), START),
        rules.recounted(given, START),
    ):
        assert (changed.updated_at, changed.next_at, changed.others_at) == (START, None, None)
        while_moving = replace(changed, moving=None)
        assert rules.ask(asking(), while_moving, START)[0].available_at == START
    moving = replace(given, moving=Moving(after=ahead, to=ahead), others_at=ahead)
    assert rules.with_moving(moving, START).moving is None


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


@pytest.mark.parametrize(
    ("old", "new", "moved_in", "asks_again_in"),
    [
        ("1/m", None, [0, 0, 0], None),
        ("1/m", "60/m", [0, 1.016667, 2.033334], 1),
        ("60/m", "1/m", [1.016667, 2.033334, 3.050001], 0),
    ],
    ids=["no rate any more", "a faster rate", "a slower rate"],
)
def test_tasks_that_have_moments_under_another_rate(
    old: str, new: str | None, moved_in: list[float], asks_again_in: float | None
) -> None:
    """They keep their order. Under a slower rate they ask again when they are due."""
    state, waiting = planned(old, 4)
    state = rules.with_limit(state, Limit(concurrency=99, rate=new), START)
    moved = []
    for each in waiting[1:]:
        task, state = rules.move(each, state, START, is_bound=False)
        moved.append(task)
    state = rules.all_moved(state, START)
    assert [task.available_at for task in moved] == [START + each * SECOND for each in moved_in]
    again = None if asks_again_in is None else asks_again_in * SECOND
    asks = [None if again is None else task.available_at + again for task in moved]
    assert [task.asks_at and task.asks_at.replace(microsecond=0) for task in moved] == [
        at and at.replace(microsecond=0) for at in asks
    ]
    next_at = rules.ask(asking(), state, START)[0].available_at
    assert next_at == (moved[-1].available_at + 1.016667 * SECOND if new == "60/m" else START)


def planned(rate: str, number: int) -> tuple[Gate, list[Task]]:
    """A gate, and tasks that have its first moments."""
    state, waiting = gate("g", limit=Limit(concurrency=99, rate=rate)), []
    for _ in range(number):
        task, state, _ = rules.ask(asking(), state, START)
        waiting.append(task)
    return state, waiting


@pytest.mark.parametrize(("number", "leaving", "moves"), [(9, 1, True), (40, 3, False), (40, 4, True)])
def test_moments_are_planned_anew_if_a_tenth_is_not_used(number: int, leaving: int, moves: bool) -> None:
    state, waiting = planned("1/h", number)
    for each in waiting[1 : leaving + 1]:
        state = rules.leave(each, state, START)
    state = rules.with_moving(state, START)
    assert (state.moving is not None) is moves
    for each in waiting[leaving + 1 :] if moves else ():
        task, state = rules.move(each, state, START, is_bound=False)
        assert task.available_at == waiting[waiting.index(each) - leaving].available_at
    state = rules.all_moved(state, START)
    assert state.next_at == planned("1/h", number - leaving * moves)[0].next_at


def test_a_moment_that_was_used_is_not_given_again() -> None:
    """It left after it had begun, or to be tried again later."""
    state, [first, second] = planned("1/h", 2)
    again = replace(second, available_at=second.available_at + SECOND)
    for each, at in ((first, START), (second, second.available_at), (again, second.available_at)):
        assert rules.leave(each, state, at).unused == 0
    assert rules.leave(second, state, START).unused == 1


def test_a_task_that_has_to_fit_the_rate_of_its_kind_keeps_its_moment() -> None:
    state, waiting = planned("1/h", 4)
    state = rules.with_moving(rules.leave(waiting[1], state, START), START)
    bound, state = rules.move(waiting[2], state, START, is_bound=True)
    last, state = rules.move(waiting[3], state, START, is_bound=False)
    assert (bound, last) == (waiting[2], waiting[3])
