"""Plans: what a declaration would do to a store, before it does it; and that it does exactly that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from rota.domain import recurrence
from rota.domain.errors import Invalid, Refused
from rota.domain.model import Limits, Schedule, ScheduleStatus, Template, TemplateTarget
from rota.domain.plan import (
    Action,
    Declaration,
    Item,
    Plan,
    Stored,
    as_applied,
    basis_of,
    make,
    make_edits,
    of_schedule,
)
from rota.domain.plan.declaration import BEGINS, STAYING, as_said, plain_value
from rota.domain.plan.making import PRUNED
from rota.domain.schedule import calendars, decide, definition
from rota.domain.schedule.expected import Expected, expected
from rota.surfaces.python.arguments import declared_changes, declared_schedule
from worlds import seeds

NOON = datetime(2026, 1, 28, 12, tzinfo=UTC)  # a Wednesday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DAILY = {"task_type": "send", "cron": "0 9 * * *"}


def declared(
    schedules: Mapping[str, Mapping[str, Any]],
    templates: Mapping[str, Mapping[str, Any]] | None = None,
    calendars: Mapping[str, Mapping[str, Any]] | None = None,
) -> Declaration:
    return Declaration(
        schedules=schedules,
        templates=templates or {},
        calendars=calendars or {},
        new=declared_schedule,
        changes=declared_changes,
    )


def planned(
    schedules: Mapping[str, Mapping[str, Any]],
    stored: Stored | None = None,
    at: datetime = NOON,
    *,
    templates: Mapping[str, Mapping[str, Any]] | None = None,
    calendars: Mapping[str, Mapping[str, Any]] | None = None,
    **options: bool,
) -> Plan:
    store = stored or Stored(tenant="default", schedules={})
    return make(declared(schedules, templates, calendars), store, at, "test", **options)


def applied(plan: Plan, stored: Stored | None = None, now: datetime = NOON) -> Stored:
    """What is stored after it."""
    schedules = dict(stored.schedules) if stored is not None else {}
    for item in plan.schedules:
        if (new := as_applied(item, plan.at, now)) is not None:
            schedules[new.key] = new
    templates: dict[str, Template] = dict(stored.templates) if stored is not None else {}
    templates |= {each.new.id: each.new for each in plan.templates if each.new is not None}
    calendars = {each.name: each for each in (stored.calendars if stored is not None else ())}
    calendars |= {each.name: each.new for each in plan.calendars if each.new is not None}
    return Stored(
        tenant="default", schedules=schedules, templates=templates, calendars=tuple(calendars.values())
    )


def store_with(at: datetime = NOON, **schedules: Mapping[str, Any]) -> Stored:
    return applied(planned(schedules, at=at), now=at)


def by_hand(stored: Stored, key: str, at: datetime = NOON, **changes: Any) -> Stored:
    edited = definition.edit(stored.schedules[key], changes, at, "anna", Limits())
    return replace(stored, schedules={**stored.schedules, key: edited})


def told(item: Item[Any]) -> dict[str, tuple[Any, Any]]:
    return {each.name: (each.before, each.after) for each in item.differences}


def only(plan: Plan) -> Item[Schedule]:
    [item] = plan.schedules
    return item


def clocks(times: tuple[datetime, ...]) -> list[str]:
    return [f"{at:%d %H:%M}" for at in times]


EVERY_OPTION: dict[str, Any] = {
    "task_type": "send",
    "interval": "1m30s",
    "start_at": "2026-02-01T00:00:00Z",
    "end_at": "2026-03-01T00:00:00Z",
    "max_runs": 5,
    "input": {"to": ["a", 1, None]},
    "queue": "mail",
    "priority": 7,
    "max_retries": 0,
    "retry_policy": {"initial": "5s", "jitter": 0.5},
    "timeout": "1h30m",
    "ttl": 0.0005,
    "tags": ["x", "y"],
    "metadata": {"team": "ops"},
    "missed_run_policy": "catch_up",
    "overlap_policy": "allow",
    "misfire_grace": "10s",
    "catch_up_window": "2d",
    "jitter": "30s",
    "description": "sends",
    "status": "paused",
    "pause_note": "until Monday",
}


WRITTEN: list[dict[str, Any]] = [
    DAILY,
    EVERY_OPTION,
    {"workflow": "order", "cron": "*/5 * * * *", "timezone": "Europe/London", "input": [1]},
    {"template": "Back-Up", "rrule": "FREQ=WEEKLY;COUNT=4", "input": {"a": 1}},
    {"task_type": "t", "run_at": "2026-06-01T12:00:00Z", "missed_run_policy": "skip"},
    {
        "task_type": "t",
        "cron": "0 9 13 * FRI",
        "timezone": "Europe/London",
        "day_match": "and",
        "dst_gap": "skip",
    },
    {
        "task_type": "t",
        "timings": [
            {"cron": "0 9 * * *", "timezone": "Asia/Tokyo", "dst_fold": "both"},
            {"interval": "7h"},
            {"run_at": "2026-06-01T12:00:00Z"},
            {"rrule": "FREQ=WEEKLY"},
        ],
    },
    {"task_type": "t", "after": ["extract"]},
    {"task_type": "t", "after": ["extract", "orders"], "after_on": "end", "after_delay": "5m"},
]
COUNTED: list[dict[str, Any]] = [
    {
        "task_type": "t",
        "rrule": "FREQ=WEEKLY;INTERVAL=2;COUNT=6;BYHOUR=9",
        "dtstart": "2025-12-09T08:30:15Z",
        "timezone": "Europe/Paris",
    },
    {"task_type": "t", "interval": "6h", "anchor": "2025-12-09T08:30:15.500000Z"},
    {
        "task_type": "t",
        "interval": "6h",
        "anchor": "2025-12-09T08:30:15Z",
        "start_at": "2026-02-01T00:00:00Z",
    },
    {
        "task_type": "t",
        "timings": [
            {"cron": "0 9 * * *", "timezone": "Asia/Tokyo"},
            {"interval": "7h", "anchor": "2025-12-09T08:30:15Z"},
            {"rrule": "FREQ=DAILY;COUNT=99", "dtstart": "2025-12-10T08:30:15Z"},
        ],
    },
    {**DAILY, "target_metadata": {"own": 1}},
    {**DAILY, "metadata": {"team": "ops"}, "target_metadata": {}},
]
"""What says where it counts from, or which metadata its target has for itself."""
WRITTEN += COUNTED
BACKUP = {"Back-Up": {"shell": "pg_dump shop", "timeout": "5m"}}


@pytest.mark.parametrize("options", WRITTEN)
def test_what_is_applied_reads_back_as_it_was_written(options: dict[str, Any]) -> None:
    others = dict.fromkeys(options.get("after", ()), DAILY)
    plan = planned({"a": options, **others}, templates=BACKUP)
    assert {item.action for item in plan.items} == {Action.CREATED}
    stored = applied(plan)
    aliases = {each.id: each.alias for each in stored.templates.values()}
    assert as_said(of_schedule(stored.schedules["a"], aliases), options) == options
    again = planned({"a": options, **others}, stored, NOON + HOUR, templates=BACKUP)
    assert all(item.new is item.old for item in again.items)


@pytest.mark.parametrize("options", WRITTEN)
def test_what_is_written_makes_the_same_schedule_at_another_time(options: dict[str, Any]) -> None:
    others = dict.fromkeys(options.get("after", ()), DAILY)
    stored = applied(planned({"a": options, **others}, templates=BACKUP))
    made, aliases = stored.schedules["a"], {each.id: each.alias for each in stored.templates.values()}
    later = NOON + HOUR / 7
    written = {key: of_schedule(each, aliases) for key, each in stored.schedules.items()}
    assert not planned(written, stored, later, templates=BACKUP).changes
    again = applied(planned(written, at=later, templates=BACKUP), now=later).schedules["a"]
    assert again.timing == made.timing
    assert again.next_run_at == made.next_occurrence(later) or not made.enabled
    if not isinstance(made.target, TemplateTarget):  # its id is that of its store
        assert again.target == made.target


@pytest.mark.parametrize("options", COUNTED)
def test_what_a_file_does_not_say_of_where_it_counts_from_stays(options: dict[str, Any]) -> None:
    stored = store_with(a=options)
    without = {name: value for name, value in options.items() if name not in STAYING}
    if "timings" in without:
        without["timings"] = [
            {n: v for n, v in each.items() if n not in BEGINS} for each in without["timings"]
        ]
    item = only(planned({"a": {**without, "description": "new"}}, stored, NOON + HOUR))
    assert told(item) == {"description": (None, "new")}
    assert item.new is not None
    assert (item.new.timing, item.new.target) == (stored.schedules["a"].timing, stored.schedules["a"].target)


def test_where_it_counts_from_is_changed_by_a_file_that_says_it() -> None:
    at = "2026-01-01T00:10:00Z"
    stored = store_with(a={"task_type": "t", "interval": "1h"})
    item = only(planned({"a": {"task_type": "t", "interval": "1h", "anchor": at}}, stored))
    assert told(item) == {"anchor": ("2026-01-28T12:00:00Z", at)}
    assert (item.new and item.new.next_run_at) == NOON + HOUR / 6
    again = applied(planned({"a": {"task_type": "t", "interval": "2h", "anchor": at}}, stored))
    assert again.schedules["a"].next_run_at == NOON + HOUR / 6


def test_an_interval_that_was_edited_by_hand_counts_from_where_it_did() -> None:
    """Whether or not the file had said where it counts from."""
    said = {"task_type": "t", "interval": "1h", "anchor": "2026-01-01T00:10:00Z"}
    for before in (said, {"task_type": "t", "interval": "1h"}):
        for timing in (recurrence.Interval(2 * HOUR), recurrence.Cron("0 9 * * *")):
            edited = by_hand(store_with(a=before), "a", timing=timing)
            item = only(planned({"a": said}, edited))
            assert item.new is not None
            assert item.new.timing == edited.schedules["a"].timing
            assert {"interval", "anchor"} <= {each.name for each in item.kept}
            forced = only(planned({"a": said}, edited, force=True))
            assert told(forced)["anchor"][1] == said["anchor"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"cron": "@daily", "anchor": "2026-01-01"},
            "anchor: this timing has no use for it; give it beside an interval",
        ),
        ({"interval": "1h", "dtstart": "2026-01-01"}, "dtstart: .* give it beside an rrule"),
        ({"interval": "1h", "anchor": "noon"}, "anchor: 'noon' is not a time"),
        ({"rrule": "FREQ=DAILY", "dtstart": 7}, "dtstart: 7 is not"),
        ({"timings": ["@daily"], "anchor": "2026-01-01"}, "anchor: it is for one of the timings"),
        (
            {"timings": ["5m", {"interval": "1h", "anchor": "2026-01-01"}]},
            "timings: some say where they count from, and others do not",
        ),
        ({"cron": "@daily", "target_metadata": [1]}, r"target_metadata: \[1\] is not a dict"),
        (
            {"cron": "@daily", "task_type": None, "template": "Back-Up", "target_metadata": {}},
            "target_metadata: a schedule that runs a template has none",
        ),
    ],
)
def test_what_cannot_be_said_of_where_it_counts_from_is_refused(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(Invalid, match=f"schedule 'a': {problem}"):
        planned({"a": {"task_type": "t", **options}}, templates=BACKUP)


def test_where_it_counts_from_is_read_on_the_clock_of_its_zone() -> None:
    said = {"task_type": "t", "timezone": "Asia/Tokyo", "rrule": "FREQ=DAILY", "dtstart": "2026-01-01T09:00"}
    made = store_with(a=said).schedules["a"]
    assert getattr(made.timing, "dtstart", None) == datetime(2026, 1, 1, tzinfo=UTC)


def test_what_can_be_written_in_several_ways_is_no_change() -> None:
    said = {
        "task_type": "t",
        "run_at": "2026-06-01T12:00",
        "timezone": "Asia/Tokyo",
        "ttl": "60s",
        "tags": (),
    }
    same = {"task_type": "t", "run_at": "2026-06-01T03:00:00Z", "ttl": 60, "priority": 128, "queue": None}
    plan = planned({"a": same}, store_with(a=said))
    assert only(plan).action is Action.UNCHANGED


def test_a_change_is_told_field_by_field() -> None:
    stored = store_with(a={**DAILY, "jitter": "5m", "input": {"x": 1, "y": 2}})
    plan = planned({"a": {**DAILY, "cron": "0 8 * * *", "queue": "mail", "input": {"y": 2, "x": 1}}}, stored)
    assert told(only(plan)) == {
        "cron": ("0 9 * * *", "0 8 * * *"),
        "jitter": ("5m", None),
        "queue": (None, "mail"),
    }
    assert plan.count(Action.CHANGED) == 1
    assert not plan.runs_now(only(plan))


TIMES: list[tuple[str, dict[str, Any], dict[str, Any], str, list[str], list[str], list[tuple[str, str]]]] = [
    ("an hour later", {}, {"cron": "0 10 * * *"}, "29 00:00", [], [], [("29 09:00", "29 10:00")]),
    ("twice a day", {}, {"cron": "0 9,18 * * *"}, "29 00:00", ["28 18:00"], [], []),
    ("only Mondays", {}, {"cron": "0 9 * * MON"}, "30 00:00", [], ["29 09:00"], []),
    ("paused", {}, {"status": "paused"}, "30 00:00", [], ["29 09:00"], []),
    ("resumed", {"status": "paused"}, {"status": "active"}, "30 00:00", ["29 09:00"], [], []),
    ("an end", {}, {"end_at": "2026-01-29T10:00:00Z"}, "31 00:00", [], ["30 09:00"], []),
    ("a start", {}, {"start_at": "2026-01-30T00:00:00Z"}, "31 00:00", [], ["29 09:00"], []),
    ("one run", {}, {"max_runs": 1}, "31 00:00", [], ["30 09:00"], []),
    ("another zone", {}, {"timezone": "Asia/Tokyo"}, "29 10:00", [], [], [("29 09:00", "29 00:00")]),
    ("only words", {}, {"description": "sends", "priority": 9}, "31 00:00", [], [], []),
]


@pytest.mark.parametrize(
    ("before", "after", "until", "appear", "vanish", "move"),
    [case[1:] for case in TIMES],
    ids=[case[0] for case in TIMES],
)
def test_times_that_appear_vanish_and_move(
    before: dict[str, Any],
    after: dict[str, Any],
    until: str,
    appear: list[str],
    vanish: list[str],
    move: list[tuple[str, str]],
) -> None:
    plan = planned({"a": {**DAILY, **after}}, store_with(a={**DAILY, **before}))
    times = plan.times(only(plan))

    def near(at: datetime) -> bool:
        return at < datetime.strptime(f"2026-01-{until}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)

    assert clocks(tuple(filter(near, times.appear)))[: len(appear) or 1] == appear
    assert clocks(tuple(filter(near, times.vanish))) == vanish
    assert [(f"{a:%d %H:%M}", f"{b:%d %H:%M}") for a, b in times.move][: len(move) or 1] == move
    assert times.until == NOON + 14 * DAY


def test_jitter_moves_times_and_keeps_them_in_place() -> None:
    plan = planned({"a": {**DAILY, "jitter": "1h"}}, store_with(a=DAILY))
    times = plan.times(only(plan))
    assert len(times.move) == 14
    assert not times.appear
    assert not times.vanish
    assert all(timedelta(0) <= new - old < HOUR for old, new in times.move)


def test_a_schedule_with_very_many_times_is_told_as_far_as_they_go() -> None:
    plan = planned({"a": {"task_type": "t", "interval": 1}})
    times = plan.times(only(plan))
    assert len(times.appear) == 5000
    assert times.until == NOON + timedelta(seconds=5000)


def at_half_past_eight(cron: str, **more: Any) -> tuple[datetime, ...]:
    at = NOON - 3.5 * HOUR
    stored = store_with(at - DAY, a=DAILY)
    stored = replace(stored, schedules={"a": decide(stored.schedules["a"], at, []).schedule})
    plan = planned({"a": {**DAILY, "cron": cron, **more}}, stored, at)
    return plan.skipped_today(only(plan))


def test_a_time_at_which_another_one_comes_has_not_moved() -> None:
    """Noon was put off to three. From now on every hour is put off to the next, and so two o'clock is due at three."""
    stored = store_with(NOON - HOUR, a={**DAILY, "cron": "0 12 * * *", "offset": "3h"})
    plan = planned({"a": {**DAILY, "cron": "0 * * * *", "offset": "3h"}}, stored, NOON - HOUR / 2)
    times = plan.times(only(plan))
    assert not times.move
    assert not times.vanish
    assert clocks(times.appear)[:4] == ["28 13:00", "28 14:00", "28 16:00", "28 17:00"]


