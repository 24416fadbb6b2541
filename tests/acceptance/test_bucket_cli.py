"""The command line on a bucket: document 000 as it is written, and the doctor."""

from __future__ import annotations

from pathlib import Path

import pytest

import s3_server
from command_line import bare_folder, document, rota
from rota.stores.objects_address import requests_for


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    address = s3_server.url()
    bare_folder(monkeypatch, tmp_path)
    monkeypatch.setenv("ROTA_STORE", address)
    return address


def test_the_commands_of_document_000(address: str) -> None:
    rota("""submit -t send_reminder -i '{"user_id":"123"}' --at "2026-01-28T09:00:00Z" """)
    rota("""submit -t send_reminder -i '{"user_id":"123"}' --in 1h""")
    rota(
        """schedule create daily-report --task-type generate_report --input '{"report_type":"daily"}'"""
        """ --cron "0 9 * * *" """
    )
    assert "daily-report" in rota("schedule list").stdout
    assert "At 09:00 AM" in rota("schedule show daily-report").stdout
    rota("schedule pause daily-report")
    rota("schedule resume daily-report")
    rota("schedule trigger daily-report")
    assert requests_for(address).get("schedules/daily-report.json").body.startswith(b"{\n  ")
    rota("schedule delete daily-report --yes")


def test_the_doctor_proves_the_bucket(address: str) -> None:
    findings = {finding["check"]: finding for finding in document("doctor")}
    for behaviour in (
        "create race",
        "compare-and-set race",
        "read after write",
        "list order",
        "clock",
        "writable",
    ):
        assert findings[behaviour]["ok"], findings[behaviour]


def test_the_doctor_says_what_can_be_done_about_an_entry_that_cannot_be_read(address: str) -> None:
    rota("submit -t work")
    requests_for(address).put("log/000000000002.json", b"{ not an entry")
    [_, found] = document("doctor", code=1)
    assert found["found"].startswith(f"{address.partition('?')[0]}/log/000000000002.json cannot be read")
    assert "--repair" in found["advice"]
    [_, found] = document("doctor --repair", code=1)
    assert "restore" in found["advice"]
    assert "log/000000000002.json" in found["advice"]


def test_a_bucket_that_is_not_there_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    endpoint = s3_server.endpoint()
    bare_folder(monkeypatch, tmp_path)
    result = rota(
        ["submit", "-t", "work", "--store", f"s3://no-such-bucket-here/x?endpoint={endpoint}"], code=1
    )
    assert "s3://no-such-bucket-here/x" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
