"""Works on alarms: what is wrong is found, remembered, and over when it is over.

`look_for_alarms` takes the schedules whose next look is due; `scan_ledger` goes through all of them, page by page, and
asks whether the ledger keeps its promises; `check_fleet` asks whether anybody does the work. Any number of nodes may do
so: schedules are locked while they are judged, and an alarm's id follows from what was judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ...domain import alarm, tenants
from ...domain.ids import derived_id
from ...domain.model import (
    Alarm,
    AlarmRule,
    AlarmRules,
    NodeState,
    Receipt,
    Run,
    RunStatus,
    Schedule,
    ScheduleStatus,
    Task,
    Tenant,
)
from ...domain.schedule import watching
from ...domain.serving import is_on_time, silent_scheduler
from ...stores.base import Tx
from ...stores.queries import (
    AlarmList,
    Cursor,
    DueSchedules,
    LiveTasks,
    LostLeases,
    OpenAlarms,
    PastExpiry,
    ReadyTasks,
    RunList,
    ScheduleList,
    UntoldAlarms,
    WatchedSchedules,
)
from ..work import as_work
from .serving import every_node
from .shared import LIVE_AT_MOST, latest_runs, next_page, put_audited
from .tenants import find_tenant

_R = TypeVar("_R", Alarm, Task)
_ACTIVE, _COMPLETED = ScheduleStatus.ACTIVE, RunStatus.COMPLETED
OPEN_AT_MOST = 1000
JANITOR = "janitor"
WAITING = timedelta(minutes=10)
"""Tasks that could have begun so long ago are waiting for nobody, or for too few."""
RECENT = 50
NOTICES_AT_ONCE = 500
_SOON = timedelta(seconds=1)


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """How many schedules were looked at, and the alarms that began or are over. If none was due: when the next is."""

    number: int = 0
    alarms: list[Alarm] = []
    next_in: timedelta | None = None


class Scanned(msgspec.Struct, frozen=True, kw_only=True):
    """The alarms that began or are over, where the next page begins (None: that was the last), and the schedules that
    were seen overdue."""

    alarms: list[Alarm]
    after: Cursor | None
    overdue: frozenset[str]


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """What nobody seems to do: leases that ran out and are not taken back, tasks that expired and are not marked, tasks
    that nobody takes."""

    lost: Sequence[Task]
    unswept: Sequence[Task]
    waiting: Sequence[Task]


async def find_stuck(tx: Tx, limit: int) -> Stuck:
    late = tx.now - alarm.PATIENCE
    return Stuck(
        lost=await tx.find(LostLeases(at=late), limit),
        unswept=await tx.find(PastExpiry(at=late), limit),
        waiting=await tx.find(ReadyTasks(at=tx.now - WAITING), limit),
    )


@as_work
async def look_for_alarms(tx: Tx, limit: int, kept: timedelta) -> Looked:
    """Judge the schedules whose next look is due, at most `limit`. `kept` is how long rows are kept."""
    [first] = [each.watch_at for each in await tx.find(WatchedSchedules(at=None), 1)] or [None]
    if first is None:
        return Looked()
    due = await tx.find(WatchedSchedules(at=tx.now), limit, lock=True) if first <= tx.now else []
    if not due:  # none is, or others look at all of them
        return Looked(next_in=first - tx.now if first > tx.now else _SOON)
    verdicts = await _judged(tx, due, kept, frozenset())
    alarms = [_put(tx, each) for verdict in verdicts for each in verdict.alarms]
    for before, verdict in zip(due, verdicts, strict=True):
        tx.put(verdict.schedule, was=before)
    return Looked(number=len(due), alarms=alarms)


@as_work
async def scan_ledger(
    tx: Tx, after: Cursor | None, limit: int, kept: timedelta, seen: Collection[str]
) -> Scanned:
    """Judge one page of all active schedules, and those that are overdue and were (`seen`) at the last scan. Only what
    changes is written. Alarms of schedules that are gone are over."""
    page = await tx.find(ScheduleList(tenant=None, status=_ACTIVE, after=after), limit)
    late = [each for each in await tx.find(DueSchedules(at=tx.now - alarm.PATIENCE), limit) if each.enabled]
    overdue = frozenset(each.id for each in late)
    schedules = list({each.id: each for each in (*page, *late)}.values())
    verdicts = await _judged(tx, schedules, kept, overdue & frozenset(seen))
    changed = [each for each in verdicts if each.alarms]
    gone = await _of_gone(tx)
    for verdict in changed:
        tx.put(verdict.schedule)
    alarms = [_put(tx, each) for each in (*(new for each in changed for new in each.alarms), *gone)]
    return Scanned(alarms=alarms, after=next_page(page, limit), overdue=overdue)


def _put(tx: Tx, new: Alarm) -> Alarm:
    """With a line of the audit: events tell of it, too."""
    return put_audited(tx, "opened" if new.is_open else "resolved", JANITOR, None, new, new.detail)


class FleetLook(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the fleet found: the alarms that began or are over, and whether all is well. `teller` is the node
    that tells a monitor outside: the first by id among the nodes that have the monitor's address and a heartbeat that
    is not late. None: there is no such node, so every node that looks tells it."""

    alarms: list[Alarm]
    is_well: bool
    teller: str | None


