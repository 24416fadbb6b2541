"""The calls of a queue that are about schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from msgspec import UNSET

from ....domain import recurrence
from ....domain.checks import check_choice, check_key, check_number, shown
from ....domain.errors import Invalid, NotFound, Refused
from ....domain.model import (
    Backfill,
    Event,
    OverlapPolicy,
    Run,
    RunStatus,
    Schedule,
    Target,
    Task,
)
from ....domain.options import ScheduleChanges, ScheduleFilters, ScheduleOptions, TimingOptions
from ....domain.plan import Plan, naming
from ....domain.recurrence import ClockChange, Timing
from ....domain.schedule import definition
from ....domain.schedule.backfill import check_policy
from ....domain.schedule.why import Why
from ....engine import commands, queries
from ....engine.app import App
from ....engine.observe.log import log_observation
from ....engine.observe.telemetry import Observer
from ....engine.queries import Occurrence, OrderedSchedules, ScheduleOrder
from ....engine.queries.overview import Hour, Overview, last_hours, overview
from ....engine.roles.scheduler import Scheduler
from ....engine.roles.set_back import SetBack
from ....stores.queries import (
    NEVER,
    Cursor,
    OpenSchedules,
    ScheduleList,
    SchedulesByName,
    SchedulesByNextTime,
)
from ...redaction import carried
from .. import arguments
from ..arguments import check_registered
from ..known_nodes import started_by
from ..timings import given_time
from .base import CANDIDATES, LIMIT, MOST, Calls, DueRuns, Page, Report, check_limit, only_one, page_of

MOST_VERSIONS = 1_000_000_000
PURGED_AT_ONCE = 1000
_MANY = 'give {"a-key": {"cron": …, "task_type": …}, …}'


class ScheduleCalls(Calls):
    """Create schedules, change them, and ask what became of their times."""

    async def create_schedule(
        self, schedule_id: str | None = None, *, id: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Create a schedule: what to run (`task_type` with `input`, or `target`) and when (one of `cron`,
        `interval`, `run_at`, `rrule`, `rule`, `timings`, `after`). A key that a completed schedule has is taken from
        it."""
        if schedule_id is not None and id is not None:
            raise Invalid("id", "it was given together with schedule_id", "give one of them")
        key = check_key(schedule_id if schedule_id is not None else id)
        timing, target, fields = arguments.new_schedule(options, await self.now())
        self._check_target(target)
        work = commands.create_schedule(
            self._new_id(), self.tenant, key, timing, target, fields, self.actor, check=self._check_input
        )
        with arguments.in_words_of(options):
            created = await self._commit(work)
        started = await started_by(self.store, self.tenant, [created.target])
        await self._warn_of_unhandled(*filter(None, started))
        return created

    async def create_schedules(self, schedules: Mapping[str, ScheduleOptions]) -> list[Schedule]:
        """Create many schedules in one transaction, all of them or none: by key, the options of `create_schedule`."""
        if not isinstance(schedules, Mapping):
            raise Invalid("schedules", "they are not a dict", _MANY)
        now = await self.now()
        made = []
        for key, options in schedules.items():
            with naming("schedule", str(key)):
                if not isinstance(options, Mapping):
                    raise Invalid("options", f"{shown(options)} is not a dict", _MANY)
                declared = self._declared(check_key(key), options, now)
                self._check_target(declared.target)
                made.append(declared)
        created = await self._commit(
            commands.create_schedules(self.tenant, made, self.actor, check=self._check_input)
        )
        started = await started_by(self.store, self.tenant, [each.target for each in created])
        await self._warn_of_unhandled(*filter(None, {*started}))
        return created

    async def get_schedule(self, schedule_id: str, *, deleted: bool = False) -> Schedule:
        """One schedule, by its key or its id. With `deleted`, by its id, also one that is deleted."""
        key = check_key(schedule_id)
        return await self.store.read(queries.one_schedule(self.tenant, key, deleted=deleted))

    async def schedule_id(self, beginning: str) -> str:
        """The id of the one schedule, living or deleted, whose id begins so. A name, and what begins no id, is taken as
        it is."""
        text = check_key(beginning)
        found = await self.store.read(queries.schedules_by_beginning(self.tenant, text, CANDIDATES + 1))
        return only_one("schedule", text, {each.id: each.key for each in found}) or text

    async def list_schedules(
        self,
        *,
        limit: int = LIMIT,
        cursor: str | None = None,
        order: str = "newest",
        **filters: Unpack[ScheduleFilters],
    ) -> Page[Schedule]:
        """The schedules that match: the newest first, by `name`, or by their `next` times; give a page's `next_cursor`
        as `cursor` to go on in the same order."""
        query = await self._in_order(order, cursor, filters)
        found = await self.store.read(queries.find(query, check_limit(limit)))
        return _page_in_order(query, found, limit)

    async def sorted_schedules(
        self,
        order: str = "newest",
        *,
        limit: int = LIMIT,
        cursor: str | None = None,
        among_all: bool = False,
        **filters: Unpack[ScheduleFilters],
    ) -> tuple[Page[Schedule], int | None]:
        """As `list_schedules`, for people who wait: where there are many schedules, those that match are looked for
        among the first 10,000 in this order. The second is that number; None: among all."""
        if among_all:
            return await self.list_schedules(limit=limit, cursor=cursor, order=order, **filters), None
        query = await self._in_order(order, cursor, filters)
        found, first = await self.store.read(queries.first_schedules(query, check_limit(limit)))
        return _page_in_order(query, found, limit), first

    async def count_schedules(self, **filters: Unpack[ScheduleFilters]) -> int:
        return await self.store.read(queries.count(await self._schedule_list(filters)))

    async def update_schedule(
        self, schedule_id: str, *, version: int | None = None, **changes: Unpack[ScheduleChanges]
    ) -> Schedule:
        """Change what is named, options as in `create_schedule`. With `version`: only if it is still at that one."""
        work = commands.edit_schedule(
            self.tenant,
            check_key(schedule_id),
            carried(lambda old, now: self._checked(arguments.schedule_changes(old, changes, now))),
            self.actor,
            version,
            check=self._check_input,
        )
        with arguments.in_words_of(changes):
            return await self._commit(work)

    async def plan_create(self, schedule_id: str, **options: Unpack[ScheduleOptions]) -> Plan:
        """What `create_schedule` would make of this; nothing is written."""
        key = check_key(schedule_id)
        timing, target, fields = arguments.new_schedule(options, await self.now())
        self._check_target(target)
        work = commands.plan_new_schedule(
            self.tenant, key, timing, target, fields, self.actor, check=self._check_input
        )
        with arguments.in_words_of(options):
            return await self.store.read(work)

    async def plan_update(self, schedule_id: str, **changes: Unpack[ScheduleChanges]) -> Plan:
        """What `update_schedule` would change: which times appear, vanish or move, and that nothing runs because of it.
        Nothing is written."""
        work = commands.plan_edit(
            self.tenant,
            check_key(schedule_id),
            carried(lambda old, now: self._checked(arguments.schedule_changes(old, changes, now))),
            self.actor,
        )
        with arguments.in_words_of(changes):
            return await self.store.read(work)

    async def pause_schedule(
        self, schedule_id: str, note: str | None = None, *, until: datetime | None = None
    ) -> Schedule:
        """Stop firing until it is resumed, or until a time."""
        work = commands.pause_schedule(self.tenant, check_key(schedule_id), self.actor, note, until)
        return await self._commit(work)

    async def resume_schedule(self, schedule_id: str) -> Schedule:
        """Fire again from the first time after now; what was due meanwhile is not made up for."""
        return await self._commit(commands.resume_schedule(self.tenant, check_key(schedule_id), self.actor))

    disable_schedule = pause_schedule
    enable_schedule = resume_schedule

    async def trigger_schedule(self, schedule_id: str, input: Any = UNSET) -> Task:
        """Run it now, beside its times (with another `input`, if one is given); the task."""
        work = commands.trigger_schedule(
            self._new_id(), self.tenant, check_key(schedule_id), self.actor, input, check=self._check_input
        )
        return (await self._commit(work))[1]

    async def backfill(
        self,
        schedule_id: str,
        start: datetime,
        end: datetime,
        *,
        overlap_policy: OverlapPolicy | str = OverlapPolicy.BUFFER_ALL,
        at_most: int = 1000,
        dry_run: bool = False,
    ) -> Backfill:
        """Run the times of the past from `start` to `end` that have not run: one after the other (`buffer_all`), or all
        at once (`allow`). More than `at_most` times are refused. `get_schedule(…).backfill` says how far it is. With
        `dry_run` nothing happens, and the answer says what would: `started` of `total`."""
        policy = check_policy(check_choice("overlap_policy", overlap_policy, OverlapPolicy))
        key = check_key(schedule_id)
        work = commands.begin_backfill(
            self._new_id(), self.tenant, key, start, end, policy, at_most, self.actor, dry_run=dry_run
        )
        return await (self.store.read(work) if dry_run else self._commit(work))

    async def cancel_backfill(self, schedule_id: str) -> Backfill:
        """Start no more of it. What was started goes on."""
        return await self._commit(commands.cancel_backfill(self.tenant, check_key(schedule_id), self.actor))

    async def delete_schedule(
        self, schedule_id: str, *, hard: bool = False, report: Report | None = None
    ) -> None:
        """Delete it: hidden, stopped, its history kept, restorable; with `hard` it is removed for good, and `report` is
        called after each commit with how many runs it removed."""
        key = check_key(schedule_id)
        try:
            deleted = await self._commit(commands.delete_schedule(self.tenant, key, self.actor))
        except LookupError:
            if not hard:
                raise
            deleted = await self.store.read(queries.deleted_schedule(self.tenant, key))
        removed = PURGED_AT_ONCE
        while hard and removed == PURGED_AT_ONCE:
            removed = await self._commit(commands.purge_schedule(deleted.id, self.actor, PURGED_AT_ONCE))
            if report is not None:
                report(removed)

    async def restore_schedule(self, schedule_id: str) -> Schedule:
        return await self._commit(commands.restore_schedule(self.tenant, check_key(schedule_id), self.actor))

    async def schedule_history(self, schedule_id: str) -> list[Event]:
        """Every version of the schedule, oldest first: who, when, before, after."""
        return await self.store.read(queries.schedule_events(self.tenant, check_key(schedule_id)))

    async def put_back_schedule(self, schedule_id: str, version: int) -> Schedule:
        """Give it the timing, the target and the policies of an earlier version, as a new one. It stays paused or
        active as it is, and nothing runs because of it."""
        number = check_number("version", version, 1, MOST_VERSIONS)
        facts = [event.after for event in await self.schedule_history(schedule_id)]
        earlier = next((each for each in facts if each and each.get("version") == number), None)
        if earlier is None:
            raise NotFound("version", str(number))
        changes = definition.changes_to(earlier)
        return await self._commit(
            commands.edit_schedule(
                self.tenant, check_key(schedule_id), lambda old, now: self._checked(changes), self.actor
            )
        )

    async def count_runs(self, schedule_id: str) -> int:
        """How long the ledger of a schedule is, living or else deleted."""
        return await self.store.read(queries.number_of_runs(self.tenant, check_key(schedule_id)))

    async def runs(
        self,
        schedule_id: str,
        *,
        status: RunStatus | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Page[Run]:
        """The ledger: every expected time and what became of it, latest first."""
        filters: dict[str, Any] = {
            "status": None if status is None else check_choice("status", status, RunStatus),
            "since": None if since is None else given_time("since", since),
            "until": None if until is None else given_time("until", until),
            "after": arguments.parsed_cursor(cursor),
        }
        work = queries.schedule_runs(self.tenant, check_key(schedule_id), check_limit(limit), **filters)
        return page_of(await self.store.read(work), limit, lambda run: run.scheduled_at)

    async def preview(self, schedule_id: str, n: int = 5) -> list[Occurrence]:
        """The next n times, each with its local time and what daylight saving does to it."""
        count = check_number("n", n, 1, MOST)
        return await self.store.read(queries.upcoming(self.tenant, check_key(schedule_id), count))

    async def clock_changes(self, schedule_id: str) -> tuple[ClockChange, ...]:
        """The clock changes of the coming year that touch the schedule, and when it runs for the times in them."""
        schedule = await self.get_schedule(schedule_id)
        return schedule.clock_changes(await self.now())

    async def preview_timing(
        self, *, n: int = 5, **options: Unpack[TimingOptions]
    ) -> tuple[Timing, list[Occurrence], tuple[str, ...]]:
        """When a timing that is not saved would fire: the timing as stored, its next n times, what is odd about it."""
        count = check_number("n", n, 1, MOST)
        now = await self.now()
        with arguments.in_words_of(options):
            unsaved = arguments.unsaved_schedule(options, now)
        return (
            unsaved.timing,
            queries.next_times(unsaved, now, count),
            recurrence.warnings(unsaved.timing, now, unsaved.clock_changes(now)),
        )

    async def why(self, schedule_id: str, at: datetime) -> Why:
        """What became of an expected time, and why, in words. A naive `at` is on the clock of the schedule's zone."""
        if not isinstance(at, datetime):
            raise Invalid("at", f"{at!r:.60} is not a time", "give a datetime")
        return await self.store.read(queries.why(self.tenant, check_key(schedule_id), at))

    async def explained_runs(self, schedule_id: str, *, limit: int = 60) -> list[Why]:
        """The latest rows of the ledger, oldest first, each in the words of `why`; `run` of each is the row."""
        work = queries.explained_runs(self.tenant, check_key(schedule_id), check_limit(limit))
        return await self.store.read(work)

    async def last_runs(self, schedules: Sequence[Schedule], *, limit: int = 30) -> dict[str, list[Run]]:
        """The latest runs of each of these schedules, oldest first, by the id of the schedule."""
        return await self.store.read(queries.last_runs(schedules, check_limit(limit)))

    async def open_schedules(self) -> int:
        """How many schedules are neither deleted nor completed. Every store keeps this number."""
        return await self.store.read(queries.count(OpenSchedules(tenant=self.tenant)))

    async def overview(self) -> Overview:
        """How things are: what is late, failing or stuck, what runs, what is due within the hour."""
        return await self.store.read(overview(self.tenant))

    async def last_day(self) -> list[Hour]:
        """The last 24 hours, oldest first: how many tasks each brought, how late they began, how long they waited."""
        return await self.store.read(last_hours(self.tenant))

    async def run_due(self, *, observe: Observer = log_observation) -> DueRuns:
        """One tick, for those who bring their own cron: fire what is due; the rows it wrote. A call writes a few
        thousand at most: if `is_more_due` is set in what it returns, call it again."""
        await SetBack(self.store, observe).run_once()
        runs, is_more_due = await Scheduler(self.store, observe).tick()
        return DueRuns((run for run in runs if run.tenant == self.tenant), is_more_due=is_more_due)

    async def declare_schedules(self, app: App) -> None:
        """Create the schedules that an app declares, and bring those that differ up to date: all of them, or, if one is
        refused, none. A suspended tenant's stay as they are."""
        now = await self.now()
        declared = []
        for key, options in app.schedules.items():
            with naming("schedule", key):
                declared.append(self._declared(key, options, now, changes=_changes_to(options)))
                check_registered(declared[-1].target, app)
        try:
            await self._commit(commands.declare_schedules(self.tenant, declared, self.actor))
        except Refused as refused:
            if refused.code != "tenant_suspended":  # its tasks still run, so its workers must start
                raise

    def _declared(self, key: str, options: ScheduleOptions, now: datetime, **more: Any) -> commands.Declared:
        timing, target, fields = arguments.new_schedule(options, now)
        return commands.Declared(
            id=self._new_id(),
            key=key,
            timing=timing,
            target=target,
            fields=fields,
            in_words=lambda: arguments.in_words_of(options),
            **more,
        )

    def _check_target(self, target: Target) -> None:
        if self.app is not None:
            check_registered(target, self.app)

    def _checked(self, changes: dict[str, Any]) -> dict[str, Any]:
        if "target" in changes:
            self._check_target(changes["target"])
        return changes

    async def _schedule_list(self, filters: ScheduleFilters, after: Cursor | None = None) -> ScheduleList:
        return ScheduleList(tenant=self.tenant, after=after, **await self._chosen_schedules(filters))

    async def _in_order(self, order: str, cursor: str | None, filters: ScheduleFilters) -> OrderedSchedules:
        order = check_choice("order", order, ScheduleOrder)
        if order is ScheduleOrder.NEWEST:
            return await self._schedule_list(filters, arguments.parsed_cursor(cursor))
        chosen = await self._chosen_schedules(filters)
        if chosen.pop("deleted", False):
            raise Invalid("order", "deleted schedules are listed newest first only", "leave it out")
        if order is ScheduleOrder.NEXT:
            return SchedulesByNextTime(tenant=self.tenant, after=arguments.parsed_cursor(cursor), **chosen)
        after = arguments.parsed_name_cursor(cursor)
        return SchedulesByName(tenant=self.tenant, after=after, **chosen)

    async def _chosen_schedules(self, filters: ScheduleFilters) -> dict[str, Any]:
        chosen = arguments.filters(ScheduleFilters, filters)
        if "template_id" in chosen:
            named = queries.template_named(self.tenant, chosen["template_id"])
            chosen["template_id"] = await self.store.read(named)
        return chosen


def _changes_to(options: ScheduleOptions) -> Callable[[Schedule, datetime], dict[str, Any]]:
    """The changes that make a schedule what an app declares. Its status stays: people pause and resume it."""
    wanted: dict[str, Any] = {name: value for name, value in options.items() if name != "status"}
    return lambda old, now: arguments.schedule_changes(old, wanted, old.created_at)


def _page_in_order(query: OrderedSchedules, found: list[Schedule], limit: int) -> Page[Schedule]:
    by_time = isinstance(query, SchedulesByNextTime)
    page = page_of(found, limit, lambda each: (each.due_at or NEVER) if by_time else each.created_at)
    if isinstance(query, SchedulesByName) and page.next_cursor:
        page.next_cursor = page[-1].key
    return page
