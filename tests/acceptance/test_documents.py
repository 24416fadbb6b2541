"""The Python examples of the user's documents 000, 002 and 003, as they are printed, on every store; and what people
find in a bucket afterwards."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rota
import rota.sync
from rota import PermanentError, RescheduleError, TaskStatus
from rota.stores.bucket.service.address import BucketAddress
from rota.stores.bucket.service.bucket import Bucket
from rota.surfaces.stores import make_store
from stores import ADDRESSES

BUCKETS: dict[str, Callable[[Path], str]] = {
    "s3": ADDRESSES["s3"],
    "folder": ADDRESSES["folder"],
    "memory bucket": lambda folder: f"memory-bucket:{uuid.uuid4().hex}",
}
DATABASES = ["sqlite", "postgres"]


@pytest.fixture(params=BUCKETS)
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """As in `connect(bucket="my-queue")`."""
    return BUCKETS[request.param](tmp_path)


@pytest.fixture(params=[*DATABASES, *BUCKETS])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What is said to `connect`."""
    name = request.param
    return {"bucket": BUCKETS[name](tmp_path)} if name in BUCKETS else {"store": ADDRESSES[name](tmp_path)}


def read(bucket: str, key: str) -> Any:
    body = Bucket(BucketAddress.parse(bucket).requests()).get(key)
    return None if body is None else msgspec.json.decode(body)


async def test_document_000(place: dict[str, Any]) -> None:
    queue = await rota.connect(**place)
    # One-shot: run in 1 hour
    task = await queue.submit(
        "send_reminder", {"user_id": "123"}, schedule_at=datetime.now() + timedelta(hours=1)
    )
    assert task.available_at > await queue.now()
    assert task.available_at.tzinfo is not None
    # One-shot: run at specific time
    task = await queue.submit(
        "generate_report", {"report_type": "daily"}, schedule_at=datetime(2026, 1, 28, 9, 0, 0)
    )
    assert task.available_at == max(datetime(2026, 1, 28, 9, 0, 0).astimezone(), task.created_at)
    # Recurring: create a schedule
    schedule = await queue.create_schedule(
        schedule_id="daily-report",
        task_type="generate_report",
        input={"report_type": "daily"},
        cron="0 9 * * *",
    )
    assert (schedule.schedule_id, schedule.enabled) == ("daily-report", True)
    # List schedules
    schedules = await queue.list_schedules()
    assert [found.key for found in schedules] == ["daily-report"]
    # Pause/resume
    await queue.pause_schedule("daily-report")
    await queue.resume_schedule("daily-report")
    await queue.trigger_schedule("daily-report")
    await queue.close()
    if "bucket" in place:  # All state is JSON in S3
        definition = read(place["bucket"], "schedules/daily-report.json")
        assert definition.items() >= DAILY_REPORT.items()
        assert {"created_at", "updated_at"} <= set(definition)
    queue = await rota.connect(**place)
    # Delete
    await queue.delete_schedule("daily-report")
    assert await queue.list_schedules() == []
    await queue.close()
    if "bucket" in place:
        assert read(place["bucket"], "schedules/daily-report.json") is None


DAILY_REPORT = {
    "id": "daily-report",
    "task_type": "generate_report",
    "input": {"report_type": "daily"},
    "cron": "0 9 * * *",
    "enabled": True,
}


async def test_the_last_run_and_the_history_of_document_000(bucket: str) -> None:
    async with rota.connect(bucket=bucket) as queue:
        worker = rota.Worker(queue)

        @worker.task("generate_report")
        async def report(input: object) -> str:
            return "done"

        await queue.create_schedule("daily-report", task_type="generate_report", interval=1, max_runs=1)
        async with asyncio.timeout(60):
            running = asyncio.create_task(worker.run(handle_signals=False))
            while (await queue.get_schedule("daily-report")).status != "completed":
                await queue.store.wait(await queue.now() + timedelta(seconds=1))
            [row] = [run for run in await queue.runs("daily-report") if run.target_id is not None]
            await queue.wait(row.target_id or "")
            worker.stop()
            await running
    last = read(bucket, "schedules/daily-report/last_run.json")
    assert list(last) == ["schedule_id", "last_run_at", "last_task_id", "next_run_at"]
    assert (last["schedule_id"], last["last_task_id"], last["next_run_at"]) == (
        "daily-report",
        row.target_id,
        None,
    )
    wanted = row.scheduled_at.astimezone(UTC).strftime("/%Y-%m-%dT%H-%M-%S")
    kept_rows = Bucket(BucketAddress.parse(bucket).requests()).list("schedules/daily-report/history/")
    [key] = [name for name in kept_rows if wanted in name]
    kept = read(bucket, key)
    assert (kept["status"], kept["task_id"], kept["trigger"]) == ("completed", row.target_id, "scheduled")


