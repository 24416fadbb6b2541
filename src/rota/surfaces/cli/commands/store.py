"""Commands about the store and the settings: migrate, config, and doctor with what it looks at."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import click

from ....domain.errors import Corrupt, Invalid, RotaError, StoreError, Unavailable
from ....domain.model import Alarm, Schedule, Task
from ....domain.schedule.why import length
from ....domain.tenants import EVERY_TENANT
from ....engine.clock import Clock, SystemClock, new_id
from ....engine.commands import remove_receipt, write_receipt
from ....engine.queries import alarm_page
from ....engine.queries.health import Health, Serving, broken_records, check_health, check_serving
from ....engine.queries.workflows import check_workflows
from ....stores.base import CommitOptions, Proof, ReadSoFar, Store
from ...durations import short
from ...settings import FIELDS
from ...stores import make_store, without_secrets
from ...words import counted
from ..render import Cell, size_in_words
from ..session import Session, command

T = TypeVar("T")
SKEW = timedelta(seconds=1)

_HELD = "look who is connected: someone else holds it up, it seems (a long transaction, a lock, a migration)"
ALARMS_AT_MOST = 100
_MISSING = "`rota migrate` makes one; or is the address wrong? `rota config` says where it comes from"
_UPKEEP = (
    "nodes need the rights to write and delete under snapshot/, archive/ and schedules/ (and tasks/, tenants/), and to"
    " delete under log/; what the service refuses them, they say in their own logs"
)
_REPAIR = (
    "nothing is changed by rota here, since only you know which copy is right. 1. Stop all nodes. 2. Keep a copy of"
    " the object {key}. 3. If the bucket keeps versions, restore the one that can be read. 4. If a newer rota wrote"
    " it, upgrade. 5. If it is a snapshot and an older one is there, delete it: nodes start from the older one and the"
    " log, and nothing is lost. 6. If it is an entry of the log and nothing else helps, delete it, every later entry"
    " and every later snapshot: the store is then as it was before them, and what they held is lost. 7. If it is a"
    " segment of the archive and nothing else helps, put an empty one there (`echo '{{}}' | gzip`): what was in it had"
    " ended long ago, and is lost; nothing else is, but counts of tasks go on including it, since they are kept beside"
    " the segment. 8. Run `rota doctor --deep`"
)


@command(
    examples=["rota migrate", "rota migrate --plan", "rota migrate --store sqlite:////var/lib/shop/rota.db"]
)
@click.option("--plan", is_flag=True, help="Only print the SQL that would be run.")
def migrate(session: Session, plan: bool) -> None:
    """Bring the store's schema up to date. Doing it twice does no harm; a newer store is refused."""
    store = _store(session)
    if plan:
        return _show_plan(session, store)
    with session.screen.progress("migrating", None):
        applied = asyncio.run(_then_closed(store, store.migrate()))
    schema = f"the schema {store.schema}" if store.schema else "the schema"
    done = f"applied {', '.join(applied)}, {schema} is now" if applied else f"nothing to do, {schema} is"
    return session.tell({"store": store.url, "applied": list(applied)}, f"{store.url}: {done} current")


def _show_plan(session: Session, store: Store) -> None:
    sql = asyncio.run(_then_closed(store, store.plan()))
    if session.as_json:
        return session.screen.json({"store": store.url, "plan": sql})
    return session.screen.say(sql or f"-- {store.url}: nothing to do, the schema is current")


async def _then_closed(store: Store, asked: Awaitable[T]) -> T:
    found = await asked
    await store.close()
    return found


def _store(session: Session) -> Store:
    return make_store(session.store_settings()["store"], SystemClock())


@command(examples=["rota config", "ROTA_TENANT=acme rota config", "rota config --profile production --json"])
def config(session: Session) -> None:
    """What is set, and where it came from: a flag, a variable, rota.toml, or the default."""
    settings = session.settings()
    values = {
        field.name: _masked(settings[field.name]) if field.is_secret else settings[field.name]
        for field in FIELDS
    }
    sources = {field.name: settings.found[field.name].source for field in FIELDS}
    if session.as_json:
        document: dict[str, Any] = {
            name: {"value": _shown(value), "source": sources[name]} for name, value in values.items()
        }
        document["profile"] = {"value": settings.profile.value, "source": settings.profile.source}
        document["file"] = str(settings.file) if settings.file else None
        return session.screen.json(document)
    rows: list[list[Cell | str]] = [
        [
            field.name,
            Cell(_in_words(field.name, values[field.name]), "bold"),
            Cell(sources[field.name], "cyan"),
            field.about,
        ]
        for field in FIELDS
    ]
    session.screen.table(("SETTING", "VALUE", "FROM", "WHAT"), rows, yields=("WHAT", "FROM"))
    where = f"file: {settings.file}" if settings.file else "file: no rota.toml here"
    profile = f", profile {settings.profile.value}" if settings.profile.value else ""
    return session.screen.say(where + profile)


