"""The life of a workflow, as pure functions. A workflow is a task whose function is run again after a crash, a deploy
or a wait; what it has done is recorded as steps, and answers the function when it asks again.

            park: nothing to do but wait
 pending ◀───────────────────────────── running ──▶ as any task (`task`)
    │  a time, a signal or a child's end    ▲
    └──────────── wakes it ─────────────────┘ claim

- **Keys.** A step is found by its key. Its id is derived from the task, how often that was begun anew, and the key: to
  record a step twice is to record it once, and the first result counts.
- **No lost wake-up.** The commit that sends a signal or ends a child writes the task, too. If the task is parked at the
  same moment, one of the two meets another version and looks again.
- **Order.** `number` says in which order the code got its answers. A later run gives them in the same order, so that it
  takes the same way through `asyncio.gather`, a TaskGroup or a race.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from .errors import Invalid, Refused
from .ids import derived_id
from .model import (
    FOREVER,
    Failure,
    Limits,
    LogLine,
    NodeState,
    OpenWait,
    Record,
    StepKind,
    Task,
    TaskStatus,
    is_from_the_future,
)
from .serving import handlers_of
from .task import NO_LEASE, Submission, admit, later, logged
from .task import brought_back as task_brought_back

MOST_STEPS = 10_000
MOST_BYTES = 64 * 1024 * 1024
MOST_UNREAD = 1_000
MOST_CHILDREN = 1_000
UNDO = "undo:"
PATIENCE = timedelta(minutes=10)
"""A thing that should have happened so long ago does not happen by itself."""


class StepStatus(StrEnum):
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"


class Step(Record, frozen=True, kw_only=True, tag_field="record", tag="step.1"):
    """One thing that a workflow did or waits for, under the `key` by which its code asks for it. `number` is its place
    in the order in which the code got the answers; None: it has not got this one. `due_at` is when a wait ends or a
    failed try is repeated; `delay` is how long a wait was to be at most (None: until a time, or until an answer);
    `updated_at` is when something of it was last recorded; `name` is the signal that is received."""

    task_id: str
    rewinds: int = 0
    key: str
    kind: StepKind = StepKind.STEP
    status: StepStatus = StepStatus.WAITING
    number: int | None = None
    output: Any = None
    error: Failure | None = None
    attempts: int = 0
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    due_at: datetime | None = None
    delay: timedelta | None = None
    completed_at: datetime | None = None
    child_id: str | None = None
    name: str | None = None

    @property
    def is_over(self) -> bool:
        return self.status is not StepStatus.WAITING


class Signal(Record, frozen=True, kw_only=True, tag_field="record", tag="signal.1"):
    """A message to a workflow. Once received, the step has the payload, and this row keeps it from coming twice."""

    task_id: str
    name: str
    payload: Any = None
    at: datetime
    actor: str
    received_at: datetime | None = None


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A wait of a workflow: that time passes (`delay`, `until`), that a signal comes (`name`, for at most `delay`), or
    that a child ends. Neither: a step that failed is to be tried again."""

    key: str
    kind: StepKind
    delay: timedelta | None = None
    until: datetime | None = None
    name: str | None = None
    child: Submission | None = None

    @property
    def open(self) -> OpenWait:
        """The wait as the task says it while it is parked."""
        return OpenWait(self.kind, self.name or self.key)


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """How one try at a step ended. A failure with `retry_in` is not the last."""

    key: str
    kind: StepKind
    started_at: datetime
    output: Any = None
    failure: Failure | None = None
    retry_in: timedelta | None = None

    @property
    def is_final(self) -> bool:
        return self.failure is None or self.retry_in is None


class Tries(msgspec.Struct, frozen=True, kw_only=True):
    """Tries that ended together. `number` is the place of the first try in the order of answers. `known` has the steps
    that were tried before, as the worker knows them."""

    results: tuple[Tried, ...] = ()
    number: int = 0
    known: tuple[Step, ...] = ()


def step_id(task: Task, key: str) -> str:
    """Also what an external service may take as an idempotency key: it is the same for every try."""
    return derived_id("step", task.id, str(task.rewinds), key)


def child_id(task: Task, key: str) -> str:
    return derived_id("child", task.id, str(task.rewinds), key)


def trace_of(task: Task) -> str:
    """The W3C traceparent of the whole run: that of its submission, else one that every attempt derives alike."""
    if task.trace is not None:
        return task.trace
    digits = derived_id("trace", task.id).replace("-", "")
    return f"00-{digits}-{digits[:16]}-01"


def misfit(task: Task, version: int, accepts: int) -> Refused | None:
    """Why this code cannot run that workflow: it is older than the run, or no longer accepts runs so old."""
    begun = task.workflow_version
    if begun is None or accepts <= begun <= version:
        return None
    return Refused("workflow_version", kind=task.kind, begun=begun, version=version, accepts=accepts)


