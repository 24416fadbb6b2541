"""What callers may get wrong: counts, zones, options, filters, queues that are closed, files that are not theirs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import apsw
import pytest

import rota
import rota.sync
from rota.domain.errors import Corrupt, Unavailable
from rota.stores.memory.store import MemoryStore
from simulation.test_queue import check_sentence
from worlds import HOUR, MINUTE, SECOND, START, World, on_any_store

DAY = timedelta(days=1)
ALONE = "\udcff"


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process' own clock is that of Berlin: an hour ahead of UTC at START."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.delenv("TZ")
    time.tzset()


async def times(world: World, key: str = "s", n: int = 10) -> list[datetime]:
    return [each.at for each in await world.queue.preview(key, n)]


# COUNT


async def test_a_count_without_a_start_counts_from_the_first_time_after_creation(world: World) -> None:
    await world.at(timedelta(seconds=0.25))
    for key, rule, expected in [
        ("three", "FREQ=DAILY;COUNT=3", [START + n * DAY for n in (1, 2, 3)]),
        ("one", "FREQ=DAILY;COUNT=1", [START + DAY]),
        ("seconds", "COUNT=2;FREQ=SECONDLY", [START + SECOND, START + 2 * SECOND]),
        ("later", "FREQ=DAILY;BYHOUR=9;COUNT=2", [START + 9 * HOUR, START + 33 * HOUR]),
        ("less", "FREQ=DAILY;COUNT=2\nEXDATE:20260102T000000Z", [START + 2 * DAY]),
        ("more", "FREQ=DAILY;COUNT=1\nRDATE:20260101T120000Z", [START + SECOND, START + 12 * HOUR]),
    ]:
        created = await world.schedule(key, rrule=rule)
        assert created.next_run_at == expected[0] > created.created_at, key
        assert await times(world, key) == expected, key


async def test_a_count_fires_that_often(world: World) -> None:
    await world.schedule("s", rrule="FREQ=HOURLY;COUNT=3", overlap_policy="allow")
    async with world.running():
        await world.at(5 * HOUR)
    assert [run.scheduled_at for run in await world.ledger("s")] == [START + n * HOUR for n in (1, 2, 3)]
    assert (await world.queue.get_schedule("s")).status == "completed"


async def test_a_count_with_a_start_counts_from_there(world: World) -> None:
    await world.schedule("past", rrule="FREQ=DAILY;COUNT=3", start_at=START - DAY)
    assert await times(world, "past") == [START + DAY]
    await world.schedule("split", rrule="FREQ=DAILY;COUNT=2", start_at=START + timedelta(seconds=1.5))
    assert await times(world, "split") == [START + 2 * SECOND, START + 2 * SECOND + DAY]


async def test_a_new_count_counts_anew_and_the_same_one_does_not(world: World) -> None:
    await world.schedule("s", rrule="FREQ=DAILY;COUNT=3")
    await world.at(1.5 * DAY)
    same = await world.queue.update_schedule("s", rrule="FREQ=DAILY;COUNT=3")
    assert same.version == 1
    await world.queue.update_schedule("s", rrule="FREQ=DAILY;COUNT=2")
    assert await times(world) == [START + 2 * DAY, START + 3 * DAY]


@pytest.mark.start(datetime(2026, 3, 28, 1, 30, tzinfo=UTC))
async def test_a_count_that_begins_in_a_gap_keeps_its_time_of_day(world: World) -> None:
    """02:30 in Berlin; tomorrow there is no 02:30. DTSTART cannot be tomorrow, so the rule begins at once."""
    await world.schedule("s", rrule="FREQ=DAILY;COUNT=3", timezone="Europe/Berlin")
    shown = [each.local.strftime("%d %H:%M") for each in await world.queue.preview("s")]
    assert shown == ["28 02:30", "29 03:00", "30 02:30"]


async def test_a_rule_begins_at_start_at(world: World) -> None:
    daily = rota.RecurrenceRule.of("daily")
    await world.schedule("s", rule=daily, start_at=START + 9 * HOUR)
    assert await times(world, n=2) == [START + 9 * HOUR, START + 33 * HOUR]


# Zones


@on_any_store
@pytest.mark.parametrize(
    "timing",
    [
        {"interval": 60},
        {"run_at": START + HOUR},
        {"rule": rota.RecurrenceRule.of("daily")},
        {"cron": "* * * * *"},
        {"rrule": "FREQ=DAILY"},
    ],
    ids=lambda timing: next(iter(timing)),
)
async def test_a_wrong_zone_is_refused_for_every_timing(world: World, timing: dict[str, Any]) -> None:
    with pytest.raises(rota.Invalid) as caught:
        await world.schedule("s", timezone="Europe/Pariss", **timing)
    check_sentence(caught.value, "timezone")
    assert "did you mean Europe/Paris" in str(caught.value)
    await world.schedule("s", **timing)
    with pytest.raises(rota.Invalid) as caught:
        await world.queue.update_schedule("s", timezone="Europe/Pariss", **timing)
    assert caught.value.field == "timezone"


@pytest.mark.usefixtures("in_berlin")
async def test_a_naive_time_is_on_the_clock_of_the_zone_that_was_given(world: World) -> None:
    noon = datetime(2026, 1, 2, 12)
    for zone, at in [
        (None, datetime(2026, 1, 2, 11, tzinfo=UTC)),
        ("UTC", datetime(2026, 1, 2, 12, tzinfo=UTC)),
        (ZoneInfo("America/New_York"), datetime(2026, 1, 2, 17, tzinfo=UTC)),
    ]:
        once = await world.schedule(f"once {zone}", run_at=noon, timezone=zone)
        assert once.next_run_at == at
        bounded = await world.schedule(
            f"bounded {zone}", interval=60, start_at=noon, end_at=noon + HOUR, timezone=zone
        )
        assert (bounded.start_at, bounded.end_at) == (at, at + HOUR)
    moved = await world.queue.update_schedule("once None", run_at=noon, timezone="America/New_York")
    assert moved.next_run_at == datetime(2026, 1, 2, 17, tzinfo=UTC)
    moved = await world.queue.update_schedule("once None", run_at=noon)
    assert moved.next_run_at == datetime(2026, 1, 2, 11, tzinfo=UTC)


@on_any_store
@pytest.mark.parametrize(
    ("reading", "at"),
    [
        (datetime(2026, 3, 8, 2, 30), datetime(2026, 3, 8, 7, tzinfo=UTC)),
        (datetime(2026, 11, 1, 1, 30), datetime(2026, 11, 1, 5, 30, tzinfo=UTC)),
        (datetime(2026, 1, 2, 12, 0, 0, 250), datetime(2026, 1, 2, 17, 0, 0, 250, tzinfo=UTC)),
    ],
    ids=["in a gap", "twice", "microseconds"],
)
async def test_a_naive_time_follows_the_rules_of_its_zone(
    world: World, reading: datetime, at: datetime
) -> None:
    once = await world.schedule("s", run_at=reading, timezone="America/New_York")
    assert once.next_run_at == at


@pytest.mark.usefixtures("in_berlin")
async def test_records_take_a_naive_time_as_local(world: World) -> None:
    schedule = await world.schedule("s", cron="0 * * * *", end_at=START + 2 * HOUR)
    task = await world.queue.submit("work", ttl=HOUR)
    two = datetime(2026, 1, 1, 2)  # in Berlin: an hour after START
    assert (schedule.is_due(two), schedule.is_due(two - SECOND)) == (True, False)
    late = datetime(2026, 1, 1, 3)
    assert (schedule.has_reached_end_date(late + SECOND), schedule.has_reached_end_date(late)) == (
        True,
        False,
    )
    assert schedule.next_occurrence(two) == START + 2 * HOUR
    assert (task.is_expired_at(two), task.is_expired_at(two - SECOND)) == (True, False)
    assert (task.is_available_at(two - HOUR), task.is_available_at(two - HOUR - SECOND)) == (True, False)


# Options that fit the target, and those that do not


async def test_options_are_applied_to_the_target_that_is_given(world: World) -> None:
    task = rota.TaskTarget(kind="work", queue="one", tags=("kept",))
    options: dict[str, Any] = {"queue": "other", "priority": 7, "max_retries": 1, "ttl": 60, "timeout": 5}
    created = await world.queue.create_schedule("t", target=task, cron="0 * * * *", **options)
    assert created.target == rota.TaskTarget(
        kind="work",
        queue="other",
        priority=7,
        max_retries=1,
        ttl=MINUTE,
        timeout=5 * SECOND,
        tags=("kept",),
    )
    flow = rota.WorkflowTarget(kind="flow")
    created = await world.queue.create_schedule(
        "w", target=flow, cron="0 * * * *", queue="q", tags=["x"], input=[1]
    )
    assert created.target == rota.WorkflowTarget(kind="flow", queue="q", tags=("x",), input=[1])
    updated = await world.queue.update_schedule("w", queue="other")
    assert updated.target == rota.WorkflowTarget(kind="flow", queue="other", tags=("x",), input=[1])
    updated = await world.queue.update_schedule("w", target=task, priority=9)
    assert updated.target == rota.TaskTarget(kind="work", queue="one", priority=9, tags=("kept",))


FLOW, TEMPLATE = rota.WorkflowTarget(kind="flow"), rota.TemplateTarget(template_id="t")
NO_FIT: list[tuple[dict[str, Any], str]] = [
    ({"target": TEMPLATE, "priority": 7}, "priority"),
    ({"target": TEMPLATE, "max_retries": 7}, "max_retries"),
    ({"target": TEMPLATE, "queue": "q"}, "queue"),
    ({"target": TEMPLATE, "ttl": 5}, "ttl"),
    ({"task_type": "work", "key": "zzz"}, "key"),
    ({"task_type": "work", "tags": 5}, "tags"),
    ({"task_type": "work", "tags": "x"}, "tags"),
    ({"target": rota.TaskTarget(kind="work"), "tags": 5}, "tags"),
]


@on_any_store
@pytest.mark.parametrize(("options", "field"), NO_FIT, ids=lambda value: str(value)[:60])
async def test_what_does_not_fit_is_refused(world: World, options: dict[str, Any], field: str) -> None:
    with pytest.raises(rota.Invalid) as caught:
        await world.queue.create_schedule("s", cron="0 * * * *", **options)
    check_sentence(caught.value, field)


async def test_an_update_refuses_what_does_not_fit(world: World) -> None:
    await world.queue.create_template("t", "work")
    await world.queue.create_schedule("s", target=TEMPLATE, cron="0 * * * *")
    await world.queue.create_schedule("w", target=FLOW, cron="0 * * * *")
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("s", {"priority": 7}, "a schedule that runs a template"),
        ("w", {"task_type": "work"}, "this schedule runs a workflow"),
    ]
    for key, change, whose in refused:
        with pytest.raises(rota.Invalid) as caught:
            await world.queue.update_schedule(key, **change)
        check_sentence(caught.value, next(iter(change)))
        assert whose in str(caught.value)
    assert (await world.queue.update_schedule("w", priority=7)).target == rota.WorkflowTarget(
        kind="flow", priority=7
    )


# Rules


async def test_a_rule_and_its_options_do_not_contradict_each_other(world: World) -> None:
    ending = rota.RecurrenceRule.of("daily", ends_at="2026-02-01 00:00:00")
    with pytest.raises(rota.Invalid) as caught:
        await world.schedule("s", rule=ending, end_at=START + 90 * DAY)
    check_sentence(caught.value, "end_at")
    assert (await world.schedule("s", rule=ending)).end_at == datetime(2026, 2, 1, tzinfo=UTC)


@on_any_store
@pytest.mark.parametrize(
    "rule",
    [
        rota.RecurrenceRule.of("none"),
        rota.RecurrenceRule.of("none", starts_at="2025-01-01 09:00"),
        rota.RecurrenceRule.of("daily", starts_at="2026-03-01 09:00", ends_at="2026-02-01 09:00"),
        rota.RecurrenceRule.of("monthly", days_of_month=[31], months_of_year=[2]),
        rota.RecurrenceRule.of("yearly", ends_at="2026-01-02 00:00"),
    ],
    ids=lambda rule: str(rule)[:80],
)
async def test_a_wrong_rule_is_called_a_rule(world: World, rule: rota.RecurrenceRule) -> None:
    with pytest.raises(rota.Invalid) as caught:
        await world.schedule("s", rule=rule)
    check_sentence(caught.value, "rule")
    assert "recurrence_rule" not in str(caught.value)


async def test_a_dtstart_line_names_the_option_to_use(world: World) -> None:
    with pytest.raises(rota.Invalid, match=r"^rrule: a DTSTART line is not accepted; .*start_at"):
        await world.schedule("s", rrule="DTSTART:20260101T000000Z\nFREQ=DAILY")


# Arguments of every other call


WRONG_CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("cancel_many", ("abc",), {}, "task_ids"),
    ("cancel_many", (5,), {}, "task_ids"),
    ("cancel_many", ([5],), {}, "task_ids[0]"),
    ("cancel_many", (["a", ALONE],), {}, "task_ids[1]"),
    ("cancel_many", (["a"],), {"kind": "work"}, "kind"),
    ("cancel_many", (), {"reason": 5}, "reason"),
    ("cancel_many", (), {"status": "expired"}, "status"),
    ("cancel_many", (), {"status": "completed"}, "status"),
    ("submit_many", (None,), {}, "tasks"),
    ("submit_many", (5,), {}, "tasks"),
    ("submit_many", ("",), {}, "tasks"),
    ("cancel", ("id", 5), {}, "reason"),
    ("cancel", ("id", ALONE), {}, "reason"),
    ("get", ("x" + ALONE,), {}, "task_id"),
    ("wait", ("x" + ALONE,), {}, "task_id"),
    ("replay", ("x" + ALONE,), {}, "task_id"),
    ("list", (), {"kind": ALONE}, "kind"),
    ("list", (), {"schedule": ALONE}, "schedule"),
    ("count", (), {"tag": ALONE}, "tag"),
    ("list", (), {"cursor": f"2026-01-01T00:00:00+00:00~{ALONE}"}, "cursor"),
    ("list", (), {"cursor": 5}, "cursor"),
    ("list", (), {"cursor": "0001-01-01T00:00:00+10:00~x"}, "cursor"),
    ("list_schedules", (), {"text": [1]}, "text"),
    ("list_schedules", (), {"kind": {}}, "kind"),
    ("list_schedules", (), {"tag": ALONE}, "tag"),
    ("list_schedules", (), {"deleted": "yes"}, "deleted"),
    ("count_schedules", (), {"after": 5}, "after"),
    ("get_schedule", (ALONE,), {}, "schedule_id"),
    ("pause_schedule", ("s", 5), {}, "note"),
]


@on_any_store
@pytest.mark.parametrize(
    ("call", "args", "options", "field"), WRONG_CALLS, ids=lambda value: ascii(value)[:50]
)
async def test_a_wrong_argument_gets_one_clear_sentence(
    world: World, call: str, args: tuple[Any, ...], options: dict[str, Any], field: str
) -> None:
    await world.schedule("s", cron="0 * * * *")
    expired = await world.queue.submit("work", ttl=1)
    await world.at(MINUTE)
    assert expired.is_expired_at(await world.queue.now())
    with pytest.raises(rota.Invalid) as caught:
        await getattr(world.queue, call)(*args, **options)
    assert caught.value.field == field
    assert ";" in str(caught.value)
    assert str(caught.value).isprintable()


async def test_a_used_idempotency_key_does_not_hide_a_wrong_input(world: World) -> None:
    await world.queue.submit("work", 1, idempotency_key="k")
    for wrong in ({1, 2}, object(), "x" + ALONE, float("nan")):
        with pytest.raises(rota.Invalid) as caught:
            await world.queue.submit("work", wrong, idempotency_key="k")
        check_sentence(caught.value, "input")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tenant": 5}, "tenant"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": ALONE}, "tenant"),
        ({"actor": 5}, "actor"),
        ({"actor": ALONE}, "actor"),
    ],
    ids=ascii,
)
async def test_whose_queue_it_is(tmp_path: Path, options: dict[str, Any], field: str) -> None:
    path = tmp_path / "rota.db"
    with pytest.raises(rota.Invalid) as caught:
        await rota.connect(f"sqlite:///{path}", **options)
    check_sentence(caught.value, field)
    assert not path.exists()
    async with rota.connect("memory:") as queue:
        if field == "tenant":
            with pytest.raises(rota.Invalid):
                queue.for_tenant(options["tenant"])


# Queues without a loop


def test_a_closed_queue_says_so() -> None:
    with rota.sync.connect("memory:") as queue:
        queue.submit("work")
        queue.close()
    queue.close()
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"is closed: open another with rota.sync.connect\(\)"):
            queue.submit("work")


def test_closing_ends_the_calls_of_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, wait_of_store = threading.Event(), MemoryStore.wait

    async def told(store: MemoryStore, until: datetime | None, **of: Any) -> None:
        waits.set()
        await wait_of_store(store, until, **of)

    monkeypatch.setattr(MemoryStore, "wait", told)
    queue = rota.sync.connect("memory:")
    task = queue.submit("work")
    ends: list[BaseException] = []

    def wait() -> None:
        try:
            queue.wait(task.id)
        except BaseException as end:
            ends.append(end)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert waits.wait(60)
    queue.close()
    waiting.join(60)
    assert [type(end) for end in ends] == [Unavailable]


async def test_a_closed_store_is_not_asked_again(world: World) -> None:
    await world.store.close()
    with pytest.raises(Unavailable, match="is not open") as caught:
        await world.queue.submit("work")
    assert caught.value.is_final
    assert world.clock.now() == START, "nothing was waited for"


# Files of others


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rota.db"


async def test_a_lock_costs_the_time_that_the_sentence_says(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rota.connect(f"sqlite:///{path}?busy_timeout=0.5") as queue:
        other = apsw.Connection(os.fspath(path))
        other.execute("begin immediate")
        tries: list[float] = []
        transact = queue.store.transact

        async def counted(work: Any, *options: Any) -> Any:
            tries.append(time.monotonic())
            return await transact(work, *options)

        monkeypatch.setattr(queue.store, "transact", counted)
        with pytest.raises(Unavailable, match=r"was locked by another process for 0.5 s") as caught:
            await queue.submit("work")
        assert len(tries) == 1, "it was not waited for again"
        assert time.monotonic() - tries[0] >= 0.5
        assert caught.value.is_final
        other.execute("rollback")
        other.close()
        await queue.submit("work")


async def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    db = apsw.Connection(os.fspath(path))
    db.execute("create table task (title text)")
    with pytest.raises(Corrupt, match=r"rota.db is not a Rota database.*choose another file"):
        await rota.connect(f"sqlite:///{path}")
    assert [row[0] for row in db.execute("select name from sqlite_schema where type = 'table'")] == ["task"]
    db.close()