def test_what_was_put_off_is_expected_until_it_is_due() -> None:
    of = store_with(a={**DAILY, "offset": "1h"}).schedules["a"]
    nine = NOON + 2 * DAY - 3 * HOUR
    assert next(expected(of, nine + HOUR / 2, NOON + 9 * DAY)) == Expected(nine, nine + HOUR)


def test_an_edit_of_the_offset_runs_nothing_by_itself() -> None:
    nine = NOON - 3 * HOUR
    later = {**DAILY, "offset": "1h", "missed_run_policy": "execute_once"}
    stored = store_with(nine - HOUR, a=later)
    sooner = {"a": {**later, "offset": 0}}
    plan = planned(sooner, stored, nine + HOUR / 2)
    assert clocks(plan.times(only(plan)).vanish)[:1] == ["28 10:00"]
    assert plan.skipped_today(only(plan)) == (nine + HOUR,)
    done = applied(plan, now=nine + HOUR / 2).schedules["a"]
    assert (done.next_run_at, done.due_at) == (nine + DAY, nine + DAY)
    before = planned(sooner, stored, nine - HOUR / 2)
    assert before.times(only(before)).move[0] == (nine + HOUR, nine)
    done = applied(before, now=nine + HOUR / 2).schedules["a"]
    assert (done.next_run_at, done.due_at) == (nine + DAY, nine + DAY), "it passed since the plan"
    overdue = definition.edit(stored.schedules["a"], {"offset": HOUR / 4}, nine + 2 * HOUR, "test", Limits())
    assert (overdue.next_run_at, overdue.due_at) == (nine, nine + HOUR / 4), "the next tick judges it"


