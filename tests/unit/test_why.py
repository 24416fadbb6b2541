"""What became of an expected time: each answer word for word, because its words are what it is for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from rota.domain.model import (
    Limits,
    MissedRunPolicy,
    OverlapPolicy,
    Run,
    RunReason,
    RunStatus,
    RunTrigger,
    Schedule,
    TaskTarget,
)
from rota.domain.recurrence import Cron, Interval, Once, Timing
from rota.domain.schedule import decide, definition, due_time
from rota.domain.schedule.why import Pause, Why, explain, length, meant
from rota.surfaces.dashboard.texts import reason

NOON = datetime(2026, 1, 28, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NEW_YORK = "America/New_York"
BORN = NOON - DAY
HOURLY = Cron("0 * * * *")


def schedule(timing: Timing = HOURLY, now: datetime = BORN, **fields: Any) -> Schedule:
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


def row(**fields: Any) -> Run:
    values: dict[str, Any] = {
        "id": "r1",
        "schedule_id": "s1",
        "scheduled_at": NOON,
        "created_at": NOON,
        "started_at": NOON,
        "target_id": "t1",
    }
    values["created_at"] = fields.get("started_at") or NOON
    return Run(**values | fields)


def why(
    of: Schedule,
    at: datetime = NOON,
    found: Run | None = None,
    *,
    now: datetime = NOON + HOUR,
    pauses: Sequence[Pause] = (),
) -> Why:
    return explain(of, at, found, now, pauses)


SKIPPED = {"status": RunStatus.SKIPPED, "started_at": None, "target_id": None}


# With a row


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        (
            {"status": RunStatus.COMPLETED, "completed_at": NOON + SECOND * 12},
            "completed",
            "It started on time, and completed after 12 seconds.",
        ),
        (
            {
                "status": RunStatus.COMPLETED,
                "started_at": NOON + SECOND * 20,
                "completed_at": NOON + SECOND * 20,
            },
            "completed",
            "It started 20 seconds after its time, and completed after less than a second.",
        ),
        (
            {
                "status": RunStatus.COMPLETED,
                "trigger": RunTrigger.CATCH_UP,
                "started_at": NOON + HOUR * 3 + MINUTE,
                "completed_at": NOON + HOUR * 4 + MINUTE,
            },
            "completed",
            "It started 3 hours 1 minute late, at 2026-01-28 15:01 UTC, to make up for a missed time, and completed"
            " after 1 hour.",
        ),
        (
            {"status": RunStatus.FAILED, "completed_at": NOON + MINUTE, "error": "ValueError: boom"},
            "failed",
            "It started on time, and failed after 1 minute: ValueError: boom.",
        ),
        (
            {"status": RunStatus.SKIPPED, "completed_at": NOON + MINUTE, "reason": RunReason.EXPIRED},
            "skipped",
            "It was skipped, because its task expired after 1 minute, before a worker took it.",
        ),
        (
            {
                "status": RunStatus.FAILED,
                "completed_at": NOON + MINUTE,
                "reason": RunReason.EXPIRED,
                "error": "ValueError: boom",
            },
            "failed",
            "It started on time, and failed after 1 minute and expired before it could be repeated:"
            " ValueError: boom.",
        ),
        (
            {
                "status": RunStatus.FAILED,
                "completed_at": NOON,
                "reason": RunReason.BAD_TARGET,
                "error": "target.template_id: there is no template 'm1'; create it first",
            },
            "failed",
            "It could not start, because its target cannot work: target.template_id: there is no template 'm1';"
            " create it first.",
        ),
        (
            {"status": RunStatus.RUNNING},
            "running",
            "It started on time, and its task t1 has not ended yet (1 hour so far).",
        ),
        (
            {"status": RunStatus.CANCELLED, "completed_at": NOON + MINUTE * 2},
            "cancelled",
            "It started on time, and was cancelled after 2 minutes.",
        ),
        (
            {
                "status": RunStatus.COMPLETED,
                "completed_at": NOON + SECOND,
                "trigger": RunTrigger.MANUAL,
                "actor": "bob",
            },
            "completed",
            "It was triggered by hand by bob, beside the schedule's own times, and completed after 1 second.",
        ),
        (
            SKIPPED | {"reason": RunReason.MISSED, "created_at": NOON + MINUTE * 30},
            "skipped",
            "It was missed: no scheduler was there to fire it, until 2026-01-28 12:30 UTC; the missed_run_policy is"
            " skip, which gives up what is late by more than 1 minute.",
        ),
        (
            SKIPPED | {"reason": RunReason.OVERLAP},
            "skipped",
            "It was skipped, because an earlier run was still going on (overlap_policy is skip).",
        ),
        (
            SKIPPED | {"reason": RunReason.LIMIT},
            "skipped",
            "It was skipped, because tenant default had as many pending tasks as it may have.",
        ),
        (
            SKIPPED | {"reason": RunReason.SUSPENDED},
            "skipped",
            "It was skipped, because tenant default was suspended.",
        ),
        (
            SKIPPED | {"reason": RunReason.SUSPENDED, "until": NOON + 9 * HOUR, "count": 10},
            "skipped",
            "It was one of 10 times from 2026-01-28 12:00 UTC to 2026-01-28 21:00 UTC that were skipped, because"
            " tenant default was suspended.",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_the_row_says(fields: dict[str, Any], status: str, text: str) -> None:
    found = row(**fields)
    answer = why(schedule(), NOON, found)
    assert answer == f"report, 2026-01-28 12:00 UTC: {text}"
    assert answer.status == status
    assert answer.run is found


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (
            "execute_once",
            "the missed_run_policy is execute_once, which runs only the latest of the missed times.",
        ),
        ("catch_up", "the missed_run_policy is catch_up, which goes back 2 hours and no further."),
    ],
)
def test_why_a_missed_time_was_not_made_up_for(policy: str, text: str) -> None:
    of = schedule(missed_run_policy=policy, catch_up_window=HOUR * 2)
    assert why(of, NOON, row(**SKIPPED, reason=RunReason.MISSED)).endswith(f"; {text}")


@pytest.mark.parametrize("policy", OverlapPolicy)
@pytest.mark.parametrize("missed", MissedRunPolicy)
@pytest.mark.parametrize("cause", [RunReason.OVERLAP, RunReason.MISSED])
def test_pages_name_no_setting_as_the_api_does(
    policy: OverlapPolicy, missed: MissedRunPolicy, cause: RunReason
) -> None:
    of = schedule(overlap_policy=policy, missed_run_policy=missed)
    words = reason(why(of, NOON, row(**SKIPPED, reason=cause)))
    assert words.startswith("It was ")
    assert "its policy" in words
    assert "_" not in words


@pytest.mark.parametrize(
    ("actor", "called"), [("key:ann", "ann"), ("http:local", "this machine"), ("ann", "ann")]
)
def test_pages_name_people_without_how_they_came(actor: str, called: str) -> None:
    by_hand = row(status=RunStatus.RUNNING, trigger=RunTrigger.MANUAL, actor=actor)
    assert f"by hand by {called}, beside" in reason(why(schedule(), NOON, by_hand))
    pause = (NOON - HOUR, None, actor, "vacation")
    assert f"not active: {called} paused it at" in reason(why(schedule(), NOON, pauses=[pause]))


def test_missed_because_a_later_one_was_due_as_well() -> None:
    """Within the grace that was given: only the policy that lets one fire is to blame."""
    of = schedule(Interval(SECOND * 10), misfire_grace=MINUTE)
    found = row(**SKIPPED, reason=RunReason.MISSED, created_at=NOON + SECOND * 35)
    assert why(of, NOON, found).endswith(
        "It was missed: at 2026-01-28 12:00:35 UTC a later time was due as well, and only the latest was fired."
    )


@pytest.mark.parametrize(
    ("timing", "fields", "grace"),
    [
        (HOURLY, {}, "1 minute."),
        (HOURLY, {"misfire_grace": 5}, "5 seconds."),
        (Interval(SECOND * 10), {}, "10 seconds, the distance to the next time."),
        (Interval(SECOND * 10), {"misfire_grace": 5}, "5 seconds."),
    ],
    ids=str,
)
def test_a_missed_time_says_how_late_is_too_late(timing: Timing, fields: dict[str, Any], grace: str) -> None:
    found = row(**SKIPPED, reason=RunReason.MISSED, created_at=NOON + DAY)
    answer = why(schedule(timing, **fields), NOON, found)
    assert answer.endswith(f"is skip, which gives up what is late by more than {grace}")


OUTAGE = row(
    **SKIPPED | {"scheduled_at": NOON - HOUR * 500},
    reason=RunReason.MISSED,
    until=NOON + HOUR * 500,
    count=1001,
)


@pytest.mark.parametrize("hours", [-500, 0, 500])
def test_part_of_a_long_outage(hours: int) -> None:
    of = schedule(now=NOON - HOUR * 501)
    found = replace(OUTAGE, created_at=NOON + HOUR * 501)
    answer = why(of, NOON + HOUR * hours, found, now=NOON + HOUR * 600)
    assert answer.status == "skipped"
    assert (
        "It was one of 1,001 times from 2026-01-07 16:00 UTC to 2026-02-18 08:00 UTC that were missed"
        in answer
    )
    assert "no scheduler was there to fire them, until 2026-02-18 09:00 UTC" in answer


def test_a_time_inside_an_outage_that_was_never_expected() -> None:
    answer = why(schedule(now=NOON - HOUR * 501), NOON + MINUTE, OUTAGE, now=NOON + HOUR * 600)
    assert (answer.status, answer.run) == ("not_expected", None)


def test_jitter_is_part_of_the_plan() -> None:
    of = schedule(jitter=MINUTE * 30)
    due = due_time(of, NOON)
    assert due > NOON + MINUTE * 2, "else this test shows nothing"
    found = row(status=RunStatus.COMPLETED, started_at=due, completed_at=due)
    answer = why(of, NOON, found)
    assert "It started on time (put off, due at 2026-01-28 12:" in answer
    late = why(of, NOON, replace(found, started_at=due + MINUTE * 2, trigger=RunTrigger.CATCH_UP))
    assert "It started 2 minutes late, at 2026-01-28 12:" in late


# Without a row


@pytest.mark.parametrize(
    ("at", "now", "status", "text"),
    [
        (
            BORN - HOUR,
            NOON,
            "before_creation",
            "2026-01-27 11:00 UTC: The schedule did not exist yet: it was created by ann at 2026-01-27 12:00 UTC.",
        ),
        (
            BORN,
            NOON,
            "before_creation",
            "2026-01-27 12:00 UTC: The schedule did not exist yet: it was created by ann",
        ),
        (
            NOON + MINUTE * 7,
            NOON,
            "not_expected",
            "2026-01-28 12:07 UTC: This is not a time of the schedule (Every hour); the one before it is 2026-01-28"
            " 12:00 UTC and the one after it is 2026-01-28 13:00 UTC.",
        ),
        (NOON + HOUR * 26, NOON, "upcoming", "2026-01-29 14:00 UTC: It is expected in 1 day 2 hours."),
        (
            BORN + HOUR,
            BORN + HOUR * 3,
            "overdue",
            "2026-01-27 13:00 UTC: It has been due for 2 hours and was not handled yet: no scheduler seems to be"
            " running. Start one (`rota up` or `rota scheduler run`), or call `run_due()`.",
        ),
        (
            BORN + HOUR * 2,
            BORN + HOUR * 3,
            "overdue",
            "2026-01-27 14:00 UTC: It has been due for 1 hour and was not handled yet: no scheduler seems to be",
        ),
        (
            BORN + HOUR,
            BORN + HOUR + SECOND,
            "overdue",
            "2026-01-27 13:00 UTC: It is due right now, and a scheduler should fire it any moment.",
        ),
    ],
    ids=lambda v: v[:50] if isinstance(v, str) else "",
)
def test_what_can_be_said_without_a_row(at: datetime, now: datetime, status: str, text: str) -> None:
    answer = why(schedule(), at, now=now)
    assert answer.startswith(f"report, {text}")
    assert (answer.status, answer.run) == (status, None)


def test_a_row_that_is_gone() -> None:
    of = replace(schedule(), next_run_at=NOON + DAY, due_at=NOON + DAY, updated_at=NOON + MINUTE)
    answer = why(of, NOON, now=NOON + HOUR)
    assert answer.status == "unknown"
    assert answer.endswith(
        "It was expected, but the ledger has no row for it: the schedule was changed before it was handled (last at"
        " 2026-01-28 12:01 UTC), or the row was too old to be kept."
    )


def test_before_its_start_and_after_its_end() -> None:
    of = schedule(start_at=NOON, end_at=NOON + HOUR)
    early, late = why(of, NOON - HOUR), why(of, NOON + HOUR * 2)
    assert early.status == "not_expected"
    assert early.endswith("The schedule begins at 2026-01-28 12:00 UTC (start_at).")
    assert late.status == "ended"
    assert late.endswith("The schedule ended at 2026-01-28 13:00 UTC (end_at).")


@pytest.mark.parametrize(
    ("pause", "now", "text"),
    [
        (
            (NOON - HOUR, NOON + HOUR, "bob", "too loud"),
            NOON + DAY,
            "The schedule was not active: bob paused it at 2026-01-28 11:00 UTC (too loud), and it was active again"
            " from 2026-01-28 13:00 UTC.",
        ),
        (
            (NOON - HOUR, None, "bob", None),
            NOON + DAY,
            "The schedule is not active: bob paused it at 2026-01-28 11:00 UTC; nothing runs until it is resumed.",
        ),
        (
            (NOON - HOUR, None, "bob", None),
            NOON - MINUTE,
            "The schedule is not active: bob paused it at 2026-01-28 11:00 UTC; resume it and it will run.",
        ),
        (
            (BORN, NOON + MINUTE, "ann", None),
            NOON + DAY,
            "The schedule was not active: it was created at rest by ann, at 2026-01-27 12:00 UTC, and it was active"
            " again from 2026-01-28 12:01 UTC.",
        ),
    ],
    ids=str,
)
def test_paused_then(pause: Pause, now: datetime, text: str) -> None:
    others: list[Pause] = [
        (BORN + MINUTE, BORN + MINUTE * 2, "eve", "other"),
        (NOON + DAY * 2, None, "eve", "other"),
    ]
    answer = why(schedule(), NOON, now=now, pauses=[others[0], pause, others[1]])
    assert answer == f"report, 2026-01-28 12:00 UTC: {text}"
    assert answer.status == "paused"


def test_a_pause_ends_when_it_was_resumed() -> None:
    resumed = definition.resume(definition.pause(schedule(), BORN, "bob"), NOON - SECOND, "bob")
    assert why(resumed, NOON, now=NOON, pauses=[(BORN, NOON - SECOND, "bob", None)]).status == "overdue"
    assert why(resumed, NOON, now=NOON, pauses=[(BORN, NOON, "bob", None)]).status == "overdue"


def test_paused_now_without_a_history() -> None:
    answer = why(definition.pause(schedule(), NOON, "bob", "too loud"), NOON + HOUR, now=NOON)
    assert answer.status == "paused"
    assert answer.endswith("The schedule is paused (too loud): resume it and it will run.")


def test_deleted() -> None:
    gone = definition.delete(schedule(), NOON - MINUTE, "bob")
    answer = why(gone, NOON, pauses=[(NOON - MINUTE, None, "bob", None)])
    assert answer.status == "deleted"
    assert answer.endswith("The schedule was deleted by bob at 2026-01-28 11:59 UTC.")
    assert why(gone, NOON - HOUR).status == "unknown", "before that it was alive"


def test_completed_by_then() -> None:
    used_up = decide(schedule(max_runs=1), BORN + HOUR, []).schedule
    for pauses in ([], [(BORN + HOUR, None, "scheduler", None)]):
        answer = why(used_up, NOON, pauses=pauses)
        assert answer.status == "ended"
        assert answer.endswith("had completed at 2026-01-27 13:00 UTC: it has run 1 times, its max_runs.")
    assert why(used_up, NOON + DAY).status == "ended"


def test_max_runs_will_be_reached_by_then() -> None:
    of = schedule(max_runs=2)
    answers = [why(of, BORN + HOUR * n, now=BORN + MINUTE) for n in (1, 2, 3)]
    assert [answer.status for answer in answers] == ["upcoming", "upcoming", "not_expected"]
    assert answers[-1].endswith("By then the schedule will have run 2 times, its max_runs.")


def test_what_is_to_come_names_its_jitter() -> None:
    of = schedule(jitter=MINUTE * 30)
    answer = why(of, NOON, now=NOON - HOUR)
    assert answer.status == "upcoming"
    assert ", put off to 2026-01-28 12:" in answer


def test_due_but_its_jitter_is_still_to_come() -> None:
    of = schedule(jitter=MINUTE * 30)
    assert of.next_run_at is not None
    assert of.due_at is not None
    assert of.due_at > of.next_run_at + SECOND, "else this test shows nothing"
    assert why(of, of.next_run_at, now=of.next_run_at).status == "upcoming"


# Zones


def test_times_are_local_with_the_zone_and_utc() -> None:
    of = schedule(Cron("0 9 * * *", NEW_YORK))
    answer = why(of, NOON + HOUR * 2, now=NOON)
    assert answer == "report, 2026-01-28 09:00 EST (14:00 UTC): It is expected in 2 hours."
    tokyo = schedule(Cron("0 3 * * *", "Asia/Tokyo"))
    assert "2026-01-29 03:00 JST (2026-01-28 18:00 UTC)" in why(tokyo, NOON + HOUR * 6, now=NOON)


def test_a_local_time_that_did_not_exist() -> None:
    of = schedule(Cron("30 2 * * *", NEW_YORK), datetime(2026, 3, 1, tzinfo=UTC))
    moved = datetime(2026, 3, 8, 7, tzinfo=UTC)
    answer = why(
        of, moved, row(scheduled_at=moved, started_at=moved, completed_at=moved, status=RunStatus.COMPLETED)
    )
    assert answer == (
        "report, 2026-03-08 03:00 EDT (07:00 UTC): It started on time, and completed after less than a second. The"
        " local time asked for does not exist that day, because clocks go forward: it is moved to the first instant"
        " after the gap."
    )
    asked = datetime(2026, 3, 8, 2, 30, tzinfo=ZoneInfo(NEW_YORK))
    missing = why(of, asked, now=moved + DAY)
    assert missing.status == "not_expected"
    assert (
        "the one before it is 2026-03-08 03:00 EDT (07:00 UTC) (moved there because clocks go forward)"
        in missing
    )
    assert "the one after it is 2026-03-09 02:30 EDT (06:30 UTC)" in missing


def test_a_local_time_that_happened_twice() -> None:
    of = schedule(Cron("30 1 * * *", NEW_YORK), datetime(2026, 10, 1, tzinfo=UTC))
    first = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    answer = why(of, first, now=first - HOUR)
    assert answer.status == "upcoming"
    assert answer.endswith(
        "Clocks go back that night, so this local time comes twice: this is the first of the two."
    )
    second = why(of, first + HOUR, now=first + DAY)
    assert second.status == "not_expected"
    assert second == (
        "report, 2026-11-01 01:30 EST (06:30 UTC): Clocks go back that night, so this local time comes twice, and"
        " the schedule runs only the first time, at 2026-11-01 01:30 EDT (05:30 UTC)."
    )


# Small things


def test_people_leave_out_fractions_of_a_second() -> None:
    start = NOON + timedelta(microseconds=123_456)
    of = schedule(Interval(HOUR, start), start)
    assert meant(of, NOON + HOUR) == start + HOUR
    assert meant(of, start + HOUR) == start + HOUR
    assert meant(of, NOON + MINUTE) == NOON + MINUTE
    answer = why(of, NOON + HOUR, now=start)
    assert answer == "report, 2026-01-28 13:00:00.123456 UTC: It is expected in 1 hour."


def test_a_once_accepted_a_moment_late() -> None:
    of = schedule(Once(NOON - SECOND), NOON)
    assert why(of, NOON - SECOND, now=NOON).status == "overdue"


@pytest.mark.parametrize("at", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
@pytest.mark.parametrize(
    "timing", [HOURLY, Cron("0 9 * * *", "Asia/Tokyo"), Cron("0 9 * * *", NEW_YORK)], ids=str
)
def test_the_ends_of_time(timing: Timing, at: datetime) -> None:
    expected = ("before_creation",) if at.year == 1 else ("not_expected", "upcoming")
    assert why(schedule(timing), at).status in expected


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (timedelta(0), "less than a second"),
        (SECOND, "1 second"),
        (-SECOND * 61, "1 minute 1 second"),
        (HOUR * 2 + MINUTE * 5 + SECOND, "2 hours 5 minutes"),
        (DAY * 400, "400 days"),
        (DAY + SECOND, "1 day 1 second"),
    ],
)
def test_lengths(duration: timedelta, words: str) -> None:
    assert length(duration) == words


def test_a_why_is_a_text() -> None:
    answer = why(schedule())
    assert isinstance(answer, str)
    assert str(answer) == f"{answer}"


def test_a_time_to_come_of_a_suspended_tenant() -> None:
    answer = explain(schedule(), NOON + 2 * HOUR, None, NOON, (), suspended=True)
    assert answer.status == "upcoming"
    assert answer.endswith(
        "It is expected in 2 hours. Tenant default is suspended: unless it is resumed before, this time will be"
        " skipped."
    )
