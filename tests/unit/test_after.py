"""Schedules that come after others: what they are told, and what becomes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rota.domain import recurrence
from rota.domain.errors import Invalid
from rota.domain.model import Limits, OverlapPolicy, Run, RunStatus, Schedule, ScheduleStatus, TaskTarget
from rota.domain.recurrence import After, AfterOn
from rota.domain.schedule import after, backfill, decide, definition
from rota.surfaces.python.timings import changed_timing

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)


def follower(timing: After | None = None, **fields: Any) -> Schedule:
    return definition.create(
        "f", "load", timing or After(("extract",)), TaskTarget(kind="work"), fields,
        tenant="default", now=NOW, actor="tester", limits=Limits(),
    )  # fmt: skip


def ended(id: str = "r1", status: RunStatus = RunStatus.COMPLETED) -> Run:
    return Run(id=id, tenant="default", schedule_id="u", scheduled_at=NOW, status=status, created_at=NOW)


ENDS = [
    ("success", RunStatus.COMPLETED, True),
    ("success", RunStatus.FAILED, False),
    ("success", RunStatus.CANCELLED, False),
    ("failure", RunStatus.COMPLETED, False),
    ("failure", RunStatus.FAILED, True),
    ("end", RunStatus.COMPLETED, True),
    ("end", RunStatus.FAILED, True),
    ("end", RunStatus.CANCELLED, True),
    ("end", RunStatus.SKIPPED, False),
    ("end", RunStatus.RUNNING, False),
]


@pytest.mark.parametrize(("on", "status", "counts"), ENDS)
def test_which_ends_count(on: str, status: RunStatus, counts: bool) -> None:
    schedule = follower(After(("extract",), AfterOn(on)))
    told = after.heard(schedule, "extract", ended(status=status), NOW + MINUTE)
    assert (told.next_run_at == NOW + MINUTE) == counts
    assert (told is schedule) != counts


NOT_HEARD = {
    "another schedule": (follower(), "other"),
    "paused": (definition.pause(follower(), NOW, "x"), "extract"),
    "draft": (follower(status="draft"), "extract"),
    "deleted": (definition.delete(follower(), NOW, "x"), "extract"),
    "before its start_at": (follower(start_at=NOW + 2 * MINUTE), "extract"),
}


@pytest.mark.parametrize("case", NOT_HEARD)
def test_what_is_not_heard(case: str) -> None:
    schedule, key = NOT_HEARD[case]
    assert after.heard(schedule, key, ended(), NOW + MINUTE) is schedule


def test_a_join_waits_for_each_and_then_begins_anew() -> None:
    schedule = follower(After(("a", "b"), delay=MINUTE))
    assert (schedule.status, schedule.next_run_at, schedule.due_at) == ("active", None, None)
    one = after.heard(schedule, "a", ended("a1"), NOW + MINUTE)
    one = after.heard(one, "a", ended("a2"), NOW + 2 * MINUTE)
    assert one.next_run_at is None
    both = after.heard(one, "b", ended("b1"), NOW + 3 * MINUTE)
    assert both.due_at == NOW + 4 * MINUTE
    later = after.heard(both, "a", ended("a3"), NOW + 3.5 * MINUTE)
    assert later.due_at == NOW + 4 * MINUTE, "ends before its time are part of the same run"
    assert {cause.run_id for cause in later.causes} == {"b1", "a3"}
    decision = decide(later, NOW + 4 * MINUTE, [])
    assert [fire.scheduled_at for fire in decision.fires] == [NOW + 4 * MINUTE]
    assert (decision.schedule.next_run_at, decision.schedule.causes) == (None, ())
    assert decision.schedule.status is ScheduleStatus.ACTIVE


def test_every_end_has_a_time_of_its_own_even_in_the_same_moment() -> None:
    told = after.heard(follower(), "extract", ended("r1"), NOW + MINUTE)
    fired = decide(told, NOW + MINUTE, []).schedule
    again = after.heard(fired, "extract", ended("r2"), NOW + MINUTE)
    assert again.next_run_at == NOW + MINUTE + TICK


def test_it_is_better_late_than_never() -> None:
    told = after.heard(follower(), "extract", ended(), NOW + MINUTE)
    decision = decide(told, NOW + timedelta(days=1), [])
    assert [fire.scheduled_at for fire in decision.fires] == [NOW + MINUTE]


def test_bounds_complete_it() -> None:
    last = follower(max_runs=1)
    fired = decide(after.heard(last, "extract", ended(), NOW + MINUTE), NOW + MINUTE, []).schedule
    assert fired.status is ScheduleStatus.COMPLETED
    late = after.heard(follower(end_at=NOW + MINUTE), "extract", ended(), NOW + 2 * MINUTE)
    assert late.status is ScheduleStatus.COMPLETED
    assert "end_at" in (late.completed_reason or "")


def test_a_pause_and_a_new_timing_forget_what_was_heard() -> None:
    told = after.heard(follower(After(("extract",), delay=MINUTE)), "extract", ended(), NOW + MINUTE)
    resumed = definition.resume(definition.pause(told, NOW + MINUTE, "x"), NOW + MINUTE, "x")
    assert (resumed.next_run_at, resumed.causes, resumed.status) == (None, (), "active")
    other = definition.edit(told, {"timing": After(("other",))}, NOW + MINUTE, "x", Limits())
    assert (other.next_run_at, other.causes) == (None, ())
    described = definition.edit(told, {"description": "d"}, NOW + MINUTE, "x", Limits())
    assert described.next_run_at == told.next_run_at


def test_from_times_to_after_and_back() -> None:
    timed = definition.edit(follower(), {"timing": recurrence.Cron("@hourly")}, NOW, "x", Limits())
    assert timed.next_run_at == NOW + 60 * MINUTE
    back = definition.edit(timed, {"timing": After(("extract",))}, NOW, "x", Limits())
    assert (back.next_run_at, back.due_at, back.status) == (None, None, "active")


def test_effects_are_linked_to_their_causes() -> None:
    row = replace(ended("e1"), causes=("r1", "gone"))
    [cause] = after.with_effects([ended("r1"), ended("r2")], [row])
    assert (cause.id, cause.effects) == ("r1", ("e1",))


def test_a_new_key_reaches_the_followers() -> None:
    told = after.heard(follower(After(("a", "b"))), "a", ended(), NOW)
    renamed = after.renamed(told, "a", "c")
    assert renamed.timing == After(("c", "b"))
    assert [cause.key for cause in renamed.causes] == ["c"]


def test_there_is_nothing_to_backfill() -> None:
    with pytest.raises(Invalid, match="has no times of its own"):
        backfill.begin("b", follower(), NOW, NOW, OverlapPolicy.ALLOW, 1, NOW, "x")


def test_it_has_no_calendars() -> None:
    with pytest.raises(Invalid, match="only: a schedule that runs after others has no times of its own"):
        follower(only=("22:00-06:00",))
    with pytest.raises(Invalid, match="exclude: a schedule that runs after others"):
        definition.edit(follower(), {"exclude": ("22:00-06:00",)}, NOW, "x", Limits())


CHANGES: list[tuple[dict[str, Any], After]] = [
    ({"after_delay": MINUTE}, After(("a",), AfterOn.END, MINUTE)),
    ({"after": "b"}, After(("b",), AfterOn.END, 5 * MINUTE)),
    ({"after": None, "after_on": "failure"}, After(("a",), AfterOn.FAILURE, 5 * MINUTE)),
]


@pytest.mark.parametrize(("options", "timing"), CHANGES)
def test_a_change_keeps_what_it_does_not_name(options: dict[str, Any], timing: After) -> None:
    old = follower(After(("a",), AfterOn.END, 5 * MINUTE))
    assert changed_timing(old, options, NOW) == {"timing": timing}


def test_options_of_after_go_with_it() -> None:
    timed = definition.edit(follower(), {"timing": recurrence.Cron("@hourly")}, NOW, "x", Limits())
    with pytest.raises(
        Invalid, match="after_on: this schedule does not run after others; give after with it"
    ):
        changed_timing(timed, {"after_on": "end"}, NOW)
    with pytest.raises(Invalid, match="after_delay: it was given with cron; it goes with after"):
        changed_timing(follower(), {"cron": "@daily", "after_delay": MINUTE}, NOW)
    with pytest.raises(Invalid, match="dst_gap: this timing has no use for it"):
        changed_timing(timed, {"after": "a", "dst_gap": "skip"}, NOW)


WORDS = [
    (After(("a",)), "After a succeeds"),
    (After(("a",), AfterOn.FAILURE, 5 * MINUTE), "5 minutes after a fails"),
    (After(("a", "b", "c"), AfterOn.END), "After a, b and c have each ended"),
]


@pytest.mark.parametrize(("timing", "words"), WORDS)
def test_words(timing: After, words: str) -> None:
    assert recurrence.describe(timing) == words
    assert recurrence.next_after(timing, NOW) is None


WRONG: list[tuple[Any, str]] = [
    (After(()), "after: it names 0 schedules"),
    (After(tuple(str(n) for n in range(21))), "after: it names 21 schedules"),
    (After("abc"), "after: 'abc' is no list of schedules"),  # type: ignore[arg-type]  # wrong on purpose
    (After(("a",), "never"), "after_on: 'never' is not known"),  # type: ignore[arg-type]  # wrong on purpose
    (After(("a",), delay=-MINUTE), "after_delay: "),
    (recurrence.Several((After(("a",)),)), "timings: one of them runs after others"),  # type: ignore[arg-type]  # wrong on purpose
]


@pytest.mark.parametrize(("timing", "sentence"), WRONG, ids=[text for _, text in WRONG])
def test_wrong(timing: After, sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        follower(timing)
    assert str(caught.value).startswith(sentence)
