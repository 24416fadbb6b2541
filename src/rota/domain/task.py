"""The life of a task, as pure functions: (task, what happened, now) -> the task as it is then, or `Refused`.

            claim                     finish
 pending ───────────▶ running ───────────────▶ completed ─┐
   ▲  │ ▲               │  │  no retries left              │ archive
   │  │ └── retry, ─────┘  ├─────────────────▶ failed ─────┼──────────▶ archived
   │  │     reschedule,    │  replay: failed ─▶ pending    │
   │  │     lease lost     └─ cancel requested ▶ cancelled ┤
   │  ├── cancel ────────────────────────────▶ cancelled ──┤
   │  └── now >= expires_at ─────────────────▶ expired ────┘

Fencing: whoever renews or settles a running task names the lease that it holds; any other is refused.
Expiry touches pending tasks only. A retry or a reschedule keeps `expires_at` unless it asks to move it.
It begins as a `Submission`, of which `check_submission` says what is accepted, and `admit` makes it a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from .errors import Invalid, Refused
from .limits import check_input, check_kind, check_metadata, storable
from .model import (
    LIVE,
    Change,
    ChangeType,
    Failure,
    Limits,
    LogLine,
    RetryPolicy,
    Task,
    TaskRequest,
    TaskStatus,
)
from .options import SubmitOptions, options_of
from .runtimes import COMMAND_KINDS, Command
from .short_history import ShortHistory, appended, last_number, whole_history
from .unique import DEFAULT_PARTS

__all__ = [
    "LOGS_KEPT",
    "Cancelled",
    "Completed",
    "Defaults",
    "Failed",
    "Outcome",
    "Released",
    "Rescheduled",
    "Submission",
    "Update",
    "admit",
    "archive",
    "backoff",
    "brought_back",
    "cancel",
    "check_held",
    "check_submission",
    "claim",
    "claiming",
    "expire",
    "logged",
    "lose",
    "renew",
    "replay",
    "settle",
]

DEFAULT_MAX_RETRIES = 3
LOGS_KEPT = 200
REPLAYABLE = (TaskStatus.FAILED, TaskStatus.CANCELLED)


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler was registered with; a task that says otherwise wins. `workflow_version` is None for a handler
    that is no workflow."""

    max_retries: int = DEFAULT_MAX_RETRIES
    retry_policy: RetryPolicy = RetryPolicy()
    timeout: timedelta | None = None
    workflow_version: int | None = None


