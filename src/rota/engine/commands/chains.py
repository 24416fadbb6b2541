"""Schedules that come after others: who follows whom, and who is told of an end.

A follower names its causes, the schedules that it comes after, by their keys. Each cause has the ids of its followers
(`Schedule.followers`), so the commit that ends a run finds them without a search. Each cause marks its tasks
(`Task.awaited`), so only the end of such a task costs a look. A change of a schedule keeps both sides in step, in the
same commit.

Cycles are refused. Everything on the way up is written, so two commits that would close a cycle together collide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ...domain.errors import Invalid, Refused
from ...domain.model import Run, Schedule, Task
from ...domain.schedule import after
from ...domain.schedule.why import Linked
from ...stores.base import Tx
from ...stores.queries import LiveTasks, ScheduleByKey
from .shared import LIVE_AT_MOST, read_now

CAUSES_SHOWN = 20


class Chains:
    """Changes of schedules, and what they are to the schedules before and after them. Afterwards `written` are all
    that are to be written, by id, and `marked` the live tasks whose end is to be told from now on."""

    def __init__(self, tx: Tx, changes: Sequence[tuple[Schedule | None, Schedule]]) -> None:
        self._tx = tx
        self._changes = changes
        self._tenant = changes[0][1].tenant if changes else ""
        self.written = {new.id: new for _, new in changes}
        self.marked: dict[str, Task] = {}

    @classmethod
    async def of(cls, tx: Tx, changes: Sequence[tuple[Schedule | None, Schedule]]) -> Chains:
        chains = cls(tx, changes)
        for old, new in changes:
            if old is not None and old.followers:
                await chains._keep_followers(old, new)
        followed: set[str] = set()
        for old, new in changes:
            followed |= await chains._relink(old, chains.written[new.id])
        await chains._mark(followed)
        return chains

    async def _keep_followers(self, old: Schedule, new: Schedule) -> None:
        """The followers of one that gets another key follow it; one with followers is not deleted."""
        if old.deleted_at is not None or (new.deleted_at is None and old.key == new.key):
            return
        found = await self._tx.get_many(Schedule, old.followers)
        followers = [self.written.get(id, each) for id, each in found.items()]
        followers = [each for each in followers if old.key in after.upstream_of(each)]
        if followers and new.deleted_at is not None and not self._has_successor(old):
            keys = ", ".join(sorted(each.key for each in followers))
            raise Refused("followed_schedule", schedule=old.key, followers=keys)
        for each in followers if new.deleted_at is None else ():
            self.written[each.id] = after.renamed(each, old.key, new.key)

    def _has_successor(self, old: Schedule) -> bool:
        """Whether another takes its key in the same commit. Then that has its followers."""
        for _, new in self._changes:
            if new.deleted_at is None and new.key == old.key and new.id != old.id:
                taker = self.written[new.id]
                followers = tuple(dict.fromkeys((*taker.followers, *old.followers)))
                self.written[new.id] = replace(taker, followers=followers)
                return True
        return False

    async def _relink(self, old: Schedule | None, new: Schedule) -> set[str]:
        """Tell its causes that it follows them, and its former causes that it does not any more. The answer: the ids of
        its causes."""
        before, now = after.upstream_of(old), after.upstream_of(new)
        for key in before:
            upstream = None if key in now else await self._named(key)
            if upstream is not None:
                left = tuple(id for id in upstream.followers if id != new.id)
                self.written[upstream.id] = replace(upstream, followers=left)
        added = [key for key in now if key not in before]
        if added or (old is not None and old.key != new.key):
            await self._check_cycles(new)
        followed = set()
        for key in added:
            upstream = await self._known(key)
            followers = tuple(dict.fromkeys((*upstream.followers, new.id)))
            self.written[upstream.id] = replace(upstream, followers=followers)
            followed.add(upstream.id)
        return followed

    async def _check_cycles(self, new: Schedule) -> None:
        ways: list[tuple[str, ...]] = [(new.key, key) for key in after.upstream_of(new)]
        seen: set[str] = set()
        while ways:
            way = ways.pop()
            if way[-1] == new.key:
                words = " after ".join(way)
                raise Invalid("after", f"it would run after itself: {words}", "name schedules that do not")
            if way[-1] in seen:
                continue
            seen.add(way[-1])
            upstream = await self._known(way[-1])
            self.written[upstream.id] = upstream
            ways += [(*way, key) for key in after.upstream_of(upstream)]

    async def _known(self, key: str) -> Schedule:
        found = await self._named(key)
        if found is None:
            raise Invalid("after", f"there is no schedule {key!r}", "create it first")
        return found

    async def _named(self, key: str) -> Schedule | None:
        """The living schedule of this key, as it will be after this commit."""
        for each in self.written.values():
            if each.key == key and each.deleted_at is None:
                return each
        found = await self._tx.find(ScheduleByKey(tenant=self._tenant, key=key), 1)
        return found[0] if found and found[0].id not in self.written else None

    async def _mark(self, followed: Collection[str]) -> None:
        if followed:
            live = await self._tx.find(LiveTasks(schedule_ids=tuple(followed)), LIVE_AT_MOST)
            self.marked = {task.id: replace(task, awaited=True) for task in live if not task.awaited}


class Told(msgspec.Struct, frozen=True):
    """Who is told of which ends: runs that have ended just now, for the followers of their schedules."""

    _ends: Mapping[str, Sequence[tuple[str, Run]]]
    others: Mapping[str, Schedule]

    @classmethod
    async def of(
        cls, tx: Tx, ended: Sequence[Run], known: Mapping[str, Schedule], written: Collection[str]
    ) -> Told:
        """`known` are the schedules of these runs, and others that were read. `others` are followers that are neither
        among them nor written by the caller."""
        ends: dict[str, list[tuple[str, Run]]] = defaultdict(list)
        for row in (row for row in ended if row.schedule_id in known):
            upstream = known[row.schedule_id]
            for follower in upstream.followers:
                ends[follower].append((upstream.key, row))
        unread = ends.keys() - known.keys() - set(written)
        return cls(ends, await tx.get_many(Schedule, unread))

    def tell(self, schedule: Schedule, now: datetime) -> Schedule:
        for key, row in self._ends.get(schedule.id, ()):
            schedule = after.heard(schedule, key, row, now)
        return schedule


async def linked_causes(tx: Tx, schedules: Sequence[Schedule]) -> dict[str, Run]:
    """The rows whose ends these schedules have heard of, by id. Rows that were too old to be kept are left out."""
    ids = {cause.run_id for schedule in schedules for cause in schedule.causes}
    return await tx.get_many(Run, ids)


async def links_of(tx: Tx, schedule: Schedule, row: Run) -> list[Linked]:
    """The causes of this run, their causes, and so on up to the first; then the runs that its own end caused."""
    linked: list[Linked] = []
    level, owners = {row.id: row}, {schedule.id: schedule}
    while level and len(linked) < CAUSES_SHOWN:
        found = await tx.get_many(Run, {id for each in level.values() for id in each.causes})
        owners |= await tx.get_many(Schedule, {each.schedule_id for each in found.values()} - owners.keys())
        linked += [
            Linked(of=row_.id, key=owners[found[id].schedule_id].key, run=found[id])
            for row_ in level.values()
            for id in row_.causes
            if id in found and found[id].schedule_id in owners
        ]
        level = found
    found = await tx.get_many(Run, row.effects)
    owners = await tx.get_many(Schedule, {each.schedule_id for each in found.values()})
    effects = await read_now(tx, [each for each in found.values() if each.schedule_id in owners])
    linked += [Linked(of="", key=owners[each.schedule_id].key, run=each) for each in effects]
    return linked
