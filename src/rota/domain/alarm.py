"""Alarms: nothing stops silently. The rules, each a pure function of what the ledger says.

    evaluate(facts, known, now) -> Verdict

`facts` are a schedule, its latest rows and its live tasks; `known` are its alarms that are not over. The verdict has
every alarm that changes: one that began has version 0, one that is over has `over_at`. An alarm that goes on is not in
it. The verdict also says when the schedule has to be looked at next: at the first moment at which a rule could trip, or
soon, while an alarm is open. A schedule that is not active has no alarms.

| rule | it is wrong while |
| --- | --- |
| `late` | a time has not started, or its task has not begun, so long after it; or the last time was missed |
| `no_success` | nothing succeeded for so long; by default, three times in a row and ten minutes |
| `failures` | the last so many runs that ended have failed |
| `duration` | a run has been going, its wait for a worker included, for so long |
| `ending` | no time is left after so long |
| `overdue` | a time has not started a minute after it; the scan of the ledger asks for this |
| `missing_row` | a time that has passed has no row in the ledger |
| `stuck_run` | a row says that a task is running which has ended or is gone |

The last three are the promises of the ledger. They hold for every schedule, and nobody has to ask for them.

Notices tell people of alarms: when they are due, when they are tried again and what they say is here, too;
`engine/roles/notices.py` sends them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

import msgspec
from msgspec.structs import replace

from .errors import Invalid
from .ids import derived_id
from .model import (
    LIVE,
    Alarm,
    AlarmRule,
    AlarmRules,
    Run,
    RunReason,
    RunStatus,
    RunTrigger,
    Schedule,
    Task,
    TaskStatus,
    Watch,
    facts_of,
)
from .options import AlarmOptions, check_names, check_option, options_of
from .recurrence import MICROSECOND, After, Once
from .schedule.watching import FLOOR, own_rules, tags_of
from .schedule.why import length

PATIENCE = timedelta(seconds=60)
"""So late is not yet overdue."""
ROWS = 20
"""So many of the latest rows are looked at, or twice as many as have to fail."""
TIMES_IN_A_ROW = 3
WHILE_OPEN = timedelta(seconds=30)
"""How soon a schedule with an open alarm is looked at again."""
GRACE = timedelta(minutes=1)
CHECKED_BACK = timedelta(days=1)
COUNTED = 1000
FLEET = "fleet"
_NONE = timedelta(0)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a schedule when it is looked at. `runs` are its latest rows, latest first; `live` its pending
    and running tasks; `tasks` are the tasks of its rows that say `running`, by id; `last_success` the end of its last
    run that succeeded, if that is known; `failed` those that failed since then, if they may be behind the latest rows;
    `kept` how long rows are kept at least."""

    schedule: Schedule
    rules: AlarmRules
    runs: Sequence[Run] = ()
    live: Sequence[Task] = ()
    tasks: Mapping[str, Task] = {}
    last_success: datetime | None = None
    failed: Sequence[Run] = ()
    kept: timedelta = CHECKED_BACK

    @property
    def since(self) -> datetime:
        """Times before this one do not count: it was made, resumed or changed then."""
        return _since(self.schedule)

    @property
    def counted(self) -> list[Run]:
        return [run for run in self.runs if (run.until or run.scheduled_at) >= self.since]

    @property
    def succeeded_at(self) -> datetime:
        """When it succeeded last, or since when it is waited for."""
        ends = [run.completed_at for run in self.counted if run.status is RunStatus.COMPLETED]
        known = [end for end in (*ends, self.last_success) if end is not None]
        return max((*known, self.since))


class Verdict(msgspec.Struct, frozen=True):
    """The alarms that began or are over, and the schedule with its next look."""

    alarms: list[Alarm]
    schedule: Schedule


def checked_rules(options: Mapping[str, object]) -> AlarmRules:
    """The rules of a tag, as they are stored."""
    check_names(AlarmOptions, options)
    known = options_of(AlarmOptions)
    rules = {name: check_option(name, known[name], value) for name, value in options.items()}
    if all(value is None for value in rules.values()):
        raise Invalid("rules", "none is given", f"accepted are {', '.join(sorted(known))}")
    return AlarmRules(**rules)


def rules_of(schedule: Schedule, of_tags: Mapping[str, AlarmRules]) -> AlarmRules:
    """Its own rules; where it has none, those of its tags, the first in the order of the alphabet."""
    rules = [own_rules(schedule), *(of_tags[tag] for tag in sorted(tags_of(schedule)) if tag in of_tags)]
    values = {
        name: next((value for each in rules if (value := getattr(each, name)) is not None), None)
        for name in AlarmRules.__struct_fields__
    }
    return AlarmRules(**values)


