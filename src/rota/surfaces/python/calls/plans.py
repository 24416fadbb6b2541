"""The calls of a queue that are about plans: what a file would change, and doing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ....domain.checks import check_key, check_schedule_ids, check_text, shown
from ....domain.errors import Invalid
from ....domain.model import Schedule, ScheduleStatus, Target
from ....domain.plan import Declaration, Plan, Stored, basis_of, naming, of_calendar, of_schedule, of_template
from ....domain.plan import make as make_plan
from ....domain.recurrence import Timing
from ....engine import commands
from ....engine.app import App
from ... import calendar_sources, files
from ...redaction import carried, restored
from .. import arguments
from ..arguments import check_registered
from ..timings import given_time
from .base import Calls, Report

Source = Mapping[str, Any] | App | Path | str
"""A file, what is in one, or an app with the schedules that it declares."""


class PlanCalls(Calls):
    """See what a file of schedules, templates and calendars would change, and apply it."""

    async def plan(
        self, source: Source, *, prune: bool = False, force: bool = False, report: Report | None = None
    ) -> Plan:
        """What would change if the store said what a file says (its path, its content, or an app): created, changed and
        removed, and which times appear, vanish or move. Nothing is written. `report` is called with 1 for each schedule
        of the file that has been compared."""
        declared = await self._declaration_of(source)
        return await self._planned(declared, prune, force, report=report)

    async def apply(
        self,
        source: Source,
        plan: Plan | tuple[datetime, str] | None = None,
        *,
        prune: bool = False,
        force: bool = False,
        report: Report | None = None,
    ) -> Plan:
        """Make the store say what a file says, in one transaction. With the `plan` that was made of it (or its time and
        token), only if that still holds. What the file no longer has is paused with `prune`; what was edited by hand is
        overwritten with `force`. `report` is called with 1 for each schedule of the file that has been compared and for
        each that is ready to be written. Then all are written at once."""
        at, token = _time_and_token(plan)
        declared = await self._declaration_of(source)
        if isinstance(plan, Plan):
            known = plan
            if report is not None:
                report(len(declared.schedules))
        else:
            known = await self._planned(declared, prune, force, at, report)
        make = self._making(declared, prune, force, known)
        ready = _counting(report)
        return await self._commit(commands.apply_plan(self.tenant, make, self.actor, known.at, token, ready))

    async def export(self, schedules: Sequence[str] | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        """All schedules, templates and calendars, as a file would declare them; or only those schedules, with the
        templates that they run and the calendars that they name. Completed schedules are left out."""
        names = (
            None
            if schedules is None
            else [check_key(each) for each in check_schedule_ids("schedules", schedules)]
        )
        stored, _ = await self.store.read(commands.read_stored(self.tenant, names))
        aliases = {each.id: each.alias for each in stored.templates.values()}
        kept = [each for each in stored.schedules.values() if each.status is not ScheduleStatus.COMPLETED]
        return {
            "calendars": {each.name: of_calendar(each) for each in stored.calendars},
            "templates": {
                each.alias: of_template(each)
                for each in sorted(stored.templates.values(), key=lambda each: each.alias)
            },
            "schedules": {
                each.key: of_schedule(each, aliases) for each in sorted(kept, key=lambda each: each.key)
            },
        }

    async def _planned(
        self,
        declared: Declaration,
        prune: bool,
        force: bool,
        at: datetime | None = None,
        report: Report | None = None,
    ) -> Plan:
        """The plan for what is stored now. It is made beside the loop: of thousands of schedules it takes seconds."""
        if report is not None:
            declared = replace(declared, report=report)
        stored, now = await self.store.read(commands.read_stored(self.tenant))
        if at is not None:
            commands.check_plan_age(at, now)
        return await asyncio.to_thread(self._making(declared, prune, force), stored, at or now)

    def _making(
        self, declared: Declaration, prune: bool, force: bool, known: Plan | None = None
    ) -> commands.MakePlan:
        """A function that makes the plan. If that would be the `known` one, it is not made again: that is half of the
        time of an apply."""

        def make(stored: Stored, at: datetime) -> Plan:
            wanted = _with_hidden(declared, stored)
            basis = basis_of(wanted, stored, self.actor, prune=prune, force=force)
            if known is not None and basis is not None and (known.basis, known.at) == (basis, at):
                return known
            made = make_plan(wanted, stored, at, self.actor, prune=prune, force=force)
            return replace(made, basis=basis)

        return carried(make)

    async def _declaration_of(self, source: Source) -> Declaration:
        if isinstance(source, App):
            return await self._declaration({"schedules": dict(source.schedules)}, source)
        if isinstance(source, Mapping):
            return await self._declaration(files.check_document(source), self.app)
        return await self._declaration(files.read(Path(source)), self.app)

    async def _calendars(self, named: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """The calendars as they are stored: holidays and events have become days."""
        found: dict[str, Mapping[str, Any]] = {}
        for name, options in named.items():
            with naming("calendar", name):
                found[name] = await calendar_sources.with_days(options, await self.store.now())
        return found

    async def _declaration(self, document: Mapping[str, Mapping[str, Any]], app: App | None) -> Declaration:
        def new(options: Mapping[str, Any], now: datetime) -> tuple[Timing, Target, dict[str, Any]]:
            timing, target, fields = arguments.declared_schedule(options, now)
            if app is not None:
                check_registered(target, app)
            return timing, target, fields

        def changes(old: Schedule, options: Mapping[str, Any]) -> dict[str, Any]:
            changed = arguments.declared_changes(old, options)
            if app is not None:
                check_registered(changed["target"], app)
            return changed

        return Declaration(
            schedules=document.get("schedules", {}),
            templates=document.get("templates", {}),
            calendars=await self._calendars(document.get("calendars", {})),
            new=new,
            changes=changes,
        )


def _time_and_token(plan: object) -> tuple[datetime | None, str | None]:
    match plan:
        case None:
            return None, None
        case Plan():
            return plan.at, plan.token
        case [at, token]:
            return given_time("plan", at), check_text("plan", token)
    raise Invalid("plan", f"{shown(plan)} is not a plan", "give one, or its time and its token")


def _counting(report: Report | None) -> Callable[[int], None]:
    """A report for a work, which may run again, and says how many it has done in this run."""
    reported = 0

    def done(number: int) -> None:
        nonlocal reported
        if report is not None:
            report(number - reported)
        reported = number

    return done


def _with_hidden(declared: Declaration, stored: Stored) -> Declaration:
    """The templates with the stored values where the file hides them. (`arguments` does the same for schedules.)"""
    known = {each.alias: each for each in stored.templates.values()}
    templates = {
        alias: restored(alias, options, of_template(known[alias]) if alias in known else None)
        for alias, options in declared.templates.items()
    }
    return replace(declared, templates=templates)
