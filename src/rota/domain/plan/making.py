"""Plans: the changes that bring a store to a declaration. `make(declared, stored, at)` is pure.

What is declared is whole: an option that is left out has its default, except the status. A plan is computed anew where
it is applied, and holds if it says the same (`Plan.token`). A plan has one time, `at`: intervals count from it, and new
ids follow from it. So the times that a plan announces are the times that come.

An option that someone changed by hand since the last apply is *kept* and reported, unless `force` is given: `applied`
in a record has a digest of each option as it was applied. A record that was applied once and is declared no more is
*removed*: `prune` pauses it, else it is only reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from .. import template as templates
from ..checks import stored_bytes
from ..errors import Invalid, Refused
from ..ids import derived_id
from ..model import Calendar, Limits, Schedule, ScheduleStatus, Target, Template, TemplateTarget
from ..recurrence import MICROSECOND, Covered, Once, Timing
from ..schedule import calendars, definition, due_time, planned, put_off_anew
from ..schedule.after import upstream_of
from ..schedule.expected import TimeChanges, compared, skipped_today
from . import declaration

PRUNED = "it is no longer in the file"
"""The note of a schedule that was paused for this. It counts as said by the file: if it comes back, it is resumed."""
R = TypeVar("R", Schedule, Template, Calendar)


class Action(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    REMOVED = "removed"
    UNCHANGED = "unchanged"


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """A declaration: the options of schedules by key, of templates by alias, of calendars by name. `new` and `changes`
    turn options into what the domain takes: (timing, target, fields) at a time, and the changes of a schedule that is
    there. `report` is called with 1 for each schedule that has been compared."""

    schedules: Mapping[str, Mapping[str, Any]]
    templates: Mapping[str, Mapping[str, Any]] = {}
    calendars: Mapping[str, Mapping[str, Any]] = {}
    new: Callable[[Mapping[str, Any], datetime], tuple[Timing, Target, dict[str, Any]]]
    changes: Callable[[Schedule, Mapping[str, Any]], Mapping[str, Any]]
    report: Callable[[int], None] = lambda _: None


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The records that a plan is made of: living schedules by key, templates by id, calendars, and what their tenant
    may have."""

    tenant: str
    schedules: Mapping[str, Schedule]
    templates: Mapping[str, Template] = {}
    calendars: tuple[Calendar, ...] = ()
    limits: Limits = Limits()

    @property
    def versions(self) -> list[tuple[str, int]]:
        """They differ if anything in it does."""
        records = (*self.schedules.values(), *self.templates.values(), *self.calendars)
        return [(each.id, each.version) for each in records]


class Difference(msgspec.Struct, frozen=True):
    """One option as it is and as it will be, in plain data. None: it has its default."""

    name: str
    before: Any
    after: Any


