"""Every error of the product, in one tree.

RotaError                     code: stable, for programs; str(): one sentence, for people
├── Refused                   understood and not done; nothing was written
│   ├── Invalid               a value is wrong: which field, what was wrong, what is accepted (a ValueError)
│   └── NotFound              there is no such task, schedule, … in this tenant (a LookupError)
├── StoreError                what a store may raise, and nothing else
│   ├── Conflict              someone else was first: read again, decide again
│   ├── Unavailable           the store did not answer: the outcome is unknown, repeat with the same ids
│   │                         (`is_final`: nothing was written, and to repeat it at once is no use)
│   └── Corrupt               what is stored cannot be read; names the place
├── TaskFailed                a task whose result was awaited failed, expired or was cancelled
└── HandlerError              raised *by handlers* to say what should become of their task
    ├── PermanentError        fail now, whatever retries are left
    │   └── StepFailed        in a workflow: a step or a child has failed for good
    ├── RetryableError        retry, after this delay if one is given
    └── RescheduleError       run again later; not a failure, counted apart
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import Failure

_SENTENCES = {
    "already_ended": "task {task} is already {status}, which is final",
    "artifact_late": "the content of artifact {name!r} of task {task} took too long to write; leave it again",
    "ambiguous_id": "{count} {what}s have an id that begins with {beginning!r}: {candidates}; give more of it",
    "bad_target": "schedule {schedule} cannot run its target: {problem}",
    "cannot_archive": "task {task} is {status}; only a task that has ended can be archived",
    "cannot_expire": "task {task} is {status}; only a pending task can expire",
    "alias_taken": "alias {alias!r} is already in use by template {holder!r} (letter case, - and _ do not count);"
    " choose another",
    "backfill_running": "schedule {schedule} has a backfill under way; wait for its end, or cancel it",
    "cannot_replay": "task {task} is {status}; only a failed or cancelled task can be replayed",
    "completed_schedule": "schedule {schedule} is completed; give it a new time or a higher max_runs"
    " to activate it",
    "concurrent_repeat": "the workflow calls {name!r} in branches that run at the same time; give each call a key=",
    "deleted_schedule": "schedule {schedule} is deleted; restore it first",
    "expired": "task {task} expired at {expires_at}; it cannot run any more, submit it anew",
    "idempotency_conflict": "idempotency_key {key!r} was already used for a task with another kind or input",
    "idempotency_reused": "this Idempotency-Key was used for another request before; give every new request a key"
    " of its own",
    "followed_schedule": "schedule {schedule} cannot be deleted while others run after it ({followers}); delete or"
    " change them first",
    "key_ambiguous": "{count} keys are called {name!r}, or have an id that begins so: {candidates}; name"
    " the id of the one that is meant",
    "key_taken": "schedule_id {key!r} is already in use; choose another, or delete the schedule that has it",
    "lease_held": "task {task} is {status}; only a running task whose lease has run out can be taken back",
    "lease_lost": "task {task} is no longer held under this lease; another worker may have it",
    "limit_reached": "tenant {tenant} may have {limit:,} {what} and {has}; {advice}",
    "newer_schema": "the store at {store} was written by a newer version of rota (schema {found}, this one"
    " knows {known}); upgrade rota",
    "needs_store": "this needs the store itself, not a server; leave out --server and ROTA_SERVER, and name the store"
    " with --store",
    "other_version": "{server} runs rota {theirs}, and this is {here}: they do not understand each other here; use the"
    " same version on both sides",
    "no_such_step": "task {task} has no step {step!r}; `queue.steps` lists them",
    "not_awaited": "the workflow has ended and never awaited {calls}; write `await ctx.step(…)`, or leave the call out",
    "not_a_workflow": "task {task} is a {kind}, which is no workflow: nothing would receive a signal",
    "not_claimable": "task {task} is {status} and cannot be claimed now",
    "not_connected": "there is no queue to submit {function} to; open one with app.connect(…), or name one:"
    " queue.bind({function}).submit(…)",
    "not_deleted": "schedule {schedule} is not deleted, so there is nothing to restore",
    "other_schema": "the store at {store} has a migration {migration} that differs from this version's; it"
    " was changed by hand or by another build",
    "no_shell": "the workers of tenant {tenant} run no shell commands; start one with --allow-shell",
    "nothing_to_spread": "nothing at {at} is worth spreading: too few schedules fire in the same minute, or they have"
    " an offset or a jitter, or fire again too soon",
    "plan_outdated": "the plan no longer holds: {changed}; plan again",
    "stale_version": "{record} {id} is at version {found}, not {expected}; read it again and repeat the"
    " change",
    "calendar_exists": "there is a calendar {calendar!r} already; change it, or choose another name",
    "calendar_in_use": "calendar {calendar!r} is named by schedule {schedule!r}; take it out of its schedules first",
    "step_key_taken": "the workflow has asked for {key!r} before; give each call another name= or key=",
    "step_undone": "step {step!r} of task {task} was undone; replay from it, or from an earlier one",
    "template_deleted": "schedule {schedule} cannot be restored: its template {template} was deleted; create it anew",
    "template_disabled": "template {template} is disabled; enable it first",
    "tenant_exists": "tenant {tenant} exists already; change its limits, or choose another name",
    "tenant_suspended": "tenant {tenant} is suspended",
    "too_many_children": "the workflow waits for {most:,} children, the most it may have at a time",
    "too_many_signals": "task {task} has {most:,} signals that it has not received, the most it may have",
    "too_many_steps": "the workflow has {has}, the most it may have; go on with `await ctx.restart(input)`",
    "workflow_changed": "the code of the workflow has changed: recorded is {recorded}, but it {asked}. Nothing was run."
    " Put the code back, or let it ask `if ctx.version < …`; the run then goes on by itself",
    "workflow_outside": "the context of a workflow works only inside its function: not in a step, a thread or after the"
    " end",
    "workflow_stuck": "the workflow waits for something that can never come: no step runs, and it waits for no time, no"
    " signal and no child",
    "workflow_version": "the run of {kind} began with version {begun} of its code, and this worker has version"
    " {version} and accepts from {accepts} on; it waits for another worker",
}


class RotaError(Exception):
    """The root. `code` never changes between releases; `details` holds the ids involved."""

    code = "error"

    def __init__(self, message: str, /, **details: object) -> None:
        super().__init__(message)
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is: it cannot be made again from its sentence."""
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(error: type[RotaError], args: tuple[object, ...]) -> RotaError:
    return error.__new__(error, *args)


