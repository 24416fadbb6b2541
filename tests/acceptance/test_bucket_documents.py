"""The Python examples of the user's documents 000 and 003, as they are printed, on a real S3 server, in a folder and in
memory; and what people find there afterwards."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rota
import rota.sync
import s3_server
from rota import PermanentError, RescheduleError, TaskStatus
from rota.stores.objects_address import requests_for
from rota.stores.objects_bucket import Bucket
from rota.surfaces.stores import make_store


@pytest.fixture(params=["s3", "folder", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A bucket of the real server, a folder, a bucket in memory."""
    places = {
        "s3": s3_server.url,
        "folder": (tmp_path / "bucket").as_uri,
        "memory": lambda: f"memory-bucket:{uuid.uuid4().hex}",
    }
    return str(places[request.param]())


def connect(address: str) -> Any:
    """`connect(bucket="my-queue")`, where the bucket is one for tests."""
    return rota.connect(bucket=address)


def read(address: str, key: str) -> Any:
    body = Bucket(requests_for(address)).get(key)
    return None if body is None else msgspec.json.decode(body)


async def test_document_000(address: str) -> None:
    queue = await connect(address)
    # One-shot: run in 1 hour
    task = await queue.submit(
        "send_reminder", {"user_id": "123"}, schedule_at=datetime.now() + timedelta(hours=1)
    )
    assert task.available_at > await queue.now()
    # One-shot: run at specific time
    task = await queue.submit(
        "generate_report", {"report_type": "daily"}, schedule_at=datetime(2026, 1, 28, 9, 0, 0)
    )
    assert task.available_at == datetime(2026, 1, 28, 9, 0, 0).astimezone()
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
    # All state is JSON in S3
    definition = read(address, "schedules/daily-report.json")
    assert (
        definition.items()
        >= {
            "id": "daily-report",
            "task_type": "generate_report",
            "input": {"report_type": "daily"},
            "cron": "0 9 * * *",
            "enabled": True,
        }.items()
    )
    assert {"created_at", "updated_at"} <= set(definition)
    queue = await connect(address)
    # Delete
    await queue.delete_schedule("daily-report")
    assert await queue.list_schedules() == []
    await queue.close()
    assert read(address, "schedules/daily-report.json") is None


async def test_the_last_run_and_the_history_of_document_000(address: str) -> None:
    async with connect(address) as queue:
        worker = rota.Worker(queue)

        @worker.task("generate_report")
        async def report(input: object) -> str:
            return "done"

        await queue.create_schedule("daily-report", task_type="generate_report", interval=1, max_runs=1)
        async with asyncio.timeout(30):
            running = asyncio.create_task(worker.run(handle_signals=False))
            while (await queue.get_schedule("daily-report")).status != "completed":
                await queue.store.wait(await queue.now() + timedelta(seconds=1))
            [row] = [run for run in await queue.runs("daily-report") if run.target_id is not None]
            await queue.wait(row.target_id)
            worker.stop()
            await running
    last = read(address, "schedules/daily-report/last_run.json")
    assert list(last) == ["schedule_id", "last_run_at", "last_task_id", "next_run_at"]
    assert (last["schedule_id"], last["last_task_id"], last["next_run_at"]) == (
        "daily-report",
        row.target_id,
        None,
    )
    wanted = row.scheduled_at.astimezone(UTC).strftime("/%Y-%m-%dT%H-%M-%S")
    kept_rows = Bucket(requests_for(address)).list("schedules/daily-report/history/")
    [key] = [name for name in kept_rows if wanted in name]
    kept = read(address, key)
    assert (kept["status"], kept["task_id"], kept["trigger"]) == ("completed", row.target_id, "scheduled")


async def test_document_003(address: str) -> None:
    queue = await connect(address)
    # Submit with absolute expiration
    task = await queue.submit("send_reminder", {"user_id": "123"}, expires_at=datetime(2026, 1, 28, 17, 0, 0))
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
    assert timedelta(0) < task.expires_at - now <= timedelta(seconds=300)
    marked = await queue.mark_expired(task.id)
    assert marked.status == TaskStatus.Expired
    many = await queue.submit_many([("quick_task", {}), ("quick_task", {})], ttl_seconds=60)
    assert all(task.expires_at for task in many)
    # Scheduling + Expiration
    both = await queue.submit(
        "meeting_reminder",
        {},
        schedule_at=datetime(2026, 1, 28, 17, 0),  # Run at 5pm
        expires_at=datetime(2026, 1, 28, 18, 0),  # Expire at 6pm
    )
    assert both.expires_at - both.available_at == timedelta(hours=1)
    await queue.close()


async def test_the_handlers_of_document_003(address: str) -> None:
    async with connect(address) as queue:
        worker = rota.Worker(queue, scheduler=False, janitor=False)

        @worker.task("process")
        async def handle(input: object, context: rota.Context) -> None:
            task = context.task
            now = await context.queue.now()
            if task.expires_at and (task.expires_at - now).total_seconds() < 60:
                raise PermanentError("Task about to expire, aborting")

        @worker.task("again")
        async def again(input: object, context: rota.Context) -> None:
            raise RescheduleError(delay_seconds=60, extend_expiration_seconds=120)

        short = await queue.submit("process", ttl=30)
        extended = await queue.submit("again", ttl=300)
        await worker.run_once()
        worker.tasks.close()
        assert str((await queue.get(short.id)).error) == "PermanentError: Task about to expire, aborting"
        moved = await queue.get(extended.id)
        assert moved.expires_at - extended.expires_at == timedelta(minutes=2)


def test_the_same_without_await(address: str) -> None:
    with rota.sync.connect(bucket=address) as queue:
        task = queue.submit("send_reminder", {"user_id": "123"}, ttl=timedelta(hours=2))
        assert queue.get(task.id).status == "pending"


def test_a_bucket_is_short_for_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert make_store("s3://my-queue", rota.engine.clock.SystemClock()).url == "s3://my-queue"
    opened: list[str] = []

    async def remember(address: str, clock: object) -> Any:
        opened.append(address)
        raise rota.Unavailable("enough")

    monkeypatch.setattr("rota.surfaces.client.open_store", remember)
    with pytest.raises(rota.Unavailable):
        rota.sync.connect(bucket="my-queue")
    assert opened == ["s3://my-queue"]
    with pytest.raises(rota.Invalid, match="one of them"):
        rota.sync.connect("memory:", bucket="my-queue")