def no_success_since(schedule: Schedule, rules: AlarmRules, now: datetime) -> datetime | None:
    """Since when a success has to be looked for behind the latest rows. None: it need not be."""
    asked = rules.alarm_no_success
    if asked == _NONE or (asked is None and isinstance(schedule.timing, Once | After)):
        return None
    return max(_since(schedule), now - (CHECKED_BACK if asked is None else 2 * asked))


def failures_since(schedule: Schedule, rules: AlarmRules, now: datetime) -> datetime | None:
    """Since when failures have to be looked for behind the latest rows. None: they need not be."""
    return None if rules.alarm_failures is None else max(_since(schedule), now - CHECKED_BACK)


def _since(schedule: Schedule) -> datetime:
    return schedule.created_at if schedule.watch is None else schedule.watch.since


def evaluate(facts: Facts, known: Sequence[Alarm], now: datetime, *, is_overdue: bool = False) -> Verdict:
    """`is_overdue`: the scan saw twice that a time of it has not started, so that it was no laptop that slept."""
    schedule = facts.schedule
    found = _findings(facts, now, is_overdue=is_overdue) if schedule.enabled else {}
    alarms = merged(
        found, known, schedule.tenant, ("schedule", schedule.id, schedule.key), schedule.version, now
    )
    if found:
        at: datetime | None = now + WHILE_OPEN
    else:
        at = min(_next_looks(facts, now), default=None) if schedule.enabled else None
        at = now + WHILE_OPEN if at is not None and at <= now else at
    watch = Watch(at=at, since=facts.since, rules=facts.rules)
    return Verdict(alarms, replace(schedule, watch=watch))


def merged(
    found: Mapping[AlarmRule, str],
    known: Sequence[Alarm],
    tenant: str,
    subject: tuple[str, str, str],
    mark: object,
    now: datetime,
) -> list[Alarm]:
    """The alarms that change: some begin, some are over. `subject` is the type, the id and the name of the thing in
    trouble. Ids follow from `mark`, so that two nodes that find the same trouble raise the same alarm."""
    type, id, name = subject
    open_rules = {alarm.rule for alarm in known}
    began = [
        Alarm(
            id=derived_id("alarm", id, rule, str(mark)),
            tenant=tenant,
            rule=rule,
            subject_type=type,
            subject_id=id,
            subject=name,
            detail=detail,
            began_at=now,
            tell_at=now,
        )
        for rule, detail in found.items()
        if rule not in open_rules
    ]
    over = ended((alarm for alarm in known if alarm.rule not in found), now)
    return [*began, *over]


def as_facts(alarm: Alarm) -> dict[str, Any]:
    """An alarm as the audit shows it: without who is told of it."""
    return facts_of(alarm, "tell_at", "told", "told_at", "tries")


def ended(known: Iterable[Alarm], now: datetime) -> list[Alarm]:
    """The alarms as they are when they are over: people who were told of them are told of that, too."""
    return [replace(alarm, over_at=now, tell_at=now, told=(), tries=0) for alarm in known]


def broken_run(run: Run, task: Task | None) -> str | None:
    """That a row will not end by itself. `task` is its target, None if it is gone."""
    if run.status is not RunStatus.RUNNING or (task is not None and task.status in LIVE):
        return None
    what = f"its task {run.target_id} is gone" if task is None else f"its task {task.id} is {task.status}"
    return f"run {run.id} is running, but {what}: it will not end by itself"


def _findings(facts: Facts, now: datetime, *, is_overdue: bool) -> dict[AlarmRule, str]:
    found = {
        AlarmRule.LATE: _late(facts, now),
        AlarmRule.NO_SUCCESS: _no_success(facts, now),
        AlarmRule.FAILURES: _failures(facts),
        AlarmRule.DURATION: _duration(facts, now),
        AlarmRule.ENDING: _ending(facts, now),
        AlarmRule.OVERDUE: _overdue(facts, now, is_overdue),
        AlarmRule.MISSING_ROW: _missing_row(facts, now),
        AlarmRule.STUCK_RUN: _stuck_run(facts),
    }
    return {rule: words for rule, words in found.items() if words is not None}


