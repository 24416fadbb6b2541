"""Alarms and their rules on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, rota


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    return tmp_path


def test_an_alarm_is_raised_and_listed() -> None:
    rota("schedule create soon --task-type send --interval 1h --alarm-ending 30d --max-runs 3")
    assert "no open alarms in sqlite:///rota.db" in rota("alarms").stderr
    rota("tick")
    [alarm] = document("alarms")
    assert (alarm["rule"], alarm["subject"], alarm["over_at"]) == ("ending", "soon", None)
    assert "no time is left" in rota("alarms --schedule soon").stdout
    assert "alarm since" in rota("schedule show soon").stdout
    assert "1 open: soon (ending)" in rota("doctor", code=1).stdout
    assert document("schedule show soon")["alarms"][0]["id"] == alarm["id"]
    assert "alarm since" in rota("schedule why soon 2030-01-01T00:00Z").stdout
    rota("schedule pause soon")
    rota("tick")
    assert document("alarms") == []
    assert "over after" in rota("alarms --over").stdout


def test_rules_of_tags_are_given_shown_and_removed() -> None:
    rota("schedule create soon --task-type send --interval 1h")
    assert "no rules of tags in sqlite:///rota.db" in rota("alarm-rules").stderr
    assert "late 5m, failures 2" in rota("alarm-rules billing --alarm-late 5m --alarm-failures 2").stdout
    assert document("alarm-rules")["billing"]["alarm_late_seconds"] == 300
    assert document("alarm-rules billing --remove") == {}
    assert "name the tag" in complaint("alarm-rules --remove")
    assert "--alarm-failures: 0 is not accepted" in complaint("alarm-rules billing --alarm-failures 0")


def test_addresses_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_ALARMS_NOTIFY", "mailto://me:geheim@example.com")
    monkeypatch.setenv("ROTA_HEARTBEAT_URL", "https://hc.example/geheim")
    assert document("config")["alarms_notify"]["value"] == ["mailto://***"]
    assert document("config")["heartbeat_url"]["value"] == "https://***"
    assert "geheim" not in rota("config").stdout
