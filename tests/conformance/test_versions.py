"""Versions, identities and keys: what a store accepts, and what is a Conflict."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from records import api_key, event, receipt, run, schedule, task, template, tenant
from rota.domain.errors import Conflict
from rota.domain.model import (
    AlarmRules,
    Schedule,
    ScheduleStatus,
    Task,
    TaskTarget,
    TemplateTarget,
    Watch,
)
from rota.domain.recurrence import Cron
from rota.stores.base import Store, Tx
from rota.stores.queries import (
    DueSchedules,
    OldSchedules,
    OpenSchedules,
    OutdatedZones,
    ScheduleByKey,
    ScheduleList,
    SchedulesByName,
    SchedulesByNextTime,
    WatchedSchedules,
)
from stores import START, count, find, get, put

_LATER = START + timedelta(minutes=1)


async def delete(store: Store, *records: Any) -> None:
    async def work(tx: Tx) -> None:
        for record in records:
            tx.delete(record)

    await store.transact(work)


@pytest.mark.parametrize("make", [task, schedule, run, event, template, tenant, api_key, receipt])
async def test_put_inserts_then_replaces_and_counts_versions(store: Store, make: Any) -> None:
    first = make("a")
    [stored] = await put(store, first)
    assert stored == replace(first, version=1)
    [again] = await put(store, stored)
    assert again.version == 2
    assert await get(store, type(first), "a") == again


async def test_nothing_there(store: Store) -> None:
    assert await get(store, Task, "nobody") is None


async def test_ids_of_different_types_do_not_meet(store: Store) -> None:
    await put(store, task("same"), schedule("same"), run("same"))
    assert (await get(store, Schedule, "same")) is not None


async def test_insert_of_an_existing_id_conflicts(store: Store) -> None:
    [stored] = await put(store, task("a"))
    with pytest.raises(Conflict):
        await put(store, task("a", kind="other"))
    assert await get(store, Task, "a") == stored


async def test_stale_version_conflicts(store: Store) -> None:
    [first] = await put(store, task("a"))
    [second] = await put(store, replace(first, kind="second"))
    with pytest.raises(Conflict):
        await put(store, replace(first, kind="late"))
    with pytest.raises(Conflict):
        await put(store, replace(second, version=7))
    assert await get(store, Task, "a") == second


async def test_replacing_what_is_not_there_conflicts(store: Store) -> None:
    with pytest.raises(Conflict):
        await put(store, task("ghost", version=3))
    assert await get(store, Task, "ghost") is None


async def test_a_conflict_in_one_record_writes_none_of_them(store: Store) -> None:
    [first] = await put(store, task("a"))
    await put(store, first)
    with pytest.raises(Conflict):
        await put(store, task("b"), run("b"), first, task("c"))
    assert await get(store, Task, "b") is None
    assert (await store.snapshot())["run"] == []


async def test_delete(store: Store) -> None:
    [first] = await put(store, task("a"))
    await delete(store, first)
    assert await get(store, Task, "a") is None
    [anew] = await put(store, task("a"))
    assert anew.version == 1


async def test_delete_of_a_stale_version_conflicts(store: Store) -> None:
    [first] = await put(store, task("a"))
    [second] = await put(store, first)
    with pytest.raises(Conflict):
        await delete(store, first)
    assert await get(store, Task, "a") == second


async def test_delete_of_what_is_not_there_conflicts(store: Store) -> None:
    with pytest.raises(Conflict):
        await delete(store, task("ghost", version=1))


@pytest.mark.parametrize(
    "change",
    [{"tenant": "thief"}, {"created_at": _LATER}, {"schedule_id": "s9"}, {"is_workflow": True}],
    ids=lambda change: next(iter(change)),
)
async def test_what_identifies_a_record_never_changes(store: Store, change: dict[str, Any]) -> None:
    [stored] = await put(store, task("a"))
    with pytest.raises(Conflict):
        await put(store, replace(stored, **change))
    with pytest.raises(Conflict):
        await delete(store, replace(stored, **change))
    assert await get(store, Task, "a") == stored


async def test_a_living_key_is_unique_in_its_tenant(store: Store) -> None:
    await put(store, schedule("a", key="daily"))
    await put(store, schedule("b", key="daily", tenant="other"))
    with pytest.raises(Conflict):
        await put(store, schedule("c", key="daily"))
    assert await get(store, Schedule, "c") is None


async def test_renaming_to_a_living_key_conflicts(store: Store) -> None:
    await put(store, schedule("a", key="daily"))
    [weekly] = await put(store, schedule("b", key="weekly"))
    with pytest.raises(Conflict):
        await put(store, replace(weekly, key="daily"))


async def test_two_inserts_of_one_key_in_one_work_conflict(store: Store) -> None:
    with pytest.raises(Conflict):
        await put(store, schedule("a", key="daily"), schedule("b", key="daily"))
    assert (await store.snapshot())["schedule"] == []


async def test_a_deleted_key_is_free_and_may_be_taken_many_times(store: Store) -> None:
    for name in ("a", "b", "c"):
        [stored] = await put(store, schedule(name, key="daily"))
        await put(store, replace(stored, deleted_at=_LATER))
    await put(store, schedule("d", key="daily"))
    with pytest.raises(Conflict):
        await put(store, replace(stored, version=2, deleted_at=None))


async def test_a_key_is_freed_and_taken_in_one_work(store: Store) -> None:
    [old] = await put(store, schedule("a", key="daily"))
    await put(store, schedule("b", key="daily"), replace(old, deleted_at=_LATER))
    living = await get(store, Schedule, "b")
    assert living is not None

    async def swap(tx: Tx) -> None:
        tx.put(schedule("c", key="daily"))
        tx.delete(living)

    await store.transact(swap)
    assert [each.id for each in (await store.snapshot())["schedule"]] == ["a", "c"]


CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "due": {"due_at": START},
    "watched": {"watch": Watch(at=START, since=START, rules=AlarmRules())},
    "due and watched": {"due_at": START, "watch": Watch(at=START, since=START, rules=AlarmRules())},
    "not due": {"due_at": None},
    "status": {"status": ScheduleStatus.PAUSED},
    "completed": {"status": ScheduleStatus.COMPLETED, "updated_at": START, "due_at": None},
    "deleted": {"deleted_at": START},
    "key": {"key": "new-key"},
    "described": {"description": "NEW"},
    "target": {"target": TaskTarget(kind="new", tags=("tagged",))},
    "template": {"target": TemplateTarget(template_id="new")},
    "zone": {"timing": Cron("0 0 * * *", "Europe/Paris"), "zone_data": "2026a"},
    "body only": {"run_count": 7},
}


def questions(key: str) -> list[Any]:
    """One that goes through each column of a schedule."""
    tenant = "default"
    return [
        DueSchedules(at=START),
        DueSchedules(at=None),
        WatchedSchedules(at=START),
        OutdatedZones(zone_data="2020a"),
        OldSchedules(before=START + timedelta(hours=1)),
        ScheduleByKey(tenant=tenant, key=key),
        ScheduleByKey(tenant=tenant, key=key, deleted=True),
        ScheduleList(tenant=tenant, deleted=True),
        *(ScheduleList(tenant=tenant, status=status) for status in ScheduleStatus),
        SchedulesByName(tenant=tenant),
        SchedulesByName(tenant=tenant, kind="new"),
        SchedulesByName(tenant=tenant, template_id="new"),
        SchedulesByNextTime(tenant=tenant),
        SchedulesByNextTime(tenant=tenant, tag="tagged"),
        ScheduleList(tenant=tenant, timezone="Europe/Paris"),
        ScheduleList(tenant=tenant, text="new"),
    ]


@pytest.mark.parametrize("change", CHANGES)
async def test_replacing_what_is_known_is_replacing_it(store: Store, change: str) -> None:
    """Whether or not the work says what the record was: every query finds it alike, also after the next change."""
    due = START + timedelta(hours=1)
    stored = [schedule(id, key=id, due_at=due, next_run_at=due) for id in ("a", "b")]
    first, other = await put(store, *stored)
    later: dict[str, Any] = {"due_at": START + timedelta(hours=2), "updated_at": due}
    for changes in (CHANGES[change], later):
        own_key = {"key": changes["key"] + "-2"} if "key" in changes else {}
        [other] = await put(store, replace(other, **changes | own_key))

        async def work(tx: Tx, was: Schedule = first, changes: dict[str, Any] = changes) -> Schedule:
            return tx.put(replace(was, **changes), was=was)

        first = await store.transact(work)
        assert await get(store, Schedule, "a") == replace(other, id="a", key=first.key)
        for asked, of_other in zip(questions(first.key), questions(other.key), strict=True):
            is_found = "a" in [each.id for each in await find(store, asked)]
            assert is_found == ("b" in [each.id for each in await find(store, of_other)]), asked
        assert await count(store, OpenSchedules(tenant="default")) in (0, 2)


async def test_a_key_is_freed_and_taken_in_one_work_that_says_what_they_were(store: Store) -> None:
    old, heir, moved = await put(
        store, schedule("a", key="k"), schedule("b", key="other"), schedule("c", key="third")
    )

    async def work(tx: Tx) -> None:
        tx.put(replace(moved, due_at=START), was=moved)
        tx.put(replace(heir, key="k"), was=heir)
        tx.put(replace(old, deleted_at=START), was=old)

    await store.transact(work)
    assert [each.id for each in await find(store, ScheduleByKey(tenant="default", key="k"))] == ["b"]
    assert [each.id for each in await find(store, DueSchedules(at=START))] == ["c"]


async def test_a_work_writes_records_of_several_types(store: Store) -> None:
    """As a tick does; a store may send them together, and still finds the one that was changed meanwhile."""
    [plan] = await put(store, schedule("s1"))
    [changed] = await put(store, replace(plan, description="changed meanwhile"))
    with pytest.raises(Conflict):
        await put(store, replace(plan, run_count=1), run("r"), task("t"), event("e"), schedule("s2"))
    assert await get(store, Schedule, "s2") is None
    written = await put(store, replace(changed, run_count=1), run("r"), task("t"), event("e"), schedule("s2"))
    assert [each.version for each in written] == [3, 1, 1, 1, 1]
    assert [await get(store, type(each), each.id) for each in written] == written