class Completed(msgspec.Struct, frozen=True):
    """The handler returned."""

    output: Any = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The handler raised, or ran out of time, or its worker lost the lease. `delay` replaces the usual backoff;
    `output` is what a command left although it failed."""

    failure: Failure
    output: Any = None
    permanent: bool = False
    delay: timedelta | None = None
    lease_lost: bool = False


class Rescheduled(msgspec.Struct, frozen=True, kw_only=True):
    """The handler asked to run again later."""

    delay: timedelta
    extend_expiration: timedelta = timedelta(0)
    detail: str = ""


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """The worker stopped before the handler ended: the task goes back as if it had not been claimed. Or it cannot run a
    workflow with the code that it has (`failure`): another may, after `delay`."""

    failure: Failure | None = None
    delay: timedelta = timedelta(0)


class Cancelled(msgspec.Struct, frozen=True):
    """A workflow that was to be cancelled has undone what it did; or not all of it (`failure`)."""

    failure: Failure | None = None


Outcome = Completed | Failed | Rescheduled | Released | Cancelled


class Submission(TaskRequest, frozen=True, kw_only=True):
    """What someone asks for. `ttl` counts from submission; at most one of `ttl` and `expires_at` is given."""

    schedule_at: datetime | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None
    unique_for: timedelta | None = None
    unique_by: tuple[str, ...] = ()
    schedule_id: str | None = None
    run_id: str | None = None
    scheduled_at: datetime | None = None
    is_workflow: bool = False
    parent_id: str | None = None
    parent_step: str | None = None
    trace: str | None = None
    command: Command | None = None


class Checked(Submission, frozen=True, kw_only=True):
    """A submission of which all but its input is in stored form: what `check_submission` gives. `input`, `trace`,
    `is_workflow` and the parent may be replaced in it, nothing else: the rest is not looked at again."""


_CHECKS = tuple(
    (name, option.check) for name, option in options_of(SubmitOptions).items() if name != "metadata"
)
_DEFAULTS = {name: getattr(Submission(kind="any"), name) for name, _ in _CHECKS}


def check_submission(asked: Submission) -> Checked:
    """The submission with all but its input in stored form; the input waits for the limits of its tenant."""
    if isinstance(asked, Checked):
        return asked
    if asked.ttl is not None and asked.expires_at is not None:
        raise Invalid("ttl", "expires_at is given, too", "give one of ttl, ttl_seconds and expires_at")
    is_unique = asked.unique_for is not None or bool(asked.unique_by)
    if is_unique and asked.idempotency_key is not None:
        raise Invalid("idempotency_key", "unique_for or unique_by is given, too", "give one of them")
    if asked.kind in COMMAND_KINDS and asked.command is None:
        raise Invalid("kind", f"{asked.kind!r} runs the commands of templates", "execute a template instead")
    given = {
        name: check(name, value)
        for name, check in _CHECKS
        if not _is_default(name, value := getattr(asked, name))
    }
    if is_unique:
        given.setdefault("unique_by", DEFAULT_PARTS)
    given |= {"kind": check_kind(asked.kind), "metadata": check_metadata(asked.metadata)}
    return Checked(**{name: getattr(asked, name) for name in asked.__struct_fields__} | given)


def _is_default(name: str, value: object) -> bool:
    """What was not asked for is in its stored form already; and most submissions ask for next to nothing."""
    default = _DEFAULTS[name]
    return value is default or (type(value) is type(default) and value == default)


def admit(id: str, asked: Submission, tenant: str, now: datetime, limits: Limits, actor: str) -> Task:
    """A checked submission as a pending task. If its expiry is not in the future it reads as expired at once, and the
    janitor marks it as any other."""
    asked = check_submission(asked)
    expires_at = asked.expires_at if asked.ttl is None else _later(now, asked.ttl)
    created = Change(
        number=1,
        at=now,
        status=TaskStatus.PENDING,
        actor=actor,
        type=ChangeType.CREATED,
        expires_at=expires_at,
    )
    return Task(
        id=id,
        tenant=tenant,
        kind=asked.kind,
        queue=asked.queue,
        priority=asked.priority,
        input=check_input(asked.input, limits),
        metadata=check_metadata(asked.metadata),  # also copies what the tasks of one `submit_many` share
        tags=asked.tags,
        created_at=now,
        available_at=now if asked.schedule_at is None else max(asked.schedule_at, now),
        expires_at=expires_at,
        updated_at=now,
        max_retries=asked.max_retries,
        max_reschedules=asked.max_reschedules,
        retry_policy=asked.retry_policy,
        timeout=asked.timeout,
        idempotency_key=asked.idempotency_key,
        schedule_id=asked.schedule_id,
        run_id=asked.run_id,
        scheduled_at=asked.scheduled_at,
        is_workflow=asked.is_workflow,
        command=asked.command,
        parent_id=asked.parent_id,
        parent_step=asked.parent_step,
        trace=asked.trace,
        history=(created,),
    )


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is the same for every task of a batch, as a value. So a store can apply it in one statement to all
    tasks that a query finds, and knows no rule.

    `set` has the new values of fields, `add` what is added to numbers, and `fill` the values of fields that are None,
    by the kind of the task. The history gets one line more: the last that the fields imply (see `whole_history`)."""

    set: Mapping[str, Any]
    add: Mapping[str, int]
    fill: Mapping[str, Mapping[str, Any]]

    def applied_to(self, task: Task) -> Task:
        """The task after the change: what every store must make of it."""
        fields = {name: getattr(task, name) + number for name, number in self.add.items()}
        for name, by_kind in self.fill.items():
            if getattr(task, name) is None:
                fields[name] = by_kind.get(task.kind)
        changed = replace(task, **self.set, **fields)
        history = whole_history(changed, ShortHistory(task.history, last_number(task.history) + 1))
        return replace(changed, history=history)


def claiming(
    *, worker_id: str, lease_id: str, lease: timedelta, defaults: Mapping[str, Defaults], now: datetime
) -> Update:
    """Give tasks that are available to a worker, for as long as the lease lasts. `defaults` has the kinds that the
    worker can run. Workflows are not claimed by an update, but one by one (`claim`)."""
    return Update(
        set={
            "status": TaskStatus.RUNNING,
            "updated_at": now,
            "started_at": now,
            "lease_id": lease_id,
            "lease_expires_at": now + lease,
            "worker_id": worker_id,
            "progress": None,
        },
        add={"attempt": 1},
        fill={
            "max_retries": {kind: each.max_retries for kind, each in defaults.items()},
            "retry_policy": {kind: each.retry_policy for kind, each in defaults.items()},
            "timeout": {kind: each.timeout for kind, each in defaults.items()},
        },
    )