def _in_words(name: str, value: Any) -> str:
    """As people write it: `forever`, `yes`, `2 MB`, `none`."""
    if value is None or value in ((), []):
        return "forever" if name.startswith("keep_") else "all" if name == "queues" else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "max_body":
        return size_in_words(value)
    shown = _shown(value)
    return ", ".join(shown) if isinstance(shown, list) else str(shown)


def _masked(value: Any) -> Any:
    """The scheme of an address that is a secret as a whole."""
    if isinstance(value, tuple):
        return [_masked(each) for each in value]
    if value is None:
        return None
    scheme, colon, _ = value.partition(":")
    return f"{scheme}://***" if colon else "***"


def _shown(value: Any) -> Any:
    """A setting without secrets; a duration as it is written."""
    if isinstance(value, timedelta):
        return short(value)
    if isinstance(value, tuple):
        return list(value)
    return without_secrets(value) if isinstance(value, str) else value


@command(examples=["rota doctor", "rota doctor --deep", "rota doctor --json | jq '.[] | select(.ok | not)'"])
@click.option("--deep", is_flag=True, help="Read every record, too.")
@click.option(
    "--repair", is_flag=True, help="Say what can be done about what cannot be read. Changes nothing."
)
def doctor(session: Session, deep: bool, repair: bool) -> None:
    """Look for trouble: is the store reachable, writable and current, do the clocks agree, is anything
    overdue, lost or stuck? Each with what to do about it. Exit code 1 if something is wrong."""
    settings = session.store_settings()
    store = _store(session)
    with session.screen.progress("reading every record" if deep else "examining", None) as bar:
        findings = asyncio.run(examine(store, settings["tenant"], deep=deep, repair=repair, report=bar.reach))
    if session.as_json:
        session.screen.json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            _say_finding(session, finding)
    if not all(finding.ok for finding in findings):
        raise click.exceptions.Exit(1)


def _say_finding(session: Session, finding: Finding) -> None:
    sign, colour = ("✓", "green") if finding.ok else ("✗", "red")
    if not session.screen.is_terminal:
        sign = "ok  " if finding.ok else "FAIL"
    name = f"{click.style(sign, fg=colour)} {click.style(finding.check.ljust(10), bold=True)}"
    session.screen.prose(f"{name} {finding.found}", hang=13)
    if finding.advice:
        session.screen.prose(f"  {' ' * 10} {click.style('→ ' + finding.advice, fg='yellow')}", hang=15)


class Finding(NamedTuple):
    """One answer: what was looked at, whether it is well, what was found, what to do."""

    check: str
    ok: bool
    found: str
    advice: str = ""


async def examine(
    store: Store, tenant: str, *, deep: bool = False, repair: bool = False, report: ReadSoFar | None = None
) -> list[Finding]:
    """`repair`: also say, step by step, what can be done about what cannot be read. `report` hears how many records a
    `deep` look has read."""
    clock = SystemClock()
    began = clock.monotonic()
    reachable = await _open(store, repair=repair)
    opening = timedelta(seconds=clock.monotonic() - began)
    if not all(finding.ok for finding in reachable):
        return reachable
    try:
        return [
            *reachable,
            *await _conditions(store),
            *await _upkeep(store),
            await _writable(store),
            await _clock(store, clock, opening),
            *await _state(store, tenant, deep=deep, repair=repair, report=report),
        ]
    finally:
        await store.close()


async def _open(store: Store, *, repair: bool) -> list[Finding]:
    try:
        await store.open(migrate=False)
    except RotaError as problem:
        if isinstance(problem, Corrupt) and "key" in problem.details:
            return [Finding("store", True, store.url), _unreadable(problem, repair=repair)]
        if "missing" in problem.details:
            return [Finding("store", False, str(problem), _MISSING), *await _conditions_of_a_service(store)]
        if "lacks" in problem.details:
            return [
                Finding("store", True, store.url),
                Finding("schema", False, str(problem), "run `rota migrate`"),
            ]
        if problem.code in ("newer_schema", "other_schema"):
            advice = "use the version of rota that wrote it"
            return [Finding("store", True, store.url), Finding("schema", False, str(problem), advice)]
        if isinstance(problem, Invalid):  # a careless service: what else is missing?
            return [Finding("store", False, str(problem)), *await _conditions(store)]
        advice = "check the address (`rota config` says where it comes from) and the rights to it"
        return [Finding("store", False, str(problem), _HELD if _is_held(problem) else advice)]
    return [Finding("store", True, f"{store.url} answers"), Finding("schema", True, "current")]


