"""Every command line of documents 000 and 003 runs as printed there, with `rota` for the original name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import bare_folder, documents, in_a_folder, rota, use_store

pytest_generate_tests = in_a_folder


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    use_store(monkeypatch, request.param)
    return tmp_path


DOCUMENT_000 = [
    """submit -t send_reminder -i '{"user_id":"123"}' --at "2026-01-28T09:00:00Z" """,
    """submit -t send_reminder -i '{"user_id":"123"}' --in 1h""",
    """schedule create daily-report \
    --task-type generate_report \
    --input '{"report_type":"daily"}' \
    --cron "0 9 * * *" """,
    "schedule list",
    "schedule show daily-report",
    "schedule pause daily-report",
    "schedule resume daily-report",
    "schedule trigger daily-report",
    "schedule delete daily-report",
]


def test_the_lines_of_document_000_in_their_order() -> None:
    for line in DOCUMENT_000:
        rota(line)


@pytest.mark.parametrize(
    "line",
    [
        """submit -t send_reminder -i '{}' --expires-at "2026-01-28T17:00:00Z" """,
        "submit -t process_event -i '{}' --ttl 1h",
        "submit -t quick_task -i '{}' --ttl 5m",
        "submit -t batch_job -i '{}' --ttl 7d",
        "submit -t batch_job -i '{}' --ttl 30m",
        "submit -t batch_job -i '{}' --ttl 2w",
        "submit -t batch_job -i '{}' --delay 30s",
        "list --status expired",
    ],
)
def test_the_lines_of_document_003(line: str) -> None:
    rota(line)


def test_status_says_when_a_task_expires_and_how_far_away_that_is() -> None:
    task = rota("submit -t send_reminder -i '{}' --ttl 2h30m").stdout.strip()
    said = rota(f"status {task}").stdout
    assert re.search(r"^expires_at: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(in 2h 30m\)$", said, re.MULTILINE)


def test_history_has_one_line_per_version() -> None:
    task = rota('submit -t send_reminder -i {} --expires-at "2026-01-28T17:00:00Z"').stdout.strip()
    lines = rota(f"history {task}").stdout.splitlines()
    assert lines[0] == "Version 1: pending (created, expires_at: 2026-01-28T17:00:00Z)"
    assert re.fullmatch(r"Version 2: expired \(expired_at: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\)", lines[1])
    assert len(lines) == 2


def test_a_task_with_no_time_to_live_is_listed_as_expired() -> None:
    task = rota("submit -t quick_task --ttl 0s").stdout.strip()
    assert task in rota("list --status expired").stdout
    assert rota("list --status pending").stdout == ""


def test_in_and_delay_are_the_same_option() -> None:
    (early,) = documents("submit -t t --in 1h")
    (late,) = documents("submit -t t --delay 1h")
    assert early["available_at"][:13] == late["available_at"][:13] > early["created_at"][:13]


def test_task_documents_have_the_fields_of_document_003() -> None:
    (task,) = documents('submit -t send_reminder -i \'{"user_id": "123"}\' --expires-at 2100-01-28T17:00:00Z')
    assert task["task_type"] == "send_reminder"
    assert task["status"] == "pending"
    assert task["input"] == {"user_id": "123"}
    assert task["expires_at"] == "2100-01-28T17:00:00Z"
    assert task["expired_at"] is None


def test_schedule_documents_have_the_fields_of_document_000() -> None:
    line = (
        "schedule create daily-report -t generate_report -i '{\"report_type\":\"daily\"}' --cron '0 9 * * *'"
    )
    (schedule,) = documents(line)
    wanted = {
        "id": "daily-report",
        "task_type": "generate_report",
        "input": {"report_type": "daily"},
        "cron": "0 9 * * *",
        "enabled": True,
    }
    assert schedule.items() >= wanted.items()
    assert {"created_at", "updated_at", "last_run_at", "last_task_id", "next_run_at"} <= schedule.keys()