def _late(facts: Facts, now: datetime) -> str | None:
    most, due = facts.rules.alarm_late, facts.schedule.due_at
    if most is None:
        return None
    if due is not None and now - due > most:
        return f"it was due {length(now - due)} ago and has not started"
    waiting = max((now - task.created_at for task in _waiting(facts)), default=_NONE)
    if waiting > most:
        return f"its task has waited for a worker for {length(waiting)}"
    last = next((run for run in facts.counted if run.trigger is not RunTrigger.MANUAL), None)
    if last is None:
        return None
    if last.reason is RunReason.MISSED:
        return f"the time {last.scheduled_at.isoformat()} was missed"
    late = (last.started_at or last.scheduled_at) - last.scheduled_at - facts.schedule.most_put_off
    return f"it started {length(late)} late" if late > most else None


def _waiting(facts: Facts) -> Iterator[Task]:
    return (task for task in facts.live if task.status is TaskStatus.PENDING and not task.attempt)


def _no_success(facts: Facts, now: datetime) -> str | None:
    most, without = facts.rules.alarm_no_success, now - facts.succeeded_at
    if most is not None:
        return f"no success for {length(without)}" if most and without > most else None
    if isinstance(facts.schedule.timing, Once | After) or without < FLOOR:
        return None
    missed = _without_success(facts, now)
    if missed < TIMES_IN_A_ROW:
        return None
    return f"no success for {length(without)}: its last {missed} times passed without one"


def _without_success(facts: Facts, now: datetime) -> int:
    """How many of its latest times have passed without a success; overdue ones, which have no row yet, too."""
    overdue = _times(facts.schedule, facts.schedule.next_run_at, now - PATIENCE)
    number = sum(1 for _ in islice(overdue, TIMES_IN_A_ROW))
    for run in facts.counted:
        if run.status is RunStatus.COMPLETED:
            break
        if run.status is not RunStatus.RUNNING:
            number += run.count
    return number


def _times(schedule: Schedule, first: datetime | None, until: datetime) -> Iterator[datetime]:
    """Its times from `first` up to `until`."""
    while first is not None and first <= until:
        yield first
        first = schedule.next_occurrence(first)


def _failures(facts: Facts) -> str | None:
    most = facts.rules.alarm_failures
    latest = takewhile(lambda run: run.status is not RunStatus.COMPLETED, facts.counted)
    failed = [run for run in facts.failed or latest if run.status is RunStatus.FAILED]
    if most is None or len(failed) < most:
        return None
    error = next((run.error for run in failed if run.error), "no reason is known")
    return f"it failed {len(failed)} times in a row; the last time: {error}"[:500]


def _duration(facts: Facts, now: datetime) -> str | None:
    most = facts.rules.alarm_duration
    longest = max((now - task.created_at for task in facts.live), default=_NONE)
    return f"a run has been going for {length(longest)}" if most is not None and longest >= most else None


def _ending(facts: Facts, now: datetime) -> str | None:
    has_no_times = isinstance(facts.schedule.timing, After)
    if facts.rules.alarm_ending is None or has_no_times or _last_known_time(facts, now) is not None:
        return None
    return f"no time is left after {(now + facts.rules.alarm_ending).isoformat(timespec='seconds')}"


def _last_known_time(facts: Facts, now: datetime) -> datetime | None:
    """A time after now and the length that is asked for, if there is one: until it is nearer, nothing ends."""
    schedule, ahead = facts.schedule, facts.rules.alarm_ending or _NONE
    left = None if schedule.max_runs is None else schedule.max_runs - schedule.run_count
    if left is None or left > COUNTED:
        return schedule.next_occurrence(now + ahead)
    coming = list(
        islice(_times(schedule, schedule.next_run_at, datetime.max.replace(tzinfo=now.tzinfo)), left)
    )
    return coming[-1] if coming and coming[-1] > now + ahead else None


def _overdue(facts: Facts, now: datetime, is_overdue: bool) -> str | None:
    due = facts.schedule.due_at
    if not is_overdue or due is None or now - due <= PATIENCE:
        return None
    return f"it was due {length(now - due)} ago, and no scheduler has started it"


def _missing_row(facts: Facts, now: datetime) -> str | None:
    """Looked for among the latest rows, and no further back than rows are kept for certain."""
    schedule, until = facts.schedule, facts.schedule.next_run_at
    begin = max(facts.since, now - min(CHECKED_BACK, facts.kept / 2))
    if len(facts.runs) >= ROWS:
        begin = max(begin, facts.runs[-1].scheduled_at)
    if until is None or begin >= until:
        return None
    times = _times(schedule, schedule.next_occurrence(begin), min(until - MICROSECOND, now - PATIENCE))
    for time in islice(times, COUNTED):
        if not any(run.scheduled_at <= time <= (run.until or run.scheduled_at) for run in facts.runs):
            return f"the time {time.isoformat()} has no row in the ledger"
    return None