class Refused(RotaError):
    """Understood, and not done: the rules do not allow it. Nothing was written."""

    def __init__(self, code: str, /, **details: object) -> None:
        super().__init__(_SENTENCES[code].format(**details), **details)
        self.code = code


class Invalid(Refused, ValueError):
    """A value is wrong. The sentence names the field, what was wrong, and what is accepted; `problem` is the sentence
    without the field."""

    def __init__(self, field: str, problem: str, accepted: str = "") -> None:
        self.problem = problem + (f"; {accepted}" if accepted else "")
        RotaError.__init__(self, f"{field}: {self.problem}", field=field)
        self.code = "invalid"
        self.field = field

    def among(self, many: str, number: int) -> Invalid:
        """The same, said of one of many."""
        part = "" if self.field == many else f".{self.field}"
        return Invalid(f"{many}[{number}]{part}", self.problem)


@contextmanager
def naming_one(many: str, number: int) -> Iterator[None]:
    """What is refused inside is said of one of many."""
    try:
        yield
    except Invalid as problem:
        raise problem.among(many, number) from None


class NotFound(Refused, LookupError):
    """There is nothing of that name here (or it belongs to someone else, which looks the same)."""

    def __init__(self, what: str, id: str) -> None:
        RotaError.__init__(self, f"there is no {what} {id!r}", **{what: id})
        self.code = "not_found"