def claim(
    task: Task, *, worker_id: str, lease_id: str, lease: timedelta, defaults: Defaults, now: datetime
) -> Task:
    """Give one task to a worker, if it is available."""
    if not task.is_available_at(now):
        if task.is_expired_at(now):
            raise _too_late(task)
        raise Refused("not_claimable", task=task.id, status=task.status)
    update = claiming(
        worker_id=worker_id, lease_id=lease_id, lease=lease, defaults={task.kind: defaults}, now=now
    )
    claimed = update.applied_to(task)
    return claimed if defaults.workflow_version is None else _begun_or_woken(task, claimed, defaults)


def _begun_or_woken(task: Task, claimed: Task, defaults: Defaults) -> Task:
    """A workflow begins once, with the code of that day; from then on it cannot expire. One that was parked goes on,
    and its history has no line for that: a year of waits would leave no room for anything else."""
    begun_with = task.workflow_version
    return replace(
        claimed,
        started_at=task.started_at or claimed.started_at,
        progress=task.progress,
        workflow_version=defaults.workflow_version if begun_with is None else begun_with,
        expires_at=None,
        waits_for=(),
        history=task.history if task.waits_for else claimed.history,
    )


def renew(
    task: Task,
    *,
    lease_id: str,
    lease: timedelta,
    now: datetime,
    progress: Any = None,
    logs: tuple[LogLine, ...] = (),
) -> Task:
    """Keep a running task for another while, and store how far it is."""
    check_held(task, lease_id)
    until = now + lease
    if task.lease_expires_at is not None and task.updated_at <= now:  # else a clock that was ahead gave it
        until = max(until, task.lease_expires_at)  # an extended lease is not cut short
    return replace(
        task,
        lease_expires_at=until,
        updated_at=now,
        progress=task.progress if progress is None else progress,
        logs=logged(task, logs),
    )


def settle(
    task: Task,
    outcome: Outcome,
    *,
    lease_id: str,
    now: datetime,
    progress: Any = None,
    logs: tuple[LogLine, ...] = (),
) -> Task:
    """What becomes of a running task when its handler has ended. A task that was to be cancelled is then; a workflow
    only when it says that it is, since it may have something to undo, here or on another worker."""
    check_held(task, lease_id)
    actor = task.worker_id or "worker"
    released: dict[str, Any] = {"lease_id": None, "lease_expires_at": None, "worker_id": None}
    if progress is not None:
        released["progress"] = progress
    if logs:
        released["logs"] = logged(task, logs)
    if task.cancel_requested and task.workflow_version is None:
        output, why = outcome.output if isinstance(outcome, Completed) else None, task.cancel_reason or ""
        change = _change(task, now, TaskStatus.CANCELLED, actor, ChangeType.CANCELLED, reason=why)
        return _ended(task, change, output=output, **released)
    match outcome:
        case Completed(output):
            change = _change(task, now, TaskStatus.COMPLETED, actor, ChangeType.COMPLETED)
            return _ended(task, change, output=output, error=None, **released)
        case Failed():
            return _failed(replace(task, **released), outcome, now, actor)
        case Rescheduled():
            return _rescheduled(replace(task, **released), outcome, now, actor)
        case Cancelled(failure):
            change = _change(
                task, now, TaskStatus.CANCELLED, actor, ChangeType.CANCELLED, reason=task.cancel_reason or ""
            )
            return _ended(task, change, error=None if failure is None else _stored(failure), **released)
        case Released():
            return _released(replace(task, **released), outcome, now, actor)


def lose(task: Task, now: datetime) -> Task:
    """The lease ran out: its worker is dead or cut off. That counts as a failed attempt, so that a task that
    kills its workers comes to an end."""
    if task.status is not TaskStatus.RUNNING or task.lease_expires_at is None or now < task.lease_expires_at:
        raise Refused("lease_held", task=task.id, status=task.status)
    message = f"worker {task.worker_id} did not renew its lease by {_iso(task.lease_expires_at)}"
    failure = Failure(type="LeaseLost", message=message)
    outcome = Failed(failure=failure, delay=timedelta(0), lease_lost=True)
    return settle(task, outcome, lease_id=task.lease_id or "", now=now)


