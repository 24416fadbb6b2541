"""Looking ahead on the command line: forecast and spread."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, rota

HOUR = (datetime.now(UTC) + timedelta(hours=6)).hour


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare_folder(monkeypatch, tmp_path)
    rows = "".join(f"  report-{n}:\n    task_type: report\n    cron: 0 {HOUR} * * *\n" for n in range(12))
    (tmp_path / "rota.yaml").write_text(f"schedules:\n{rows}")
    rota("migrate")
    rota("apply rota.yaml --yes")


def test_a_peak_is_seen_and_spread() -> None:
    shown = rota("forecast").stdout
    assert "12 runs of 12 schedules." in shown
    assert "12 schedules have no ended run yet: their work is missing.\n" in shown
    assert f"{HOUR:02}:00  12 runs: report-" in shown
    assert " and 7 more\n" in shown
    assert f"12 schedules fire at {HOUR:02}:00; spreading 11 of them over " in shown
    assert max(map(len, shown.splitlines())) <= 80
    command = shown.splitlines()[-1].strip().removeprefix("rota ")
    assert complaint(command) == "nobody can be asked here: give --yes"
    dry = rota(f"{command} --dry-run").stdout
    assert dry.count(" → ") == 11
    planned = document("spread --dry-run")
    assert (planned["moving"], planned["before"], len(planned["moves"])) == (11, 12, 11)
    assert planned["over_seconds"] == 300
    assert rota(f"{command} --yes").stdout.endswith("Spread 11 schedules.\n")
    found = document("forecast --by minute")
    assert (len(found["spans"]), found["runs"], found["work_seconds"]) == (1441, 12, 0.0)
    assert max(each["runs"] for each in found["spans"]) == planned["after"]
    assert complaint("spread --dry-run", code=1).startswith(
        "nothing at any minute of the next 24 hours is worth spre"
    )


def test_what_is_refused() -> None:
    assert "is not within 31 days after start" in complaint("forecast --from 2030-01-01 --to 2030-03-01")
    assert "is no number of minutes" in complaint("spread --over 90s --dry-run")
