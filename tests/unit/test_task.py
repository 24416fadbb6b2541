"""The life of a task: every operation from every state, fencing, expiry, backoff, and what never happens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.domain.errors import Invalid, Refused, RescheduleError, RetryableError
from rota.domain.model import Failure, Limit, Limits, LogLine, RetryPolicy, Task, TaskStatus
from rota.domain.task import (
    Completed,
    Defaults,
    Failed,
    Outcome,
    Released,
    Rescheduled,
    Submission,
    admit,
    archive,
    backoff,
    cancel,
    claim,
    expire,
    lose,
    renew,
    replay,
    settle,
)
from rota.domain.task.shortening import HISTORY_KEPT

NOW = datetime(2026, 1, 28, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=30)
BOOM = Failure(type="ValueError", message="boom", traceback="…")
P, R, C, F, X, E, A = (
    TaskStatus.PENDING,
    TaskStatus.RUNNING,
    TaskStatus.COMPLETED,
    TaskStatus.FAILED,
    TaskStatus.CANCELLED,
    TaskStatus.EXPIRED,
    TaskStatus.ARCHIVED,
)


def submitted(**options: Any) -> Task:
    return admit("t1", Submission(**{"kind": "send", **options}), "default", NOW, Limits(), "ann")


def claimed(task: Task, now: datetime = NOW, defaults: Defaults | None = None, lease_id: str = "L1") -> Task:
    return claim(
        task, worker_id="w1", lease_id=lease_id, lease=LEASE, defaults=defaults or Defaults(), now=now
    )


def running(**options: Any) -> Task:
    return claimed(submitted(**options))


def settled(task: Task, outcome: Outcome, now: datetime = NOW) -> Task:
    return settle(task, outcome, lease_id=task.lease_id or "", now=now)


STATES: dict[str, Callable[[], Task]] = {
    "pending": submitted,
    "delayed": lambda: submitted(schedule_at=NOW + SECOND),
    "past expiry": lambda: replace(submitted(ttl=SECOND), expires_at=NOW),
    "running": running,
    "cancelling": lambda: cancel(running(), NOW, "bob", "no need"),
    "lost": lambda: replace(running(), lease_expires_at=NOW),
    "completed": lambda: settled(running(), Completed(1)),
    "failed": lambda: settled(running(), Failed(failure=BOOM, permanent=True)),
    "cancelled": lambda: cancel(submitted(), NOW, "bob"),
    "expired": lambda: expire(submitted(ttl=timedelta(0)), NOW, "janitor"),
    "archived": lambda: archive(settled(running(), Completed(1)), NOW, "bob"),
}

OPERATIONS: dict[str, Callable[[Task], Task]] = {
    "claim": claimed,
    "renew": lambda task: renew(task, lease_id="L1", lease=LEASE, now=NOW),
    "complete": lambda task: settle(task, Completed(2), lease_id="L1", now=NOW),
    "fail": lambda task: settle(task, Failed(failure=BOOM), lease_id="L1", now=NOW),
    "for-good": lambda task: settle(task, Failed(failure=BOOM, permanent=True), lease_id="L1", now=NOW),
    "reschedule": lambda task: settle(task, Rescheduled(delay=SECOND), lease_id="L1", now=NOW),
    "release": lambda task: settle(task, Released(), lease_id="L1", now=NOW),
    "lose": lambda task: lose(task, NOW),
    "expire": lambda task: expire(task, NOW, "janitor"),
    "cancel": lambda task: cancel(task, NOW, "bob"),
    "replay": lambda task: replay(task, NOW, "bob"),
    "archive": lambda task: archive(task, NOW, "bob"),
}

# What each operation makes of each state: the new status (its first letter; x: cancelled), or the refusal.
TABLE = """
            claim   renew complete fail for-good reschedule release lose expire  cancel replay  archive