async def test_document_003(place: dict[str, Any]) -> None:
    async with rota.connect(**place) as queue:
        # Submit with absolute expiration
        task = await queue.submit(
            "send_reminder", {"user_id": "123"}, expires_at=datetime(2026, 1, 28, 17, 0, 0)
        )
        assert task.status == TaskStatus.Expired  # that day has passed
        # Submit with relative TTL
        task = await queue.submit("process_event", {"event_id": "456"}, ttl=timedelta(hours=1))
        assert task.expires_at == task.created_at + timedelta(hours=1)
        # Submit with TTL in seconds
        task = await queue.submit("quick_task", {"data": "..."}, ttl_seconds=300)
        # Check remaining time
        task = await queue.get(task.id)
        assert task.status == TaskStatus.Pending
        now = await queue.now()
        assert task.expires_at is not None
        remaining = task.expires_at - now
        assert timedelta(0) < remaining <= timedelta(seconds=300)
        assert task.is_expired_at(task.expires_at)
        marked = await queue.mark_expired(task.id)
        assert (marked.status, marked.task_type) == (TaskStatus.Expired, "quick_task")
        many = await queue.submit_many([("quick_task", {}), ("quick_task", {})], ttl_seconds=60)
        assert all(task.expires_at for task in many)
        # Scheduling + Expiration
        both = await queue.submit(
            "meeting_reminder",
            {},
            schedule_at=datetime(2026, 1, 28, 17, 0),  # Run at 5pm
            expires_at=datetime(2026, 1, 28, 18, 0),  # Expire at 6pm
        )
        assert both.expires_at == datetime(2026, 1, 28, 18, 0).astimezone()
        assert both.available_at == max(both.expires_at - timedelta(hours=1), both.created_at)


async def test_the_handlers_of_document_003(place: dict[str, Any]) -> None:
    async with rota.connect(**place) as queue:
        worker = rota.Worker(queue, scheduler=False, janitor=False)

        @worker.task("process")
        async def handle(input: object, context: rota.Context) -> None:
            # Optional: check if task is about to expire
            task = context.task
            now = await context.queue.now()
            if task.expires_at and (task.expires_at - now).total_seconds() < 60:
                # Less than 1 minute left, abort early
                raise PermanentError("Task about to expire, aborting")

        @worker.task("again")
        async def again(input: object, context: rota.Context) -> None:
            raise RescheduleError(
                delay_seconds=60,
                extend_expiration_seconds=120,  # Add 2 minutes to expires_at
            )

        short = await queue.submit("process", ttl=30)
        extended = await queue.submit("again", ttl=300)
        await worker.run_once()
        worker.tasks.close()
        assert str((await queue.get(short.id)).error) == "PermanentError: Task about to expire, aborting"
        moved = await queue.get(extended.id)
        assert moved.expires_at is not None
        assert extended.expires_at is not None
        assert moved.expires_at - extended.expires_at == timedelta(minutes=2)


async def test_the_rules_of_document_002(place: dict[str, Any]) -> None:
    async with rota.connect(**place) as queue:
        loose: Any = rota.RecurrenceRule  # as a program without types may call it
        rules = {
            "five-minutes": rota.RecurrenceRule(frequency=rota.Frequency.MINUTELY, interval=5),
            "nine": loose(frequency="daily", starts_at="2025-01-01 09:00:00"),
            "monday-friday": loose(
                frequency="weekly", days_of_week=[rota.DayOfWeek.MONDAY, rota.DayOfWeek.FRIDAY]
            ),
            "once": loose(frequency="none", starts_at=datetime.now() + timedelta(days=1)),
        }
        for key, rule in rules.items():
            schedule = await queue.create_schedule(key, task_type="report", rule=rule, max_runs=30)
            assert schedule.next_run_at is not None
        nine = await queue.preview("nine", 2)
        assert {time.local.strftime("%H:%M") for time in nine} == {"09:00"}
        weekdays = {time.local.strftime("%a") for time in await queue.preview("monday-friday", 4)}
        assert weekdays == {"Mon", "Fri"}


def test_the_same_without_await(place: dict[str, Any]) -> None:
    with rota.sync.connect(**place) as queue:
        task = queue.submit("send_reminder", {"user_id": "123"}, ttl=timedelta(hours=2))
        assert queue.get(task.id).status == "pending"
        queue.create_schedule("daily", task_type="report", cron="0 9 * * *")
        assert [found.key for found in queue.list_schedules()] == ["daily"]
        assert queue.count(status="pending") == 1
        assert queue.cancel(task.id).status == "cancelled"
        assert queue.run_due() == []
    queue.close()


def test_a_bucket_is_short_for_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert make_store("s3://my-queue", rota.engine.clock.SystemClock()).url == "s3://my-queue"
    opened: list[str] = []

    async def remember(address: str, clock: object) -> Any:
        opened.append(address)
        raise rota.Unavailable("enough")

    monkeypatch.setattr("rota.surfaces.python.client.open_store", remember)
    with pytest.raises(rota.Unavailable):
        rota.sync.connect(bucket="my-queue")
    assert opened == ["s3://my-queue"]
    with pytest.raises(rota.Invalid, match="one of them"):
        rota.sync.connect("memory:", bucket="my-queue")