def _stuck_run(facts: Facts) -> str | None:
    tasks = {**facts.tasks, **{task.id: task for task in facts.live}}
    broken = (broken_run(run, tasks.get(run.target_id or "")) for run in facts.runs)
    return next((words for words in broken if words is not None), None)


def _next_looks(facts: Facts, now: datetime) -> Iterator[datetime]:
    """The first moments at which each rule could trip, given that none does now. A failure asks for a look itself."""
    schedule, rules = facts.schedule, facts.rules
    if rules.alarm_late is not None:
        dues = [schedule.due_at, *(task.created_at for task in _waiting(facts))]
        yield from (due + rules.alarm_late + timedelta(milliseconds=1) for due in dues if due is not None)
    if rules.alarm_duration is not None:
        yield from (task.created_at + rules.alarm_duration for task in facts.live)
    if rules.alarm_ending is not None and (last := _last_known_time(facts, now)) is not None:
        yield last - rules.alarm_ending
    if rules.alarm_no_success:
        yield facts.succeeded_at + rules.alarm_no_success + timedelta(milliseconds=1)
    elif rules.alarm_no_success is None and not isinstance(schedule.timing, Once | After):
        yield max(facts.succeeded_at + FLOOR, _third_time(facts, now) + GRACE)


def _third_time(facts: Facts, now: datetime) -> datetime:
    """When the last of its times comes that may pass without a success."""
    left = TIMES_IN_A_ROW - _without_success(facts, now)
    end = datetime.max.replace(tzinfo=now.tzinfo)
    coming = list(islice(_times(facts.schedule, facts.schedule.next_run_at, end), max(left, 1)))
    return coming[-1] if coming else now


GATHERED_FOR = timedelta(seconds=10)
"""A notice waits so long for others, which go along."""
CLAIMED_FOR = timedelta(minutes=5)
"""Who has not sent it by then is dead."""
STALE = timedelta(hours=1)
SHOWN = 20
FIRST_RETRY, LAST_RETRY = timedelta(seconds=30), timedelta(hours=1)
TRIES = 24


def is_stale(alarm: Alarm, now: datetime) -> bool:
    """Whether it was over so long ago that nobody need be told: nobody was there to tell it."""
    return alarm.over_at is not None and not alarm.told and now - alarm.over_at > STALE


def claimed(alarm: Alarm, now: datetime) -> Alarm:
    return replace(alarm, tell_at=now + CLAIMED_FOR, tries=alarm.tries + 1)


def recorded(alarm: Alarm, told: Collection[str], wanted: Collection[str], now: datetime) -> Alarm:
    """After a try: `told` have it, `wanted` should. What is missing is tried again, but not for ever."""
    known = tuple(dict.fromkeys((*alarm.told, *told)))
    done = set(wanted) <= set(known) or alarm.tries >= TRIES
    again = min(FIRST_RETRY * 2 ** min(alarm.tries, 20), LAST_RETRY)
    tell_at, tries = (None, 0) if done else (now + again, alarm.tries)
    return replace(alarm, told=known, told_at=now if told else alarm.told_at, tell_at=tell_at, tries=tries)


def message(alarms: Sequence[Alarm]) -> tuple[str, str]:
    """A title and a text: what is wrong first, then what is over."""
    began = [alarm for alarm in alarms if alarm.is_open]
    over = [alarm for alarm in alarms if not alarm.is_open]
    parts = [f"{len(each)} {what}" for each, what in ((began, "began"), (over, "over")) if each]
    if len(alarms) == 1:
        title = f"Rota: {alarms[0].subject}: {_state(alarms[0])}"
    else:
        title = f"Rota: alarms: {', '.join(parts)}"
    lines = [_line(alarm) for alarm in (*began, *over)]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"and {len(lines) - SHOWN} more; `rota alarms` lists them"]
    return title, "\n".join(lines)


def _state(alarm: Alarm) -> str:
    return f"alarm ({alarm.rule})" if alarm.is_open else f"alarm over ({alarm.rule})"


def _line(alarm: Alarm) -> str:
    at = alarm.over_at or alarm.began_at
    where = "" if alarm.tenant in ("default", "*") else f" of {alarm.tenant}"
    return f"{at.isoformat(timespec='seconds')} {alarm.subject}{where}: {_state(alarm)}: {alarm.detail}"