SIX = {"task_type": "t", "interval": "1h", "offset": "6m"}
TWELVE = {**SIX, "offset": "12m", "start_at": NOON}


@pytest.mark.parametrize(
    ("old", "handled_at", "minutes", "first"),
    [
        (SIX, 120, 123, 132),  # neither version has fired two o'clock
        (SIX, 126, 129, 192),  # the old one has
        ({**SIX, "max_runs": 2}, 126, 129, 192),  # it has, and is completed
        ({**SIX, "max_runs": 1}, 66, 129, 132),  # it was completed before
    ],
)
def test_a_time_that_both_versions_put_off_comes_once(
    old: dict[str, Any], handled_at: int, minutes: int, first: int
) -> None:
    minute = timedelta(minutes=1)
    stored = store_with(a=old)
    stored = replace(stored, schedules={"a": handled(stored.schedules["a"], NOON + handled_at * minute)})
    item = only(planned({"a": TWELVE}, stored, NOON + minute / 2))
    done = as_applied(item, NOON + minute / 2, NOON + minutes * minute)
    assert done is not None
    assert done.due_at == NOON + first * minute


def test_a_time_that_rolled_and_was_put_off_comes_though_the_plan_is_older() -> None:
    friday, nine = NOON + 2 * DAY, NOON + 5 * DAY - 3 * HOUR
    rolling = {**DAILY, "cron": "0 9 * * SAT", "offset": "1h", "exclude": ["free"], "excluded_policy": "next"}
    plan = planned({"a": rolling}, at=friday, calendars=WEEKENDS)
    done = as_applied(only(plan), friday, nine + HOUR / 2)
    assert done is not None
    assert (done.next_run_at, done.due_at) == (nine, nine + HOUR)