def changed(unasked: Sequence[str], instead: Sequence[str], ended: str = "") -> Refused:
    """The code did not ask for what is recorded. Both sides are named; nothing was run."""
    asked = f"asks for {listed(instead)}" if instead else (ended or "waits for nothing else")
    return Refused("workflow_changed", recorded=listed(unasked), asked=asked)


def deadline(task: Task) -> datetime | None:
    """When the run's own time is up: its timeout counts from the first start, waits included. Undos have all the time
    that they take."""
    if task.timeout is None or task.started_at is None or task.cancel_requested:
        return None
    return later(task.started_at, task.timeout)


def timed_out(task: Task) -> Failure:
    assert task.timeout is not None
    return Failure(
        type="TimeoutError", message=f"ran longer than its timeout of {task.timeout.total_seconds():g} s"
    )


def after_tries(task: Task, stored: Mapping[str, Step], tries: Tries, now: datetime) -> list[Step]:
    """The steps after these tries. `stored` are those that are recorded, by id."""
    return [
        tried(task, stored.get(step_id(task, result.key)), result, tries.number + place, now)
        for place, result in enumerate(tries.results)
    ]


def are_told(steps: Sequence[Step], tries: Tries) -> bool:
    """Whether the steps say what the code was told before they were recorded. If not, someone else was first."""
    told = [
        (result.output, result.failure, number) for number, result in enumerate(tries.results, tries.number)
    ]
    return [(step.output, step.error, step.number) for step in steps] == told


def tried(task: Task, stored: Step | None, result: Tried, number: int, now: datetime) -> Step:
    """A step after a try. What is recorded already wins: someone else was first."""
    if stored is not None and stored.is_over:
        return stored
    step = stored or _new_step(task, result.key, result.kind, now)
    step = replace(
        step,
        attempts=step.attempts + 1,
        started_at=step.started_at or result.started_at,
        output=result.output,
        error=result.failure,
        due_at=None,
        updated_at=now,
    )
    if result.failure is not None and result.retry_in is not None:
        return replace(step, due_at=later(now, result.retry_in))
    status = StepStatus.COMPLETED if result.failure is None else StepStatus.FAILED
    return replace(step, status=status, number=number, completed_at=now)


def recorded(task: Task) -> Task:
    """It got on, so lost leases and failed attempts count anew."""
    return task if not task.retries else replace(task, retries=0, error=None)


def open_wait(task: Task, wait: Wait, now: datetime) -> Step:
    """A wait as it is first recorded."""
    due_at = wait.until
    if wait.delay is not None:
        due_at = later(now, wait.delay)
    step = _new_step(task, wait.key, wait.kind, now)
    child = child_id(task, wait.key) if wait.kind is StepKind.CHILD else None
    return replace(step, due_at=due_at, delay=wait.delay, name=wait.name, child_id=child, started_at=now)


def brought_back(task: Task, steps: Sequence[Step], now: datetime) -> tuple[Task, list[Step]]:
    """A parked workflow after the clock was set back, and its steps that changed: what was to be waited for some time,
    or is to be tried again, counts from now. What waits until a time keeps it."""
    counted = [_from_now(step, now) for step in steps]
    changed = [new for old, new in zip(steps, counted, strict=True) if new is not old]
    times = [step.due_at for step in counted if step.due_at is not None and not step.is_over]
    return task_brought_back(task, now, min(times, default=None)) if changed else task, changed


def _from_now(step: Step, now: datetime) -> Step:
    is_relative = step.delay is not None or step.kind in (StepKind.STEP, StepKind.UNDO)
    if step.is_over or step.due_at is None or not is_relative:
        return step
    if not is_from_the_future(step.updated_at, now):
        return step
    left = max(step.due_at - step.updated_at, timedelta(0))
    return replace(step, due_at=now + left, updated_at=now)


def start_child(task: Task, step: Step, asked: Submission, now: datetime, limits: Limits) -> Task | Failure:
    """The task that a workflow starts and waits for; or why it cannot be."""
    assert step.child_id is not None
    asked = replace(asked, parent_id=task.id, parent_step=step.id, trace=trace_of(task))
    try:
        return admit(step.child_id, asked, task.tenant, now, limits, f"workflow:{task.id}")
    except Invalid as refused:
        return Failure(type="Invalid", message=str(refused))