class StoreError(RotaError):
    """An error of a store."""

    code = "store"


class Conflict(StoreError):
    """A record changed between read and write. The work is run again from the start."""

    code = "conflict"


class Unavailable(StoreError):
    """The store did not answer, so whether the commit happened is unknown: repeat with the same ids.

    If it `is_final` nothing was written, and the store has waited for as long as it may. If it `is_busy` nothing was
    written either: someone else holds one of the records; the store is there, and does what needs others."""

    code = "unavailable"

    def __init__(
        self, message: str, /, *, is_final: bool = False, is_busy: bool = False, **details: object
    ) -> None:
        super().__init__(message, **details)
        self.is_final = is_final
        self.is_busy = is_busy


class Corrupt(StoreError):
    """Something stored cannot be read. The message names the place."""

    code = "corrupt"


class TaskFailed(RotaError):
    """A task whose result was awaited has none. `failure` is what its handler raised last, with the remote traceback,
    which is a note of this error, too; None if it was cancelled or expired."""

    code = "task_failed"

    def __init__(
        self, task: str, kind: str, status: str, failure: Failure | None = None, reason: str | None = None
    ) -> None:
        why = str(failure) if status == "failed" and failure is not None else reason
        how = {"failed": "failed", "cancelled": "was cancelled"}.get(status, status)
        super().__init__(f"{kind} {how}" + (f": {why}" if why else "") + f" (task {task})", task=task)
        self.task_id = task
        self.status = status
        self.failure = failure
        if failure is not None and failure.traceback:
            self.add_note(f"in the worker:\n{failure.traceback}")


class HandlerError(RotaError):
    """An error by which a handler decides the fate of its task."""

    code = "handler"


class PermanentError(HandlerError):
    """Fail at once: trying again cannot help."""

    code = "permanent"

    def __init__(self, message: str = "failed permanently") -> None:
        super().__init__(message)


class StepFailed(PermanentError):
    """A step, or a child, failed for good. `step` is its key, `failure` what went wrong as it is recorded."""

    code = "step_failed"

    def __init__(self, step: str, failure: object) -> None:
        super().__init__(f"{step}: {failure}")
        self.step = step
        self.failure = failure


class RetryableError(HandlerError):
    """Try again, after `delay_seconds` if given, else after the usual backoff."""

    code = "retryable"

    def __init__(self, message: str = "asked to be retried", *, delay_seconds: float | None = None) -> None:
        super().__init__(message)
        self.delay_seconds = None if delay_seconds is None else _seconds("delay_seconds", delay_seconds)


class RescheduleError(HandlerError):
    """Not now: run again after `delay_seconds`. The expiry may be put off by `extend_expiration_seconds`."""

    code = "reschedule"

    def __init__(
        self,
        message: str = "asked to run again later",
        *,
        delay_seconds: float,
        extend_expiration_seconds: float = 0,
    ) -> None:
        super().__init__(message)
        self.delay_seconds = _seconds("delay_seconds", delay_seconds)
        self.extend_expiration_seconds = _seconds("extend_expiration_seconds", extend_expiration_seconds)
        if extend_expiration_seconds < 0:
            problem = f"{extend_expiration_seconds:g} s would bring the expiry forward"
            raise Invalid("extend_expiration_seconds", problem, "give 0 or more seconds")

    def __reduce__(self) -> tuple[partial[RescheduleError], tuple[()]]:
        """It may come from another process."""
        again = partial(
            type(self),
            str(self),
            delay_seconds=self.delay_seconds,
            extend_expiration_seconds=self.extend_expiration_seconds,
        )
        return again, ()


def _seconds(field: str, value: float) -> float:
    """Refused here, on the handler's own line, rather than when its answer is to be stored."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 3_153_600_000:
        raise Invalid(field, "it is not a usable delay", "give a number of seconds, at most 100 years")
    return value
