"""The rules of alarms, each in a table: what the ledger says, and whether that is an alarm."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from records import run, schedule, task
from rota.domain import alarm
from rota.domain.alarm import Facts, Verdict
from rota.domain.errors import Invalid
from rota.domain.model import (
    Alarm,
    AlarmRule,
    AlarmRules,
    Run,
    RunReason,
    RunStatus,
    RunTrigger,
    Schedule,
    ScheduleStatus,
    TaskStatus,
    TaskTarget,
    Watch,
)
from rota.domain.recurrence import Interval, Once
from rota.domain.schedule import watching
from stores import START

SECOND, MINUTE, HOUR, DAY = (timedelta(**{name: 1}) for name in ("seconds", "minutes", "hours", "days"))
NOON = START
"""Every hour, on the hour: the next time is NOON + HOUR unless a case says otherwise."""


def hourly(**values: Any) -> Schedule:
    first = values.pop("next_run_at", NOON + HOUR)
    defaults: dict[str, Any] = {
        "id": "s1",
        "key": "report",
        "timing": Interval(HOUR, NOON - DAY),
        "status": ScheduleStatus.ACTIVE,
        "next_run_at": first,
        "due_at": first,
        "created_at": NOON - 10 * HOUR,
        "watch": Watch(at=NOON, since=NOON - 10 * HOUR),
        "version": 3,
    }
    return schedule(**(defaults | values))


def row(hours_ago: float, status: RunStatus = RunStatus.COMPLETED, **values: Any) -> Run:
    at = NOON - hours_ago * HOUR
    ended = None if status is RunStatus.RUNNING else at + MINUTE
    defaults = {"schedule_id": "s1", "scheduled_at": at, "started_at": at, "status": status}
    return run(f"r{at:%H%M}", **(defaults | {"completed_at": ended, "target_id": f"t{at:%H%M}"} | values))


def rows(*ended: str) -> list[Run]:
    """The latest rows, latest first: c(ompleted), f(ailed), s(kipped: missed), o(verlap), x (cancelled)."""
    known: dict[str, dict[str, Any]] = {
        "c": {"status": RunStatus.COMPLETED},
        "f": {"status": RunStatus.FAILED, "error": "Boom"},
        "s": {"status": RunStatus.SKIPPED, "reason": RunReason.MISSED},
        "o": {"status": RunStatus.SKIPPED, "reason": RunReason.OVERLAP},
        "x": {"status": RunStatus.CANCELLED},
    }
    return [row(n, **known[letter]) for n, letter in enumerate(ended)]


def judge(facts: Facts, *known: Alarm, now: datetime = NOON, is_overdue: bool = False) -> Verdict:
    return alarm.evaluate(facts, known, now, is_overdue=is_overdue)


def found(facts: Facts, now: datetime = NOON, *, is_overdue: bool = False) -> set[str]:
    return {str(each.rule) for each in judge(facts, now=now, is_overdue=is_overdue).alarms}


def facts(runs: list[Run], own: Schedule | None = None, **rules: Any) -> Facts:
    """`kept` is zero unless a case is about rows that are missing."""
    live, kept = rules.pop("live", ()), rules.pop("kept", timedelta(0))
    return Facts(schedule=own or hourly(), rules=AlarmRules(**rules), runs=runs, live=live, kept=kept)


def waiting(minutes: float, **values: Any) -> Any:
    at = NOON - minutes * MINUTE
    return task("t1", schedule_id="s1", created_at=at, available_at=at, **values)


CASES: list[tuple[str, Facts, datetime, set[str]]] = [
    ("a healthy one has none", facts(rows(*"cccc")), NOON, set()),
    ("late: due and not started", facts(rows("c"), alarm_late=MINUTE), NOON + HOUR + 61 * SECOND, {"late"}),
    ("late: just in time", facts(rows("c"), alarm_late=MINUTE), NOON + HOUR + MINUTE, set()),
    ("late: the last time was missed", facts(rows(*"sc"), alarm_late=MINUTE), NOON, {"late"}),
    ("late: not asked for", facts(rows(*"sc")), NOON, set()),
    (
        "late: it started late",
        facts([row(0, started_at=NOON + 5 * MINUTE)], alarm_late=MINUTE),
        NOON + 6 * MINUTE,
        {"late"},
    ),
    (
        "late: spread on purpose",
        facts([row(0, started_at=NOON + 5 * MINUTE)], hourly(jitter=10 * MINUTE), alarm_late=MINUTE),
        NOON + 6 * MINUTE,
        set(),
    ),
    ("late: nobody takes its task", facts([], live=[waiting(3)], alarm_late=MINUTE), NOON, {"late"}),
    ("late: it waits for its retry", facts([], live=[waiting(3, attempt=1)], alarm_late=MINUTE), NOON, set()),
    (
        "late: by hand does not count",
        facts([row(0, started_at=NOON + HOUR, trigger=RunTrigger.MANUAL), row(1)], alarm_late=MINUTE),
        NOON,
        set(),
    ),
    ("no success: three times, by default", facts(rows(*"ffsc")), NOON, {"no_success"}),
    ("no success: two times are not three", facts(rows(*"ffc")), NOON, set()),
    ("no success: cancelled is none", facts(rows(*"xxoc")), NOON, {"no_success"}),
    ("no success: a stretch counts each", facts([row(0, RunStatus.SKIPPED, count=3)]), NOON, {"no_success"}),
    ("no success: one still runs", facts([row(0, RunStatus.RUNNING), *rows("c")]), NOON, {"stuck_run"}),
    ("no success: off", facts(rows(*"ffff"), alarm_no_success=timedelta(0)), NOON, set()),
    ("no success: for as long as is asked", facts(rows(*"ffc"), alarm_no_success=HOUR), NOON, {"no_success"}),
    ("no success: not yet so long", facts(rows(*"ffc"), alarm_no_success=3 * HOUR), NOON, set()),
    (
        "no success: times before it was resumed do not count",
        facts(rows(*"ffff"), hourly(watch=Watch(at=NOON, since=NOON - 90 * MINUTE))),
        NOON,
        set(),
    ),
    (
        "no success: times without a row count",
        facts(rows(*"fc"), hourly(next_run_at=NOON + HOUR)),
        NOON + 2 * HOUR + 2 * MINUTE,
        {"no_success"},
    ),
    (
        "no success: a time that is just due does not",
        facts(rows(*"ffc"), hourly(next_run_at=NOON + HOUR)),
        NOON + HOUR,
        set(),
    ),
    (
        "no success: a time that comes once is not waited for",
        facts(rows(*"fff"), hourly(timing=Once(NOON))),
        NOON,
        set(),
    ),
    ("failures: as many as asked", facts(rows(*"ffc"), alarm_failures=2), NOON, {"failures"}),
    ("failures: one less", facts(rows(*"fcf"), alarm_failures=2), NOON, set()),
    ("failures: skips in between", facts(rows(*"fofc"), alarm_failures=2), NOON, {"failures", "no_success"}),
    ("duration: too long", facts([], live=[waiting(61)], alarm_duration=HOUR), NOON, {"duration"}),
    ("duration: not yet", facts([], live=[waiting(59)], alarm_duration=HOUR), NOON, set()),
    ("ending: soon", facts([], hourly(end_at=NOON + DAY), alarm_ending=2 * DAY), NOON, {"ending"}),
    ("ending: not soon", facts([], hourly(end_at=NOON + 3 * DAY), alarm_ending=2 * DAY), NOON, set()),
    ("ending: by its number", facts([], hourly(max_runs=5, run_count=3), alarm_ending=DAY), NOON, {"ending"}),
    ("ending: many are left", facts([], hourly(max_runs=50, run_count=3), alarm_ending=DAY), NOON, set()),
    ("missing row: a gap", facts([row(0), row(2), row(3)], kept=7 * HOUR), NOON + HOUR / 2, {"missing_row"}),
    (
        "missing row: a stretch covers it",
        facts([row(0), row(3, until=NOON - HOUR)], kept=7 * HOUR),
        NOON,
        set(),
    ),
    ("paused: nothing", facts(rows(*"ffff"), hourly(status=ScheduleStatus.PAUSED)), NOON, set()),
    ("deleted: nothing", facts(rows(*"ffff"), hourly(deleted_at=NOON)), NOON, set()),
]


@pytest.mark.parametrize(
    ("known", "now", "rules"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_rules(known: Facts, now: datetime, rules: set[str]) -> None:
    assert found(known, now) == rules


def test_overdue_needs_a_scan_that_saw_it_twice() -> None:
    late = facts(rows("c"))
    at = NOON + HOUR + 61 * SECOND
    assert found(late, at, is_overdue=True) == {"overdue"}
    assert found(late, at) == set()
    assert found(late, NOON + HOUR + 59 * SECOND, is_overdue=True) == set()


def test_a_row_whose_task_has_ended_is_stuck() -> None:
    running = row(0, RunStatus.RUNNING, target_id="t1")
    for known, is_stuck in (
        ({"t1": waiting(0)}, False),
        ({"t1": waiting(0, status=TaskStatus.FAILED)}, True),
        ({}, True),
    ):
        judged = judge(
            Facts(schedule=hourly(), rules=AlarmRules(), runs=[running, *rows("c")[1:]], tasks=known)
        )
        assert (AlarmRule.STUCK_RUN in {each.rule for each in judged.alarms}) is is_stuck


def test_an_alarm_begins_goes_on_and_is_over() -> None:
    wrong, well = facts(rows(*"ffc"), alarm_failures=2), facts(rows(*"cffc"), alarm_failures=2)
    [began] = judge(wrong).alarms
    assert (began.rule, began.subject, began.version, began.is_open) == (
        AlarmRule.FAILURES,
        "report",
        0,
        True,
    )
    assert "Boom" in began.detail
    assert began.tell_at == began.began_at == NOON
    assert judge(wrong).alarms == [began]  # whoever looks raises the same
    stored = replace(began, version=1)
    assert judge(wrong, stored, now=NOON + MINUTE).alarms == []
    [over] = judge(well, stored, now=NOON + HOUR).alarms
    assert (over.id, over.over_at, over.tell_at) == (began.id, NOON + HOUR, NOON + HOUR)
    [again] = judge(facts(rows(*"ffc"), hourly(version=9), alarm_failures=2)).alarms
    assert again.id != began.id


LOOKS: list[tuple[str, Facts, timedelta | None]] = [
    ("after three times, and a minute", facts(rows("c")), 3 * HOUR + MINUTE),
    ("one has passed without a success", facts(rows(*"fc")), 2 * HOUR + MINUTE),
    ("no success for as long", facts(rows("c"), alarm_no_success=5 * HOUR), 5 * HOUR + MINUTE),
    ("late after its next time", facts(rows("c"), alarm_late=MINUTE), HOUR + MINUTE),
    ("a run may take too long", facts([], live=[waiting(10)], alarm_duration=HOUR), 50 * MINUTE),
    ("nothing to look for", facts([], alarm_no_success=timedelta(0)), None),
    ("paused", facts([], hourly(status=ScheduleStatus.PAUSED)), None),
    (
        "the end comes near",
        facts([], hourly(max_runs=5, run_count=0), alarm_ending=HOUR, alarm_no_success=timedelta(0)),
        4 * HOUR,
    ),
]


@pytest.mark.parametrize(("known", "after"), [case[1:] for case in LOOKS], ids=[case[0] for case in LOOKS])
def test_the_next_look_is_when_a_rule_could_trip(known: Facts, after: timedelta | None) -> None:
    watch = judge(known).schedule.watch
    assert watch is not None
    at = None if watch.at is None else watch.at - timedelta(milliseconds=1) * (watch.at.microsecond > 0)
    assert at == (None if after is None else NOON + after)


def test_while_it_goes_on_it_is_looked_at_soon() -> None:
    assert judge(facts(rows(*"ffc"), alarm_failures=2)).schedule.watch_at == NOON + 30 * SECOND


def test_its_own_rules_come_before_those_of_its_tags() -> None:
    tagged = hourly(target=TaskTarget(kind="send", tags=("money", "night")), alarm_late=MINUTE)
    of_tags = {
        "night": AlarmRules(alarm_late=HOUR, alarm_failures=5),
        "money": AlarmRules(alarm_failures=1),
        "other": AlarmRules(alarm_duration=HOUR),
    }
    assert alarm.rules_of(tagged, of_tags) == AlarmRules(alarm_late=MINUTE, alarm_failures=1)


def test_rules_of_a_tag_are_checked() -> None:
    assert alarm.checked_rules({"alarm_late": "5m"}) == AlarmRules(alarm_late=5 * MINUTE)
    with pytest.raises(Invalid, match="alarm_failures: 0"):
        alarm.checked_rules({"alarm_failures": 0})
    with pytest.raises(Invalid, match="there is no such option"):
        alarm.checked_rules({"late": 5})
    with pytest.raises(Invalid, match="none is given"):
        alarm.checked_rules({})


def test_who_changes_a_schedule_moves_its_next_look() -> None:
    asked = AlarmRules(alarm_duration=MINUTE, alarm_failures=2)
    watched = hourly(watch=Watch(at=NOON + DAY, since=NOON, rules=asked))
    assert watching.started(watched, NOON).watch_at == NOON + MINUTE
    assert watching.with_failure(watched, NOON).watch_at == NOON
    assert watching.look_soon(watched, NOON).watch_at == NOON
    plain = hourly(watch=Watch(at=NOON + DAY, since=NOON))
    assert watching.started(plain, NOON) is plain
    assert watching.with_failure(plain, NOON) is plain


def test_who_was_told_of_an_alarm_is_told_that_it_is_over() -> None:
    failing = judge(facts(rows(*"ff"), alarm_failures=2))
    known = [replace(each, told=("mail",), told_at=NOON, tell_at=None, tries=3) for each in failing.alarms]
    [over] = judge(facts(rows(*"cff"), alarm_failures=2), *known, now=NOON + MINUTE).alarms
    assert (over.over_at, over.tell_at, over.told, over.tries) == (NOON + MINUTE, NOON + MINUTE, (), 0)