def answer(
    waits: Sequence[Step], unread: Sequence[Signal], number: int, now: datetime
) -> tuple[list[Step], Signal | None]:
    """The waits, some of them answered now, in the order in which the answers came; and the signal that was taken. Only
    the first answer of all may take a signal. Code that waits for the first of several gives up the others, and its
    next wait must still find a signal that came later."""
    found = [_answered(step, unread, now) for step in waits]
    order = sorted(
        (each for each in found if each[0].is_over and each[0].number is None),
        key=lambda each: (each[0].completed_at or now, -1 if each[1] is None else unread.index(each[1])),
    )
    taken = order[0][1] if order else None
    places = {
        step.id: number + place for place, (step, signal) in enumerate(order) if signal is None or place == 0
    }
    steps = [
        replace(step, number=places[step.id]) if step.id in places else wait
        for wait, (step, _) in zip(waits, found, strict=True)
    ]
    return steps, taken


def _answered(step: Step, unread: Sequence[Signal], now: datetime) -> tuple[Step, Signal | None]:
    """One of them, and the signal that it would take. It is over since that came: a look that comes late, after an
    outage, finds the same order."""
    if step.is_over:
        return step, None
    for signal in unread:
        if step.kind is StepKind.RECEIVE and signal.name == step.name and not _is_past(step, signal.at):
            over = replace(
                step,
                status=StepStatus.COMPLETED,
                output=signal.payload,
                completed_at=max(signal.at, step.created_at),
                updated_at=now,
            )
            return over, signal
    if step.due_at is None or step.due_at > now or step.kind in (StepKind.STEP, StepKind.UNDO):
        return step, None
    at = max(step.due_at, step.created_at)
    if step.kind is StepKind.RECEIVE:
        failure = Failure(type="TimeoutError", message=f"no signal {step.name!r} came in time")
        return replace(step, status=StepStatus.FAILED, error=failure, completed_at=at, updated_at=now), None
    return replace(step, status=StepStatus.COMPLETED, completed_at=at, updated_at=now), None


def _is_past(step: Step, at: datetime) -> bool:
    return step.due_at is not None and at > step.due_at


def receive(signal: Signal, now: datetime) -> Signal:
    """The step has its payload now. The row stays, so that the same signal sent again is known."""
    return replace(signal, payload=None, received_at=now)


def park(
    task: Task,
    waits: Sequence[Wait],
    steps: Sequence[Step],
    now: datetime,
    progress: Any = None,
    logs: tuple[LogLine, ...] = (),
) -> Task:
    """Give the task back until something wakes it. Nothing went wrong, so no attempt counts and no line is written."""
    times = [step.due_at for step in steps if step.due_at is not None]
    ends = deadline(task)
    wake_at = min([*times, *([] if ends is None else [ends])], default=FOREVER)
    return replace(
        task,
        status=TaskStatus.PENDING,
        available_at=max(wake_at, now),
        updated_at=now,
        waits_for=tuple(dict.fromkeys(wait.open for wait in waits)),
        progress=task.progress if progress is None else progress,
        logs=logged(task, logs),
        retries=0,
        error=None,
        **NO_LEASE,
    )


def send(task: Task, signal: Signal, now: datetime) -> Task:
    """The task to which a signal comes: it is always written, so that a worker that parks it meanwhile looks again."""
    status = task.as_of(now).status
    if status not in (TaskStatus.PENDING, TaskStatus.RUNNING):
        raise Refused("already_ended", task=task.id, status=status)
    if not task.is_workflow and task.workflow_version is None:
        raise Refused("not_a_workflow", task=task.id, kind=task.kind)
    if task.unread_signals >= MOST_UNREAD:
        raise Refused("too_many_signals", task=task.id, most=MOST_UNREAD)
    return replace(
        _woken(task, OpenWait(StepKind.RECEIVE, signal.name), now), unread_signals=task.unread_signals + 1
    )


def child_ended(parent: Task, step: Step, child: Task, now: datetime) -> tuple[Task, Step]:
    """The parent and its step when a child has ended, whatever the reason."""
    if step.is_over or not parent.is_live or step.rewinds != parent.rewinds:
        return parent, step
    parent = replace(
        _woken(parent, OpenWait(StepKind.CHILD, step.key), now),
        live_children=max(parent.live_children - 1, 0),
    )
    step = replace(step, completed_at=now, updated_at=now)
    if child.status is TaskStatus.COMPLETED:
        return parent, replace(step, status=StepStatus.COMPLETED, output=child.output)
    failure = child.error
    if child.status is not TaskStatus.FAILED or failure is None:
        failure = Failure(type=str(child.status).capitalize(), message=child.cancel_reason or "")
    failure = replace(failure, traceback=None)
    return parent, replace(step, status=StepStatus.FAILED, error=failure)


def restart(task: Task, input: Any, now: datetime) -> Task:
    """The same run from the top, with another input and the code of today. Its steps go, its signals stay. It goes
    on at once, as after a sleep of no time."""
    return replace(
        task,
        status=TaskStatus.PENDING,
        input=input,
        rewinds=task.rewinds + 1,
        workflow_version=None,
        waits_for=(OpenWait(StepKind.SLEEP, "restart"),),
        available_at=now,
        updated_at=now,
        retries=0,
        error=None,
        live_children=0,
        **NO_LEASE,
    )