def expire(task: Task, now: datetime, actor: str) -> Task:
    """Mark a pending task as expired."""
    if task.status is not TaskStatus.PENDING:
        raise Refused("cannot_expire", task=task.id, status=task.status)
    change = _change(task, now, TaskStatus.EXPIRED, actor, ChangeType.EXPIRED)
    return _ended(task, change, expired_at=now)


def cancel(task: Task, now: datetime, actor: str, reason: str = "") -> Task:
    """A pending task is cancelled at once; a running one is asked to stop. So is a workflow that has begun: it may have
    something to undo."""
    status = task.as_of(now).status
    if status is TaskStatus.PENDING and task.workflow_version is None:
        change = _change(task, now, TaskStatus.CANCELLED, actor, ChangeType.CANCELLED, reason=reason)
        return _ended(task, change, cancelled_by=actor, cancel_reason=reason or None)
    if status not in LIVE:
        raise Refused("already_ended", task=task.id, status=status)
    if task.cancel_requested:
        return task
    return _moved(
        task,
        _change(task, now, status, actor, ChangeType.CANCEL_REQUESTED, reason=reason),
        available_at=now if status is TaskStatus.PENDING else task.available_at,
        cancel_requested=True,
        cancelled_by=actor,
        cancel_reason=reason or None,
    )


def may_replay(task: Task, now: datetime) -> bool:
    return task.status in REPLAYABLE and (task.expires_at is None or now < task.expires_at)


def replay(task: Task, now: datetime, actor: str) -> Task:
    """Run a failed or cancelled task once more, with fresh retries."""
    if task.status not in REPLAYABLE:
        raise Refused("cannot_replay", task=task.id, status=task.as_of(now).status)
    if task.expires_at is not None and now >= task.expires_at:
        raise _too_late(task)
    return _moved(
        task,
        _change(task, now, TaskStatus.PENDING, actor, ChangeType.REPLAYED),
        available_at=now,
        completed_at=None,
        output=None,
        error=None,
        progress=None,
        retries=0,
        reschedules=0,
        cancel_requested=False,
        cancelled_by=None,
        cancel_reason=None,
        live_children=0,
    )


def archive(task: Task, now: datetime, actor: str) -> Task:
    """Put an ended task away."""
    if task.status is TaskStatus.ARCHIVED:
        return task
    if task.status is TaskStatus.PENDING and task.is_expired_at(now):
        task = expire(task, now, actor)
    if task.is_live:
        raise Refused("cannot_archive", task=task.id, status=task.status)
    return _moved(task, _change(task, now, TaskStatus.ARCHIVED, actor, ChangeType.ARCHIVED, was=task.status))


def brought_back(task: Task, now: datetime) -> Task:
    """After the clock was set back: what was written while it was ahead counts from now. A task that waits becomes
    ready as long after now as it was to wait; one that was submitted for a later time keeps that time, and so does a
    workflow that is parked. A lease lasts as long as it was given for."""
    change = _change(task, now, task.status, "scheduler", ChangeType.CLOCK_SET_BACK)
    if task.status is TaskStatus.RUNNING and task.lease_expires_at is not None:
        lease = max(task.lease_expires_at - task.updated_at, timedelta(0))
        return _moved(task, change, lease_expires_at=now + lease)
    is_for_later = len(task.history) == 1 and task.created_at < task.available_at
    if task.status is not TaskStatus.PENDING or is_for_later or task.waits_for:
        return task
    wait = max(task.available_at - task.updated_at, timedelta(0))
    return _moved(task, change, available_at=now + wait)


def backoff(policy: RetryPolicy, retries: int, salt: str) -> timedelta:
    """How long to wait before retry number `retries` (from 0). The spread is a hash of `salt`: repeatable."""
    seconds = policy.initial.total_seconds() * policy.multiplier ** min(retries, 64)
    seconds = min(seconds, policy.maximum.total_seconds())
    digest = blake2b(f"{salt}:{retries}".encode(), digest_size=8).digest()
    spread = int.from_bytes(digest) / 2**63 - 1
    return timedelta(seconds=seconds * (1 + policy.jitter * spread))