async def _conditions_of_a_service(store: Store) -> list[Finding]:
    """A service can be proved before there is a store in it. A folder cannot: it would have to be made."""
    return [] if store.url.startswith("file:") else await _conditions(store)


async def _conditions(store: Store) -> list[Finding]:
    """The promises of a bucket, proved on the live one."""
    advice = "this service cannot carry a queue: use one with conditional writes"
    return [_proved(proof, advice) for proof in await store.prove()]


async def _upkeep(store: Store) -> list[Finding]:
    """The rights that the upkeep of a bucket needs: without them it fails quietly beside the work."""
    return [_proved(proof, _UPKEEP) for proof in await store.prove_upkeep()]


def _proved(proof: Proof, advice: str) -> Finding:
    return Finding(proof.behaviour, proof.holds, proof.found, "" if proof.holds else advice)


async def _writable(store: Store) -> Finding:
    try:
        receipt = await store.transact(write_receipt(new_id()), CommitOptions(fail_if_locked=True))
        await store.transact(remove_receipt(receipt), CommitOptions(fail_if_locked=True))
    except RotaError as problem:
        advice = "check the rights to it and the room on its disk"
        return Finding("writable", False, str(problem), _HELD if _is_held(problem) else advice)
    return Finding("writable", True, "a write and its removal were committed")


async def _clock(store: Store, clock: Clock, opening: timedelta) -> Finding:
    """A store may have learned its time while it was opened, and know it as well as that was quick."""
    before = clock.now()
    theirs = await store.now()
    after = clock.now()
    skew = theirs - (before + (after - before) / 2)
    most = SKEW + opening + (after - before)
    if abs(skew) > most:
        ahead = "ahead of" if skew > timedelta(0) else "behind"
        found = f"the store's clock is {short(skew)} {ahead} this machine's"
        return Finding("clock", False, found, "set both by NTP; Rota follows the store's")
    return Finding("clock", True, f"within {short(SKEW if abs(skew) <= SKEW else most)} of this machine's")


async def _state(
    store: Store, tenant: str, *, deep: bool, repair: bool, report: ReadSoFar | None
) -> list[Finding]:
    findings: list[Finding] = []
    try:
        health = await store.read(check_health(tenant))
        findings += [_overdue(health), _leases(health), _expiries(health), _waiting(health), _states(health)]
        findings += _serving(await store.read(check_serving()))
        fleet = await store.read(alarm_page(EVERY_TENANT, ALARMS_AT_MOST))
        findings.append(_alarms([*fleet, *await store.read(alarm_page(tenant, ALARMS_AT_MOST))]))
        findings += _workflows(await store.read(check_workflows(tenant)))
        if health.ahead:
            findings.append(_from_the_future(health.ahead, await store.now()))
        if health.unreadable:
            findings.append(_left_out(health.unreadable))
        if deep:
            findings.append(_broken(broken_records(await store.snapshot(report))))
    except Corrupt as problem:
        findings.append(_unreadable(problem, repair=repair))
    except StoreError as problem:
        advice = f"check the rights to it, or {_HELD}"
        findings.append(Finding("records", False, str(problem), _HELD if _is_held(problem) else advice))
    return findings


def _is_held(problem: RotaError) -> bool:
    return isinstance(problem, Unavailable) and problem.is_busy


def _unreadable(problem: Corrupt, *, repair: bool) -> Finding:
    advice = "something else wrote there, or a newer rota did; restore that record from a backup"
    key = problem.details.get("key")
    if key is not None:
        advice = _REPAIR.format(key=key) if repair else "`rota doctor --repair` says what can be done"
    return Finding("records", False, str(problem), advice)


def _left_out(problems: Sequence[str]) -> Finding:
    found = f"{len(problems):,} left out everywhere, since they cannot be read: {_names(problems, '; ')}"
    advice = (
        "something else wrote there, or a newer rota did; restore what is named from a backup, or remove it"
    )
    return Finding("records", False, found, advice)


def _none_of(check: str, records: Sequence[object], well: str, trouble: str, advice: str) -> Finding:
    if not records:
        return Finding(check, True, well)
    return Finding(check, False, f"{_count(records)} {trouble}", advice)