def kept_steps(task: Task, steps: Sequence[Step], from_step: str | None) -> list[Step]:
    """The steps that a replay keeps: those before `from_step`, in the order in which the code got them. Without it: all
    but the one that failed last, and of a run that was undone those before the first that was."""
    mine = [step for step in steps if step.rewinds == task.rewinds]
    by_key = {step.key: step for step in mine}
    undone = {step.key for step in mine if step.kind is StepKind.UNDO and step.status is StepStatus.COMPLETED}
    first_undone = min((step for step in mine if f"{UNDO}{step.key}" in undone), key=_place, default=None)
    if from_step is None:
        limit = None if first_undone is None else _place(first_undone)
        failed = max((step for step in mine if step.status is StepStatus.FAILED), key=_place, default=None)
    else:
        if from_step not in by_key:
            raise Refused("no_such_step", task=task.id, step=from_step)
        limit, failed = _place(by_key[from_step]), None
        if first_undone is not None and _place(first_undone) < limit:
            raise Refused("step_undone", task=task.id, step=first_undone.key)
    return [
        step
        for step in mine
        if step.is_over
        and step.kind is not StepKind.UNDO
        and step is not failed
        and (limit is None or _place(step) < limit)
    ]


def rewind(task: Task, kept: Sequence[Step]) -> tuple[Task, list[Step]]:
    """Begin anew with the steps that are kept, and with the run's whole time. They get new ids, so that a worker that
    still runs the old life can add nothing to the new one."""
    new = replace(task, rewinds=task.rewinds + 1, started_at=None)
    return new, [replace(step, id=step_id(new, step.key), rewinds=new.rewinds, version=0) for step in kept]


def stranded(task: Task, alive: Sequence[NodeState]) -> str | None:
    """That no live worker goes on with runs of this version, in one sentence. None: one does, or none has the kind."""
    ranges = [
        node.workflows[task.kind]
        for node in handlers_of(alive, task.tenant, task.kind, task.queue)
        if task.kind in node.workflows
    ]
    begun = task.workflow_version
    if begun is None or not ranges or any(oldest <= begun <= newest for oldest, newest in ranges):
        return None
    accepted = " and ".join(sorted({f"{oldest} to {newest}" for oldest, newest in ranges}))
    return f"runs of {task.kind} began with version {begun} of its code, and live workers accept {accepted}"


def may_wait_in_vain(task: Task, now: datetime) -> bool:
    """Whether its steps are worth a look: it waits for a child, or something was due long ago."""
    is_late = task.available_at < now - PATIENCE
    return is_late or any(wait.kind is StepKind.CHILD for wait in task.waits_for)


def waits_in_vain(task: Task, step: Step, child: Task | None, now: datetime) -> str | None:
    """Why a step of a live run has not ended and will not by itself; None: it may still."""
    if step.kind is StepKind.CHILD:
        if child is not None and child.is_live:
            return None
        became = "is gone" if child is None else f"is {child.status}"
        return f"{step.key} of {task.kind} {task.id} waits for {step.child_id}, which {became}"
    if step.due_at is None or step.due_at > now - PATIENCE:
        return None
    return f"{step.key} of {task.kind} {task.id} was due at {step.due_at:%Y-%m-%d %H:%M} and has not ended"


def unheard(task: Task, signal: Signal, now: datetime) -> str | None:
    """That a run which is parked does not wait for a signal that came long ago; None: it does, or may soon."""
    if task.status is not TaskStatus.PENDING or not task.waits_for or signal.at > now - PATIENCE:
        return None
    if OpenWait(StepKind.RECEIVE, signal.name) in task.waits_for:
        return None
    since, waits = f"{signal.at:%Y-%m-%d %H:%M}", ", ".join(map(str, task.waits_for))
    return f"{task.kind} {task.id} has not received {signal.name!r} since {since}; it waits for {waits}"


def _new_step(task: Task, key: str, kind: StepKind, now: datetime) -> Step:
    return Step(
        id=step_id(task, key),
        tenant=task.tenant,
        task_id=task.id,
        rewinds=task.rewinds,
        key=key,
        kind=kind,
        created_at=now,
        updated_at=now,
    )


def _woken(task: Task, wait: OpenWait, now: datetime) -> Task:
    waits = task.status is TaskStatus.PENDING and wait in task.waits_for
    return replace(task, available_at=min(task.available_at, now)) if waits else task


def _place(step: Step) -> tuple[float, datetime]:
    """Its place in the order. An answer that the code has not got yet comes last."""
    return (float("inf") if step.number is None else step.number), step.completed_at or FOREVER


def listed(keys: Sequence[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:5])
    return shown if len(keys) <= 5 else f"{shown} and {len(keys) - 5} more"