def _failed(task: Task, outcome: Failed, now: datetime, actor: str) -> Task:
    most = DEFAULT_MAX_RETRIES if task.max_retries is None else task.max_retries
    failure = _stored(outcome.failure)
    lost = ChangeType.LEASE_LOST if outcome.lease_lost else None
    if outcome.permanent or task.retries >= most:
        type = lost or ChangeType.FAILED
        change = _change(task, now, TaskStatus.FAILED, actor, type, reason=str(failure))
        return _ended(task, change, error=failure, output=outcome.output)
    delay = outcome.delay
    if delay is None:
        delay = backoff(task.retry_policy or RetryPolicy(), task.retries, task.id)
    change = _change(
        task,
        now,
        TaskStatus.PENDING,
        actor,
        lost or ChangeType.RETRIED,
        retry=task.retries + 1,
        max_retries=most,
        delay=delay,
        reason=str(failure),
    )
    return _moved(
        task,
        change,
        error=failure,
        output=outcome.output,
        retries=task.retries + 1,
        available_at=_later(now, delay),
    )


def _released(task: Task, outcome: Released, now: datetime, actor: str) -> Task:
    """A workflow that was stopped may have recorded steps: that attempt counts."""
    stopped_midway = task.workflow_version is not None and outcome.failure is None
    back = replace(
        task,
        attempt=task.attempt if stopped_midway else task.attempt - 1,
        available_at=_later(now, outcome.delay),
    )
    why = "" if outcome.failure is None else str(outcome.failure)
    change = _change(task, now, TaskStatus.PENDING, actor, ChangeType.RELEASED, reason=why)
    if outcome.failure is None:
        return _moved(back, change)
    said_before = any(each.reason == change.reason for each in task.history[-2:])
    past = task.history[:-1] if said_before else task.history  # without the line of this claim
    if said_before:
        return replace(
            back, status=change.status, updated_at=now, history=past, error=_stored(outcome.failure)
        )
    return _moved(back, change, error=_stored(outcome.failure))


def _rescheduled(task: Task, outcome: Rescheduled, now: datetime, actor: str) -> Task:
    if task.max_reschedules is not None and task.reschedules >= task.max_reschedules:
        message = f"asked to run again after {task.reschedules} reschedules, the most it may have"
        failure = Failure(type="TooManyReschedules", message=message)
        change = _change(task, now, TaskStatus.FAILED, actor, ChangeType.FAILED, reason=str(failure))
        return _ended(task, change, error=failure)
    extended = None
    if task.expires_at is not None and outcome.extend_expiration:
        extended = _later(task.expires_at, outcome.extend_expiration)
    change = _change(
        task,
        now,
        TaskStatus.PENDING,
        actor,
        ChangeType.RESCHEDULED,
        delay=outcome.delay,
        expires_at=extended,
        reason=outcome.detail,
    )
    return _moved(
        task,
        change,
        reschedules=task.reschedules + 1,
        available_at=_later(now, outcome.delay),
        expires_at=extended or task.expires_at,
    )


def _too_late(task: Task) -> Refused:
    return Refused(
        "expired", task=task.id, expires_at=_iso(task.expires_at or task.expired_at or task.updated_at)
    )


def check_held(task: Task, lease_id: str) -> None:
    """Refused to whoever does not hold the task."""
    if task.status is not TaskStatus.RUNNING or task.lease_id != lease_id:
        raise Refused("lease_lost", task=task.id)


def _change(
    task: Task,
    now: datetime,
    status: TaskStatus,
    actor: str,
    type: ChangeType,
    *,
    reason: str = "",
    **facts: Any,
) -> Change:
    """The next line of the task's history."""
    number = last_number(task.history) + 1
    why = storable(reason) if reason else ""
    return Change(number=number, at=now, status=status, actor=actor, type=type, reason=why, **facts)


def _ended(task: Task, change: Change, **fields: Any) -> Task:
    return _moved(task, change, completed_at=change.at, **fields)


def _moved(task: Task, change: Change, **fields: Any) -> Task:
    """A status changes here, or in an `Update`, and with it the history."""
    history = appended(task.history, change)
    return replace(task, status=change.status, updated_at=change.at, history=history, **fields)


def logged(task: Task, logs: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
    if not logs:
        return task.logs
    return (*task.logs, *(replace(line, message=storable(line.message)) for line in logs))[-LOGS_KEPT:]


def _stored(failure: Failure) -> Failure:
    """Handlers fail with whatever texts they have, file names that are no Unicode among them."""
    return Failure(
        type=storable(failure.type),
        message=storable(failure.message),
        traceback=None if failure.traceback is None else storable(failure.traceback),
    )


def _later(at: datetime, by: timedelta) -> datetime:
    """`at + by`, or the end of time: an expiry in the year 9999 can be extended, too."""
    try:
        return at + by
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
