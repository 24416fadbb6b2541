"""What a tick decides: every row of the table in `rota.domain.schedule`, and what holds whatever happens."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.domain import recurrence
from rota.domain.model import (
    ExcludedPolicy,
    Limits,
    MissedRunPolicy,
    OverlapPolicy,
    RunReason,
    RunTrigger,
    Schedule,
    ScheduleStatus,
    Task,
    TaskTarget,
)
from rota.domain.recurrence import Covered, Cron, Interval, Once, RRule, Timing
from rota.domain.schedule import Decision, Skip, decide, definition, due_time, given_up, planned, released
from rota.domain.schedule import decision as tick
from rota.domain.schedule.expected import Expected, expected
from rota.surfaces.words import policies, sentence

NOON = datetime(2026, 1, 28, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HOURLY = Cron("0 * * * *")
EVERY_10_S = Interval(SECOND * 10)


def created(timing: Timing = HOURLY, now: datetime = NOON - MINUTE, **fields: Any) -> Schedule:
    return definition.create(
        "s1",
        "report",
        timing,
        TaskTarget(kind="send"),
        fields,
        tenant="default",
        now=now,
        actor="ann",
        limits=Limits(),
    )


def live_task(name: str = "t1") -> Task:
    return Task(id=name, kind="send", created_at=NOON, available_at=NOON, updated_at=NOON, schedule_id="s1")


def hours(*numbers: int) -> list[datetime]:
    """Times counted from noon in hours."""
    return [NOON + HOUR * number for number in numbers]


def fired(decision: Decision) -> list[datetime]:
    return [fire.scheduled_at for fire in decision.fires]


def skipped(decision: Decision, reason: RunReason) -> list[datetime]:
    assert all(skip.count == 1 and skip.until is None for skip in decision.skips)
    return [skip.scheduled_at for skip in decision.skips if skip.reason is reason]


# One due time


@pytest.mark.parametrize(
    ("late", "policy", "fires"),
    [
        (timedelta(0), "skip", True),
        (SECOND, "skip", True),
        (MINUTE, "skip", True),
        (MINUTE + timedelta(microseconds=1), "skip", False),
        (MINUTE * 30, "skip", False),
        (MINUTE, "execute_once", True),
        (MINUTE * 30, "execute_once", True),
        (MINUTE, "catch_up", True),
        (MINUTE * 30, "catch_up", True),
    ],
    ids=str,
)
def test_one_due_time(late: timedelta, policy: str, fires: bool) -> None:
    schedule = created(missed_run_policy=policy)
    decision = decide(schedule, NOON + late, [])
    assert fired(decision) == (hours(0) if fires else [])
    assert skipped(decision, RunReason.MISSED) == ([] if fires else hours(0))
    after = decision.schedule
    assert (after.next_run_at, after.due_at, after.status) == (*hours(1, 1), ScheduleStatus.ACTIVE)
    assert after.run_count == int(fires)
    assert after.last_run_at == (NOON + late if fires else None)


@pytest.mark.parametrize(("late", "trigger"), [(SECOND, "scheduled"), (MINUTE * 2, "catch_up")])
@pytest.mark.parametrize("policy", ["execute_once", "catch_up"])
def test_a_late_fire_says_that_it_makes_up_for_a_missed_one(
    late: timedelta, trigger: str, policy: str
) -> None:
    (fire,) = decide(created(missed_run_policy=policy), NOON + late, []).fires
    assert fire.trigger is RunTrigger(trigger)


@pytest.mark.parametrize("grace", [timedelta(0), SECOND, MINUTE * 50])
def test_the_grace_is_the_schedules(grace: timedelta) -> None:
    schedule = created(misfire_grace=grace)
    assert fired(decide(schedule, NOON + grace, [])) == hours(0)
    assert skipped(decide(schedule, NOON + grace + SECOND, []), RunReason.MISSED) == hours(0)


# What is not due


@pytest.mark.parametrize(
    "fields",
    [
        {"status": ScheduleStatus.PAUSED},
        {"status": ScheduleStatus.DRAFT},
        {"status": ScheduleStatus.COMPLETED},
        {"deleted_at": NOON - SECOND},
        {"next_run_at": None, "due_at": None},
        {"due_at": NOON + HOUR * 5},
    ],
    ids=str,
)
def test_nothing_happens(fields: dict[str, Any]) -> None:
    schedule = replace(created(), **fields)
    assert decide(schedule, NOON + HOUR * 3, [live_task()]) == Decision(schedule)


def test_nothing_happens_before_its_time() -> None:
    schedule = created()
    assert decide(schedule, NOON - timedelta(microseconds=1), []) == Decision(schedule)


# Several due: the policies, one against the other


ROUND_NOON = {
    # policy, overlap, live: what fires, what was missed, what overlapped, cancelled?
    # At 15:00:30 noon, 13:00 and 14:00 are missed, and 15:00 is within the grace.
    ("skip", "skip", 0): ([3], [0, 1, 2], [], False),
    ("skip", "skip", 1): ([], [0, 1, 2], [3], False),
    ("skip", "allow", 0): ([3], [0, 1, 2], [], False),
    ("skip", "allow", 1): ([3], [0, 1, 2], [], False),
    ("skip", "cancel_previous", 0): ([3], [0, 1, 2], [], False),
    ("skip", "cancel_previous", 1): ([3], [0, 1, 2], [], True),
    ("execute_once", "skip", 0): ([3], [0, 1, 2], [], False),
    ("execute_once", "skip", 1): ([], [0, 1, 2], [3], False),
    ("execute_once", "allow", 0): ([3], [0, 1, 2], [], False),
    ("execute_once", "allow", 1): ([3], [0, 1, 2], [], False),
    ("execute_once", "cancel_previous", 0): ([3], [0, 1, 2], [], False),
    ("execute_once", "cancel_previous", 1): ([3], [0, 1, 2], [], True),
    ("catch_up", "skip", 0): ([0, 1, 2, 3], [], [], False),
    ("catch_up", "skip", 1): ([0, 1, 2, 3], [], [], False),
    ("catch_up", "allow", 0): ([0, 1, 2, 3], [], [], False),
    ("catch_up", "allow", 1): ([0, 1, 2, 3], [], [], False),
    ("catch_up", "cancel_previous", 0): ([0, 1, 2, 3], [], [], False),
    ("catch_up", "cancel_previous", 1): ([0, 1, 2, 3], [], [], False),
    ("skip", "terminate_previous", 0): ([3], [0, 1, 2], [], False),
    ("skip", "terminate_previous", 1): ([3], [0, 1, 2], [], True),
    ("execute_once", "terminate_previous", 1): ([3], [0, 1, 2], [], True),
    ("catch_up", "terminate_previous", 1): ([0, 1, 2, 3], [], [], False),
}


@pytest.mark.parametrize("case", ROUND_NOON, ids=str)
@pytest.mark.parametrize("jumped", [False, True], ids=["steady", "jumped"])
def test_several_due_after_an_outage(case: tuple[str, str, int], jumped: bool) -> None:
    policy, overlap, running = case
    fires, missed, overlapped, cancelled = ROUND_NOON[case]
    live = [live_task(f"t{n}") for n in range(running)]
    schedule = created(missed_run_policy=policy, overlap_policy=overlap)
    decision = decide(schedule, NOON + HOUR * 3 + SECOND * 30, live, jumped=jumped)
    assert fired(decision) == hours(*fires)
    assert skipped(decision, RunReason.MISSED) == hours(*missed)
    assert skipped(decision, RunReason.OVERLAP) == hours(*overlapped)
    assert decision.cancels == (tuple(live) if cancelled else ())
    assert decision.by_force == (overlap == "terminate_previous")
    assert decision.schedule.run_count == len(fires)
    assert decision.schedule.next_run_at == NOON + HOUR * 4


ALL_MISSED = {
    # At 14:30 noon, 13:00 and 14:00 are missed, and nothing is within the grace.
    ("skip", "skip", 0): ([], [0, 1, 2], []),
    ("skip", "cancel_previous", 1): ([], [0, 1, 2], []),
    ("execute_once", "skip", 0): ([2], [0, 1], []),
    ("execute_once", "skip", 1): ([], [0, 1], [2]),
    ("execute_once", "cancel_previous", 1): ([2], [0, 1], []),
    ("catch_up", "skip", 1): ([0, 1, 2], [], []),
    ("catch_up", "cancel_previous", 1): ([0, 1, 2], [], []),
}


@pytest.mark.parametrize("case", ALL_MISSED, ids=str)
@pytest.mark.parametrize("jumped", [False, True], ids=["steady", "jumped"])
def test_all_missed(case: tuple[str, str, int], jumped: bool) -> None:
    policy, overlap, running = case
    fires, missed, overlapped = ALL_MISSED[case]
    live = [live_task(f"t{n}") for n in range(running)]
    schedule = created(missed_run_policy=policy, overlap_policy=overlap)
    decision = decide(schedule, NOON + HOUR * 2 + MINUTE * 30, live, jumped=jumped)
    assert fired(decision) == hours(*fires)
    assert skipped(decision, RunReason.MISSED) == hours(*missed)
    assert skipped(decision, RunReason.OVERLAP) == hours(*overlapped)
    once_replaces = policy == "execute_once" and overlap == "cancel_previous"
    assert decision.cancels == (tuple(live) if once_replaces else ()), "what is made up for replaces nothing"
    assert decision.schedule.next_run_at == NOON + HOUR * 3


SEVERAL_ON_TIME = {
    # Three times, all within a grace that was given. policy, overlap, jumped: fires, missed
    ("skip", "allow", False): ([1, 2, 3], []),
    ("skip", "skip", False): ([3], [1, 2]),
    ("skip", "cancel_previous", False): ([3], [1, 2]),
    ("skip", "buffer_one", False): ([3], [1, 2]),
    ("skip", "buffer_all", True): ([3], [1, 2]),
    ("skip", "terminate_previous", False): ([3], [1, 2]),
    ("skip", "allow", True): ([3], [1, 2]),
    ("skip", "skip", True): ([3], [1, 2]),
    ("skip", "cancel_previous", True): ([3], [1, 2]),
    ("execute_once", "allow", False): ([1, 2, 3], []),
    ("execute_once", "skip", False): ([3], [1, 2]),
    ("execute_once", "allow", True): ([3], [1, 2]),
    ("catch_up", "allow", False): ([1, 2, 3], []),
    ("catch_up", "allow", True): ([1, 2, 3], []),
    ("catch_up", "skip", False): ([1, 2, 3], []),
    ("catch_up", "cancel_previous", False): ([1, 2, 3], []),
}


@pytest.mark.parametrize("case", SEVERAL_ON_TIME, ids=str)
def test_several_within_the_grace(case: tuple[str, str, bool]) -> None:
    policy, overlap, jumped = case
    fires, missed = ([NOON + SECOND * 10 * n for n in numbers] for numbers in SEVERAL_ON_TIME[case])
    fields = {"missed_run_policy": policy, "overlap_policy": overlap, "misfire_grace": MINUTE}
    decision = decide(created(EVERY_10_S, NOON, **fields), NOON + SECOND * 35, [], jumped=jumped)
    assert fired(decision) == fires
    assert skipped(decision, RunReason.MISSED) == missed
    assert skipped(decision, RunReason.OVERLAP) == []
    assert decision.schedule.next_run_at == NOON + SECOND * 40
    assert {fire.trigger for fire in decision.fires} == {RunTrigger.SCHEDULED}


# Times that wait


BUFFERED = {
    # At 15:00:30. policy, overlap, live, what waits already: what fires, what waits then, what overlapped
    ("skip", "buffer_one", 0, ()): ([3], [], []),
    ("skip", "buffer_one", 1, ()): ([], [3], []),
    ("skip", "buffer_one", 2, ()): ([], [3], []),
    ("skip", "buffer_one", 1, (-1,)): ([], [-1], [3]),
    ("skip", "buffer_one", 0, (-1,)): ([-1], [3], []),
    ("skip", "buffer_one", 1, (-2, -1)): ([], [-2, -1], [3]),
    ("skip", "buffer_all", 0, ()): ([3], [], []),
    ("skip", "buffer_all", 1, ()): ([], [3], []),
    ("skip", "buffer_all", 1, (-2, -1)): ([], [-2, -1, 3], []),
    ("skip", "buffer_all", 0, (-2, -1)): ([-2], [-1, 3], []),
    ("skip", "buffer_all", 1, tuple(range(-100, 0))): ([], list(range(-100, 0)), [3]),
    ("execute_once", "buffer_one", 1, ()): ([], [3], []),
    ("execute_once", "buffer_all", 1, (-1,)): ([], [-1, 3], []),
    ("catch_up", "buffer_all", 0, ()): ([0], [1, 2, 3], []),
    ("catch_up", "buffer_one", 0, ()): ([0], [1, 2, 3], []),
    ("catch_up", "buffer_all", 1, (-1,)): ([], [-1, 0, 1, 2, 3], []),
    # what waits stays when the policy is changed
    ("skip", "skip", 1, (-1,)): ([], [-1], [3]),
    ("skip", "allow", 1, (-1,)): ([3], [-1], []),
    ("skip", "cancel_previous", 1, (-1,)): ([3], [-1], []),
}


@pytest.mark.parametrize("case", BUFFERED, ids=str)
def test_what_waits(case: tuple[str, str, int, tuple[int, ...]]) -> None:
    policy, overlap, running, waiting = case
    fires, line, overlapped = BUFFERED[case]
    live = [live_task(f"t{n}") for n in range(running)]
    before = replace(
        created(missed_run_policy=policy, overlap_policy=overlap),
        buffered=tuple(hours(*waiting)),
        run_count=len(waiting),
    )
    decision = decide(before, NOON + HOUR * 3 + SECOND * 30, live)
    assert fired(decision) == hours(*fires)
    assert list(decision.schedule.buffered) == hours(*line)
    new = [fire.scheduled_at for fire in decision.buffers]
    assert new == [at for at in hours(*line) if at not in before.buffered]
    assert {fire.scheduled_at for fire in decision.fires if fire.has_waited} == set(fired(decision)) & set(
        before.buffered
    )
    assert skipped(decision, RunReason.OVERLAP) == hours(*overlapped)
    assert decision.schedule.run_count == len({*waiting, *fires, *line}), "what waits counts"
    assert decision.awaits == (tuple(live) if line and not decision.cancels else ())
    assert decision.schedule.next_run_at == NOON + HOUR * 4


@pytest.mark.parametrize("overlap", ["buffer_one", "buffer_all"])
@pytest.mark.parametrize("running", [0, 1])
def test_a_time_that_catch_up_asks_for_stays_due_while_a_hundred_wait(overlap: str, running: int) -> None:
    live = [live_task(f"t{n}") for n in range(running)]
    now = NOON + HOUR * 250
    before = created(missed_run_policy="catch_up", overlap_policy=overlap)
    first = decide(before, now, live)
    both = [*fired(first), *first.schedule.buffered]
    decided = 100 if running else 101
    assert first.skips == ()
    if not running:
        first = decide(first.schedule, now, [live_task()])
        both += first.schedule.buffered[99:]
    assert both == hours(*range(decided))
    assert (first.skips, first.schedule.next_run_at) == ((), NOON + HOUR * decided)
    assert first.schedule.is_due(now)
    full = decide(first.schedule, now, [live_task()])
    assert (full.fires, full.buffers, full.skips, full.awaits) == ((), (), (), (live_task(),))
    assert replace(full.schedule, due_at=first.schedule.due_at, updated_at=now) == first.schedule
    assert not full.schedule.is_due(now), "a tick does not look at it again and again"
    assert full.schedule.is_due(now + MINUTE)
    assert [skip.scheduled_at for skip in given_up(full.schedule, now)] == [NOON + HOUR * decided]


def test_a_schedule_whose_line_was_full_is_due_again_when_half_of_it_is_gone() -> None:
    now = NOON + HOUR * 250
    before = created(missed_run_policy="catch_up", overlap_policy="buffer_all")
    first = decide(before, now, [live_task()]).schedule
    full = decide(first, now, [live_task()]).schedule
    assert released(replace(full, buffered=full.buffered[49:])).due_at == now + MINUTE
    assert released(replace(full, buffered=full.buffered[50:])).due_at == NOON + HOUR * 100


def test_times_that_wait_already_take_no_place_of_those_that_catch_up_asks_for() -> None:
    """The clock was set back: the times in line are due again, before others."""
    before = created(missed_run_policy="catch_up", overlap_policy="buffer_all")
    again = replace(before, buffered=tuple(hours(*range(60))), run_count=60)
    decision = decide(again, NOON + HOUR * 250, [live_task()])
    assert (decision.skips, decision.schedule.buffered) == ((), again.buffered)
    assert decision.schedule.next_run_at == NOON + HOUR * 40, "and on from there"


def test_what_is_marked_already_is_not_marked_again() -> None:
    marked, new = replace(live_task("t1"), awaited=True), live_task("t2")
    assert decide(created(overlap_policy="buffer_one"), NOON, [marked, new]).awaits == (new,)


def test_what_waits_reaches_max_runs_and_takes_room() -> None:
    schedule = created(overlap_policy="buffer_all", max_runs=1)
    decision = decide(schedule, NOON, [live_task()])
    assert (decision.schedule.status, list(decision.schedule.buffered)) == ("completed", hours(0))
    full = decide(created(overlap_policy="buffer_all"), NOON, [live_task()], room=0)
    assert (full.buffers, full.schedule.buffered, full.schedule.run_count) == ((), (), 0)
    assert skipped(full, RunReason.LIMIT) == hours(0)


def test_a_time_that_has_its_row_waits_only_once() -> None:
    """The clock was set back: the time is due again, while it waits or after it ran."""
    waiting = replace(created(overlap_policy="buffer_all"), buffered=(NOON,), run_count=1)
    decision = decide(waiting, NOON, [live_task()])
    assert (decision.buffers, list(decision.schedule.buffered)) == ((), hours(0))
    before = created(overlap_policy="buffer_all")
    had_run = tick.without(decide(before, NOON, [live_task()]), {NOON}, before)
    assert (had_run.buffers, had_run.schedule.buffered, had_run.schedule.run_count) == ((), (), 0)


@pytest.mark.parametrize("overlap", OverlapPolicy)
@pytest.mark.parametrize("policy", [MissedRunPolicy.SKIP, MissedRunPolicy.EXECUTE_ONCE])
@pytest.mark.parametrize("every", [1, 10, 44])
def test_a_restart_fires_the_latest_and_nothing_else(every: int, policy: str, overlap: str) -> None:
    """The grace that nobody gave ends with the next time: 45 seconds down are no burst."""
    timing = Interval(SECOND * every)
    schedule = created(timing, NOON, missed_run_policy=policy, overlap_policy=overlap)
    decision = decide(schedule, NOON + SECOND * 45 + SECOND / 2, [])
    *earlier, latest = [NOON + SECOND * n for n in range(every, 46, every)]
    assert fired(decision) == [latest]
    assert skipped(decision, RunReason.MISSED) == earlier
    assert decision.fires[0].trigger is RunTrigger.SCHEDULED, "late by less than its distance to the next"


def test_the_next_time_ends_the_grace_that_nobody_gave() -> None:
    schedule = created(EVERY_10_S, NOON, overlap_policy="allow")
    just_before = decide(schedule, NOON + SECOND * 20 - timedelta(microseconds=1), [])
    assert (fired(just_before), just_before.skips) == ([NOON + SECOND * 10], ())
    at_once = decide(schedule, NOON + SECOND * 20, [])
    assert fired(at_once) == [NOON + SECOND * 20]
    assert skipped(at_once, RunReason.MISSED) == [NOON + SECOND * 10]


def test_only_the_latest_is_judged_for_overlap() -> None:
    """The others were missed, whatever is live now: nobody knows whether it was then."""
    schedule = created(EVERY_10_S, NOON, misfire_grace=MINUTE)
    decision = decide(schedule, NOON + SECOND * 35, [live_task()])
    assert skipped(decision, RunReason.OVERLAP) == [NOON + SECOND * 30]
    assert skipped(decision, RunReason.MISSED) == [NOON + SECOND * 10, NOON + SECOND * 20]
    assert decision.fires == ()


@pytest.mark.parametrize("overlap", OverlapPolicy)
@pytest.mark.parametrize("live", [0, 1])
def test_catch_up_gives_every_run_the_one_on_time_included(overlap: str, live: int) -> None:
    schedule = created(Cron("* * * * *"), NOON, missed_run_policy="catch_up", overlap_policy=overlap)
    decision = decide(schedule, NOON + MINUTE * 4 + SECOND * 22, [live_task()] * live)
    wanted = (*decision.fires, *decision.buffers)
    assert [fire.scheduled_at for fire in wanted] == [NOON + MINUTE * n for n in (1, 2, 3, 4)]
    assert [fire.trigger for fire in wanted] == ["catch_up"] * 3 + ["scheduled"]
    assert (decision.skips, decision.cancels) == ((), ())


@pytest.mark.parametrize("overlap", ["skip", "allow", "cancel_previous", "terminate_previous"])
def test_catch_up_gives_the_run_on_time_also_when_it_comes_in_a_batch_of_its_own(overlap: str) -> None:
    schedule = created(missed_run_policy="catch_up", overlap_policy=overlap)
    first, last = ticks(schedule, NOON + HOUR * 100, [live_task()])
    assert fired(first) == hours(*range(100))
    assert (fired(last), last.cancels) == (hours(100), ())


def test_skipping_for_overlap_does_not_count_as_a_run() -> None:
    schedule = created(max_runs=1)
    decision = decide(schedule, NOON, [live_task()])
    assert (decision.schedule.run_count, decision.schedule.last_run_at) == (0, None)
    assert decision.schedule.status is ScheduleStatus.ACTIVE


# Ends


def test_max_runs_completes_it_with_the_reason() -> None:
    decision = decide(created(max_runs=1), NOON, [])
    after = decision.schedule
    assert fired(decision) == hours(0)
    assert (after.status, after.next_run_at, after.due_at) == (ScheduleStatus.COMPLETED, None, None)
    assert after.completed_reason == "it has run 1 times, its max_runs"
    assert after.has_reached_max_executions()


def test_no_fire_after_max_runs_however_many_are_due() -> None:
    schedule = created(max_runs=2, missed_run_policy="catch_up")
    decision = decide(schedule, NOON + DAY, [])
    assert fired(decision) == hours(0, 1)
    assert decision.schedule.status is ScheduleStatus.COMPLETED


def test_a_count_lowered_behind_its_back_completes_it() -> None:
    decision = decide(replace(created(), max_runs=3, run_count=3), NOON, [])
    assert decision.fires == ()
    assert decision.schedule.status is ScheduleStatus.COMPLETED


def test_the_end_is_inclusive() -> None:
    schedule = created(end_at=NOON + HOUR)
    first = decide(schedule, NOON, [])
    assert first.schedule.next_run_at == NOON + HOUR
    last = decide(first.schedule, NOON + HOUR, [])
    assert fired(last) == hours(1)
    assert last.schedule.status is ScheduleStatus.COMPLETED
    assert (
        last.schedule.completed_reason == "its next time would be after its end_at, 2026-01-28T13:00:00+00:00"
    )


def test_what_was_due_before_the_end_is_recorded_after_it() -> None:
    schedule = created(end_at=NOON + HOUR * 2 + MINUTE)
    decision = decide(schedule, NOON + DAY, [])
    assert skipped(decision, RunReason.MISSED) == hours(0, 1, 2)
    assert decision.schedule.status is ScheduleStatus.COMPLETED


@pytest.mark.parametrize(
    ("fields", "late", "fires"),
    [
        ({}, SECOND, True),
        ({}, DAY, True),
        ({"missed_run_policy": "skip"}, SECOND, True),
        ({"missed_run_policy": "skip"}, DAY, False),
        ({"missed_run_policy": "execute_once"}, DAY, True),
        ({"missed_run_policy": "catch_up"}, DAY, True),
        ({"missed_run_policy": "catch_up"}, DAY * 366, False),
    ],
    ids=str,
)
def test_once(fields: dict[str, Any], late: timedelta, fires: bool) -> None:
    decision = decide(created(Once(NOON), **fields), NOON + late, [])
    assert fired(decision) == (hours(0) if fires else [])
    assert skipped(decision, RunReason.MISSED) == ([] if fires else hours(0))
    assert decision.schedule.status is ScheduleStatus.COMPLETED
    assert decision.schedule.completed_reason == "its timing has no further time"


# Catching up


def ticks(schedule: Schedule, now: datetime, live: Iterable[Task] = ()) -> list[Decision]:
    """Decide until nothing is due."""
    decisions = []
    while schedule.is_due(now):
        decisions.append(decide(schedule, now, list(live)))
        schedule = decisions[-1].schedule
    return decisions


def test_catching_up_goes_in_batches_and_loses_nothing() -> None:
    schedule = created(missed_run_policy="catch_up", overlap_policy="cancel_previous")
    now = NOON + HOUR * 249 + SECOND
    decisions = ticks(schedule, now, [live_task()])
    assert [len(decision.fires) for decision in decisions] == [100, 100, 50]
    assert [at for decision in decisions for at in fired(decision)] == hours(*range(250))
    assert {decision.cancels for decision in decisions} == {()}, "catching up does not cancel itself"
    assert decisions[-1].schedule.run_count == 250
    assert decisions[-1].schedule.next_run_at == NOON + HOUR * 250


def test_what_is_older_than_the_window_is_skipped() -> None:
    schedule = created(missed_run_policy="catch_up", catch_up_window=HOUR * 3)
    decision = decide(schedule, NOON + HOUR * 10, [])
    assert skipped(decision, RunReason.MISSED) == hours(*range(7))
    assert fired(decision) == hours(7, 8, 9, 10)


@pytest.mark.parametrize("late", [timedelta(0), SECOND])
def test_no_window_at_all_still_fires_what_is_on_time(late: timedelta) -> None:
    schedule = created(missed_run_policy="catch_up", catch_up_window=0)
    assert fired(decide(schedule, NOON + late, [])) == hours(0)
    assert skipped(decide(schedule, NOON + HOUR + MINUTE * 5, []), RunReason.MISSED) == hours(0, 1)


def test_a_long_window_of_a_quick_schedule_is_one_row_and_a_batch() -> None:
    schedule = created(Interval(SECOND), NOON, missed_run_policy="catch_up", catch_up_window=HOUR)
    decision = decide(schedule, NOON + DAY, [])
    assert decision.skips == (
        Skip(NOON + SECOND, RunReason.MISSED, NOON + HOUR * 23 - SECOND, 23 * 3600 - 1),
    )
    assert len(decision.fires) == tick.FIRES_PER_DECISION
    assert decision.fires[0].scheduled_at == NOON + HOUR * 23


# Long outages


@pytest.mark.parametrize("missed", [1, 99, 100])
def test_up_to_a_hundred_missed_are_rows_of_their_own(missed: int) -> None:
    decision = decide(created(), NOON + HOUR * (missed - 1) + MINUTE * 2, [])
    assert skipped(decision, RunReason.MISSED) == hours(*range(missed))


@pytest.mark.parametrize("policy", ["skip", "execute_once"])
def test_thousands_missed_are_one_row(policy: str) -> None:
    now = NOON + HOUR * 5000 + MINUTE * 2
    decision = decide(created(missed_run_policy=policy), now, [])
    last = 5000 if policy == "skip" else 4999
    assert decision.skips == (Skip(NOON, RunReason.MISSED, NOON + HOUR * last, last + 1),)
    assert fired(decision) == ([] if policy == "skip" else hours(5000))
    assert decision.schedule.next_run_at == NOON + HOUR * 5001


def test_years_of_seconds_are_decided_at_once() -> None:
    schedule = created(Interval(SECOND), NOON)
    decision = decide(schedule, NOON + DAY * 3650, [], jumped=True)
    (skip,) = decision.skips
    assert skip.count == 3650 * 86_400 - 1
    assert fired(decision) == [NOON + DAY * 3650]


# Jitter


@pytest.mark.parametrize(
    ("timing", "jitter"),
    [(HOURLY, MINUTE * 5), (HOURLY, DAY), (EVERY_10_S, HOUR), (Cron("0 9 * * *", "America/New_York"), HOUR)],
    ids=str,
)
def test_jitter_is_stable_and_never_reaches_the_next_time(timing: Timing, jitter: timedelta) -> None:
    schedule = planned(replace(created(timing), jitter=jitter), NOON)
    spread = set()
    for _ in range(200):
        nominal, due = schedule.next_run_at, schedule.due_at
        assert nominal is not None
        assert due is not None
        following = schedule.next_occurrence(nominal)
        assert following is not None
        assert nominal <= due < following
        assert due < nominal + jitter
        assert due_time(schedule, nominal) == due
        spread.add(due - nominal)
        schedule = planned(schedule, nominal)
    assert len(spread) > 190


def test_jitter_differs_between_schedules() -> None:
    schedules = [replace(created(), id=f"s{n}", jitter=HOUR) for n in range(50)]
    assert len({due_time(schedule, NOON) for schedule in schedules}) == 50


def test_a_jittered_run_is_recorded_under_its_nominal_time_and_is_not_late() -> None:
    schedule = created(jitter=MINUTE * 30)
    assert schedule.next_run_at == NOON
    assert schedule.due_at is not None
    assert schedule.due_at > NOON + MINUTE, "else this test shows nothing"
    assert decide(schedule, schedule.due_at - timedelta(microseconds=1), []).fires == ()
    on_time = decide(schedule, schedule.due_at + MINUTE, [])
    assert fired(on_time) == hours(0)
    assert skipped(decide(schedule, schedule.due_at + MINUTE + SECOND, []), RunReason.MISSED) == hours(0)


def test_a_time_whose_jitter_is_still_to_come_is_left_for_later() -> None:
    schedule = created(jitter=HOUR)
    nominal = NOON + HOUR * 3
    assert due_time(schedule, nominal) > nominal + MINUTE, "else this test shows nothing"
    decision = decide(schedule, nominal + MINUTE, [])
    assert decision.schedule.next_run_at == nominal
    assert {*fired(decision), *skipped(decision, RunReason.MISSED)} == set(hours(0, 1, 2))


@pytest.mark.parametrize(
    ("timing", "offset", "dues"),
    [
        (HOURLY, MINUTE * 5, [5, 65, 125]),
        (HOURLY, DAY, [60, 120, 180]),
        (Cron("0,2,30 * * * *"), MINUTE * 10, [2, 12, 40]),
    ],
    ids=["fixed", "at most to the next time", "never beyond it"],
)
def test_an_offset_puts_off_every_time_and_makes_none_late(
    timing: Timing, offset: timedelta, dues: list[int]
) -> None:
    schedule, rows, found = planned(replace(created(timing), offset=offset), NOON - SECOND), [], []
    for _ in dues:
        assert schedule.due_at is not None
        found.append(schedule.due_at)
        assert decide(schedule, schedule.due_at - timedelta(microseconds=1), []).fires == ()
        decision = decide(schedule, schedule.due_at, [])
        rows += fired(decision)
        assert not decision.skips
        schedule = decision.schedule
    assert found == [NOON + MINUTE * each for each in dues]
    assert rows == list(islice(recurrence.between(timing, NOON - SECOND, NOON + DAY), len(dues)))


@pytest.mark.parametrize(
    "timing", [Cron("0 * * * *", "Europe/Gone"), RRule("FREQ=HOURLY", NOON - DAY, "Europe/Gone")], ids=str
)
def test_a_zone_that_only_others_know_stops_nothing_but_its_schedule(timing: Timing) -> None:
    schedule = replace(created(HOURLY), timing=timing)
    assert policies(schedule)
    assert sentence(schedule).endswith(", in Europe/Gone")
    assert list(expected(schedule, NOON - SECOND, NOON + DAY)) == [Expected(NOON, NOON)]
    decision = decide(schedule, NOON, [])
    assert fired(decision) == [NOON], "as it was promised"
    assert decision.schedule.status is ScheduleStatus.COMPLETED
    assert decision.schedule.completed_reason == (
        "its time zone, Europe/Gone, is not known here; give it one that is"
    )
    again = definition.edit(decision.schedule, {"timing": HOURLY}, NOON, "test", Limits())
    assert again.next_run_at == NOON + HOUR


@pytest.mark.parametrize("policy", ExcludedPolicy)
def test_a_calendar_in_a_zone_that_is_not_known_ends_its_schedule_and_says_so(policy: ExcludedPolicy) -> None:
    lost = Covered(name="nights", windows=("22:00-06:00",), timezone="Europe/Gone")
    known = replace(lost, timezone="Europe/Berlin")
    daily = created(Cron("0 12 * * *"), exclude=("nights",), excluded_policy=policy)
    daily = planned(replace(daily, calendars=(known,)), NOON - MINUTE)
    assert daily.zone_data == recurrence.tzdata_version(), "the zone of the calendar counts, too"
    schedule = replace(daily, calendars=(lost,))
    decision = decide(schedule, NOON, [])
    assert fired(decision) == [NOON], "as it was promised"
    assert decision.schedule.status is ScheduleStatus.COMPLETED
    assert decision.schedule.completed_reason == (
        "its calendars leave none of its times: the time zone of nights, Europe/Gone, is not known here"
    )
    assert definition.governed(decision.schedule, (known,), NOON).next_run_at == NOON + DAY


# Times


def test_intervals_do_not_drift() -> None:
    schedule, now = created(Interval(timedelta(minutes=7)), NOON, overlap_policy="allow"), NOON
    times = []
    for late in range(100):
        assert schedule.due_at is not None
        now = schedule.due_at + timedelta(milliseconds=late)
        decision = decide(schedule, now, [])
        times += fired(decision)
        schedule = decision.schedule
    assert times == [NOON + timedelta(minutes=7) * n for n in range(1, 101)]


@pytest.mark.parametrize(
    ("start", "times"),
    [
        # 8 March 2026: 02:00 does not exist in New York; it runs at 03:00 EDT.
        (datetime(2026, 3, 7, tzinfo=UTC), ["2026-03-07T07:00", "2026-03-08T07:00", "2026-03-09T06:00"]),
        # 1 November 2026: 02:00 happens once, in EST.
        (datetime(2026, 10, 31, tzinfo=UTC), ["2026-10-31T06:00", "2026-11-01T07:00", "2026-11-02T07:00"]),
    ],
    ids=["spring", "autumn"],
)
def test_daylight_saving(start: datetime, times: list[str]) -> None:
    schedule = created(Cron("0 2 * * *", "America/New_York"), start)
    found = []
    for _ in times:
        assert schedule.due_at is not None
        decision = decide(schedule, schedule.due_at, [])
        found += fired(decision)
        schedule = decision.schedule
    assert [at.strftime("%Y-%m-%dT%H:%M") for at in found] == times


def test_the_time_that_was_promised_fires_even_if_the_timing_no_longer_gives_it() -> None:
    """New zone data may move what was planned. What is due keeps its time; the next one is computed anew."""
    promised = NOON + MINUTE * 30
    schedule = replace(created(), next_run_at=promised, due_at=promised)
    decision = decide(schedule, promised, [])
    assert fired(decision) == [promised]
    assert decision.schedule.next_run_at == NOON + HOUR
    late = decide(schedule, NOON + HOUR * 2 + MINUTE * 30, [])
    assert skipped(late, RunReason.MISSED) == [promised, *hours(1, 2)]


def test_the_zone_data_in_use_is_noted() -> None:
    assert created(HOURLY).zone_data == ""
    assert created(Cron("0 9 * * *", "Europe/Paris")).zone_data == recurrence.tzdata_version()


# Whatever happens


class Downtime(msgspec.Struct, frozen=True):
    """A tick after a pause of this many seconds; `live` is whether an earlier run is still going."""

    seconds: int
    live: bool
    jumped: bool


TIMINGS: list[Timing] = [
    HOURLY,
    Interval(timedelta(minutes=7)),
    Interval(SECOND * 10, NOON - SECOND * 3),
    Cron("*/20 * * * *", "Europe/Berlin"),
    Cron("30 2 * * *", "America/New_York"),
    Once(NOON + HOUR),
    RRule("FREQ=HOURLY;INTERVAL=5;COUNT=40", NOON, "UTC"),
]
DOWNTIMES = st.lists(
    st.builds(
        Downtime,
        st.one_of(st.integers(0, 120), st.integers(0, 7200), st.integers(0, 400_000)),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    timing=st.sampled_from(TIMINGS),
    downtimes=DOWNTIMES,
    policy=st.sampled_from(list(MissedRunPolicy)),
    overlap=st.sampled_from(list(OverlapPolicy)),
    max_runs=st.one_of(st.none(), st.integers(1, 150)),
    jitter=st.sampled_from([0, 5, 4000]),
    grace=st.sampled_from([None, 0, 60, 900]),
    window=st.sampled_from([0, 3600, 10**7]),
    end=st.one_of(st.none(), st.integers(3600, 10**6)),
)
def test_every_expected_time_ends_as_exactly_one_fire_or_skip(
    timing: Timing,
    downtimes: list[Downtime],
    policy: MissedRunPolicy,
    overlap: OverlapPolicy,
    max_runs: int | None,
    jitter: int,
    grace: int | None,
    window: int,
    end: int | None,
) -> None:
    birth = datetime(2026, 3, 7, 12, tzinfo=UTC) if timing == TIMINGS[4] else NOON
    schedule = created(
        timing,
        birth,
        missed_run_policy=policy,
        overlap_policy=overlap,
        max_runs=max_runs,
        jitter=jitter,
        misfire_grace=grace,
        catch_up_window=window,
        end_at=None if end is None else birth + DAY + SECOND * end,
    )
    now, fires, rows, last = birth, 0, [], birth
    for downtime in downtimes:
        now += SECOND * downtime.seconds
        for _ in range(6):  # the batches of a long catch-up; what is left waits for the next downtime
            if not schedule.is_due(now):
                break
            decision = decide(schedule, now, [live_task()] if downtime.live else [], jumped=downtime.jumped)
            new = [fire for fire in (*decision.fires, *decision.buffers) if not fire.has_waited]
            times = [(fire.scheduled_at, fire.scheduled_at, 1) for fire in new]
            times += [
                (skip.scheduled_at, skip.until or skip.scheduled_at, skip.count) for skip in decision.skips
            ]
            if not times:
                assert policy is MissedRunPolicy.CATCH_UP, "a tick that is due makes progress"
                assert len(schedule.buffered) == 100, "or those that are asked for find no place in line"
                assert decision.schedule.buffered == schedule.buffered
                schedule = decision.schedule
                break
            assert len(decision.fires) <= tick.FIRES_PER_DECISION
            assert fired(decision) == sorted(fired(decision)), "oldest first"
            rows += times
            fires += len(new)
            assert len(set(decision.schedule.buffered)) == len(decision.schedule.buffered) <= 100
            schedule, last = decision.schedule, max(until for _, until, _ in times)
            assert schedule.run_count == fires
            assert max_runs is None or fires <= max_runs
            assert schedule.next_run_at is None or schedule.next_run_at > last
    expected = list(recurrence.between(schedule.timing, birth, last, end_at=schedule.end_at))
    covered: list[datetime] = []
    for first, until, count in rows:
        stretch = expected[bisect_left(expected, first) : bisect_right(expected, until)]
        assert len(stretch) == count
        covered += stretch
    assert sorted(covered) == expected, "up to the last that was decided, each once"
    if schedule.status is ScheduleStatus.ACTIVE:
        assert schedule.next_run_at == schedule.next_occurrence(last), (
            "and nothing is left out before the next"
        )
    else:
        assert schedule.completed_reason


# What the tenant allows


def test_without_room_the_due_time_is_skipped_and_the_schedule_moves_on() -> None:
    schedule = created(max_runs=1)
    decision = decide(schedule, NOON, [], room=0)
    assert decision.fires == ()
    assert decision.skips == (Skip(NOON, RunReason.LIMIT),)
    assert (decision.schedule.run_count, decision.schedule.last_run_at) == (0, None)
    assert decision.schedule.status is ScheduleStatus.ACTIVE
    assert decision.schedule.next_run_at == NOON + HOUR


def test_the_first_ones_get_the_room_that_there_is() -> None:
    schedule = created(missed_run_policy="catch_up", overlap_policy="allow")
    decision = decide(schedule, NOON + 3 * HOUR, [], room=2)
    assert [fire.scheduled_at for fire in decision.fires] == hours(0, 1)
    assert [(skip.scheduled_at, skip.reason) for skip in decision.skips] == [
        (at, RunReason.LIMIT) for at in hours(2, 3)
    ]
    assert decision.schedule.run_count == 2


def test_what_cannot_be_replaced_is_not_cancelled() -> None:
    schedule = created(overlap_policy="cancel_previous")
    assert decide(schedule, NOON, [live_task()], room=1).cancels != ()
    assert decide(schedule, NOON, [live_task()], room=0).cancels == ()


def test_a_suspended_tenants_times_are_skipped_whatever_the_policies_say() -> None:
    for policy in MissedRunPolicy:
        schedule = created(missed_run_policy=policy, overlap_policy="allow")
        decision = tick.turned_away(schedule, NOON + 2 * HOUR)
        assert decision.fires == ()
        assert [(skip.scheduled_at, skip.reason) for skip in decision.skips] == [
            (at, RunReason.SUSPENDED) for at in hours(0, 1, 2)
        ]
        assert decision.schedule.next_run_at == NOON + 3 * HOUR
        assert decision.schedule.run_count == 0


def test_a_long_suspension_is_one_row() -> None:
    decision = tick.turned_away(created(), NOON + 500 * HOUR)
    assert decision.skips == (Skip(NOON, RunReason.SUSPENDED, NOON + 500 * HOUR, 501),)


def test_a_suspended_tenants_only_time_completes_the_schedule() -> None:
    decision = tick.turned_away(created(Once(NOON)), NOON)
    assert decision.skips == (Skip(NOON, RunReason.SUSPENDED),)
    assert decision.schedule.status is ScheduleStatus.COMPLETED


def test_what_is_not_due_is_left_alone() -> None:
    schedule = created()
    assert tick.turned_away(schedule, NOON - SECOND).schedule is schedule