def test_a_schedule_that_has_completed_may_leave_the_file() -> None:
    stored = store_with(a={"task_type": "send", "run_at": (NOON + HOUR).isoformat()})
    over = decide(stored.schedules["a"], NOON + HOUR, []).schedule
    assert over.status is ScheduleStatus.COMPLETED
    stored = replace(stored, schedules={"a": over})
    assert planned({}, stored, NOON + 2 * HOUR, prune=True).items == ()


def test_what_is_applied_is_as_old_as_its_commit_and_not_as_its_plan() -> None:
    made = applied(planned({"a": DAILY}), now=NOON + HOUR)
    assert {each: getattr(made.schedules["a"], each) for each in ("created_at", "updated_at")} == {
        "created_at": NOON + HOUR,
        "updated_at": NOON + HOUR,
    }
    edited = planned({"a": {**DAILY, "description": "new"}}, made, NOON + 2 * HOUR)
    done = applied(edited, made, now=NOON + 3 * HOUR).schedules["a"]
    assert (done.created_at, done.updated_at) == (NOON + HOUR, NOON + 3 * HOUR)


def test_an_edit_that_would_skip_a_time_of_today_is_warned_of() -> None:
    nine = NOON - 3 * HOUR
    assert at_half_past_eight("0 8 * * *") == (nine,), "eight has passed, and nine is no more"
    assert at_half_past_eight("0 9 * * MON") == (nine,)
    assert at_half_past_eight("0 9 * * *", status="paused") == (nine,)
    assert at_half_past_eight("0 10 * * *") == (), "it moves"
    assert at_half_past_eight("0 9 * * *", description="new") == ()


