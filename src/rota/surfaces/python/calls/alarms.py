"""The calls of a queue that are about alarms: what is wrong, and what is to be an alarm."""

from __future__ import annotations

from typing import Unpack

from ....domain import alarm
from ....domain.checks import check_key, check_text
from ....domain.model import Alarm, AlarmRules
from ....domain.options import AlarmOptions
from ....domain.tenants import EVERY_TENANT
from ....engine import commands, queries
from ....engine.work import commit_pages
from .. import arguments
from .base import LIMIT, Calls, Page, check_limit, page_of

PAGE = 500


class AlarmCalls(Calls):
    """What has stopped, is late, fails or takes too long; and the rules that say so."""

    async def alarms(
        self,
        *,
        schedule: str | None = None,
        over: bool = False,
        fleet: bool = False,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Page[Alarm]:
        """The alarms of this tenant, of one schedule if it is named; newest first. With `over`: those that are over,
        too. With `fleet`: those about the whole store, which belong to no tenant."""
        key = None if schedule is None else check_key(schedule, "schedule")
        after = arguments.parsed_cursor(cursor)
        tenant = EVERY_TENANT if fleet else self.tenant
        work = queries.alarm_page(tenant, check_limit(limit), key, is_open=not over, after=after)
        return page_of(await self.store.read(work), limit, lambda each: each.began_at)

    async def alarm_rules(self) -> dict[str, AlarmRules]:
        """The rules of tags, by tag."""
        return await self.store.read(queries.alarm_rules(self.tenant))

    async def set_alarm_rules(self, tag: str, **rules: Unpack[AlarmOptions]) -> AlarmRules:
        """The rules of all schedules whose target has the tag, instead of those it had. Where a schedule has a rule of
        its own, that holds."""
        checked = alarm.checked_rules(rules)
        await self._apply_rules(check_text("tag", tag, most=255), checked)
        return checked

    async def remove_alarm_rules(self, tag: str) -> None:
        """Take away the rules of a tag."""
        await self._apply_rules(check_text("tag", tag, most=255), None)

    async def _apply_rules(self, tag: str, rules: AlarmRules | None) -> None:
        await self._commit(commands.set_alarm_rules(self.tenant, tag, rules, self.actor))
        await commit_pages(
            self.store, self.clock, lambda after: commands.look_soon_at_tagged(self.tenant, tag, after, PAGE)
        )