@as_work
async def check_fleet(tx: Tx) -> FleetLook:
    """Whether a scheduler is alive if one is needed, and whether anybody takes, takes back and marks tasks."""
    nodes = await every_node(tx)
    found = await _fleet_findings(tx, nodes)
    recent = await tx.find(AlarmList(tenant=tenants.EVERY_TENANT, subject_id=alarm.FLEET), RECENT)
    known = [each for each in recent if each.is_open]
    subject = (alarm.FLEET, alarm.FLEET, "the fleet")
    mark = recent[0].id if recent else ""  # the next alarm follows the last, whoever raises it
    changed = alarm.merged(found, known, tenants.EVERY_TENANT, subject, mark, tx.now)
    telling = (each for each in nodes if "heartbeats" in each.roles and is_on_time(each, tx.now))
    teller = next((each.id for each in telling), None)
    return FleetLook(alarms=[_put(tx, each) for each in changed], is_well=not found, teller=teller)


@as_work
async def set_alarm_rules(tx: Tx, tenant: str, tag: str, rules: AlarmRules | None, actor: str) -> Tenant:
    """The rules of all schedules whose target has the tag; None: it has none any more. `look_soon_at_tagged` applies
    them to those that are there."""
    old = await find_tenant(tx, tenant)
    others = {name: each for name, each in old.alarm_rules.items() if name != tag}
    new = replace(old, alarm_rules=others if rules is None else {**others, tag: rules})
    if new == old:
        return old
    return put_audited(tx, "alarmed", actor, None if old.version == 0 else old, new, f"tag {tag}")


@as_work
async def look_soon_at_tagged(
    tx: Tx, tenant: str, tag: str, after: Cursor | None, limit: int
) -> Cursor | None:
    """Let one page of the schedules with the tag be looked at soon; where the next page begins."""
    page = await tx.find(ScheduleList(tenant=tenant, tag=tag, after=after), limit)
    for each in page:
        tx.put(watching.look_soon(each, tx.now), was=each)
    return next_page(page, limit)


class ClaimedNotices(msgspec.Struct, frozen=True, kw_only=True):
    """The alarms to tell of, or when there is something to tell (None: nothing is known)."""

    alarms: list[Alarm] = []
    next_in: timedelta | None = None


@as_work
async def claim_notices(tx: Tx, per_hour: int) -> ClaimedNotices:
    """Take the notices that are due, so that no other node sends them, unless this hour has had its messages."""
    [first] = [each.tell_at for each in await tx.find(UntoldAlarms(at=None), 1)] or [None]
    if first is None:
        return ClaimedNotices()
    if first + alarm.GATHERED_FOR > tx.now:
        return ClaimedNotices(next_in=first + alarm.GATHERED_FOR - tx.now)
    hour = tx.now.replace(minute=0, second=0, microsecond=0)
    id = derived_id("notices", hour)
    sent = await tx.get(Receipt, id) or Receipt(
        id=id, tenant=tenants.EVERY_TENANT, at=tx.now, fingerprint="notices", status=200, answer=0
    )
    if sent.answer >= per_hour:
        return ClaimedNotices(next_in=hour + timedelta(hours=1) - tx.now)
    due = await tx.find(UntoldAlarms(at=tx.now), NOTICES_AT_ONCE, lock=True)
    wanted = [each for each in due if not alarm.is_stale(each, tx.now)]
    for each in due:
        if each not in wanted:
            tx.put(replace(each, tell_at=None))
    if wanted:
        tx.put(replace(sent, at=tx.now, answer=sent.answer + 1))
    return ClaimedNotices(alarms=[tx.put(alarm.claimed(each, tx.now)) for each in wanted], next_in=_SOON)


@as_work
async def record_notices(tx: Tx, alarms: Sequence[Alarm], told: Sequence[str], wanted: Sequence[str]) -> None:
    """Write down who was told. An alarm that has changed since is told of again."""
    stored = await tx.get_many(Alarm, [each.id for each in alarms])
    for sent in alarms:
        known = stored.get(sent.id)
        if known is not None and known.version == sent.version:
            tx.put(alarm.recorded(known, told, wanted, tx.now))


async def _judged(
    tx: Tx, schedules: Sequence[Schedule], kept: timedelta, overdue: Collection[str]
) -> list[alarm.Verdict]:
    """The verdicts, in the order of the schedules."""
    ids = tuple(each.id for each in schedules)
    if not ids:
        return []
    of_tenants = await tx.get_many(Tenant, {each.tenant for each in schedules})
    known = _by(await tx.find(OpenAlarms(subject_ids=ids), OPEN_AT_MOST), "subject_id")
    live = _by(await tx.find(LiveTasks(schedule_ids=ids), LIVE_AT_MOST), "schedule_id")
    rules = {each.id: _rules(each, of_tenants) for each in schedules}
    rows = await _latest_rows(tx, schedules, rules)
    tasks = await _running_tasks(tx, rows.values())
    return [
        alarm.evaluate(
            alarm.Facts(
                schedule=each,
                rules=rules[each.id],
                runs=rows[each.id],
                live=[task for task in live.get(each.id, ()) if task.as_of(tx.now).is_live],
                tasks=tasks,
                last_success=await _last_success(tx, each, rules[each.id], rows[each.id]),
                failed=await _failed(tx, each, rules[each.id], rows[each.id]),
                kept=kept,
            ),
            known.get(each.id, ()),
            tx.now,
            is_overdue=each.id in overdue,
        )
        for each in schedules
    ]