def test_a_time_that_is_due_and_not_handled_is_warned_of() -> None:
    stored, nine = store_with(a=DAILY), NOON + 21 * HOUR
    plan = planned({"a": {**DAILY, "cron": "0 10 * * *"}}, stored, nine + timedelta(seconds=20))
    assert plan.skipped_today(only(plan)) == (nine,)
    assert not plan.runs_now(only(plan))


def test_edits_by_hand_are_kept_and_reported() -> None:
    stored = by_hand(store_with(a=DAILY), "a", description="mine", jitter=HOUR)
    plan = planned({"a": {**DAILY, "description": "ours", "priority": 9}}, stored)
    assert told(only(plan)) == {"priority": (None, 9)}
    kept = {each.name: (each.before, each.after) for each in only(plan).kept}
    assert kept == {"description": ("mine", "ours"), "jitter": ("1h", None)}
    after = applied(plan, stored)
    assert after.schedules["a"].description == "mine"
    again = planned({"a": {**DAILY, "description": "ours", "priority": 9}}, after)
    assert not only(again).differences
    assert {each.name for each in only(again).kept} == {"description", "jitter"}
    forced = planned({"a": {**DAILY, "description": "ours", "priority": 9}}, after, force=True)
    assert told(only(forced)) == {"description": ("mine", "ours"), "jitter": ("1h", None)}
    assert not only(forced).kept
    calm = planned({"a": {**DAILY, "description": "ours", "priority": 9}}, applied(forced, after))
    assert only(calm).action is Action.UNCHANGED
    assert not only(calm).kept


def test_a_timing_that_was_changed_by_hand_is_kept_as_a_whole() -> None:
    stored = by_hand(store_with(a=DAILY), "a", timing=recurrence.Interval(HOUR))
    plan = planned({"a": {**DAILY, "cron": "0 7 * * *"}}, stored)
    assert not only(plan).differences
    assert {each.name for each in only(plan).kept} == {"cron", "interval"}


def test_a_hand_that_did_what_the_file_says_is_no_edit() -> None:
    stored = by_hand(store_with(a=DAILY), "a", description="ours")
    plan = planned({"a": {**DAILY, "description": "ours"}}, stored)
    assert only(plan).action is Action.UNCHANGED
    assert not only(plan).kept


def test_a_pause_by_hand_stays_unless_the_file_has_a_say_in_it() -> None:
    stored = by_hand(store_with(a=DAILY), "a", status=ScheduleStatus.PAUSED)
    assert not only(planned({"a": DAILY}, stored)).differences
    assert told(only(planned({"a": {**DAILY, "status": "active"}}, stored))) == {}
    kept = only(planned({"a": {**DAILY, "status": "active"}}, stored)).kept
    assert [each.name for each in kept] == ["status"]
    said = store_with(a={**DAILY, "status": "paused"})
    assert told(only(planned({"a": DAILY}, said))) == {"status": ("paused", None)}


def test_what_was_made_by_hand_is_taken_over_as_it_is_shown() -> None:
    stored = store_with(a=DAILY)
    foreign = replace(stored.schedules["a"], applied=None, description="mine")
    stored = replace(stored, schedules={"a": foreign})
    plan = planned({"a": DAILY}, stored)
    assert told(only(plan)) == {"description": ("mine", None)}
    assert planned({}, stored).schedules == (), "what no file ever declared is not removed"
    same = planned({"a": {**DAILY, "description": "mine"}}, stored)
    assert only(same).action is Action.UNCHANGED
    assert only(same).new is not foreign
    assert same.token == planned({}, Stored(tenant="default", schedules={})).token


def test_what_is_gone_is_paused_only_if_asked_and_comes_back() -> None:
    stored = store_with(a=DAILY, b=DAILY)
    gone = planned({"a": DAILY}, stored)
    assert [(item.name, item.action, item.new is item.old) for item in gone.schedules] == [
        ("a", Action.UNCHANGED, True),
        ("b", Action.REMOVED, True),
    ]
    pruned = planned({"a": DAILY}, stored, prune=True)
    after = applied(pruned, stored)
    assert after.schedules["b"].status is ScheduleStatus.PAUSED
    assert after.schedules["b"].pause_note == PRUNED
    assert len(pruned.times(pruned.schedules[1]).vanish) == 14
    back = applied(planned({"a": DAILY, "b": DAILY}, after), after)
    assert back.schedules["b"].status is ScheduleStatus.ACTIVE


def test_a_draft_that_is_gone_is_paused_too() -> None:
    stored = store_with(a={**DAILY, "status": "draft"})
    after = applied(planned({}, stored, prune=True), stored)
    assert (after.schedules["a"].status, after.schedules["a"].pause_note) == (ScheduleStatus.PAUSED, PRUNED)


