"""What people do to a schedule, and every sentence that they get back when it cannot be done."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rota.domain.errors import Invalid, Refused
from rota.domain.model import (
    Limits,
    MissedRunPolicy,
    OverlapPolicy,
    Schedule,
    ScheduleStatus,
    TaskTarget,
    TemplateTarget,
    WorkflowTarget,
)
from rota.domain.recurrence import Cron, Interval, Once, RRule, Timing
from rota.domain.schedule import decide, definition, planned

NOON = datetime(2026, 1, 28, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HOURLY = Cron("0 * * * *")
ACTIVE, PAUSED, DRAFT, COMPLETED = (
    ScheduleStatus.ACTIVE,
    ScheduleStatus.PAUSED,
    ScheduleStatus.DRAFT,
    ScheduleStatus.COMPLETED,
)


def untyped(call: Any, *given: Any, **named: Any) -> Any:
    """The answer to a caller whose program has no types."""
    return call(*given, **named)


def create(
    timing: Any = HOURLY,
    target: Any = None,
    *,
    key: Any = "report",
    now: datetime = NOON,
    limits: Limits | None = None,
    **fields: Any,
) -> Schedule:
    return definition.create(
        "s1",
        key,
        timing,
        TaskTarget(kind="send") if target is None else target,
        fields,
        tenant="default",
        now=now,
        actor="ann",
        limits=limits or Limits(),
    )


def edit(schedule: Schedule, now: datetime = NOON + MINUTE, **changes: Any) -> Schedule:
    return definition.edit(schedule, changes, now, "bob", Limits())


def completed() -> Schedule:
    """A one-time schedule that has fired."""
    return decide(create(Once(NOON + SECOND)), NOON + SECOND, []).schedule


def used_up() -> Schedule:
    """One that has run as often as it may."""
    return decide(create(max_runs=1), NOON + HOUR, []).schedule


# Creating


@pytest.mark.parametrize(
    ("timing", "fields", "first"),
    [
        (HOURLY, {}, NOON + HOUR),
        (Cron("* * * * * *"), {}, NOON + SECOND),
        (Interval(MINUTE * 10), {}, NOON + MINUTE * 10),
        (Interval(HOUR, NOON - MINUTE * 50), {}, NOON + MINUTE * 10),
        (Interval(HOUR, NOON), {}, NOON + HOUR),
        (Interval(HOUR), {"start_at": NOON + MINUTE * 5}, NOON + MINUTE * 5),
        (Interval(HOUR), {"start_at": NOON - MINUTE * 5}, NOON + MINUTE * 55),
        (HOURLY, {"start_at": NOON + DAY}, NOON + DAY),
        (HOURLY, {"start_at": NOON + DAY + SECOND}, NOON + DAY + HOUR),
        (Once(NOON + SECOND), {}, NOON + SECOND),
        (RRule("FREQ=DAILY", NOON - DAY, "UTC"), {}, NOON + DAY),
        (RRule("FREQ=DAILY", NOON + HOUR, "UTC"), {}, NOON + HOUR),
        (Cron("0 9 * * *", "America/New_York"), {}, datetime(2026, 1, 28, 14, tzinfo=UTC)),
    ],
    ids=str,
)
def test_it_first_fires_at_its_first_time_after_creation(
    timing: Timing, fields: dict[str, Any], first: datetime
) -> None:
    schedule = create(timing, **fields)
    assert (schedule.next_run_at, schedule.due_at) == (first, first)
    assert not schedule.is_due(NOON)
    assert decide(schedule, NOON, []).fires == (), "never at once"


def test_what_a_new_schedule_is() -> None:
    schedule = create()
    assert (schedule.status, schedule.enabled, schedule.run_count) == (ACTIVE, True, 0)
    assert (schedule.last_run_at, schedule.max_runs, schedule.deleted_at) == (None, None, None)
    assert (schedule.created_by, schedule.updated_by, schedule.created_at) == ("ann", "ann", NOON)
    assert (schedule.key, schedule.schedule_id, schedule.name) == ("report", "report", "report")
    assert (schedule.missed_run_policy, schedule.overlap_policy) == (MissedRunPolicy.SKIP, OverlapPolicy.SKIP)
    assert schedule.misfire_grace is None, "as long as the distance to the next time, up to a minute"


@pytest.mark.parametrize("fraction", [0, 1, 500_000, 999_999])
@pytest.mark.parametrize("every", [SECOND, SECOND * 7, HOUR])
def test_the_first_time_is_never_sooner_than_one_interval_after_creation(
    every: timedelta, fraction: int
) -> None:
    now = NOON + timedelta(microseconds=fraction)
    new = definition.create(
        "s1",
        "quick",
        Interval(every),
        TaskTarget(kind="send"),
        {},
        tenant="default",
        now=now,
        actor="ann",
        limits=Limits(),
    )
    assert new.next_run_at is not None
    assert now + every <= new.next_run_at < now + every + SECOND
    assert new.next_run_at.microsecond == 0


def test_an_interval_is_anchored_where_it_begins() -> None:
    assert create(Interval(HOUR)).timing == Interval(HOUR, NOON)
    assert create(Interval(HOUR), start_at=NOON + DAY).timing == Interval(HOUR, NOON + DAY)
    assert create(Interval(HOUR, NOON - SECOND)).timing == Interval(HOUR, NOON - SECOND)


@pytest.mark.parametrize(
    ("timing", "fields", "policy"),
    [
        (HOURLY, {}, "skip"),
        (Once(NOON + HOUR), {}, "execute_once"),
        (Once(NOON + HOUR), {"missed_run_policy": "skip"}, "skip"),
        (Once(NOON + HOUR), {"missed_run_policy": MissedRunPolicy.CATCH_UP}, "catch_up"),
        (HOURLY, {"missed_run_policy": "execute_once"}, "execute_once"),
    ],
    ids=str,
)
def test_once_is_better_late_than_never_unless_told_otherwise(
    timing: Timing, fields: dict[str, Any], policy: str
) -> None:
    assert create(timing, **fields).missed_run_policy == policy


@pytest.mark.parametrize(("status", "stored"), [("draft", DRAFT), ("paused", PAUSED), ("inactive", PAUSED)])
def test_it_may_begin_at_rest(status: str, stored: ScheduleStatus) -> None:
    schedule = create(status=status)
    assert (schedule.status, schedule.next_run_at, schedule.due_at) == (stored, None, None)
    assert definition.resume(schedule, NOON + MINUTE, "bob").next_run_at == NOON + HOUR


@pytest.mark.parametrize(("given", "stored"), [(0, None), (None, None), (1, 1), (30, 30)])
def test_no_max_runs_is_unlimited(given: int | None, stored: int | None) -> None:
    assert create(max_runs=given).max_runs == stored


@pytest.mark.parametrize("ago", [timedelta(0), SECOND, SECOND * 5])
def test_a_run_at_that_has_only_just_passed_is_accepted(ago: timedelta) -> None:
    schedule = create(Once(NOON - ago))
    assert schedule.next_run_at == NOON - ago
    assert schedule.is_due(NOON)


def test_values_are_kept_in_their_stored_form() -> None:
    east = datetime.fromisoformat("2026-01-29T02:00:00+02:00")
    schedule = create(
        Once(east),
        untyped(TaskTarget, kind="send", ttl=60, timeout=1.5, input=(1, 2), tags=["a", "a"]),
        start_at=NOON,
        end_at=east,
        misfire_grace=30,
        catch_up_window=3600,
        jitter=0.5,
        overlap_policy="allow",
        pause_on_failure=True,
    )
    assert isinstance(schedule.timing, Once)
    assert schedule.timing.run_at.isoformat() == "2026-01-29T00:00:00+00:00"
    assert schedule.target == TaskTarget(
        kind="send", ttl=MINUTE, timeout=SECOND * 1.5, input=[1, 2], tags=("a",)
    )
    assert (schedule.misfire_grace, schedule.catch_up_window) == (SECOND * 30, HOUR)
    assert (schedule.jitter, schedule.overlap_policy) == (SECOND / 2, OverlapPolicy.ALLOW)
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


# Wrong input: one sentence that names the field, what was wrong, and what is accepted

LONG = "x" * 300
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"key": ""}, "schedule_id: '' is not a valid name; accepted are 1 to 255 printable characters"),
    ({"key": LONG}, "schedule_id: 'xxx"),
    ({"key": None}, "schedule_id: None is not a text; accepted are 1 to 255 characters"),
    ({"timing": Cron("61 * * * *")}, "cron: "),
    ({"timing": Cron("")}, "cron: "),
    ({"timing": Cron("* * *")}, "cron: "),
    ({"timing": Cron("0 0 30 2 *")}, "cron: "),
    ({"timing": Cron("@fortnightly")}, "cron: macro '@fortnightly' is not known; accepted are "),
    ({"timing": untyped(Cron, 5)}, "cron: 5 is not a text; accepted are texts"),
    ({"timing": untyped(Cron, ["0 9 * * *"])}, "cron: ['0 9 * * *'] is not a text"),
    ({"timing": Cron("\ud800 * * * *")}, "cron: it holds a character that UTF-8 cannot carry"),
    ({"timing": Cron("0 9 * * *", "Europe/Pariss")}, "timezone: 'Europe/Pariss' is not a known time zone; "),
    ({"timing": untyped(Cron, "0 9 * * *", None)}, "timezone: None is not a text"),
    ({"timing": Cron("0 9 * * *", "../etc/passwd")}, "timezone: '../etc/passwd' is not a known time zone; "),
    ({"timing": RRule("FREQ=OFTEN", NOON)}, "rrule: FREQ "),
    ({"timing": RRule("", NOON)}, "rrule: the rule is empty; accepted is "),
    (
        {"timing": RRule("FREQ=DAILY", NOON.replace(tzinfo=None))},
        "dtstart: datetime.datetime(2026, 1, 28, 12",
    ),
    (
        {"timing": RRule("FREQ=DAILY", NOON, "Mars/Olympus")},
        "timezone: 'Mars/Olympus' is not a known time zone",
    ),
    (
        {"timing": RRule("FREQ=DAILY;UNTIL=20250101T000000Z", NOON - DAY * 500)},
        "rrule: this schedule would never",
    ),
    ({"timing": Interval(timedelta(0))}, "interval: 0 s is too short; the least is 1 s"),
    ({"timing": Interval(-HOUR)}, "interval: -3600 s is too short; the least is 1 s"),
    ({"timing": Interval(SECOND / 2)}, "interval: 0.5 s is too short; the least is 1 s"),
    ({"timing": untyped(Interval, "soon")}, "interval: 'soon' is not a duration; accepted are"),
    ({"timing": untyped(Interval, HOUR, "noon")}, "anchor: 'noon' is not a time; give a datetime"),
    (
        {"timing": Once(NOON - SECOND * 6)},
        "run_at: 2026-01-28T11:59:54+00:00 has passed; give a time in the future",
    ),
    ({"timing": untyped(Once, "tomorrow")}, "run_at: 'tomorrow' is not a time; give a datetime"),
    (
        {"timing": Once(NOON + DAY), "end_at": NOON + HOUR},
        "run_at: this schedule would never fire, because its next",
    ),
    (
        {"timing": Once(NOON + DAY), "start_at": NOON + DAY * 2},
        "run_at: this schedule would never fire, because its",
    ),
    (
        {"timing": HOURLY, "end_at": NOON + MINUTE},
        "cron: this schedule would never fire, because its next time would",
    ),
    (
        {"timing": "0 9 * * *"},
        "timing: '0 9 * * *' is not a timing; accepted are Once, Interval, Cron, RRule, Several and After",
    ),
    ({"timing": None}, "timing: None is not a timing"),
    (
        {"start_at": NOON + DAY, "end_at": NOON + HOUR},
        "end_at: 2026-01-28T13:00:00+00:00 is before start_at; give ",
    ),
    ({"end_at": NOON}, "end_at: 2026-01-28T12:00:00+00:00 has passed; give a time in the future"),
    ({"end_at": "never"}, "end_at: 'never' is not a time; give a datetime with a time zone"),
    (
        {"start_at": datetime(2026, 1, 1)},
        "start_at: datetime.datetime(2026, 1, 1, 0, 0) is not a time; give ",
    ),
    ({"max_runs": -1}, "max_runs: -1 is not accepted; give a whole number from 0 to "),
    ({"max_runs": 1.5}, "max_runs: 1.5 is not accepted; give a whole number"),
    ({"max_runs": 10**30}, "max_runs: 1000000000000000000000000000000 is not accepted; give a whole number"),
    (
        {"missed_run_policy": "retry"},
        "missed_run_policy: 'retry' is not known; accepted are skip, execute_once, ",
    ),
    ({"missed_run_policy": None}, "missed_run_policy: None is not known; accepted are "),
    (
        {"overlap_policy": "queue"},
        "overlap_policy: 'queue' is not known; accepted are skip, allow, buffer_one, buffer_all, cancel_previous,"
        " terminate_previous",
    ),
    ({"status": "on"}, "status: 'on' is not known; accepted are draft, active, paused, completed"),
    (
        {"status": "completed"},
        "status: a new schedule cannot be completed; accepted are draft, active and paused",
    ),
    ({"misfire_grace": -1}, "misfire_grace: -1 s is too short; it must not be negative"),
    (
        {"misfire_grace": "1 min"},
        "misfire_grace: '1 min' is not a duration; accepted are whole numbers with ms, s, m, h, d or w",
    ),
    ({"catch_up_window": None}, "catch_up_window: None is not a duration; give "),
    ({"jitter": math.nan}, "jitter: nan s is not accepted; give a number of seconds"),
    ({"description": 5}, "description: 5 is not a text; accepted are texts of up to 10,000 characters"),
    ({"description": "x" * 10_001}, "description: 10,001 characters are too many; the most is 10,000"),
    (
        {"description": "\ud800"},
        "description: it holds a character that UTF-8 cannot carry; give valid Unicode",
    ),
    ({"pause_note": ["no"]}, "pause_note: ['no'] is not a text; accepted are texts"),
    (
        {"pause_on_failure": "yes"},
        "pause_on_failure: 'yes' is not accepted; give a whole number from 0 to 100",
    ),
    ({"metadata": {"a": {"b": {"c": {}}}}}, "metadata: it is 4 levels deep; the most is 3 levels"),
    ({"metadata": {f"k{n}": n for n in range(101)}}, "metadata: it has 101 keys; the most is 100 keys"),
    (
        {"colour": "red"},
        "colour: a schedule has no such field; accepted are alarm_duration, alarm_ending, ",
    ),
    ({"run_count": 5}, "run_count: a schedule has no such field; accepted are "),
    (
        {"target": "send"},
        "target: 'send' is not a target; accepted are TaskTarget, WorkflowTarget and TemplateTarget",
    ),
    (
        {"target": TaskTarget(kind="a b")},
        "task_type: 'a b' is not a valid name; accepted are 1 to 255 letters",
    ),
    ({"target": TaskTarget(kind="a", queue="")}, "queue: '' is not a valid name; accepted are "),
    (
        {"target": TaskTarget(kind="a", priority=999)},
        "priority: 999 is not accepted; give a whole number from 0 to",
    ),
    (
        {"target": TaskTarget(kind="a", max_retries=-1)},
        "max_retries: -1 is not accepted; give a whole number from 0",
    ),
    ({"target": TaskTarget(kind="a", ttl=-SECOND)}, "ttl: -1 s is too short; it must not be negative"),
    ({"target": TaskTarget(kind="a", timeout=SECOND * 0)}, "timeout: 0 s is too short; the least is 0.001 s"),
    (
        {"target": TaskTarget(kind="a", input={1, 2})},
        "input: a value of type set is not JSON; give texts, numbers",
    ),
    (
        {"target": TaskTarget(kind="a", input="x" * 2**20)},
        "input: 1,048,578 bytes are too many; the most is ",
    ),
    (
        {"target": TaskTarget(kind="a", metadata={"a": [[[1]]]})},
        "metadata: it is 4 levels deep; the most is 3",
    ),
    (
        {"target": untyped(TaskTarget, kind="a", tags="abc")},
        "tags: 'abc' is not a list; give a list of texts",
    ),
    ({"target": WorkflowTarget(kind="")}, "task_type: '' is not a valid name; accepted are "),
    ({"target": WorkflowTarget(kind="w", input=math.nan)}, "input: nan is not JSON; give finite numbers"),
    ({"target": TemplateTarget(template_id="")}, "template_id: '' is not a valid name; accepted are "),
    (
        {"target": TemplateTarget(template_id="t", input=[1])},
        "input: [1] cannot be laid over a template's parameters",
    ),
]


@pytest.mark.parametrize(("given", "sentence"), WRONG, ids=[text[:40] for _, text in WRONG])
def test_wrong_input_gets_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        create(**given)
    text = str(caught.value)
    assert text.startswith(sentence)
    assert caught.value.field == sentence.partition(":")[0]
    assert "; " in text, "it says what is accepted"
    assert "\n" not in text
    assert text.count(": ") <= 2
    assert not text.endswith(".")


WRONG_CHANGES = [case for case in WRONG if case[0].get("status") != "completed"]  # an old one can be set so


@pytest.mark.parametrize(("given", "sentence"), WRONG_CHANGES, ids=[text[:40] for _, text in WRONG_CHANGES])
def test_wrong_changes_get_the_same_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        edit(create(), NOON, **given)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("timing", "least", "problem"),
    [
        (Interval(SECOND * 30), MINUTE, "interval: it fires every 30 s; the least here is 60 s"),
        (Interval(MINUTE), MINUTE, None),
        (Cron("*/30 * * * * *"), MINUTE, "cron: it fires every 30 s; the least here is 60 s"),
        (Cron("* * * * *"), MINUTE, None),
        (Cron("* * * * *"), HOUR, "cron: it fires every 60 s; the least here is 3600 s"),
        (Cron("0,1 3 29 2 *"), MINUTE * 5, "cron: it fires every 60 s; the least here is 300 s"),
        (Cron("0 9 * * *"), HOUR, None),
        (RRule("FREQ=MINUTELY", NOON), HOUR, "rrule: it fires every 60 s; the least here is 3600 s"),
        (RRule("FREQ=DAILY;COUNT=1", NOON + HOUR), DAY, None),
        (Once(NOON + SECOND), DAY, None),
        (Interval(SECOND), SECOND, None),
    ],
    ids=str,
)
def test_a_tenant_has_a_minimum_interval(timing: Timing, least: timedelta, problem: str | None) -> None:
    limits = Limits(minimum_interval=least)
    if problem is None:
        assert create(timing, limits=limits).enabled
        return
    with pytest.raises(Invalid) as caught:
        create(timing, limits=limits)
    assert str(caught.value) == problem


def test_a_minimum_that_came_later_does_not_forbid_other_edits() -> None:
    schedule, strict = create(Interval(SECOND)), Limits(minimum_interval=HOUR)
    assert definition.edit(schedule, {"end_at": NOON + DAY}, NOON, "bob", strict).end_at == NOON + DAY
    with pytest.raises(Invalid, match="the least here is 3600 s"):
        definition.edit(schedule, {"timing": Interval(SECOND * 2)}, NOON, "bob", strict)


# Editing


def test_a_new_timing_is_computed_from_now_and_runs_nothing() -> None:
    late = NOON + HOUR * 5 + MINUTE * 30
    edited = edit(create(), late, timing=Cron("0 */2 * * *"))
    assert edited.next_run_at == NOON + HOUR * 6
    assert decide(edited, late, []).fires == ()
    assert (edited.updated_by, edited.updated_at) == ("bob", late)


@pytest.mark.parametrize(
    "changes",
    [
        {"description": "new"},
        {"overlap_policy": "allow"},
        {"missed_run_policy": "catch_up"},
        {"misfire_grace": 5},
        {"catch_up_window": 5},
        {"metadata": {"a": 1}},
        {"target": TaskTarget(kind="other")},
        {"key": "other"},
        {"pause_on_failure": True},
        {"max_runs": 5},
        {"max_runs": None},
    ],
    ids=str,
)
def test_what_does_not_say_when_moves_no_time(changes: dict[str, Any]) -> None:
    schedule, late = create(max_runs=9), NOON + HOUR * 5 + MINUTE
    edited = edit(schedule, late, **changes)
    assert edited.next_run_at == edited.due_at == NOON + HOUR, "still due, and the tick will see to it"
    assert edited != schedule


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"timing": HOURLY},
        {"status": "active"},
        {"max_runs": 0},
        {"end_at": None},
        {"target": TaskTarget(kind="send")},
        {"key": "report", "description": ""},
    ],
    ids=str,
)
def test_what_is_given_as_it_was_is_no_change(changes: dict[str, Any]) -> None:
    schedule = create()
    assert edit(schedule, NOON + HOUR * 5, **changes) is schedule


def test_what_python_calls_equal_may_still_be_a_change() -> None:
    schedule = create(target=TaskTarget(kind="send", input={"n": 1}))
    edited = edit(schedule, target=TaskTarget(kind="send", input={"n": True}))
    assert edited.target.input == {"n": True}
    assert edited.target.input["n"] is True


def test_an_interval_given_again_keeps_its_rhythm() -> None:
    schedule = create(Interval(HOUR))
    assert edit(schedule, NOON + MINUTE * 10, timing=Interval(HOUR)) is schedule
    assert edit(schedule, NOON + MINUTE * 10, timing=Interval(HOUR * 2)).next_run_at == NOON + MINUTE * 130
    assert (
        edit(schedule, NOON + MINUTE * 10, timing=Interval(HOUR, NOON + MINUTE)).next_run_at
        == NOON + MINUTE * 61
    )


def test_jitter_moves_the_due_time_and_not_the_nominal_one() -> None:
    edited = edit(create(), jitter=MINUTE * 30)
    assert edited.next_run_at == NOON + HOUR
    assert edited.due_at is not None
    assert NOON + HOUR < edited.due_at < NOON + HOUR + MINUTE * 30


def test_bounds_recompute_the_next_time() -> None:
    assert edit(create(), start_at=NOON + DAY).next_run_at == NOON + DAY
    schedule = create(start_at=NOON + DAY)
    assert edit(schedule, start_at=None).next_run_at == NOON + HOUR


def test_a_max_runs_that_is_already_reached_is_refused() -> None:
    schedule = decide(create(), NOON + HOUR, []).schedule
    with pytest.raises(
        Invalid, match=r"^max_runs: it has run 1 times already; give a higher number, or 0 for no"
    ):
        edit(schedule, max_runs=1)


@pytest.mark.parametrize(
    ("old", "policy", "new", "expected"),
    [
        (HOURLY, None, Once(NOON + DAY), "execute_once"),
        (HOURLY, "catch_up", Once(NOON + DAY), "catch_up"),
        (Once(NOON + HOUR), None, HOURLY, "skip"),
        (Once(NOON + HOUR), "catch_up", HOURLY, "catch_up"),
        (HOURLY, None, Cron("0 9 * * *"), "skip"),
    ],
    ids=str,
)
def test_the_default_policy_goes_with_the_kind_of_timing(
    old: Timing, policy: str | None, new: Timing, expected: str
) -> None:
    fields: dict[str, Any] = {} if policy is None else {"missed_run_policy": policy}
    assert edit(create(old, **fields), timing=new).missed_run_policy == expected
    assert edit(create(old), timing=new, missed_run_policy="catch_up").missed_run_policy == "catch_up"


# Pausing and resuming


def test_pausing_and_resuming() -> None:
    paused = definition.pause(create(), NOON + MINUTE, "bob", "too loud")
    assert (paused.status, paused.next_run_at, paused.due_at) == (PAUSED, None, None)
    assert (paused.pause_note, paused.updated_by, paused.enabled) == ("too loud", "bob", False)
    later = NOON + HOUR * 7 + MINUTE
    assert decide(paused, later, []).fires == ()
    resumed = definition.resume(paused, later, "eve")
    assert (resumed.status, resumed.pause_note, resumed.updated_by) == (ACTIVE, None, "eve")
    assert resumed.next_run_at == NOON + HOUR * 8, "from now: nothing is replayed"
    assert decide(resumed, later, []).fires == ()


def test_pausing_twice_changes_only_the_note() -> None:
    paused = definition.pause(create(), NOON, "bob", "first")
    assert definition.pause(paused, NOON + MINUTE, "eve") is paused
    assert definition.pause(paused, NOON + MINUTE, "eve", "first") is paused
    assert definition.pause(paused, NOON + MINUTE, "eve", "second").pause_note == "second"


def test_resuming_twice_is_once() -> None:
    schedule = create()
    assert definition.resume(schedule, NOON + HOUR * 9, "bob") is schedule


def test_resuming_after_its_last_time_completes_it() -> None:
    paused = definition.pause(create(Once(NOON + HOUR)), NOON, "bob")
    resumed = definition.resume(paused, NOON + HOUR * 2, "bob")
    assert (resumed.status, resumed.next_run_at) == (COMPLETED, None)
    assert resumed.completed_reason == "its timing has no further time"


def test_a_note_must_be_a_text() -> None:
    with pytest.raises(Invalid, match=r"^note: 5 is not a text; "):
        untyped(definition.pause, create(), NOON, "bob", 5)


@pytest.mark.parametrize(
    ("status", "expected"),
    [("paused", PAUSED), ("inactive", PAUSED), ("draft", DRAFT), ("completed", COMPLETED)],
)
def test_the_status_can_be_edited(status: str, expected: ScheduleStatus) -> None:
    edited = edit(create(), status=status)
    assert (edited.status, edited.next_run_at) == (expected, None)
    if expected is not COMPLETED:
        assert edit(edited, NOON + HOUR * 3, status="active").next_run_at == NOON + HOUR * 4
    else:
        assert edited.completed_reason == "set so by bob"


def test_a_paused_schedule_can_be_edited_and_stays_paused() -> None:
    paused = definition.pause(create(), NOON, "bob", "why")
    edited = edit(paused, timing=Cron("30 * * * *"), max_runs=3)
    assert (edited.status, edited.next_run_at, edited.pause_note) == (PAUSED, None, "why")
    assert edit(edited, NOON + MINUTE, status="active").next_run_at == NOON + MINUTE * 30


def test_pausing_with_a_note_in_one_edit() -> None:
    edited = edit(create(), status="paused", pause_note="holidays")
    assert (edited.status, edited.pause_note) == (PAUSED, "holidays")


# Completed


@pytest.mark.parametrize("make", [completed, used_up])
def test_a_completed_schedule_cannot_be_enabled_without_a_new_time(make: Any) -> None:
    schedule = make()
    assert schedule.status is COMPLETED
    sentence = "schedule report is completed; give it a new time or a higher max_runs to activate it"
    refused: tuple[Callable[[], object], ...] = (
        lambda: definition.resume(schedule, NOON + DAY, "bob"),
        lambda: definition.pause(schedule, NOON + DAY, "bob"),
        lambda: edit(schedule, status="active"),
        lambda: edit(schedule, status="active", description="x"),
    )
    for act in refused:
        with pytest.raises(Refused) as caught:
            act()
        assert caught.value.code == "completed_schedule"
        assert str(caught.value) == sentence


def test_one_that_was_set_to_completed_stays_so_without_a_new_time() -> None:
    schedule = edit(create(), status="completed")
    with pytest.raises(Refused):
        definition.resume(schedule, NOON + DAY, "bob")
    assert edit(schedule, jitter=5, description="x").status is COMPLETED


@pytest.mark.parametrize("status", [{}, {"status": "active"}, {"status": "completed"}], ids=str)
def test_a_new_time_makes_it_active_again(status: dict[str, Any]) -> None:
    edited = edit(completed(), timing=Once(NOON + DAY), **status)
    assert (edited.status, edited.next_run_at, edited.completed_reason) == (ACTIVE, NOON + DAY, None)


def test_more_runs_make_it_active_again() -> None:
    edited = edit(used_up(), NOON + HOUR * 5 + MINUTE, max_runs=2)
    assert (edited.status, edited.next_run_at, edited.run_count) == (ACTIVE, NOON + HOUR * 6, 1)


@pytest.mark.parametrize(("max_runs", "next_run_at"), [(3, NOON + HOUR), (0, NOON + 4 * HOUR)])
def test_what_waited_and_did_not_start_uses_up_no_run(max_runs: int, next_run_at: datetime) -> None:
    busy = replace(create(max_runs=max_runs), run_count=2, buffered=(NOON,))
    schedule = planned(replace(busy, run_count=3), NOON + 3 * HOUR)
    after = definition.uncounted(schedule, 1, NOON + MINUTE)
    assert (after.status, after.run_count, after.next_run_at) == (ACTIVE, 2, next_run_at)


def test_what_waited_when_it_was_deleted_uses_up_no_run() -> None:
    schedule = planned(replace(create(max_runs=2), run_count=2, buffered=(NOON,)), NOON)
    restored = definition.restore(definition.delete(schedule, NOON, "ann"), NOON + MINUTE, "ann")
    assert (restored.status, restored.run_count, restored.next_run_at) == (ACTIVE, 1, NOON + HOUR)


def test_one_that_was_completed_for_another_reason_stays_so() -> None:
    schedule = planned(replace(create(end_at=NOON + HOUR, max_runs=3), run_count=2), NOON + HOUR)
    after = definition.uncounted(schedule, 1, NOON + HOUR)
    assert after == replace(schedule, run_count=1)


def test_a_new_time_and_a_pause_in_one_edit() -> None:
    edited = edit(completed(), timing=Once(NOON + DAY), status="paused")
    assert (edited.status, edited.next_run_at) == (PAUSED, None)


def test_a_completed_schedule_can_be_renamed() -> None:
    assert edit(completed(), key="old-report", timing=Once(NOON + SECOND)).key == "old-report"


# Deleting and restoring


def test_deleting_hides_and_stops_it() -> None:
    gone = definition.delete(create(), NOON + MINUTE, "bob")
    assert (gone.deleted_at, gone.next_run_at, gone.due_at, gone.enabled) == (
        NOON + MINUTE,
        None,
        None,
        False,
    )
    assert decide(gone, NOON + DAY, []).fires == ()
    refused: tuple[Callable[[], object], ...] = (
        lambda: definition.delete(gone, NOON, "bob"),
        lambda: definition.pause(gone, NOON, "bob"),
        lambda: definition.resume(gone, NOON, "bob"),
        lambda: edit(gone, description="x"),
    )
    for act in refused:
        with pytest.raises(Refused, match="schedule report is deleted; restore it first"):
            act()


def test_restoring_goes_on_from_now() -> None:
    gone = definition.delete(create(), NOON + MINUTE, "bob")
    back = definition.restore(gone, NOON + HOUR * 5 + MINUTE, "eve")
    assert (back.deleted_at, back.status, back.next_run_at) == (None, ACTIVE, NOON + HOUR * 6)
    assert back.updated_by == "eve"


def test_restoring_keeps_a_pause() -> None:
    gone = definition.delete(definition.pause(create(), NOON, "bob", "why"), NOON, "bob")
    back = definition.restore(gone, NOON + HOUR, "eve")
    assert (back.status, back.pause_note, back.next_run_at) == (PAUSED, "why", None)


def test_restoring_after_its_last_time_completes_it() -> None:
    gone = definition.delete(create(Once(NOON + HOUR)), NOON, "bob")
    assert definition.restore(gone, NOON + HOUR * 2, "eve").status is COMPLETED


def test_only_what_is_deleted_can_be_restored() -> None:
    with pytest.raises(Refused, match="schedule report is not deleted, so there is nothing to restore"):
        definition.restore(create(), NOON, "bob")


# The audit's view


def test_facts_are_plain_data() -> None:
    facts = definition.as_facts(create(description="daily"))
    assert msgspec.json.decode(msgspec.json.encode(facts)) == facts
    assert facts["description"] == "daily"
    assert facts["timing"] == {"type": "cron", "expression": "0 * * * *", "timezone": "UTC"}
    assert not {"record", "due_at", "zone_data"} & facts.keys()


# The questions of document 002


def test_questions_a_schedule_answers() -> None:
    schedule = create(end_at=NOON + HOUR * 2, max_runs=1)
    assert not schedule.has_reached_end_date(NOON + HOUR * 2)
    assert schedule.has_reached_end_date(NOON + HOUR * 2 + SECOND)
    assert not schedule.has_reached_max_executions()
    assert replace(schedule, run_count=1).has_reached_max_executions()
    assert not replace(schedule, max_runs=None, run_count=10**6).has_reached_max_executions()
    assert schedule.next_occurrence(NOON) == NOON + HOUR
    assert schedule.next_occurrence(NOON + HOUR * 2) is None
    assert not schedule.is_due(NOON)
    assert schedule.is_due(NOON + HOUR)
    assert not definition.pause(schedule, NOON, "bob").is_due(NOON + HOUR)
