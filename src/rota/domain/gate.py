"""Limits of tasks: how many at once, and how many in a while. Pure.

A limit is of a kind or of a queue, and may be one for each key (each customer). Its state for one key is a `Gate`. A
task passes its gates one after the other, first that of its kind, then that of its queue:

 1. It asks at a gate when it is due. A task for later, or one that waits for a retry, takes up no place until then.
 2. A gate that is full puts it in its line: no worker finds it there. Whatever ends one that is inside lets in the
    next, of the highest priority first, then those that came first.
 3. A gate with a rate gives it the next free moment, as its `available_at`. It does not ask further before that, unless
    that is within a second. If no worker starts it by `slot_until`, it asks for another moment: else those that piled
    up would all start at once.

A task keeps its places until it ends, or goes back to wait (a retry, a reschedule, a lost lease): then it asks anew.
Moments lie so far apart that tasks which start by `slot_until` are never more than the rate, in any stretch of time.
What waited in the line of its queue has lost the moment of its kind. So the last gate looks back: the task starts if
its kind leaves that open, else it steps aside, gets another moment of its kind, and asks at its queue again then; the
place goes to the next in line. If it would be open within a second, or nobody else is known who could have the place,
the task takes it, and waits inside.

Moments are given far ahead. If many of those tasks leave before (they are cancelled, they expire), or the rate gets
faster, the others move up in their order (`Moving`): some in each commit that changes the gate, until all have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from .checks import check_number, check_text, shown
from .errors import Invalid
from .ids import derived_id
from .model import Gate, Limit, Limits, Moving, Task, TaskStatus, is_from_the_future, to_the_second
from .recurrence import MICROSECOND

MOST_AT_ONCE = 1_000_000
MOST_LET_IN = 1_000
_RATE = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,5})?([smhd])")
_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_RATE_RULE = "give a number and a time: '100/m', '50/s', '10/h', '3/10s'"
_LONGEST_GRACE = timedelta(seconds=1)


def of_kind(kind: str) -> str:
    """The subject of a limit of a kind."""
    return f"kind:{kind}"


def of_queue(queue: str) -> str:
    """The subject of a limit of a queue."""
    return f"queue:{queue}"


def check_limit(field: str, value: object) -> Limit:
    """The limit in stored form. Without a `field` its parts are named alone."""
    if not isinstance(value, Limit):
        raise Invalid(field, f"{shown(value)} is not a limit", "give a rota.Limit")
    prefix = f"{field}." if field else ""
    at_once, rate, key = value.concurrency, value.rate, value.key
    if at_once is None and rate is None:
        raise Invalid(field or "key", "it limits nothing", "give concurrency, rate, or both")
    return Limit(
        concurrency=None
        if at_once is None
        else check_number(f"{prefix}concurrency", at_once, 1, MOST_AT_ONCE),
        rate=None if rate is None else _check_rate(f"{prefix}rate", rate),
        key=None if key is None else check_text(f"{prefix}key", key, most=255),
    )


def _check_rate(field: str, value: object) -> str:
    if not isinstance(value, str) or _RATE.fullmatch(value) is None:
        raise Invalid(field, f"{shown(value)} is not a rate", _RATE_RULE)
    return str.__str__(value)


def limited(limits: Limits, subject: str, limit: Limit | None, *, is_declared: bool = False) -> Limits:
    """The limits of a tenant with this one set, or taken away. A handler that declares no limit takes away only a
    declared one. A limit that a person set stays, also if a handler declares the same."""
    is_kept = limit is None and subject not in limits.declared
    if is_declared and (is_kept or limits.tasks.get(subject) == limit):
        return limits
    others = {name: other for name, other in limits.tasks.items() if name != subject}
    declared = {name for name in limits.declared if name != subject}
    return replace(
        limits,
        tasks=others if limit is None else others | {subject: limit},
        declared=tuple(sorted(declared | {subject} if is_declared and limit is not None else declared)),
    )


def gates_of(task: Task, limits: Limits, now: datetime) -> list[Gate]:
    """The gates that the task has to pass, as they are while nobody uses them."""
    if not limits.tasks:
        return []
    found = []
    for subject in (of_kind(task.kind), of_queue(task.queue)):
        limit = limits.tasks.get(subject)
        if limit is not None:
            key = _key(task, limit) if subject.startswith("kind:") else None
            found.append(_new_gate(task.tenant, subject, key, limit, now))
    return found


def _key(task: Task, limit: Limit) -> str | None:
    if task.limit_key is not None:
        return task.limit_key
    if limit.key is None or not isinstance(task.input, dict):
        return None
    value: Any = task.input.get(limit.key)
    return None if value is None else str(value)


def _new_gate(tenant: str, subject: str, key: str | None, limit: Limit, now: datetime) -> Gate:
    """Gates of kinds sort before those of queues: the order in which tasks pass them. They are locked the other way
    round."""
    of_what = subject.partition(":")[0]
    parts = ("gate", tenant, subject) if key is None else ("gate", tenant, subject, key)
    return Gate(
        id=f"{of_what}-{derived_id(*parts)}",
        tenant=tenant,
        subject=subject,
        key=key,
        limit=limit,
        updated_at=now,
    )


def is_of_queue(id: str) -> bool:
    """Whether it is the gate of a queue, by its id."""
    return id.startswith("queue-")


def is_of_kind(id: str) -> bool:
    return not is_of_queue(id)


def has_to_ask(task: Task, now: datetime) -> bool:
    """Whether a task that is due must ask at a gate before it starts."""
    return task.asks_at is not None and task.asks_at <= now


def has_missed(task: Task, now: datetime) -> bool:
    """Whether the moment that a rate gave it is over."""
    return task.slot_until is not None and now > task.slot_until


def room(gate: Gate) -> int:
    """How many more may pass."""
    most = gate.limit.concurrency
    return MOST_LET_IN if most is None else max(0, most - gate.inside)


def ask(
    task: Task,
    gate: Gate,
    now: datetime,
    *,
    before: Gate | None = None,
    is_last: bool = True,
    may_step_aside: bool = True,
) -> tuple[Task, Gate, Gate | None]:
    """A task that is due asks at its next gate. `before` is the one that it has passed, if that has a rate; it is
    answered, too."""
    if not room(gate):
        return *_in_line(task, gate, now, had_moment=before is not None), before
    if before is not None and may_step_aside and is_early(gate, before, now):
        aside, before = reserve(task, before, now)
        return aside, gate, before
    passed = replace(task, passed=task.passed + 1)
    gate = _changed(gate, now, inside=gate.inside + 1)
    if not is_last:
        return *reserve(passed, gate, now), before
    return take_moment(passed, gate, before, now)


def is_early(gate: Gate, before: Gate, now: datetime) -> bool:
    """Whether a task had better leave the place at this gate to another: the one before keeps it from starting."""
    return _free_at(before, now) > _next_at(gate, now) + _LONGEST_GRACE


def reserve(task: Task, gate: Gate, now: datetime) -> tuple[Task, Gate]:
    """A task that has passed the gate gets the next moment of its rate, if the gate has one. The task asks at its next
    gate then, or at once if the moment is soon."""
    if gate.limit.rate is None:
        return task, gate
    apart, grace = _spacing(gate.limit.rate)
    at = _next_at(gate, now)
    given = replace(_changed(gate, now), next_at=at + apart)
    if at <= now + _LONGEST_GRACE:
        return replace(task, slot_until=None), given
    return replace(task, available_at=max(at, now), slot_until=at + grace), given


def take_moment(task: Task, gate: Gate, before: Gate | None, now: datetime) -> tuple[Task, Gate, Gate | None]:
    """A task that has passed its last gate gets the moment at which it may start: the next of this gate that the one
    before leaves open."""
    before = None if before is None or before.limit.rate is None else before
    rated = [each for each in (gate, before) if each is not None and each.limit.rate is not None]
    if not rated:
        return task if task.slot_until is None else replace(task, slot_until=None), gate, before
    at = max(_next_at(each, now) if each is gate else _free_at(each, now) for each in rated)
    grace = min(_spacing(each.limit.rate)[1] for each in rated if each.limit.rate is not None)
    moved = replace(task, available_at=max(at, now), slot_until=at + grace)
    return moved, _taken(gate, at, now, is_own=True), before and _taken(before, at, now, is_own=False)


def _taken(gate: Gate, at: datetime, now: datetime, *, is_own: bool) -> Gate:
    """The gate after a task was told to start at this moment."""
    if gate.limit.rate is None:
        return gate
    then = at + _spacing(gate.limit.rate)[0]
    gate = _changed(gate, now)
    if is_own:
        return replace(gate, open_at=then, next_at=then)
    return replace(gate, open_at=then, others_at=then)


def _free_at(gate: Gate, now: datetime) -> datetime:
    """When one that has a moment of this gate behind it may start."""
    open_at = _changed(gate, now).open_at
    usable = now - _usable_for(gate)
    return usable if open_at is None else max(usable, open_at)


def _next_at(gate: Gate, now: datetime) -> datetime:
    next_at = _changed(gate, now).next_at
    free_at = _free_at(gate, now)
    return free_at if next_at is None else max(free_at, next_at)


def is_overfull(gate: Gate) -> bool:
    """Whether more are inside than may be: the limit was set or lowered after they had passed."""
    most = gate.limit.concurrency
    return most is not None and gate.inside > most


def back_in_line(task: Task, gate: Gate, now: datetime) -> tuple[Task, Gate]:
    """A task that has passed and not started gives its place back. In the line it is before all that came later."""
    back = replace(task, passed=task.gates.index(gate.id))
    return _in_line(back, leave(task, gate, now), now, had_moment=task.slot_until is not None)


def _in_line(task: Task, gate: Gate, now: datetime, *, had_moment: bool) -> tuple[Task, Gate]:
    """Its place in the line is that of the time when it was due. Who had to wait for a moment has the place that it
    would have had without."""
    since = min(now, task.updated_at if had_moment else task.available_at)
    waits = replace(task, line=gate.id, available_at=since, slot_until=None)
    return waits, gate if gate.has_line else _changed(gate, now, has_line=True)


def brought_back(gate: Gate, now: datetime) -> Gate:
    """After the clock was set back: moments that were given while it was ahead are none to wait for."""
    if not is_from_the_future(gate.updated_at, now):
        return gate
    return replace(
        gate,
        next_at=None,
        open_at=None,
        others_at=None,
        unused=0,
        unused_at=None,
        moving=None,
        updated_at=now,
    )


def _changed(gate: Gate, now: datetime, **values: int) -> Gate:
    return replace(brought_back(gate, now), updated_at=now, **values)


def _spacing(rate: str) -> tuple[timedelta, timedelta]:
    """How far apart moments lie, and how late after its moment a task may start. Of `count` + 1 in a row, the first may
    be as late as that and the last on time: still they are a whole period apart."""
    matched = _RATE.fullmatch(rate)
    assert matched is not None, rate
    count, times, unit = matched.groups()
    period = int(times or 1) * _UNITS[unit]
    grace = min(period / 10, _LONGEST_GRACE)
    return -(-(period + grace) // int(count)), grace  # rounded up


def _usable_for(gate: Gate) -> timedelta:
    """How long a moment that nobody was given can still be had. Where several fit into half of the grace, those tasks
    start together: else each would take a claim of its own, and miss its moment while others are claimed."""
    if gate.limit.rate is None:
        return timedelta(0)
    apart, grace = _spacing(gate.limit.rate)
    return grace / 2 if apart < grace / 2 else timedelta(0)


def with_limit(gate: Gate, limit: Limit, now: datetime) -> Gate:
    """The gate under another limit. Tasks keep the moments that they have while the rate is the same."""
    if gate.limit == limit:
        return gate
    gate = brought_back(gate, now)
    if gate.limit.rate != limit.rate:
        gate = _planned_anew(gate, limit.rate, now)
    return replace(gate, limit=limit, updated_at=now)


def _planned_anew(gate: Gate, rate: str | None, now: datetime) -> Gate:
    """Under a faster rate tasks move up, in their order. Under a slower one they ask again when they are due, which is
    in their order, too; its moments are given from now on."""
    gate = replace(gate, unused=0, unused_at=None)
    if gate.limit.rate is None:
        return replace(gate, next_at=None, open_at=gate.others_at, moving=None)
    if rate is None or _spacing(rate)[0] < _spacing(gate.limit.rate)[0]:
        return replace(gate, moving=Moving(after=now, to=max(now, gate.others_at or now)))
    return replace(gate, next_at=None, open_at=gate.others_at, moving=Moving(after=now, asks=True))


def asks_for_moment(task: Task, limits: Limits, now: datetime) -> Task:
    """A task that has passed and not started, as the limits are now: if a rate was added to one, it asks for a
    moment."""
    if task.passed < len(task.gates) or task.slot_until is not None:
        return task
    if all(gate.limit.rate is None for gate in gates_of(task, limits, now) if gate.id in task.gates):
        return task
    return replace(task, slot_until=task.available_at - MICROSECOND)


def leave(task: Task, gate: Gate, now: datetime) -> Gate:
    """The gate without this task, if that was inside. The moment that it waited for is not used."""
    if gate.id not in task.gates[: task.passed]:
        return gate
    gate = left_by(gate, 1, now)
    at, moving = task.available_at, gate.moving
    if gate.limit.rate is None or task.planned_by != gate.id or at <= now:
        return gate
    is_moment = task.slot_until == at + _spacing(gate.limit.rate)[1]  # else it is the time of a retry
    if not is_moment:
        return gate
    if moving is not None and at > moving.after:
        return gate  # those behind it will move up
    first = gate.unused_at
    is_first = first is None or first <= now or at < first
    return replace(gate, unused=gate.unused + 1, unused_at=at if is_first else first)


def with_moving(gate: Gate, now: datetime) -> Gate:
    """The gate, with tasks that are to move up if that is worth it: if the unused moments make up a tenth of the
    planned time, and at least a second. So a task that leaves makes ten others move at most."""
    gate = brought_back(gate, now)
    if gate.moving is not None or not gate.unused or gate.limit.rate is None:
        return gate
    apart, first, next_at = _spacing(gate.limit.rate)[0], gate.unused_at, gate.next_at
    wasted = gate.unused * apart
    if wasted < _LONGEST_GRACE or first is None or next_at is None or 10 * wasted < next_at - now:
        return gate
    first = first if first > now else now + apart
    first = max(first, gate.others_at or first)
    return replace(gate, unused=0, unused_at=None, moving=Moving(after=first - MICROSECOND, to=first))


def recounted(gate: Gate, now: datetime) -> Gate:
    """The gate after another was put behind it: tasks that have its moments may have to wait there. So they do not keep
    others from starting."""
    gate = brought_back(gate, now)
    if gate.moving is not None or gate.limit.rate is None:
        return gate
    return replace(gate, moving=Moving(after=now), updated_at=now)


def move(task: Task, gate: Gate, now: datetime, *, is_bound: bool) -> tuple[Task, Gate]:
    """The next of the tasks that have a moment gets one that is no later. `is_bound`: it has to fit the rate of its
    kind, too, so it keeps the one that it has."""
    moving, old = gate.moving, task.available_at
    assert moving is not None
    if moving.asks:
        return replace(task, slot_until=old - MICROSECOND), replace(gate, moving=replace(moving, after=old))
    if gate.limit.rate is None:
        free = task if is_bound else replace(task, available_at=now, slot_until=None)
        return free, replace(gate, moving=replace(moving, after=old))
    apart, grace = _spacing(gate.limit.rate)
    to = moving.to
    if to is not None and to + grace < now:  # meanwhile others may have started, at the moments that they had
        to = now + apart
    at = old if to is None or is_bound else min(old, to)
    then = at + apart
    starts = task.passed == len(task.gates)
    moving = Moving(
        after=old,
        to=then if moving.to is None else max(moving.to, then),
        open_at=then if starts else moving.open_at or min(at, gate.open_at or at),
    )
    moved = task if at == old else replace(task, available_at=max(at, now), slot_until=at + grace)
    return moved, replace(gate, moving=moving)


def all_moved(gate: Gate, now: datetime) -> Gate:
    """The gate after all have moved up: the moments behind them are free."""
    moving, others_at = gate.moving, gate.others_at
    gate = replace(gate, moving=None, updated_at=now)
    if gate.limit.rate is None:
        return replace(gate, next_at=None, open_at=None)
    if moving is None or moving.to is None:
        return gate
    open_at = moving.open_at or min(moving.to, gate.open_at or moving.to)
    return replace(
        gate, next_at=max(moving.to, others_at or moving.to), open_at=max(open_at, others_at or open_at)
    )


def lets_in_alike(gate: Gate) -> bool:
    """Whether all that it lets in change alike, unless they have other gates: they get no moments."""
    return gate.limit.rate is None and gate.moving is None


def entered_by(gate: Gate, number: int, now: datetime) -> Gate:
    """The gate with so many more inside."""
    return _changed(gate, now, inside=gate.inside + number) if number else gate


def left_by(gate: Gate, number: int, now: datetime) -> Gate:
    """The gate without so many that were inside."""
    return _changed(gate, now, inside=max(0, gate.inside - number))


def without_line(gate: Gate, now: datetime) -> Gate:
    """The gate after all have left its line."""
    return _changed(gate, now, has_line=False) if gate.has_line else gate


def has_changed(gate: Gate, before: Gate) -> bool:
    """Whether the gate has to be written. If one has left and another come, it is as it was before."""
    return gate.version == 0 or replace(gate, updated_at=before.updated_at) != before


def let_in(task: Task, now: datetime) -> Task:
    """The task as it leaves the line, to ask."""
    return replace(task, line=None, available_at=min(task.available_at, now))


def without_places(task: Task) -> Task:
    """The task as it has asked at no gate."""
    return replace(task, passed=0, line=None, slot_until=None)


def describe_line(gate: Gate, before: int, *, is_more: bool = False) -> str:
    """Why a task waits in the line: 'waits behind 40 others of kind mail, key 7 (at most 5 at once)'."""
    number = "1 other" if before == 1 else f"{before:,} others"
    behind = f"waits behind {'more than ' if is_more else ''}{number} of" if before else "is the next of"
    return f"{behind} {_whose(gate)} (at most {gate.limit.concurrency} at once)"


def describe_moment(task: Task, gates: Sequence[Gate], now: datetime) -> str | None:
    """Why a task that has passed waits for its moment; None: it does not."""
    if task.slot_until is None or task.available_at <= now:
        return None
    rated = next((gate for gate in gates if gate.limit.rate is not None), None)
    if rated is None:
        return None
    at = to_the_second(task.available_at)
    return f"waits for its moment at {at} of {_whose(rated)} (at most {rated.limit.rate})"


def _whose(gate: Gate) -> str:
    what, _, name = gate.subject.partition(":")
    return f"{what} {name}" if gate.key is None else f"{what} {name}, key {gate.key}"


def is_limited(task: Task) -> bool:
    """Whether what happened to the task concerns its gates: it has ended, or waits again."""
    return bool(task.gates) and task.status is not TaskStatus.RUNNING