pending     r       lost  lost     lost lost     lost       lost    held e       x      !replay !archive
delayed     !claim  lost  lost     lost lost     lost       lost    held e       x      !replay !archive
past expiry expired lost  lost     lost lost     lost       lost    held e       ended  !replay a
running     !claim  r     c        p    f        p          p       held !expire r      !replay !archive
cancelling  !claim  r     x        x    x        x          x       held !expire r      !replay !archive
lost        !claim  r     c        p    f        p          p       p    !expire r      !replay !archive
completed   !claim  lost  lost     lost lost     lost       lost    held !expire ended  !replay a
failed      !claim  lost  lost     lost lost     lost       lost    held !expire ended  p       a
cancelled   !claim  lost  lost     lost lost     lost       lost    held !expire ended  p       a
expired     expired lost  lost     lost lost     lost       lost    held !expire ended  !replay a
archived    !claim  lost  lost     lost lost     lost       lost    held !expire ended  !replay a
"""
LETTERS = {"p": P, "r": R, "c": C, "f": F, "x": X, "e": E, "a": A}
CODES = {
    "lost": "lease_lost",
    "held": "lease_held",
    "ended": "already_ended",
    "expired": "expired",
    "!claim": "not_claimable",
    "!expire": "cannot_expire",
    "!replay": "cannot_replay",
    "!archive": "cannot_archive",
}
ROWS = [(line[:12].strip(), line[12:].split()) for line in TABLE.strip("\n").splitlines()]
CELLS = [
    (state, operation, outcome)
    for state, outcomes in ROWS[1:]
    for operation, outcome in zip(ROWS[0][1], outcomes, strict=True)
]


@pytest.mark.parametrize(("state", "operation", "outcome"), CELLS)
def test_every_operation_from_every_state(state: str, operation: str, outcome: str) -> None:
    before = STATES[state]()
    if outcome in LETTERS:
        after = OPERATIONS[operation](before)
        assert after.status is LETTERS[outcome]
        assert after.id == before.id
        assert (after.lease_id is not None) == (after.status is R)
        assert (after.completed_at is not None) == (after.status not in (P, R))
    else:
        with pytest.raises(Refused) as caught:
            OPERATIONS[operation](before)
        assert caught.value.code == CODES[outcome]
        assert caught.value.details["task"] == "t1"
        assert "t1" in str(caught.value)


def test_the_table_is_complete() -> None:
    assert {(state, operation) for state, operation, _ in CELLS} == {
        (s, o) for s in STATES for o in OPERATIONS
    }
    assert {state().status for state in STATES.values()} == set(TaskStatus)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("state", STATES)
def test_twice_is_refused_or_once(state: str, operation: str) -> None:
    try:
        once = OPERATIONS[operation](STATES[state]())
    except Refused:
        return
    try:
        twice = OPERATIONS[operation](once)
    except Refused:
        return
    assert twice == once


# Submission


def test_a_submitted_task_is_pending_and_says_who_made_it() -> None:
    task = submitted(input={"user": (1, 2)}, tags=["a", "a"], metadata={"k": 1})
    assert (task.status, task.created_at, task.available_at, task.expires_at) == (P, NOW, NOW, None)
    assert task.input == {"user": [1, 2]}
    assert task.tags == ("a",)
    assert [(c.number, c.status, c.actor, c.detail) for c in task.history] == [(1, P, "ann", "created")]
    assert task.task_type == "send"


def test_times_given_in_other_zones_are_kept_in_utc() -> None:
    east = datetime.fromisoformat("2026-01-28T15:00:00+02:00")
    task = submitted(schedule_at=east, expires_at=east + SECOND)
    assert task.available_at.isoformat() == "2026-01-28T13:00:00+00:00"
    assert task.expires_at is not None
    assert task.expires_at.isoformat() == "2026-01-28T13:00:01+00:00"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"queue": ""}, "queue"),
        ({"queue": None}, "queue"),
        ({"kind": {"a": 1}}, "kind"),
        ({"kind": None}, "kind"),
        ({"priority": 256}, "priority"),
        ({"priority": None}, "priority"),
        ({"input": {1, 2}}, "input"),
        ({"input": "x" * 2**20}, "input"),
        ({"metadata": {"a": {"b": {"c": {}}}}}, "metadata"),
        ({"metadata": []}, "metadata"),
        ({"tags": "abc"}, "tags"),
        ({"schedule_at": datetime(2026, 1, 1)}, "schedule_at"),
        ({"schedule_at": "tomorrow"}, "schedule_at"),
        ({"expires_at": 5}, "expires_at"),
        ({"ttl": timedelta(seconds=-1)}, "ttl"),
        ({"ttl": "soon"}, "ttl"),
        ({"ttl": SECOND, "expires_at": NOW}, "ttl"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": 1.5}, "max_retries"),
        ({"max_reschedules": True}, "max_reschedules"),
        ({"retry_policy": {}}, "retry_policy"),
        ({"retry_policy": RetryPolicy(jitter=2)}, "retry_policy.jitter"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"timeout": "long"}, "timeout"),
        ({"idempotency_key": 5}, "idempotency_key"),
        ({"idempotency_key": "x" * 256}, "idempotency_key"),
        ({"idempotency_key": "\ud800"}, "idempotency_key"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        submitted(**options)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")
    assert "; " in str(caught.value)


SHARED = {"who": ["ann"]}


@pytest.mark.parametrize(
    "options",
    [
        {"input": 2},
        {"input": {"n": [1, 2.0, True, None]}, "metadata": SHARED},
        {"input": 1, "metadata": {"who": ["bob"]}},
        {"input": 1, "metadata": {"n": True}},
        {"input": 1, "queue": "slow"},
        {"input": 1, "ttl": SECOND},
        {"input": 1, "schedule_at": NOW + SECOND, "tags": ["a"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [{"input": 1}, {"input": 1, "metadata": SHARED}, {"metadata": {"n": 1}}])
def test_a_task_is_the_same_whether_one_like_it_was_admitted_before(
    first: dict[str, Any], options: dict[str, Any]
) -> None:
    asked, other = Submission(kind="send", **first), Submission(kind="send", **options)
    before = admit("t0", asked, "default", NOW, Limits(), "ann")
    task = admit("t1", other, "default", NOW, Limits(), "ann", like=(asked, before))
    alone = admit("t1", other, "default", NOW, Limits(), "ann")
    assert msgspec.json.encode(task) == msgspec.json.encode(alone)
    assert task == alone
    assert task.metadata is not before.metadata


@pytest.mark.parametrize("input", [float("nan"), {1: 2}, object(), "x" * 2_000_000])
def test_a_wrong_input_is_refused_after_one_that_was_admitted(input: Any) -> None:
    asked = Submission(kind="send", input=1)
    like = asked, admit("t0", asked, "default", NOW, Limits(), "ann")
    with pytest.raises(Invalid, match=r"^input: "):
        admit("t1", replace(asked, input=input), "default", NOW, Limits(), "ann", like=like)


def test_tasks_that_are_alike_have_their_own_gates() -> None:
    limits = Limits(tasks={"kind:send": Limit(concurrency=1, key="customer")})
    asked = Submission(kind="send", input={"customer": 1})
    before = admit("t0", asked, "default", NOW, limits, "ann")
    other = replace(asked, input={"customer": 2})
    task = admit("t1", other, "default", NOW, limits, "ann", like=(asked, before))
    assert task.gates
    assert task.gates != before.gates


@pytest.mark.parametrize("kind", ["", None, 5, "a b"])
def test_a_wrong_kind_is_named(kind: Any) -> None:
    with pytest.raises(Invalid) as caught:
        admit("t1", Submission(kind=kind), "default", NOW, Limits(), "ann")
    assert caught.value.field == "kind"


def test_durations_may_be_seconds() -> None:
    task = submitted(ttl=300, timeout=1.5)
    assert task.expires_at == NOW + timedelta(minutes=5)
    assert task.timeout == timedelta(seconds=1.5)


# Claiming


def test_a_claim_takes_what_the_handler_was_registered_with() -> None:
    policy = RetryPolicy(initial=SECOND * 9)
    task = claimed(submitted(), defaults=Defaults(max_retries=7, retry_policy=policy, timeout=SECOND))
    assert (task.max_retries, task.retry_policy, task.timeout) == (7, policy, SECOND)
    assert (task.attempt, task.worker_id, task.lease_id) == (1, "w1", "L1")
    assert (task.started_at, task.lease_expires_at) == (NOW, NOW + LEASE)


def test_what_the_task_says_wins() -> None:
    policy = RetryPolicy(initial=SECOND * 9)
    mine = submitted(max_retries=0, retry_policy=policy, timeout=timedelta(minutes=2))
    task = claimed(mine, defaults=Defaults(max_retries=7, timeout=SECOND))
    assert (task.max_retries, task.retry_policy, task.timeout) == (0, policy, timedelta(minutes=2))


@pytest.mark.parametrize(
    ("options", "after", "code"),
    [
        ({}, timedelta(0), None),
        ({"schedule_at": NOW + SECOND}, timedelta(0), "not_claimable"),
        ({"schedule_at": NOW + SECOND}, SECOND, None),
        ({"schedule_at": NOW - SECOND}, timedelta(0), None),
        ({"ttl": SECOND}, timedelta(0), None),
        ({"ttl": SECOND}, SECOND - timedelta(microseconds=1), None),
        ({"ttl": SECOND}, SECOND, "expired"),
        ({"ttl": SECOND * 2, "schedule_at": NOW + SECOND}, SECOND, None),
        ({"ttl": SECOND, "schedule_at": NOW + SECOND}, SECOND, "expired"),
    ],
    ids=str,
)
def test_when_a_task_can_be_claimed(options: dict[str, Any], after: timedelta, code: str | None) -> None:
    task = submitted(**options)
    assert task.is_available_at(NOW + after) == (code is None)
    if code is None:
        assert claimed(task, NOW + after).status is R
        return
    with pytest.raises(Refused) as caught:
        claimed(task, NOW + after)
    assert caught.value.code == code


# Fencing


@pytest.mark.parametrize(
    "outcome", [Completed(1), Failed(failure=BOOM), Rescheduled(delay=SECOND), Released()], ids=str
)
def test_a_stale_worker_changes_nothing(outcome: Outcome) -> None:
    returned = lose(running(), NOW + LEASE)
    again = claimed(returned, NOW + LEASE, lease_id="L2")
    for task in (returned, again):
        with pytest.raises(Refused) as caught:
            settle(task, outcome, lease_id="L1", now=NOW + LEASE)
        assert caught.value.code == "lease_lost"
        with pytest.raises(Refused):
            renew(task, lease_id="L1", lease=LEASE, now=NOW + LEASE)


def test_a_holder_that_is_late_but_not_replaced_may_still_answer() -> None:
    late = NOW + LEASE * 2
    assert renew(running(), lease_id="L1", lease=LEASE, now=late).lease_expires_at == late + LEASE
    assert settled(running(), Completed(1), late).status is C


def test_a_pending_task_is_not_held_by_an_empty_lease() -> None:
    with pytest.raises(Refused):
        settle(submitted(), Completed(1), lease_id="", now=NOW)


def test_renewing_stores_progress_and_keeps_it_when_there_is_none() -> None:
    line = LogLine(at=NOW, attempt=1, message="half")
    task = renew(running(), lease_id="L1", lease=LEASE, now=NOW + SECOND, progress=50, logs=(line,))
    assert (task.progress, task.logs, task.updated_at) == (50, (line,), NOW + SECOND)
    assert renew(task, lease_id="L1", lease=LEASE, now=NOW).progress == 50
    assert len(task.history) == 2, "a renewal is not a change of state"


# Ends


def test_completed_keeps_the_output_and_clears_the_error() -> None:
    retried = claimed(replace(settled(running(), Failed(failure=BOOM)), available_at=NOW))
    done = settled(retried, Completed({"n": 1}), NOW + SECOND)
    assert (done.status, done.output, done.error, done.completed_at) == (C, {"n": 1}, None, NOW + SECOND)
    assert (done.lease_id, done.lease_expires_at, done.worker_id) == (None, None, None)


def test_failures_retry_until_none_are_left() -> None:
    task, now = submitted(max_retries=2), NOW
    for retries in (1, 2):
        task = settled(claimed(task, now), Failed(failure=BOOM), now)
        assert (task.status, task.retries, task.error) == (P, retries, BOOM)
        assert task.history[-1].detail.startswith(f"retry {retries} of 2 in ")
        assert task.history[-1].detail.endswith(" s: ValueError: boom")
        now = task.available_at
    task = settled(claimed(task, now), Failed(failure=BOOM), now)
    assert (task.status, task.retries, task.attempt, task.completed_at) == (F, 2, 3, now)
    assert task.history[-1].detail == "ValueError: boom"


def test_a_permanent_failure_does_not_retry() -> None:
    assert settled(running(max_retries=9), Failed(failure=BOOM, permanent=True)).status is F


def test_a_failure_may_bring_its_own_delay() -> None:
    task = settled(running(), Failed(failure=BOOM, delay=timedelta(days=2)))
    assert task.available_at == NOW + timedelta(days=2)
    assert task.history[-1].detail == "retry 1 of 3 in 172,800 s: ValueError: boom"


def test_without_retries_the_first_failure_is_the_last() -> None:
    assert settled(running(max_retries=0), Failed(failure=BOOM)).status is F


def test_reschedules_count_apart_from_retries() -> None:
    task = settled(running(max_reschedules=1), Rescheduled(delay=SECOND * 60, detail="not yet"))
    assert (task.status, task.reschedules, task.retries, task.error) == (P, 1, 0, None)
    assert task.available_at == NOW + SECOND * 60
    assert task.history[-1].detail == "rescheduled in 60 s: not yet"
    again = settled(claimed(task, task.available_at), Rescheduled(delay=SECOND), task.available_at)
    assert again.status is F
    assert again.error is not None
    assert (
        str(again.error) == "TooManyReschedules: asked to run again after 1 reschedules, the most it may have"
    )


def test_a_released_task_does_not_count_an_attempt() -> None:
    back = settled(running(), Released(), NOW + SECOND)
    assert (back.status, back.attempt, back.retries, back.available_at) == (P, 0, 0, NOW + SECOND)
    assert claimed(back, NOW + SECOND).attempt == 1


def test_lost_leases_count_as_retries_and_come_to_an_end() -> None:
    task, now = submitted(max_retries=2), NOW
    for retries in (1, 2, 2):
        task = claimed(task, now)
        now += LEASE
        task = lose(task, now)
        assert task.retries == retries
        assert task.available_at <= now
    assert task.status is F
    assert task.error is not None
    assert str(task.error) == "LeaseLost: worker w1 did not renew its lease by 2026-01-28T12:01:30Z"


@pytest.mark.parametrize("after", [timedelta(0), LEASE - timedelta(microseconds=1)])
def test_a_lease_is_not_lost_before_it_ends(after: timedelta) -> None:
    with pytest.raises(Refused, match="only a running task whose lease has run out"):
        lose(running(), NOW + after)


def test_what_handlers_say_is_made_storable() -> None:
    bad = Failure(type="E\udce9", message="caf\udce9", traceback="caf\udce9")
    logs = (LogLine(at=NOW, attempt=1, message="\udce9"),)
    for outcome in (
        Failed(failure=bad),
        Failed(failure=bad, permanent=True),
        Rescheduled(delay=SECOND, detail="\udce9"),
    ):
        task = settle(running(), outcome, lease_id="L1", now=NOW, logs=logs)
        assert b"\\udce9" in msgspec.json.encode(task)


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), 1e30, "5", True, None])
def test_a_handler_learns_at_once_that_its_delay_is_unusable(delay: Any) -> None:
    with pytest.raises(Invalid, match=r"^delay_seconds: it is not a usable delay; give a number of seconds"):
        RescheduleError(delay_seconds=delay)
    with pytest.raises(Invalid, match=r"^extend_expiration_seconds: "):
        RescheduleError(delay_seconds=0, extend_expiration_seconds=delay)
    if delay is not None:
        with pytest.raises(Invalid):
            RetryableError(delay_seconds=delay)
    assert RetryableError().delay_seconds is None


# Cancelling


@pytest.mark.parametrize(
    "outcome",
    [
        Completed("done anyway"),
        Failed(failure=BOOM),
        Failed(failure=BOOM, permanent=True),
        Rescheduled(delay=SECOND),
        Released(),
    ],
    ids=str,
)
def test_whatever_the_handler_says_after_a_cancel_request_it_ends_as_cancelled(outcome: Outcome) -> None:
    asked = cancel(running(), NOW, "bob", "too slow")
    assert (asked.status, asked.cancel_requested, asked.cancelled_by) == (R, True, "bob")
    assert asked.history[-1].detail == "cancel requested: too slow"
    ended = settled(asked, outcome, NOW + SECOND)
    assert (ended.status, ended.cancelled_by, ended.cancel_reason) == (X, "bob", "too slow")
    assert ended.output == ("done anyway" if isinstance(outcome, Completed) else None)
    assert ended.completed_at == NOW + SECOND


def test_a_lost_lease_after_a_cancel_request_ends_as_cancelled() -> None:
    assert lose(cancel(running(), NOW, "bob"), NOW + LEASE).status is X


def test_the_first_cancel_request_counts() -> None:
    asked = cancel(running(), NOW, "bob", "first")
    assert cancel(asked, NOW + SECOND, "eve", "second") is asked


def test_a_pending_task_is_cancelled_at_once() -> None:
    task = cancel(submitted(schedule_at=NOW + SECOND), NOW, "bob", "no need")
    assert (task.status, task.cancelled_by, task.cancel_reason, task.completed_at) == (
        X,
        "bob",
        "no need",
        NOW,
    )


# Expiry: the edge cases of document 003


def test_expiry_is_in_the_history() -> None:
    task = expire(
        submitted(expires_at=NOW + timedelta(hours=5)), NOW + timedelta(hours=5, seconds=5), "janitor"
    )
    assert [f"{c.number}: {c.status} ({c.detail})" for c in task.history] == [
        "1: pending (created, expires_at: 2026-01-28T17:00:00Z)",
        "2: expired (expired_at: 2026-01-28T17:00:05Z)",
    ]
    assert task.expired_at == task.completed_at == NOW + timedelta(hours=5, seconds=5)


def test_zero_ttl_is_submitted_already_expired() -> None:
    task = submitted(ttl=timedelta(0))
    read = task.as_of(NOW)
    assert (read.status, read.expires_at, read.expired_at, read.completed_at) == (E, NOW, NOW, NOW)
    assert read == replace(expire(task, NOW, read.history[0].actor), version=read.version)
    assert task.as_of(NOW + SECOND) == read


def test_an_expiry_in_the_past_is_submitted_already_expired() -> None:
    assert submitted(expires_at=NOW - SECOND).as_of(NOW).status is E


def test_no_expiry_is_the_default_and_means_never() -> None:
    assert not submitted().is_expired_at(datetime.max.replace(tzinfo=UTC))


def test_a_time_that_has_passed_means_now() -> None:
    assert submitted(schedule_at=NOW - timedelta(days=90)).available_at == NOW
    assert submitted(schedule_at=NOW + SECOND).available_at == NOW + SECOND


def test_a_ttl_counts_from_submission_even_when_delayed() -> None:
    task = submitted(schedule_at=NOW + timedelta(hours=1), ttl=timedelta(hours=2))
    assert task.expires_at == NOW + timedelta(hours=2)


@pytest.mark.parametrize(("after", "expired"), [(-1, False), (0, True), (1, True)])
def test_it_reads_as_expired_at_once_swept_or_not(after: int, expired: bool) -> None:
    task, now = submitted(ttl=SECOND), NOW + SECOND + timedelta(microseconds=after)
    assert task.is_expired_at(now) is expired
    assert task.as_of(now).status is (E if expired else P)
    assert task.status is P


def test_running_work_outlives_its_expiry() -> None:
    task, late = running(ttl=SECOND), NOW + timedelta(hours=1)
    assert not task.is_expired_at(late)
    assert task.as_of(late) is task
    assert renew(task, lease_id="L1", lease=LEASE, now=late).status is R
    assert settled(task, Completed(1), late).status is C
    with pytest.raises(Refused, match="only a pending task can expire"):
        expire(task, late, "janitor")


def test_a_retry_beyond_the_expiry_expires_instead() -> None:
    task = settled(running(ttl=SECOND), Failed(failure=BOOM, delay=timedelta(minutes=1)))
    assert (task.status, task.expires_at) == (P, NOW + SECOND)
    assert task.available_at > NOW + SECOND
    assert task.as_of(NOW + SECOND).status is E
    with pytest.raises(Refused, match=r"expired at 2026-01-28T12:00:01Z"):
        claimed(task, task.available_at)


@pytest.mark.parametrize(
    ("extension", "expires_at"),
    [(timedelta(0), NOW + SECOND), (SECOND * 120, NOW + SECOND * 121)],
    ids=str,
)
def test_a_reschedule_keeps_the_expiry_unless_it_asks_to_move_it(
    extension: timedelta, expires_at: datetime
) -> None:
    outcome = Rescheduled(delay=SECOND * 60, extend_expiration=extension)
    assert settled(running(ttl=SECOND), outcome).expires_at == expires_at


def test_an_extension_is_written_in_the_history() -> None:
    asked = Rescheduled(delay=SECOND * 60, extend_expiration=SECOND * 120, detail="not yet")
    detail = settled(running(ttl=SECOND), asked).history[-1].detail
    assert detail == "rescheduled in 60 s, expires_at extended to 2026-01-28T12:02:01Z: not yet"
    for unextended in (running(ttl=SECOND), running()):
        plain = settled(unextended, Rescheduled(delay=SECOND * 60)).history[-1].detail
        assert plain == "rescheduled in 60 s"


@pytest.mark.parametrize("seconds", [-5, -0.001])
def test_an_extension_cannot_bring_the_expiry_forward(seconds: float) -> None:
    with pytest.raises(
        Invalid, match=r"^extend_expiration_seconds: -.* would bring the expiry forward; give 0"
    ):
        RescheduleError(delay_seconds=60, extend_expiration_seconds=seconds)


def test_an_extension_of_no_expiry_is_none() -> None:
    outcome = Rescheduled(delay=SECOND, extend_expiration=SECOND)
    assert settled(running(), outcome).expires_at is None


def test_an_expiry_at_the_end_of_time_can_be_extended() -> None:
    forever = datetime.max.replace(tzinfo=UTC)
    outcome = Rescheduled(delay=SECOND, extend_expiration=SECOND)
    assert settled(running(expires_at=forever), outcome).expires_at == forever


def test_a_pending_task_can_be_marked_expired_before_its_time() -> None:
    task = expire(submitted(), NOW, "ann")
    assert (task.status, task.expires_at, task.expired_at) == (E, None, NOW)
    with pytest.raises(Refused, match=r"task t1 expired at 2026-01-28T12:00:00Z; it cannot run any more"):
        claimed(task)


@pytest.mark.parametrize(("after", "refused"), [(-1, False), (0, True), (1, True)])
def test_a_replay_comes_too_late_at_its_very_expiry(after: int, refused: bool) -> None:
    failed = settled(running(ttl=SECOND), Failed(failure=BOOM, permanent=True))
    now = NOW + SECOND + timedelta(microseconds=after)
    if not refused:
        assert replay(failed, now, "ann").is_available_at(now)
        return
    with pytest.raises(Refused, match=r"task t1 expired at 2026-01-28T12:00:01Z; it cannot run any more"):
        replay(failed, now, "ann")


def test_an_expired_task_cannot_be_replayed() -> None:
    with pytest.raises(Refused, match="task t1 is expired; only a failed or cancelled task can be replayed"):
        replay(submitted(ttl=timedelta(0)), NOW, "ann")


def test_a_failed_task_past_its_expiry_cannot_be_replayed() -> None:
    failed = settled(running(ttl=SECOND), Failed(failure=BOOM, permanent=True), NOW + LEASE)
    with pytest.raises(Refused, match="expired at 2026-01-28T12:00:01Z"):
        replay(failed, NOW + LEASE, "ann")


# Replaying and archiving


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_replay_begins_afresh(state: str) -> None:
    ended = replace(STATES[state](), retries=3, reschedules=2, output=1, progress=9, error=BOOM)
    task = replay(ended, NOW + SECOND, "ann")
    assert (task.status, task.available_at, task.completed_at) == (P, NOW + SECOND, None)
    assert (task.retries, task.reschedules, task.output, task.error, task.progress) == (
        0,
        0,
        None,
        None,
        None,
    )
    assert (task.cancel_requested, task.cancelled_by, task.cancel_reason) == (False, None, None)
    assert task.attempt == ended.attempt, "attempts are counted through"
    assert task.history[-1].detail == "replayed"


def test_a_replayed_cancel_is_over() -> None:
    cancelled = settled(cancel(running(), NOW, "bob"), Completed(1))
    assert settled(claimed(replay(cancelled, NOW, "ann")), Completed(2)).status is C


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled", "expired", "past expiry"])
def test_archiving_says_what_it_was(state: str) -> None:
    before = STATES[state]()
    task = archive(before, NOW, "ann")
    assert task.history[-1].detail == f"was {before.as_of(NOW).status}"
    assert task.completed_at is not None
    assert (task.expired_at is not None) == (before.as_of(NOW).status is E)


def test_archiving_twice_is_once() -> None:
    task = STATES["archived"]()
    assert archive(task, NOW + SECOND, "eve") is task


# Backoff


@pytest.mark.parametrize(
    ("policy", "retries", "seconds"),
    [
        (RetryPolicy(jitter=0), 0, 1),
        (RetryPolicy(jitter=0), 1, 2),
        (RetryPolicy(jitter=0), 5, 32),
        (RetryPolicy(jitter=0), 6, 60),
        (RetryPolicy(jitter=0), 10**9, 60),
        (RetryPolicy(jitter=0, multiplier=1), 50, 1),
        (RetryPolicy(jitter=0, multiplier=1000, maximum=timedelta(days=1)), 10**6, 86_400),
        (RetryPolicy(jitter=0, initial=timedelta(0)), 3, 0),
        (RetryPolicy(jitter=0, initial=timedelta(minutes=5)), 0, 60),
    ],
    ids=str,
)
def test_backoff_grows_to_its_maximum(policy: RetryPolicy, retries: int, seconds: float) -> None:
    assert backoff(policy, retries, "t1") == timedelta(seconds=seconds)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(0, 100), st.integers(0, 99), st.floats(0, 1), st.floats(1, 10))
def test_backoff_stays_within_its_bounds_and_is_repeatable(
    retries: int, task: int, jitter: float, multiplier: float
) -> None:
    policy = RetryPolicy(jitter=jitter, multiplier=multiplier)
    salt = f"task {task}"
    delay = backoff(policy, retries, salt)
    nominal = min(multiplier ** min(retries, 64), 60.0)
    assert delay == backoff(policy, retries, salt)
    assert nominal * (1 - jitter) - 1e-5 <= delay.total_seconds() <= nominal * (1 + jitter) + 1e-5


def test_jitter_spreads_evenly() -> None:
    shares = [backoff(RetryPolicy(), 0, f"task {n}").total_seconds() for n in range(2000)]
    assert 0.75 <= min(shares) < 0.76
    assert 1.24 < max(shares) <= 1.25
    assert abs(sum(shares) / len(shares) - 1) < 0.01
    assert len(set(shares)) > 1990


def test_two_retries_of_one_task_are_spread_apart() -> None:
    policy = RetryPolicy(multiplier=1)
    assert backoff(policy, 0, "t1") != backoff(policy, 1, "t1")


# Bounds


def test_history_is_bounded_keeps_its_first_line_and_numbers_rise() -> None:
    task = submitted(max_retries=1000)
    for _ in range(200):
        task = settled(claimed(task), Failed(failure=BOOM, delay=timedelta(0)))
        assert len(task.history) <= HISTORY_KEPT
    numbers = [change.number for change in task.history]
    assert len(numbers) == HISTORY_KEPT
    assert numbers == [1, *range(401 - HISTORY_KEPT + 2, 402)]
    assert task.history[0].detail == "created"


def test_logs_are_bounded_and_the_newest_stay() -> None:
    task = running()
    for number in range(0, 1000, 50):
        lines = tuple(LogLine(at=NOW, attempt=1, message=str(number + n)) for n in range(50))
        task = renew(task, lease_id="L1", lease=LEASE, now=NOW, logs=lines)
    assert [line.message for line in task.logs] == [str(n) for n in range(800, 1000)]


# What can never happen


class Step(msgspec.Struct, frozen=True):
    operation: str
    later: int
    lease: str


STEPS = st.lists(
    st.builds(Step, st.sampled_from(sorted(OPERATIONS)), st.integers(0, 40), st.sampled_from(["L1", "L2"])),
    max_size=25,
)


def apply(step: Step, task: Task, now: datetime) -> Task:
    outcomes: dict[str, Outcome] = {
        "complete": Completed(2),
        "fail": Failed(failure=BOOM),
        "for-good": Failed(failure=BOOM, permanent=True),
        "reschedule": Rescheduled(delay=SECOND),
        "release": Released(),
    }
    if step.operation in outcomes:
        return settle(task, outcomes[step.operation], lease_id=step.lease, now=now)
    match step.operation:
        case "claim":
            return claimed(task, now, lease_id=step.lease)
        case "renew":
            return renew(task, lease_id=step.lease, lease=LEASE, now=now)
        case "lose":
            return lose(task, now)
        case "expire":
            return expire(task, now, "janitor")
        case "cancel":
            return cancel(task, now, "bob")
        case "replay":
            return replay(task, now, "bob")
        case _:
            return archive(task, now, "bob")


@settings(derandomize=True, deadline=None, max_examples=300)
@given(STEPS, st.one_of(st.none(), st.integers(1, 200)))
def test_whatever_is_applied(steps: list[Step], ttl: int | None) -> None:
    task, now = submitted(ttl=None if ttl is None else timedelta(seconds=ttl)), NOW
    for step in steps:
        now += timedelta(seconds=step.later)
        before = task
        try:
            task = apply(step, before, now)
        except Refused:
            continue
        ended = before.as_of(now).status not in (P, R)
        if ended and task != before:
            assert step.operation in ("replay", "archive", "expire")
            assert not (step.operation == "expire" and before.status is not P)
        if before.status is A:
            assert task is before
        if step.operation in ("renew", "complete", "fail", "for-good", "reschedule", "release"):
            assert before.status is R
            assert before.lease_id == step.lease, "a wrong lease never changes anything"
        assert task.attempt >= 0
        assert task.retries <= 3
        assert (task.lease_id is None) == (task.status is not R)
        assert [c.number for c in task.history] == sorted({c.number for c in task.history})
        assert task.history[-1].status is task.status