def test_what_is_over_stays_so() -> None:
    once = {"task_type": "t", "run_at": "2026-01-29T12:00:00Z"}
    stored = store_with(a=once)
    later = NOON + 2 * DAY
    done = decide(stored.schedules["a"], NOON + DAY, []).schedule
    assert done.status is ScheduleStatus.COMPLETED
    stored = replace(stored, schedules={"a": done})
    assert only(planned({"a": once}, stored, later)).action is Action.UNCHANGED
    assert only(planned({"a": {**once, "status": "active"}}, stored, later)).action is Action.UNCHANGED
    new = only(planned({"a": once}, at=later))
    assert (new.action, new.new, new.note) == (Action.UNCHANGED, None, "its time has passed")
    again = only(planned({"a": {**once, "run_at": "2026-02-01T00:00:00Z"}}, stored, later))
    assert again.new is not None
    assert again.new.enabled


def test_templates_are_planned_before_the_schedules_that_run_them() -> None:
    templates = {
        "backup": {"shell": "pg_dump shop", "timeout": "5m"},
        "page": {"http": "POST https://x.org/"},
    }
    schedules = {"a": {"template": "BACKUP", "cron": "@daily"}}
    plan = planned(schedules, templates=templates)
    stored = applied(plan)
    [backup, page] = plan.templates
    assert told(page) == {"http": (None, {"url": "https://x.org/", "method": "POST"})}
    assert only(plan).new is not None
    changed = planned(
        schedules, stored, templates={"backup": {"shell": "pg_dump shop | gzip", "queue": "slow"}}
    )
    assert told(changed.templates[0]) == {
        "shell": ("pg_dump shop", "pg_dump shop | gzip"),
        "timeout": ("5m", None),
        "queue": (None, "slow"),
    }
    assert [(each.name, each.action) for each in changed.templates] == [
        ("backup", Action.CHANGED),
        ("page", Action.REMOVED),
    ]
    assert backup.new is not None
    assert changed.templates[0].new is not None
    assert changed.templates[0].new.id == backup.new.id


def test_another_spelling_of_an_alias_is_a_change() -> None:
    stored = applied(planned({}, templates={"nightly-x": {"kind": "send"}}))
    plan = planned({}, stored, templates={"Nightly_X": {"kind": "send"}})
    [item] = plan.templates
    assert (item.action, told(item)) == (Action.CHANGED, {"alias": ("nightly-x", "Nightly_X")})
    [kept] = applied(plan, stored).templates.values()
    assert kept.alias == "Nightly_X"
    assert not planned({}, applied(plan, stored), templates={"Nightly_X": {"kind": "send"}}).changes


def test_the_accepted_options_are_all_that_a_file_takes() -> None:
    with pytest.raises(Refused, match=r"anchor, .*dtstart, .*target_metadata, .*template, .*workflow"):
        planned({"a": {**DAILY, "colour": "red"}})
    with pytest.raises(Refused, match="wrkflow: there is no such option; did you mean workflow"):
        planned({"a": {"wrkflow": "w", "cron": "@daily"}})
    with pytest.raises(Refused, match=r"accepted are .*http, kind, .*shell"):
        planned({}, templates={"t": {"kind": "send", "colour": "red"}})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"task_type": "t", "cron": "0 25 * * *"}, "schedule 'a': cron:"),
    ({"task_type": "t"}, "schedule 'a': cron: no timing was given"),
    ({"cron": "@daily"}, "schedule 'a': task_type: no task was given"),
    ({**DAILY, "workflow": "w"}, "schedule 'a': workflow: it was given together with task_type"),
    ({**DAILY, "colour": "red"}, "schedule 'a': colour: there is no such option"),
    ({**DAILY, "start_at": "soon"}, "schedule 'a': start_at: 'soon' is not a time"),
    (
        {**DAILY, "retry_policy": {"first": "5s"}},
        "schedule 'a': first: there is no such part of a retry_policy",
    ),
    ({**DAILY, "jitter": "5 apples"}, "schedule 'a': jitter: '5 apples' is not a duration"),
    ({"template": "none", "cron": "@daily"}, "schedule 'a': template_id: there is no template 'none'"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_what_is_wrong_is_said_of_the_schedule(options: dict[str, Any], sentence: str) -> None:
    for stored in (None, store_with(a=DAILY)):
        with pytest.raises(Refused) as refused:
            planned({"a": options}, stored)
        assert str(refused.value).startswith(sentence)


def test_edits_are_a_plan_too() -> None:
    stored = store_with(a=DAILY)
    plan = make_edits({"a": {"jitter": HOUR}}, stored, NOON, "test")
    assert told(only(plan)) == {"jitter": (None, "1h")}
    with pytest.raises(Invalid, match="there is no schedule 'b'"):
        make_edits({"b": {"jitter": HOUR}}, stored, NOON, "test")


def test_a_token_stands_for_what_is_said_and_not_for_when() -> None:
    stored = store_with(a=DAILY, b=DAILY)
    wanted: dict[str, dict[str, Any]] = {"a": {**DAILY, "priority": 3}, "b": DAILY}
    token = planned(wanted, stored).token
    fired = decide(stored.schedules["a"], NOON + 2 * DAY, []).schedule
    moved = replace(stored, schedules={**stored.schedules, "a": fired})
    assert planned(wanted, moved, NOON + 2 * DAY).token == token
    assert planned(wanted, by_hand(stored, "a", description="mine")).token != token
    assert planned(wanted, by_hand(stored, "b", description="mine")).token != token


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(minutes=90), "1h30m"),
        (timedelta(0), "0s"),
        (timedelta(days=8, milliseconds=1), "1w1d1ms"),
        (timedelta(microseconds=1500), 0.0015),
    ],
)
def test_durations_are_written_exactly(span: timedelta, text: str | float) -> None:
    assert plain_value(span) == text


