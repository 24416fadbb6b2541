"""`test_next_run_calculation` of document 004: what `$schedule` answers as next_run_at."""

from __future__ import annotations

from datetime import timedelta

import pytest

from v1_world import Api, Clock, at


def test_next_run_of_once_schedules(still: Api) -> None:
    run_at = (still.now() + timedelta(days=400)).replace(microsecond=0).isoformat()
    made = still.task().schedule(schedule_type="once", run_at=run_at)
    assert at(made["next_run_at"]) == at(made["run_at"]) == at(run_at)


def test_next_run_of_interval_schedules(still: Api) -> None:
    made = still.task().schedule(schedule_type="interval", interval_seconds=3600)
    created, first = at(made["created_at"]), at(made["next_run_at"])
    assert first.microsecond == 0
    assert timedelta(hours=1) <= first - created < timedelta(hours=1, seconds=1)


def test_next_run_of_cron_schedules(still: Api) -> None:
    made = still.task().schedule(schedule_type="cron", cron_expression="0 2 * * *")
    created = at(made["created_at"])
    today = created.replace(hour=2, minute=0, second=0, microsecond=0)
    assert at(made["next_run_at"]) == (today if today > created else today + timedelta(days=1))


NEW_YORK = "America/New_York"


@pytest.mark.parametrize(
    ("now", "line", "zone", "expected"),
    [
        pytest.param("2025-10-17T10:00:00Z", "0 2 * * *", "UTC", "2025-10-18T02:00:00Z", id="document"),
        pytest.param("2025-10-17T02:00:00Z", "0 2 * * *", "UTC", "2025-10-18T02:00:00Z", id="strictly after"),
        pytest.param("2025-01-31T12:00:00Z", "0 0 1 * *", "UTC", "2025-02-01T00:00:00Z", id="month ends"),
        pytest.param("2025-04-01T00:00:00Z", "0 0 31 * *", "UTC", "2025-05-31T00:00:00Z", id="no 31st"),
        pytest.param("2025-12-31T23:59:30Z", "*/5 * * * *", "UTC", "2026-01-01T00:00:00Z", id="year ends"),
        pytest.param("2025-03-01T00:00:00Z", "0 0 29 2 *", "UTC", "2028-02-29T00:00:00Z", id="leap year"),
        pytest.param(
            "2096-03-01T00:00:00Z", "0 0 29 2 *", "UTC", "2104-02-29T00:00:00Z", id="no leap in 2100"
        ),
        pytest.param("2028-02-28T12:00:00Z", "0 0 * * *", "UTC", "2028-02-29T00:00:00Z", id="leap day"),
        pytest.param(
            "2026-03-07T12:00:00Z", "0 9 * * *", NEW_YORK, "2026-03-07T14:00:00Z", id="before spring"
        ),
        pytest.param(
            "2026-03-08T00:00:00Z", "0 9 * * *", NEW_YORK, "2026-03-08T13:00:00Z", id="after spring"
        ),
        pytest.param(
            "2026-10-31T14:00:00Z", "0 9 * * *", NEW_YORK, "2026-11-01T14:00:00Z", id="after autumn"
        ),
        pytest.param("2025-10-17T10:00:00Z", "15 0 10 * * *", "UTC", "2025-10-17T10:00:15Z", id="six fields"),
    ],
)
def test_edge_cases_of_cron(then: Api, clock: Clock, now: str, line: str, zone: str, expected: str) -> None:
    """Month boundaries, daylight saving, leap years."""
    clock.set(now)
    made = then.task().schedule(schedule_type="cron", cron_expression=line, timezone=zone)
    assert made["next_run_at"] == expected
    assert made.get("timezone", "UTC") == zone


def test_intervals_are_absolute_time(then: Api, clock: Clock) -> None:
    clock.set("2028-02-28T23:59:59Z")
    made = then.task().schedule(schedule_type="interval", interval_seconds=86_400)
    assert made["next_run_at"] == "2028-02-29T23:59:59Z"