def _overdue(health: Health) -> Finding:
    well = f"{health.schedules.get('active', 0):,} active, none overdue"
    trouble = f"overdue by more than a minute: {_names([schedule.key for schedule in health.overdue])}"
    advice = "no scheduler seems to run: start `rota up` or `rota scheduler run`"
    return _none_of("schedules", health.overdue, well, trouble, advice)


def _leases(health: Health) -> Finding:
    well = f"{_tasks(health, 'running')}, no lease lost"
    workers = _names(sorted({task.worker_id or "?" for task in health.lost}))
    advice = "no worker seems to run: start `rota up`, `rota worker` or `rota monitor`"
    return _none_of("leases", health.lost, well, f"lost with their workers: {workers}", advice)


def _expiries(health: Health) -> Finding:
    advice = "no janitor seems to run: start `rota up` or `rota monitor`"
    return _none_of("expiries", health.unswept, "none left unmarked", "expired and not marked so", advice)


def _waiting(health: Health) -> Finding:
    well = f"{_tasks(health, 'pending')}, none ready for long"
    kinds = Counter(f"{task.kind} (queue {task.queue})" for task in health.waiting)
    names = _names([f"{number:,} {kind}" for kind, number in kinds.most_common()])
    advice = "start a worker that has handlers for them: `rota worker module:app`"
    return _none_of("waiting", health.waiting, well, f"ready for more than 10 minutes: {names}", advice)


def _alarms(alarms: Sequence[Alarm]) -> Finding:
    names = _names([f"{each.subject} ({each.rule})" for each in alarms])
    return _none_of(
        "alarms", alarms, "none is open", f"open: {names}", "`rota alarms` says since when, and why"
    )


def _serving(serving: Serving) -> list[Finding]:
    """Nodes that are silent are named; they are trouble if nobody does what they did."""
    silent = [f"{node.id} for {length(serving.at - node.seen_at)}" for node in serving.silent]
    about = f"; silent: {_names(silent)}" if silent else ""
    has_scheduler = serving.silent_scheduler is None
    advice = "a scheduler died and none is alive: start `rota up` or `rota scheduler run`"
    found = f"{len(serving.alive):,} alive{about}"
    findings = [Finding("nodes", has_scheduler, found, "" if has_scheduler else advice)]
    if serving.unhandled:
        names = [f"{sentence} ({number:,} pending)" for sentence, number in serving.unhandled.items()]
        advice = "start a worker that has handlers for them"
        findings.append(Finding("handlers", False, _names(names, "; "), advice))
    return findings


def _workflows(troubles: Sequence[str]) -> list[Finding]:
    if not troubles:
        return []
    advice = "deploy code that goes on with them, or `rota workflow cancel` them; `rota workflow show` has the steps"
    return [Finding("workflows", False, _names(troubles, "; "), advice)]


def _from_the_future(ahead: Sequence[Schedule | Task], now: datetime) -> Finding:
    names = [_dated(record, now) for record in ahead]
    found = f"{_count(ahead)} from the future, written by a clock that was ahead: {_names(names)}"
    advice = (
        "a worker or a scheduler brings them back when it starts, or sees the clock go back: start `rota up`"
    )
    return Finding("future", False, found, advice)


def _dated(record: Schedule | Task, now: datetime) -> str:
    name = f"schedule {record.key}" if isinstance(record, Schedule) else f"task {record.id}"
    return f"{name} ({short(max(record.created_at, record.updated_at) - now)} ahead)"


def _states(health: Health) -> Finding:
    unknown = health.unknown_tasks + health.unknown_schedules
    if not unknown:
        return Finding("states", True, "no task or schedule in an unknown state")
    found = f"{health.unknown_tasks} tasks and {health.unknown_schedules} schedules are in an unknown state"
    return Finding("states", False, found, "upgrade rota, or look at them with `rota doctor --deep`")


def _broken(problems: Sequence[str]) -> Finding:
    if not problems:
        return Finding("records", True, "all of them read well and fit together")
    return Finding("records", False, f"{len(problems)} do not fit: {_names(problems, '; ')}", "see each")


def _tasks(health: Health, status: str) -> str:
    return f"{counted(health.tasks.get(status, 0), 'task')} {status}"


def _count(found: Sequence[object]) -> str:
    return f"{len(found):,}" if len(found) < 1000 else "1,000 or more"


def _names(names: Sequence[str], joined: str = ", ") -> str:
    return joined.join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