CRONS = ["30 2 * * *", "*/20 1-3 * * *", "0 9 * * MON-FRI", "0 0 1 * *", "15 1,2,3 * * SUN", "0 */6 * * *"]
CLOSED: dict[str, dict[str, Any]] = {
    "weekends": {"rules": ["FREQ=WEEKLY;BYDAY=SA,SU"]},
    "nights": {"windows": ["22:00-06:00"]},
    "seldom": {"days": ["2026-03-30", "2026-10-26", "2027-04-05", "2027-11-01"], "timezone": "Asia/Tokyo"},
}
RULES = ["FREQ=WEEKLY;BYDAY=SU;BYHOUR=2;BYMINUTE=30", "FREQ=HOURLY;INTERVAL=5", "FREQ=DAILY;COUNT=4"]


def some_options(random: Random, zones: list[str], at: datetime) -> dict[str, Any]:
    options: dict[str, Any] = {"task_type": "t", "timezone": random.choice(zones)}
    match random.randrange(4):
        case 0:
            options["interval"] = random.choice(["7m", "1h", "1d", 5400])
        case 1:
            options["rrule"] = random.choice(RULES)
        case _:
            options["cron"] = random.choice(CRONS)
    if random.random() < 0.3:
        options["jitter"] = random.choice(["90s", "1h"])
    if random.random() < 0.2:
        options["offset"] = random.choice(["30s", "3h"])
    if random.random() < 0.3:
        options["exclude"] = [random.choice([*CLOSED])]
    if "cron" in options and options.get("exclude", ["nights"]) != ["nights"]:
        options["excluded_policy"] = random.choice(["skip", "next", "previous"])
    if random.random() < 0.2:
        options["max_runs"] = random.randrange(1, 9)
    if random.random() < 0.2:
        options["start_at"] = at + random.randrange(1, 200) * HOUR
    if random.random() < 0.2:
        options["end_at"] = at + random.randrange(300, 700) * HOUR
    return options


def near_a_transition(random: Random) -> datetime:
    """Within two years; most zones have a transition within the two weeks behind it, if they have any."""
    season = random.choice([(3, 14), (3, 22), (4, 1), (9, 25), (10, 20), (10, 28)])
    return datetime(random.choice([2026, 2027]), *season, tzinfo=UTC) + random.randrange(86_400) * timedelta(
        seconds=1
    )


def played(schedule: Schedule | None, until: datetime) -> list[datetime]:
    """When ticks that come on time fire it."""
    fired: list[datetime] = []
    while schedule is not None and schedule.due_at is not None and schedule.is_due(until):
        due = schedule.due_at
        decision = decide(schedule, due, [])
        assert len(decision.fires) == 1
        fired.append(due)
        schedule = decision.schedule
    return fired


@pytest.mark.parametrize("seed", seeds(few=25, every=3000))
def test_a_plan_that_is_applied_makes_exactly_the_times_that_it_announced(seed: int) -> None:
    random = Random(seed)
    zones = sorted(recurrence.zone_names())
    at = near_a_transition(random)
    created_at = at - random.randrange(1, 20) * DAY
    now = at + random.choice([timedelta(0), timedelta(seconds=40), 3 * HOUR])
    first = {"a": some_options(random, zones, created_at)}
    wanted = {key: some_options(random, zones, at) for key in ("a", "b")}
    try:
        stored = applied(planned(first, at=created_at, calendars=CLOSED), now=created_at)
        stored = replace(stored, schedules={"a": handled(stored.schedules["a"], at)})
        plan = planned(wanted, stored, at, calendars=CLOSED)
        stored = replace(stored, schedules={"a": handled(stored.schedules["a"], now)})
        later = planned(wanted, stored, at, calendars=CLOSED)
        new = [as_applied(item, at, now) for item in later.schedules]
    except Invalid as problem:
        assert re.search("would never fire|already|has passed", str(problem))  # noqa: PT017
        return
    for item, schedule in zip(plan.schedules, new, strict=True):
        assert schedule is not None
        if schedule.max_runs is None or now == at:  # else what ran meanwhile counts
            until = plan.times(item).until
            assert [due for due in played(schedule, until) if due > now] == announced(plan, item, now)


def announced(plan: Plan, item: Item[Schedule], now: datetime) -> list[datetime]:
    """What is to come after `now`, according to a plan: what stays, what appears, and where times move. One that has
    run meanwhile runs once, wherever its offset or jitter moves it. One that moved to another time of its day is not
    the same: that comes, too."""
    times, before = plan.times(item), played(item.old, plan.at + 14 * DAY)
    ran = {each.nominal for each in expected(item.old, plan.at, now)}
    put_off = {each.due for each in expected(item.new, plan.at, times.until) if each.nominal in ran}
    stay = {due for due in before if due <= times.until}
    stay -= {*times.vanish, *(gone for gone, _ in times.move)}
    come = {*times.appear, *(come for _, come in times.move)} - put_off
    return sorted(due for due in stay | come if due > now)


