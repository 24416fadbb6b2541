"""The ledger: what a fire starts, what a skip leaves, and how a row follows its task."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from msgspec.structs import replace

from rota.domain import task as life
from rota.domain.ids import derived_id
from rota.domain.model import (
    Failure,
    Limits,
    Run,
    RunReason,
    RunStatus,
    RunTrigger,
    Schedule,
    Target,
    Task,
    TaskTarget,
    Template,
    TemplateTarget,
    WorkflowTarget,
)
from rota.domain.recurrence import Cron
from rota.domain.schedule import Skip
from rota.domain.schedule.run import as_of, follow, run_id, skipped, start, target_type
from rota.domain.task import Completed, Defaults, Failed, Released

NOON = datetime(2026, 1, 28, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=2)
HOUR = timedelta(hours=1)
NOT_A_DURATION: Any = "soon"
TEMPLATE = Template(
    id="m1",
    alias="mail",
    kind="send",
    parameters={"to": "all", "subject": "hi"},
    queue="mails",
    max_retries=7,
    timeout=HOUR,
    tags=("mail",),
    created_at=NOON,
    updated_at=NOON,
)


def schedule(target: Target | None = None, **fields: Any) -> Schedule:
    return Schedule(
        id="s1",
        key="report",
        timing=Cron("0 12 * * *"),
        target=target or TaskTarget(kind="send"),
        created_at=NOON,
        updated_at=NOON,
        **fields,
    )


def started(
    target: Target | None = None,
    template: Template | None = None,
    limits: Limits | None = None,
    scheduled_at: datetime = NOON,
    before: int = 0,
) -> tuple[Run, Task | None]:
    of = schedule(target)
    trigger, limits = RunTrigger.SCHEDULED, limits or Limits()
    id = run_id(of, scheduled_at)
    return start(id, of, scheduled_at, trigger, template, LATER, limits, "scheduler", before)


def test_a_start_gives_a_running_row_and_its_task() -> None:
    run, task = started(
        TaskTarget(kind="send", queue="q", input={"n": 1}, priority=9, ttl=HOUR, timeout=HOUR)
    )
    assert task is not None
    assert (run.status, run.reason, run.error, run.completed_at) == (RunStatus.RUNNING, None, None, None)
    assert (run.scheduled_at, run.started_at, run.created_at) == (NOON, LATER, LATER)
    assert (run.schedule_id, run.target_type, run.target_id) == ("s1", "task", task.id)
    assert (run.trigger, run.actor, run.tenant) == (RunTrigger.SCHEDULED, "scheduler", "default")
    assert (task.schedule_id, task.run_id) == ("s1", run.id)
    assert (task.kind, task.queue, task.input, task.priority) == ("send", "q", {"n": 1}, 9)
    assert (task.available_at, task.expires_at, task.timeout) == (LATER, LATER + HOUR, HOUR)


def test_doing_it_twice_is_doing_it_once() -> None:
    assert started() == started()


def test_ids_follow_from_schedule_and_instant() -> None:
    one = schedule()
    assert run_id(one, NOON) == run_id(one, NOON.astimezone(ZoneInfo("Asia/Tokyo")))
    assert len({run_id(one, NOON), run_id(one, LATER), run_id(replace(one, id="s2"), NOON)}) == 3
    assert derived_id("a", "bc") != derived_id("ab", "c")


def test_a_workflow_starts_like_a_task() -> None:
    run, task = started(
        WorkflowTarget(kind="onboard", queue="flows", input=[1], metadata={"k": 1}, tags=("t",))
    )
    assert task is not None
    assert (run.target_type, run.target_id) == ("workflow", task.id)
    assert (task.kind, task.queue, task.input, task.metadata, task.tags) == (
        "onboard",
        "flows",
        [1],
        {"k": 1},
        ("t",),
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {"to": "all", "subject": "hi"}),
        ({}, {"to": "all", "subject": "hi"}),
        ({"to": "ann", "cc": "bob"}, {"to": "ann", "subject": "hi", "cc": "bob"}),
    ],
    ids=str,
)
def test_a_template_is_overlaid_with_the_input(given: Any, expected: dict[str, str]) -> None:
    run, task = started(TemplateTarget(template_id="m1", input=given), TEMPLATE)
    assert task is not None
    assert run.target_type == "template"
    assert task.input == expected
    assert (task.kind, task.queue, task.max_retries, task.timeout) == ("send", "mails", 7, HOUR)
    assert task.tags == ("mail",)
    assert TEMPLATE.parameters == {"to": "all", "subject": "hi"}


MAIL = TemplateTarget(template_id="m1")


def test_a_disabled_template_skips_the_run() -> None:
    row, task = started(MAIL, replace(TEMPLATE, enabled=False))
    assert task is None
    assert (row.id, row.scheduled_at) == (run_id(schedule(MAIL), NOON), NOON)
    assert (row.status, row.reason, row.error) == ("skipped", "disabled", None)


@pytest.mark.parametrize(
    ("target", "template", "limits", "error"),
    [
        (MAIL, None, Limits(), "target.template_id: there is no template 'm1'; create it first"),
        (
            MAIL,
            replace(TEMPLATE, tenant="other"),
            Limits(),
            "target.template_id: there is no template 'm1'; create it first",
        ),
        (
            MAIL,
            replace(TEMPLATE, parameters_schema={"required": ["cc"]}),
            Limits(),
            "target.input.cc: it is missing",
        ),
        (
            TemplateTarget(template_id="m1", input=[1]),
            TEMPLATE,
            Limits(),
            "target.input: [1] cannot be laid over a template's parameters; give a dict",
        ),
        (
            MAIL,
            replace(TEMPLATE, max_retries=-1),
            Limits(),
            "max_retries: -1 is not accepted; give a whole number from 0 to 1000000",
        ),
        (
            TaskTarget(kind="send", input="x" * 99),
            None,
            Limits(input_bytes=100),
            "input: 101 bytes are too many; the most is 100 bytes of JSON",
        ),
        (TaskTarget(kind="a b"), None, Limits(), "kind: 'a b' is not a valid name; accepted are "),
        (TaskTarget(kind="a", ttl=NOT_A_DURATION), None, Limits(), "ttl: 'soon' is not a duration; acc"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_target_that_cannot_work_is_a_failed_run_and_no_task(
    target: Target, template: Template | None, limits: Limits, error: str
) -> None:
    run, task = started(target, template, limits)
    assert task is None
    assert (run.status, run.reason, run.target_id) == (RunStatus.FAILED, RunReason.BAD_TARGET, None)
    assert (run.started_at, run.completed_at) == (LATER, LATER)
    assert run.error is not None
    assert run.error.startswith(error)


def test_a_ttl_of_nothing_is_a_run_that_was_skipped_by_expiring() -> None:
    run, task = started(TaskTarget(kind="send", ttl=timedelta(0)))
    assert task is not None
    run = follow(run, life.expire(task, LATER, "janitor"))
    assert (run.status, run.reason, run.completed_at) == (RunStatus.SKIPPED, RunReason.EXPIRED, LATER)


def test_a_task_of_a_time_long_past_waits_from_now_on() -> None:
    task = started(scheduled_at=NOON - HOUR * 24 * 90)[1]
    assert task is not None
    assert task.available_at == LATER, "it does not overtake what has waited for longer"


def test_of_several_that_start_together_the_oldest_comes_first() -> None:
    earlier, later = started(before=1)[1], started()[1]
    assert earlier is not None
    assert later is not None
    assert timedelta(0) < later.available_at - earlier.available_at < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "skip",
    [
        Skip(NOON, RunReason.MISSED),
        Skip(NOON, RunReason.OVERLAP),
        Skip(NOON, RunReason.MISSED, NOON + HOUR, 3600),
    ],
    ids=str,
)
def test_a_skip_is_a_row_without_a_task(skip: Skip) -> None:
    run = skipped(schedule(), skip, LATER)
    assert (run.status, run.reason, run.target_id) == (RunStatus.SKIPPED, skip.reason, None)
    assert (run.scheduled_at, run.until, run.count) == (NOON, skip.until, skip.count)
    assert (run.started_at, run.completed_at) == (None, LATER)
    assert run.id == run_id(schedule(), NOON), "a time has one row, fired or skipped"


# Following


def claimed(task: Task) -> Task:
    lease = timedelta(seconds=30)
    return life.claim(task, worker_id="w", lease_id="L", lease=lease, defaults=Defaults(), now=LATER)


def settled(task: Task, outcome: life.Outcome) -> Task:
    return life.settle(task, outcome, lease_id="L", now=LATER + HOUR)


BOOM = Failed(failure=Failure(type="ValueError", message="boom"), permanent=True)
ENDS: dict[str, tuple[Callable[[Task], Task], RunStatus, RunReason | None, str | None]] = {
    "pending": (lambda t: t, RunStatus.RUNNING, None, None),
    "running": (claimed, RunStatus.RUNNING, None, None),
    "handed back": (lambda t: settled(claimed(t), Released()), RunStatus.RUNNING, None, None),
    "retrying": (
        lambda t: settled(claimed(t), replace(BOOM, permanent=False)),
        RunStatus.RUNNING,
        None,
        None,
    ),
    "completed": (lambda t: settled(claimed(t), Completed(1)), RunStatus.COMPLETED, None, None),
    "failed": (lambda t: settled(claimed(t), BOOM), RunStatus.FAILED, None, "ValueError: boom"),
    "cancelled": (lambda t: life.cancel(t, LATER + HOUR, "bob"), RunStatus.CANCELLED, None, None),
    "expired": (
        lambda t: life.expire(t, LATER + HOUR, "janitor"),
        RunStatus.SKIPPED,
        RunReason.EXPIRED,
        None,
    ),
    "expired after a failure": (
        lambda t: life.expire(settled(claimed(t), replace(BOOM, permanent=False)), LATER + HOUR, "janitor"),
        RunStatus.FAILED,
        RunReason.EXPIRED,
        "ValueError: boom",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_run_says_how_its_task_ended(end: str) -> None:
    move, status, reason, error = ENDS[end]
    run, task = started()
    assert task is not None
    ended = follow(run, move(task))
    assert (ended.status, ended.reason, ended.error) == (status, reason, error)
    assert ended.completed_at == (None if status is RunStatus.RUNNING else LATER + HOUR)
    assert (ended.started_at, ended.target_id) == (LATER, task.id)
    assert follow(ended, move(task)) == ended


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "expired"])
def test_archiving_the_task_leaves_the_row_as_it_is(end: str) -> None:
    move = ENDS[end][0]
    run, task = started()
    assert task is not None
    ended = follow(run, move(task))
    assert follow(ended, life.archive(move(task), LATER + HOUR * 2, "bob")) == ended


def test_archiving_what_had_expired_unnoticed_ends_the_row_as_well() -> None:
    run, task = started(TaskTarget(kind="send", ttl=HOUR))
    assert task is not None
    ended = follow(run, life.archive(task, LATER + HOUR * 2, "bob"))
    assert (ended.status, ended.reason) == (RunStatus.SKIPPED, RunReason.EXPIRED)
    assert ended.completed_at == LATER + HOUR


@pytest.mark.parametrize(("marked", "ended"), [(HOUR / 2, HOUR / 2), (HOUR, HOUR), (3 * HOUR, HOUR)])
def test_a_run_ends_when_its_task_expires_and_not_when_that_is_noticed(
    marked: timedelta, ended: timedelta
) -> None:
    run, task = started(TaskTarget(kind="send", ttl=HOUR))
    assert task is not None
    assert follow(run, life.expire(task, LATER + marked, "janitor")).completed_at == LATER + ended


def test_an_attempt_that_fails_after_the_expiry_ends_its_run_then() -> None:
    run, task = started(TaskTarget(kind="send", ttl=HOUR / 2))
    assert task is not None
    failed = settled(claimed(task), replace(BOOM, permanent=False))
    assert failed.updated_at > LATER + HOUR / 2, "what runs outlives its expiry"
    assert as_of(run, failed, LATER + 2 * HOUR).completed_at == failed.updated_at
    swept = life.expire(failed, LATER + 2 * HOUR, "janitor")
    assert follow(run, swept).completed_at == failed.updated_at


@pytest.mark.parametrize(("after", "status"), [(-1, RunStatus.RUNNING), (0, RunStatus.SKIPPED)])
def test_a_run_reads_as_skipped_once_its_task_has_expired(after: int, status: RunStatus) -> None:
    run, task = started(TaskTarget(kind="send", ttl=HOUR))
    assert task is not None
    now = LATER + HOUR + timedelta(microseconds=after)
    read = as_of(run, task, now)
    assert read.status is status
    assert read.completed_at == (None if status is RunStatus.RUNNING else LATER + HOUR)
    assert as_of(run, claimed(task), now) == run, "what runs outlives its expiry"
    assert as_of(run, None, now) == run


def test_a_replayed_task_makes_its_run_run_again() -> None:
    run, task = started()
    assert task is not None
    failed = settled(claimed(task), BOOM)
    again = follow(follow(run, failed), life.replay(failed, LATER + HOUR * 2, "bob"))
    assert (again.status, again.error, again.completed_at) == (RunStatus.RUNNING, None, None)


# Targets as they are stored


@pytest.mark.parametrize(
    ("target", "stored"),
    [
        (
            TaskTarget(kind="send-reminder", queue="mails", input={"userId": "123"}, max_retries=3, ttl=HOUR),
            {
                "type": "task",
                "kind": "send-reminder",
                "queue": "mails",
                "input": {"userId": "123"},
                "max_retries": 3,
                "ttl": "PT3600S",
            },
        ),
        (
            WorkflowTarget(
                kind="generate-report", input={"reportType": "annual", "year": 2026}, metadata={"a": "b"}
            ),
            {
                "type": "workflow",
                "kind": "generate-report",
                "input": {"reportType": "annual", "year": 2026},
                "metadata": {"a": "b"},
            },
        ),
        (
            TemplateTarget(template_id="m1", input={"to": "ann"}),
            {"type": "template", "template_id": "m1", "input": {"to": "ann"}},
        ),
    ],
    ids=["task", "workflow", "template"],
)
def test_schedule_target_serialization(target: Target, stored: dict[str, Any]) -> None:
    encoded = msgspec.json.encode(target)
    assert msgspec.json.decode(encoded) == stored
    assert msgspec.json.decode(encoded, type=Target) == target
    assert target_type(target) == stored["type"]
    whole = schedule(target)
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Schedule) == whole


def test_rows_and_tasks_survive_the_round_trip() -> None:
    run, task = started(TaskTarget(kind="send", ttl=HOUR, timeout=HOUR))
    assert task is not None
    for record, type_ in (
        (run, Run),
        (task, Task),
        (settled(claimed(task), BOOM), Task),
        (TEMPLATE, Template),
    ):
        assert msgspec.json.decode(msgspec.json.encode(record), type=type_) == record
