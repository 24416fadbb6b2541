"""The Python examples of the user's documents 000, 002 and 003, as they are printed, on a SQLite file and on
PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import rota
import rota.sync
from command_line import STORES
from postgres_server import new_database
from rota import PermanentError, RescheduleError, TaskStatus


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_database() if request.param == "postgres" else f"sqlite:///{tmp_path / 'my-queue.db'}"


@asynccontextmanager
async def connected(store: str) -> AsyncIterator[rota.Queue]:
    queue = await rota.connect(store)
    async with queue:
        yield queue


async def test_document_000(store: str) -> None:
    async with connected(store) as queue:
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
        # Delete
        await queue.delete_schedule("daily-report")
        assert await queue.list_schedules() == []


async def test_document_003(store: str) -> None:
    async with connected(store) as queue:
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


async def test_the_handlers_of_document_003(store: str) -> None:
    async with connected(store) as queue:
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


async def test_the_rules_of_document_002(store: str) -> None:
    async with connected(store) as queue:
        rules = {
            "five-minutes": rota.RecurrenceRule(frequency=rota.Frequency.MINUTELY, interval=5),
            "nine": rota.RecurrenceRule(frequency="daily", starts_at="2025-01-01 09:00:00"),
            "monday-friday": rota.RecurrenceRule(
                frequency="weekly", days_of_week=[rota.DayOfWeek.MONDAY, rota.DayOfWeek.FRIDAY]
            ),
            "once": rota.RecurrenceRule(frequency="none", starts_at=datetime.now() + timedelta(days=1)),
        }
        for key, rule in rules.items():
            schedule = await queue.create_schedule(key, task_type="report", rule=rule, max_runs=30)
            assert schedule.next_run_at is not None
        nine = await queue.preview("nine", 2)
        assert {time.local.strftime("%H:%M") for time in nine} == {"09:00"}
        weekdays = {time.local.strftime("%a") for time in await queue.preview("monday-friday", 4)}
        assert weekdays == {"Mon", "Fri"}


def test_the_same_without_await(store: str) -> None:
    with rota.sync.connect(store) as queue:
        task = queue.submit("send_reminder", {"user_id": "123"}, ttl=timedelta(hours=2))
        assert queue.get(task.id).status == "pending"
        queue.create_schedule("daily", task_type="report", cron="0 9 * * *")
        assert [found.key for found in queue.list_schedules()] == ["daily"]
        assert queue.count(status="pending") == 1
        assert queue.cancel(task.id).status == "cancelled"
        assert queue.run_due() == []
    queue.close()