def handled(schedule: Schedule, now: datetime) -> Schedule:
    """As it is after ticks that came on time."""
    while schedule.is_due(now):
        assert schedule.due_at is not None
        schedule = decide(schedule, schedule.due_at, []).schedule
    return schedule


WORKDAYS = {**DAILY, "exclude": ["free"]}
WEEKENDS = {"free": {"rules": ["FREQ=WEEKLY;BYDAY=SA,SU"]}}


def test_a_clock_change_on_an_excluded_day_does_not_touch_it() -> None:
    early: dict[str, Any] = {**DAILY, "cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    wanted: dict[str, dict[str, Any]] = {
        "every": early,
        "workdays": {**early, "exclude": ["free"], "excluded_policy": "next"},
        "awake": {**early, "exclude": ["02:00-06:00"], "dst_gap": "before"},
        "summer": {**early, "start_at": "2026-04-01T00:00:00Z", "end_at": "2026-10-01T00:00:00Z"},
    }
    stored = applied(planned(wanted, calendars=WEEKENDS))
    changes = {key: len(each.clock_changes(NOON)) for key, each in stored.schedules.items()}
    assert changes == {"every": 2, "workdays": 0, "awake": 1, "summer": 0}


def test_a_calendar_moves_the_times_of_those_that_name_it() -> None:
    stored = applied(planned({"mine": WORKDAYS, "other": WORKDAYS}, calendars=WEEKENDS))
    stored = replace(
        stored, schedules={**stored.schedules, "other": replace(stored.schedules["other"], applied=None)}
    )
    assert planned({"mine": WORKDAYS}, stored, calendars=WEEKENDS).changes == []
    plan = planned({"mine": WORKDAYS}, stored, calendars={"free": {"days": ["2026-01-29"]}})
    assert [(each.name, each.action) for each in plan.items] == [
        ("free", "changed"),
        ("mine", "changed"),
        ("other", "changed"),
    ]
    for item in plan.schedules:
        assert told(item) == {"calendar free": ("as it is", "as declared")}
        assert [at.day for at in plan.times(item).appear] == [31, 1, 7, 8]
        assert [at.day for at in plan.times(item).vanish] == [29]
    after = applied(plan, stored)
    assert {each.next_run_at for each in after.schedules.values()} == {NOON + 45 * HOUR}
    assert planned({"mine": WORKDAYS}, after, calendars={"free": {"days": ["2026-01-29"]}}).changes == []


def test_a_calendar_that_was_edited_by_hand_or_is_gone_from_the_file() -> None:
    stored = applied(planned({"mine": WORKDAYS}, calendars=WEEKENDS))
    edited = calendars.edit(stored.calendars[0], {"windows": ["22:00-06:00"]}, NOON, "anna")
    stored = replace(stored, calendars=(edited,))
    plan = planned({"mine": WORKDAYS}, stored, calendars=WEEKENDS)
    assert [each.name for each in plan.calendars[0].kept] == ["windows"]
    assert plan.changes == []
    forced = planned({"mine": WORKDAYS}, stored, calendars=WEEKENDS, force=True)
    assert told(forced.calendars[0]) == {"windows": (["22:00-06:00"], None)}
    [gone] = planned({"mine": WORKDAYS}, stored).calendars
    assert (gone.action, gone.new) == (Action.REMOVED, edited)
    with pytest.raises(Invalid, match="calendar 'free': days: the calendar is empty"):
        planned({}, calendars={"free": {}})


def test_a_plan_is_made_again_only_if_it_could_say_something_else() -> None:
    stored = applied(planned({"mine": DAILY}))
    known = basis_of(declared({"mine": DAILY}), stored, "test")
    assert known == basis_of(declared({"mine": dict(DAILY)}), stored, "test")
    others = [
        basis_of(declared({"mine": {**DAILY, "jitter": "5m"}}), stored, "test"),
        basis_of(declared({"mine": DAILY}, {}, WEEKENDS), stored, "test"),
        basis_of(declared({"mine": DAILY}), stored, "test", prune=True),
        basis_of(declared({"mine": DAILY}), stored, "anna"),
        basis_of(declared({"mine": DAILY}), replace(stored, limits=Limits(schedules=3)), "test"),
        basis_of(declared({"mine": DAILY}), replace(stored, schedules={}), "test"),
    ]
    newer = replace(stored.schedules["mine"], version=9)
    others.append(basis_of(declared({"mine": DAILY}), replace(stored, schedules={"mine": newer}), "test"))
    assert len({known, *others}) == 1 + len(others)
    assert basis_of(declared({"mine": {**DAILY, "input": object()}}), stored, "test") is None


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        ({"b": "nope"}, "schedule 'b': after: there is no schedule 'nope'; declare it, or create it first"),
        ({"b": "c", "c": "b"}, "it would run after itself: "),
        ({"b": "c", "c": "stored"}, None),
    ],
)
def test_what_comes_after_others_names_those_that_will_be_there(
    after: dict[str, str], problem: str | None
) -> None:
    schedules = {key: {"task_type": "t", "after": [other]} for key, other in after.items()}
    stored = store_with(stored=DAILY)
    if problem is None:
        assert planned(schedules, stored).count(Action.CREATED) == 2
        return
    with pytest.raises(Invalid, match=problem):
        planned(schedules, stored)