class Item(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """One schedule, template or calendar of a plan. `old` and `new` are the same if nothing happens to it; `kept` are
    the options that stay as they are, though the file says otherwise."""

    name: str
    action: Action
    old: R | None
    new: R | None
    differences: tuple[Difference, ...] = ()
    kept: tuple[Difference, ...] = ()
    note: str = ""

    @property
    def facts(self) -> tuple[Any, ...]:
        """The facts that must be the same when it is applied."""
        return (self.name, self.action, self.differences, self.kept)


class Plan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All that an apply would do. Declared items that stay as they are have a place in it, too. `basis` stands for what
    the plan was made of: with the same basis and time, it need not be made again."""

    tenant: str
    at: datetime
    schedules: tuple[Item[Schedule], ...]
    templates: tuple[Item[Template], ...] = ()
    calendars: tuple[Item[Calendar], ...] = ()
    basis: str | None = None

    @property
    def items(self) -> tuple[Item[Any], ...]:
        return (*self.calendars, *self.templates, *self.schedules)

    @property
    def changes(self) -> list[Item[Any]]:
        """The items that an apply would create or change."""
        return [each for each in self.items if each.differences]

    @property
    def kept(self) -> list[Item[Any]]:
        return [each for each in self.items if each.kept]

    def count(self, action: Action) -> int:
        return sum(each.action is action for each in self.items)

    @cached_property
    def token(self) -> str:
        """Stands for what the plan says: two with the same token say the same."""
        facts = [each.facts for each in self.items if each.action is not Action.UNCHANGED or each.kept]
        return blake2b(stored_bytes([self.tenant, facts]), digest_size=16).hexdigest()

    def times(self, item: Item[Schedule]) -> TimeChanges:
        """The times within the next 14 days that appear, vanish or move."""
        return compared(item.old, item.new, self.at)

    def skipped_today(self, item: Item[Schedule]) -> tuple[datetime, ...]:
        """The times that were due today and would have no run."""
        return skipped_today(item.old, item.new, self.at)

    def runs_now(self, item: Item[Schedule]) -> bool:
        """Whether something would run as soon as this is applied: never, unless a time that is due was only put off."""
        was_due = item.old is not None and item.old.is_due(self.at)
        return item.new is not None and item.new.is_due(self.at) and not was_due


def make(
    declared: Declaration,
    stored: Stored,
    at: datetime,
    actor: str,
    *,
    prune: bool = False,
    force: bool = False,
) -> Plan:
    """The plan that makes the store say what is declared."""
    making = _Making(stored, at, actor, force)
    for name, options in declared.calendars.items():
        with naming("calendar", name):
            making.declare_calendar(name, options)
    for alias, options in declared.templates.items():
        with naming("template", alias):
            making.declare_template(alias, options)
    for key, options in declared.schedules.items():
        with naming("schedule", key):
            making.declare_schedule(key, options, declared)
        declared.report(1)
    for key, old in stored.schedules.items():
        if old.applied is not None and old.is_open and key not in declared.schedules:
            making.schedules.append(_removed(old, prune, at, actor))
    for template in stored.templates.values():
        if template.applied is not None and template.id not in making.declared_templates:
            making.templates.append(
                Item(name=template.alias, action=Action.REMOVED, old=template, new=template)
            )
    for calendar in stored.calendars:
        if calendar.applied is not None and calendar.name not in declared.calendars:
            making.calendars.append(
                Item(name=calendar.name, action=Action.REMOVED, old=calendar, new=calendar)
            )
    making.govern(declared.schedules)
    _check_chains(making.schedules, stored)
    return Plan(
        tenant=stored.tenant,
        at=at,
        schedules=tuple(making.schedules),
        templates=tuple(making.templates),
        calendars=tuple(making.calendars),
    )


def basis_of(
    declared: Declaration, stored: Stored, actor: str, *, prune: bool = False, force: bool = False
) -> str | None:
    """Stands for all that a plan follows from, beside its time; None if what is declared is no plain data: it is made
    then, and refuses what it cannot take."""
    try:
        said = (declared.calendars, declared.templates, declared.schedules)
        told = stored_bytes((said, stored.tenant, stored.versions, stored.limits, actor, prune, force))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return blake2b(told, digest_size=16).hexdigest()


def _check_chains(items: Sequence[Item[Schedule]], stored: Stored) -> None:
    """Refuse a schedule that runs after one that will not be there, or after itself."""
    upstream = {key: upstream_of(old) for key, old in stored.schedules.items()}
    upstream |= {item.name: upstream_of(item.new) for item in items}
    for item in items:
        for key in upstream[item.name]:
            if key not in upstream:
                with naming("schedule", item.name):
                    raise Invalid("after", f"there is no schedule {key!r}", "declare it, or create it first")
    try:
        TopologicalSorter(upstream).prepare()
    except CycleError as error:
        way = error.args[1][::-1]
        with naming("schedule", way[0]):
            problem = f"it would run after itself: {' after '.join(way)}"
            raise Invalid("after", problem, "name schedules that do not") from None


def make_edits(edits: Mapping[str, Mapping[str, Any]], stored: Stored, at: datetime, actor: str) -> Plan:
    """The plan that edits some fields of some schedules, by key."""
    aliases = {each.id: each.alias for each in stored.templates.values()}
    items: list[Item[Schedule]] = []
    for key, fields in edits.items():
        old = stored.schedules.get(key)
        if old is None:
            raise Invalid("schedule", f"there is no schedule {key!r}")
        with naming("schedule", key):
            new = definition.edit(old, fields, at, actor, stored.limits)
        before, after = (
            declaration.as_said(declaration.of_schedule(each, aliases), fields) for each in (old, new)
        )
        told = _differences(before, after)
        action = Action.CHANGED if told else Action.UNCHANGED
        items.append(Item(name=key, action=action, old=old, new=new, differences=told))
    return Plan(tenant=stored.tenant, at=at, schedules=tuple(items))


def as_applied(item: Item[Schedule], at: datetime, now: datetime) -> Schedule | None:
    """The new schedule as it is written at `now`, which is later than `at`, the time of the plan. It fires nothing that
    passed meanwhile."""
    old, new = item.old, item.new
    if new is None or new is old:
        return new
    new = replace(new, updated_at=now, created_at=now if old is None else new.created_at)
    if not new.enabled:
        return new
    if old is not None and old.next_run_at == new.next_run_at:
        return new if old.due_at == new.due_at else put_off_anew(new, now, was=old)
    later = planned(new, _passed(item, new, at, now))
    if later.status is ScheduleStatus.COMPLETED:
        field = definition.timing_field(new.timing)
        raise Invalid(field, "its last time has passed since the plan was made", "plan again")
    return later


def _passed(item: Item[Schedule], new: Schedule, at: datetime, now: datetime) -> datetime:
    """The times up to here have passed. Of those since the plan, one may be put off until later, the last; unless the
    old version had it, too, and has handled it."""
    last = new.latest_occurrence(at, now)
    if last is None or due_time(new, last) <= now:
        return now
    return now if item.old is not None and _has_handled(item.old, last) else last - MICROSECOND


def _has_handled(old: Schedule, nominal: datetime) -> bool:
    """One that has completed has handled what was due when it ran last."""
    if old.next_occurrence(nominal - MICROSECOND) != nominal:
        return False
    if old.next_run_at is not None:
        return old.next_run_at > nominal
    return old.last_run_at is not None and old.last_run_at >= due_time(old, nominal)


@contextmanager
def naming(what: str, name: str) -> Iterator[None]:
    """A refusal inside names this schedule, template or calendar."""
    try:
        yield
    except Refused as refused:
        refused.args = (f"{what} {name!r}: {refused}", *refused.args[1:])
        raise


class _Making:
    """A plan while it is put together: calendars and templates first, since schedules name them."""

    def __init__(self, stored: Stored, at: datetime, actor: str, force: bool) -> None:
        self.stored = stored
        self.at = at
        self.actor = actor
        self.force = force
        self.schedules: list[Item[Schedule]] = []
        self.templates: list[Item[Template]] = []
        self.calendars: list[Item[Calendar]] = []
        self._by_name = {each.name: each for each in stored.calendars}
        self._changed: set[str] = set()
        self.declared_templates: set[str] = set()
        self._by_alias = {templates.alias_key(each.alias): each for each in stored.templates.values()}
        self._by_id = dict(stored.templates)
        self._aliases = {each.id: each.alias for each in stored.templates.values()}

    def declare_calendar(self, name: str, options: Mapping[str, Any]) -> None:
        old = self._by_name.get(name)

        def wanted(given: Mapping[str, Any]) -> Calendar:
            whole = calendars.create(name, given, tenant=self.stored.tenant, now=self.at, actor=self.actor)
            if old is None:
                return whole
            fields = {field: getattr(whole, field) for field in calendars.FIELDS}
            return calendars.edit(old, fields, self.at, self.actor)

        item = _declared(name, old, options, wanted, declaration.of_calendar, force=self.force)
        assert item.new is not None
        if item.new.covers != (None if old is None else old.covers):
            self._changed.add(name)
        self.calendars.append(item)
        self._by_name[name] = item.new

    def govern(self, declared: Collection[str]) -> None:
        """Plan anew the schedules that the file does not declare but whose calendars it changes."""
        removed = {
            each.name: number for number, each in enumerate(self.schedules) if each.name not in declared
        }
        for key, old in self.stored.schedules.items():
            if key in declared or self._changed.isdisjoint((*old.exclude, *old.only)):
                continue
            item = self.schedules[removed[key]] if key in removed else None
            before = old if item is None or item.new is None else item.new
            with naming("schedule", key):
                new = definition.governed(before, self._covering(old), self.at)
            if item is None:
                item = Item(name=key, action=Action.UNCHANGED, old=old, new=new)
                self.schedules.append(self._with_calendars_told(item))
            else:
                self.schedules[removed[key]] = self._with_calendars_told(replace(item, new=new))

    def _with_calendars_told(self, item: Item[Schedule]) -> Item[Schedule]:
        """The item with the calendars by which it is planned anew."""
        old, new = item.old, item.new
        if old is None or new is None or old.calendars == new.calendars:
            return item
        had = {each.name: each for each in old.calendars}
        names = [each.name for each in new.calendars if each.name in self._changed and each.name in had]
        told = tuple(Difference(f"calendar {name}", "as it is", "as declared") for name in names)
        action = Action.CHANGED if told and item.action is Action.UNCHANGED else item.action
        return replace(item, action=action, differences=item.differences + told)

    def _covering(self, schedule: Schedule) -> tuple[Covered, ...]:
        return calendars.covering(schedule, [each.covers for each in self._by_name.values()])

    def declare_template(self, alias: str, options: Mapping[str, Any]) -> None:
        old = self._by_alias.get(templates.alias_key(alias))
        if old is not None and old.id in self.declared_templates:
            raise Refused("alias_taken", alias=alias, holder=old.alias)
        tenant, limits = self.stored.tenant, self.stored.limits

        def wanted(given: Mapping[str, Any]) -> Template:
            fields = {"alias": alias, **declaration.template_options(given)}
            if old is not None:
                return templates.replaced(old, fields, self.at, limits)
            id = derived_id("plan", "template", tenant, alias, self.at)
            return templates.create(id, fields, tenant=tenant, now=self.at, limits=limits)

        item = _declared(alias, old, options, wanted, declaration.of_template, force=self.force)
        if old is not None and old.alias != alias:  # the same one in another spelling
            told = (Difference("alias", old.alias, alias), *item.differences)
            item = replace(item, action=Action.CHANGED, differences=told)
        self.templates.append(item)
        known = item.new
        assert known is not None
        self.declared_templates.add(known.id)
        self._by_alias[templates.alias_key(alias)] = self._by_id[known.id] = known
        self._aliases[known.id] = known.alias

    def declare_schedule(self, key: str, options: Mapping[str, Any], declared: Declaration) -> None:
        old = self.stored.schedules.get(key)
        if old is None:
            self.schedules.append(self._new_schedule(key, options, declared))
            return
        wanted = _with_status(options, old)
        leave_out = declaration.OF_STATUS if "status" not in wanted else ()

        def edited(given: Mapping[str, Any]) -> Schedule:
            changes = dict(declared.changes(old, given))
            if "target" in changes:
                changes["target"] = self._known(changes["target"], old.target)
            if {"exclude", "only"} & changes.keys() or not self._changed.isdisjoint(
                (*old.exclude, *old.only)
            ):
                changes["calendars"] = self._calendars(changes, old)
            is_begun = declaration.says_begin(given)
            return definition.edit(old, changes, self.at, self.actor, self.stored.limits, is_begun=is_begun)

        def form(schedule: Schedule) -> dict[str, Any]:
            told = declaration.as_said(declaration.of_schedule(schedule, self._aliases), wanted)
            return {name: value for name, value in told.items() if name not in leave_out}

        item = _declared(key, old, wanted, edited, form, force=self.force)
        self.schedules.append(self._with_calendars_told(item))

    def _new_schedule(self, key: str, options: Mapping[str, Any], declared: Declaration) -> Item[Schedule]:
        timing, target, fields = declared.new(options, self.at)
        if isinstance(timing, Once) and timing.run_at <= self.at and fields.get("status") is None:
            return Item(name=key, action=Action.UNCHANGED, old=None, new=None, note="its time has passed")
        new = definition.create(
            derived_id("plan", "schedule", self.stored.tenant, key, self.at),
            key,
            timing,
            self._known(target, None),
            fields,
            tenant=self.stored.tenant,
            now=self.at,
            actor=self.actor,
            limits=self.stored.limits,
            calendars=self._calendars(fields),
            is_begun=declaration.says_begin(options),
        )
        return _created(key, new, declaration.as_said(declaration.of_schedule(new, self._aliases), options))

    def _calendars(self, fields: Mapping[str, Any], old: Schedule | None = None) -> tuple[Covered, ...]:
        if not any(fields.get(name, getattr(old, name, ())) for name in ("exclude", "only")):
            return ()
        known = calendars.sets_of(calendars.names_in(fields, old), self._by_name.values())
        return calendars.known_sets(fields, known, old)

    def _known(self, target: Target, old: Target | None) -> Target:
        if not isinstance(target, TemplateTarget):
            return target
        name = target.template_id
        found = self._by_id.get(name) or self._by_alias.get(templates.alias_key(name))
        return templates.known_target(found, target, old)


def _with_status(options: Mapping[str, Any], old: Schedule) -> Mapping[str, Any]:
    """A file that says no status leaves it as it is, unless a file had set it before."""
    is_over = old.status is ScheduleStatus.COMPLETED
    if options.get("status") is not None:
        is_active = str(options["status"]) == ScheduleStatus.ACTIVE
        return {k: v for k, v in options.items() if k != "status"} if is_over and is_active else options
    if not is_over and "status" in (old.applied or {}):
        return {**options, "status": ScheduleStatus.ACTIVE.value}
    return options


def _removed(old: Schedule, prune: bool, at: datetime, actor: str) -> Item[Schedule]:
    new = old
    if prune and old.status in (ScheduleStatus.ACTIVE, ScheduleStatus.DRAFT):
        paused = definition.pause(old, at, actor, PRUNED)
        said = {"status": paused.status.value, "pause_note": PRUNED}
        new = replace(paused, applied={**(old.applied or {}), **_digests(said)})
    told = () if new is old else (Difference("status", None, new.status.value),)
    return Item(name=old.key, action=Action.REMOVED, old=old, new=new, differences=told)


def _created(name: str, new: R, form: Mapping[str, Any]) -> Item[R]:
    applied = replace(new, applied=_digests(form))
    return Item(name=name, action=Action.CREATED, old=None, new=applied, differences=_differences({}, form))


def _declared(
    name: str,
    old: R | None,
    options: Mapping[str, Any],
    edited: Callable[[Mapping[str, Any]], R],
    form: Callable[[R], dict[str, Any]],
    *,
    force: bool,
) -> Item[R]:
    """The declared options, laid over the record. Options that were edited by hand since the last apply stay."""
    wanted = edited(options)
    if old is None:
        return _created(name, wanted, form(wanted))
    as_is = form(old)
    as_declared = as_is if wanted is old else form(wanted)
    by_hand = () if force or wanted is old else _edited_by_hand(old.applied, as_is, as_declared)
    if by_hand:
        given = {k: v for k, v in options.items() if k not in by_hand}
        wanted = edited(given | {k: as_is[k] for k in by_hand if k in as_is})
    result = as_is if wanted is old else form(wanted) if by_hand else as_declared
    marks = {k: v for k, v in _digests(as_declared).items() if k not in by_hand}
    marks |= {k: v for k, v in (old.applied or {}).items() if k in by_hand}
    told = _differences(as_is, result)
    return Item(
        name=name,
        action=Action.CHANGED if told else Action.UNCHANGED,
        old=old,
        new=wanted if wanted.applied == marks else replace(wanted, applied=marks),
        differences=told,
        kept=tuple(Difference(each, as_is.get(each), as_declared.get(each)) for each in by_hand),
    )


def _edited_by_hand(
    applied: Mapping[str, str] | None, as_is: Mapping[str, Any], as_declared: Mapping[str, Any]
) -> tuple[str, ...]:
    """The options that someone changed since they were applied, and that differ from the declaration. What no file has
    said yet (`STAYING`) goes with its timing: nobody edits it alone."""
    if applied is None:
        return ()
    found = _digests(as_is)

    def is_edited(name: str) -> bool:
        if name in declaration.STAYING and name not in applied:
            return name in declaration.BEGINS and is_edited(declaration.BEGINS[name])
        return found.get(name) != applied.get(name)

    differing = {each.name for each in _differences(as_is, as_declared)}
    return tuple(sorted(filter(is_edited, differing)))


def _digests(form: Mapping[str, Any]) -> dict[str, str]:
    told = sorted(declaration.without_begins(form).items())
    return {name: blake2b(stored_bytes(value), digest_size=8).hexdigest() for name, value in told}


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    names = [*before, *(name for name in after if name not in before)]
    return tuple(
        Difference(name, before.get(name), after.get(name))
        for name in names
        if stored_bytes(before.get(name)) != stored_bytes(after.get(name))
    )
