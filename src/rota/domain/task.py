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

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from .errors import Invalid, Refused
from .gate import gates_of
from .limits import check_input, check_kind, check_metadata, storable
from .model import (
    Change,
    ChangeType,
    Failure,
    Limit,
    Limits,
    LogLine,
    RetryPolicy,
    Task,
    TaskRequest,
    TaskStatus,
)
from .options import SubmitOptions, options_of

__all__ = [
    "Completed",
    "Defaults",
    "Failed",
    "Outcome",
    "Released",
    "Rescheduled",
    "Submission",
    "admit",
    "archive",
    "backoff",
    "brought_back",
    "cancel",
    "check_submission",
    "claim",
    "expire",
    "lose",
    "renew",
    "replay",
    "settle",
    "with_gates",
]

DEFAULT_MAX_RETRIES = 3
HISTORY_KEPT = 50
LOGS_KEPT = 200


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler was registered with; a task that says otherwise wins."""

    max_retries: int = DEFAULT_MAX_RETRIES
    retry_policy: RetryPolicy = RetryPolicy()
    timeout: timedelta | None = None
    limit: Limit | None = None


class Completed(msgspec.Struct, frozen=True):
    """The handler returned."""

    output: Any = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The handler raised, or ran out of time, or its worker lost the lease. `delay` replaces the usual backoff."""

    failure: Failure
    permanent: bool = False
    delay: timedelta | None = None
    lease_lost: bool = False


class Rescheduled(msgspec.Struct, frozen=True, kw_only=True):
    """The handler asked to run again later."""

    delay: timedelta
    extend_expiration: timedelta = timedelta(0)
    detail: str = ""


class Released(msgspec.Struct, frozen=True):
    """The worker stopped before the handler ended: the task goes back as if it had not been claimed."""


Outcome = Completed | Failed | Rescheduled | Released


class Submission(TaskRequest, frozen=True, kw_only=True):
    """What someone asks for. `ttl` counts from submission; at most one of `ttl` and `expires_at` is given."""

    schedule_at: datetime | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None
    schedule_id: str | None = None
    run_id: str | None = None
    scheduled_at: datetime | None = None
    is_workflow: bool = False
    trace: str | None = None


class Checked(Submission, frozen=True, kw_only=True):
    """A submission of which all but its input is in stored form: what `check_submission` gives. `input`, `trace`
    and `is_workflow` may be replaced in it, nothing else: the rest is not looked at again."""


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
    given = {
        name: check(name, value)
        for name, check in _CHECKS
        if not _is_default(name, value := getattr(asked, name))
    }
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
    task = Task(
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
        trace=asked.trace,
        limit_key=asked.limit_key,
        history=(created,),
    )
    return with_gates(task, limits, now) if limits.tasks else task


def with_gates(task: Task, limits: Limits, now: datetime) -> Task:
    """The task with the gates that it has to pass."""
    return replace(task, gates=tuple(gate.id for gate in gates_of(task, limits, now)))


def claim(
    task: Task, *, worker_id: str, lease_id: str, lease: timedelta, defaults: Defaults, now: datetime
) -> Task:
    """Give the task to a worker, for as long as the lease lasts."""
    if not task.is_available_at(now):
        if task.is_expired_at(now):
            raise _too_late(task)
        raise Refused("not_claimable", task=task.id, status=task.status)
    return _moved(
        task,
        _change(task, now, TaskStatus.RUNNING, worker_id, ChangeType.CLAIMED, attempt=task.attempt + 1),
        attempt=task.attempt + 1,
        started_at=now,
        lease_id=lease_id,
        lease_expires_at=now + lease,
        worker_id=worker_id,
        max_retries=defaults.max_retries if task.max_retries is None else task.max_retries,
        retry_policy=task.retry_policy or defaults.retry_policy,
        timeout=task.timeout or defaults.timeout,
        progress=None,
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
    _check_held(task, lease_id)
    until = now + lease
    if task.lease_expires_at is not None and task.updated_at <= now:  # else a clock that was ahead gave it
        until = max(until, task.lease_expires_at)  # an extended lease is not cut short
    return replace(
        task,
        lease_expires_at=until,
        updated_at=now,
        progress=task.progress if progress is None else progress,
        logs=_logged(task, logs),
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
    """What becomes of a running task when its handler has ended."""
    _check_held(task, lease_id)
    actor = task.worker_id or "worker"
    released: dict[str, Any] = {"lease_id": None, "lease_expires_at": None, "worker_id": None}
    if progress is not None:
        released["progress"] = progress
    if logs:
        released["logs"] = _logged(task, logs)
    if task.cancel_requested:
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
        case Released():
            change = _change(task, now, TaskStatus.PENDING, actor, ChangeType.RELEASED)
            return _moved(task, change, attempt=task.attempt - 1, available_at=now, **released)


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
    """A pending task is cancelled at once; a running one is asked to stop."""
    status = task.as_of(now).status
    if status is TaskStatus.PENDING:
        change = _change(task, now, TaskStatus.CANCELLED, actor, ChangeType.CANCELLED, reason=reason)
        return _ended(task, change, cancelled_by=actor, cancel_reason=reason or None)
    if status is not TaskStatus.RUNNING:
        raise Refused("already_ended", task=task.id, status=status)
    if task.cancel_requested:
        return task
    return _moved(
        task,
        _change(task, now, TaskStatus.RUNNING, actor, ChangeType.CANCEL_REQUESTED, reason=reason),
        cancel_requested=True,
        cancelled_by=actor,
        cancel_reason=reason or None,
    )


def replay(task: Task, now: datetime, actor: str) -> Task:
    """Run a failed or cancelled task once more, with fresh retries."""
    if task.status not in (TaskStatus.FAILED, TaskStatus.CANCELLED):
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
    ready as long after now as it was to wait; one that was submitted for a later time keeps that time. A lease lasts
    as long as it was given for."""
    change = _change(task, now, task.status, "scheduler", ChangeType.CLOCK_SET_BACK)
    if task.status is TaskStatus.RUNNING and task.lease_expires_at is not None:
        lease = max(task.lease_expires_at - task.updated_at, timedelta(0))
        return _moved(task, change, lease_expires_at=now + lease)
    is_for_later = len(task.history) == 1 and task.created_at < task.available_at
    if task.status is not TaskStatus.PENDING or is_for_later:
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
        return _ended(task, change, error=failure)
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
    return _moved(task, change, error=failure, retries=task.retries + 1, available_at=_later(now, delay))


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


def _check_held(task: Task, lease_id: str) -> None:
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
    number = task.history[-1].number + 1 if task.history else 1
    why = storable(reason) if reason else ""
    return Change(number=number, at=now, status=status, actor=actor, type=type, reason=why, **facts)


def _ended(task: Task, change: Change, **fields: Any) -> Task:
    return _moved(task, change, completed_at=change.at, **fields)


def _moved(task: Task, change: Change, **fields: Any) -> Task:
    """The one place where a status changes: with a line of history. The first line is kept for good."""
    past = task.history
    if len(past) >= HISTORY_KEPT:
        past = past[:1] + past[2 - HISTORY_KEPT :]
    return replace(task, status=change.status, updated_at=change.at, history=(*past, change), **fields)


def _logged(task: Task, logs: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
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