def _rules(schedule: Schedule, of_tenants: Mapping[str, Tenant]) -> AlarmRules:
    tenant = of_tenants.get(schedule.tenant)
    return alarm.rules_of(schedule, {} if tenant is None else tenant.alarm_rules)


async def _latest_rows(
    tx: Tx, schedules: Sequence[Schedule], rules: Mapping[str, AlarmRules]
) -> dict[str, list[Run]]:
    """Of the active ones. All that need the same number of rows are one question."""
    rows: dict[str, list[Run]] = {each.id: [] for each in schedules}
    by_number: dict[int, list[str]] = {}
    for each in schedules:
        if each.enabled:
            number = max(alarm.ROWS, 2 * (rules[each.id].alarm_failures or 0))
            by_number.setdefault(number, []).append(each.id)
    for number, ids in by_number.items():
        rows |= await latest_runs(tx, ids, number)
    return rows


async def _running_tasks(tx: Tx, rows: Iterable[Sequence[Run]]) -> dict[str, Task]:
    running = {run.target_id for each in rows for run in each if run.status is RunStatus.RUNNING}
    return await tx.get_many(Task, [id for id in running if id is not None])


async def _last_success(
    tx: Tx, schedule: Schedule, rules: AlarmRules, rows: Sequence[Run]
) -> datetime | None:
    """Looked for behind the latest rows only if none of those succeeded, and there are more. Where times wait, the last
    that ended is right before the first of them, however long ago that was."""
    if len(rows) < alarm.ROWS or any(run.status is _COMPLETED for run in rows):
        return None
    found: Sequence[Run] = ()
    if schedule.buffered:
        before = await tx.find(RunList(schedule_id=schedule.id, until=min(schedule.buffered)), alarm.ROWS)
        found = [run for run in before if run.status is _COMPLETED]
    elif (since := alarm.no_success_since(schedule, rules, tx.now)) is not None:
        found = await tx.find(RunList(schedule_id=schedule.id, status=_COMPLETED, since=since), 1)
    return found[0].completed_at if found else None


async def _failed(tx: Tx, schedule: Schedule, rules: AlarmRules, rows: Sequence[Run]) -> Sequence[Run]:
    """The last runs that failed since one succeeded, where times that were skipped fill the latest rows."""
    since = alarm.failures_since(schedule, rules, tx.now)
    if since is None or len(rows) < alarm.ROWS or any(run.status is _COMPLETED for run in rows):
        return ()
    good = await tx.find(RunList(schedule_id=schedule.id, status=_COMPLETED, since=since), 1)
    query = RunList(schedule_id=schedule.id, status=RunStatus.FAILED, since=since)
    failed = await tx.find(query, max(alarm.ROWS, rules.alarm_failures or 0))
    return [run for run in failed if not good or run.scheduled_at > good[0].scheduled_at]


async def _of_gone(tx: Tx) -> list[Alarm]:
    """The open alarms of schedules that are not there any more, as they are then: over."""
    known = await tx.find(AlarmList(tenant=None, is_open=True), OPEN_AT_MOST)
    ids = {each.subject_id for each in known if each.subject_type == "schedule"}
    there = await tx.get_many(Schedule, ids)
    return alarm.ended((each for each in known if each.subject_id in ids - there.keys()), tx.now)


async def _fleet_findings(tx: Tx, nodes: Sequence[NodeState]) -> dict[AlarmRule, str]:
    stuck = await find_stuck(tx, 1)
    silent = silent_scheduler(nodes, tx.now)
    needed = silent is not None and await tx.find(DueSchedules(at=None), 1)
    found = {
        AlarmRule.SCHEDULER_SILENT: silent is not None
        and needed
        and f"no scheduler is alive; the last one was {silent.id}",
        AlarmRule.LOST_LEASES: stuck.lost and "leases ran out, and nobody takes their tasks back",
        AlarmRule.NOT_EXPIRED: stuck.unswept and "tasks have expired, and nobody marks them",
        AlarmRule.WAITING_TASKS: stuck.waiting
        and f"tasks have waited for more than {WAITING // timedelta(minutes=1)} minutes",
    }
    return {rule: words for rule, words in found.items() if isinstance(words, str)}


def _by(records: Iterable[_R], name: str) -> dict[str, list[_R]]:
    found: dict[str, list[_R]] = {}
    for each in records:
        found.setdefault(getattr(each, name), []).append(each)
    return found
