"""Schedules on the command line, and `rota preview`."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, documents, in_a_folder, rota, use_store
from rota.domain.model import RunStatus
from rota.surfaces.cli.render import LEGEND, MARKS

NIGHTLY = "schedule create nightly -t backup --cron '30 2 * * *' --timezone America/New_York"


pytest_generate_tests = in_a_folder


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    use_store(monkeypatch, request.param)
    return tmp_path


def test_create_says_when_it_fires_first() -> None:
    said = rota("schedule create nightly --kind backup --interval 1h").stdout
    assert re.fullmatch(r"created nightly: Every hour; active, next in (1h|59m( \d+s)?)\n", said), said


def test_create_warns_about_both_day_fields() -> None:
    result = rota("schedule create odd -t backup --cron '0 0 13 * 5'")
    assert "warning: Both day fields are given" in result.stderr


@pytest.mark.parametrize(
    ("timing", "field", "value"),
    [
        ("--cron '*/5 * * * *'", "cron", "*/5 * * * *"),
        ("--interval 5m", "interval_seconds", 300.0),
        ("--run-at 2100-01-01T00:00", "run_at", "2100-01-01T00:00:00Z"),
        ("--rrule 'FREQ=MONTHLY;BYDAY=-1FR'", "rrule", "FREQ=MONTHLY;BYDAY=-1FR"),
    ],
)
def test_every_kind_of_timing(timing: str, field: str, value: object) -> None:
    assert document(f"schedule create s -t backup {timing}")[field] == value


def test_after_another() -> None:
    rota("schedule create extract -t backup --interval 1h")
    said = rota("schedule create load -t backup --after extract --after-on end --after-delay 5m").stdout
    assert said == "created load: 5 minutes after extract ends; active, waits for extract\n"
    made = document("schedule show load")
    assert (made["after"], made["after_on"], made["after_delay_seconds"]) == (["extract"], "end", 300.0)
    assert "It has no times of its own." in rota("schedule show load").stdout
    assert "it would run after itself: extract after load after extract" in complaint(
        "schedule update extract --after load"
    )
    assert "cannot be deleted while others run after it (load)" in complaint(
        "schedule delete extract", code=1
    )


def test_all_options_of_create_arrive() -> None:
    made = document(
        "schedule create s -t backup -i '[1]' --interval 1d --start-at 2100-01-01 --end-at 2100-02-01"
        " --max-runs 9 --missed-run-policy catch_up --overlap-policy allow --misfire-grace 5m --jitter 30s"
        " --catch-up-window 2w --pause-on-failure --description why --queue q --priority 3 --ttl 1h --timeout 2h"
        " --max-retries 1 --tag red --metadata '{\"a\": 1}' --paused"
    )
    wanted = {
        "status": "paused",
        "enabled": False,
        "input": [1],
        "start_at": "2100-01-01T00:00:00Z",
        "end_at": "2100-02-01T00:00:00Z",
        "max_runs": 9,
        "missed_run_policy": "catch_up",
        "overlap_policy": "allow",
        "misfire_grace_seconds": 300.0,
        "catch_up_window_seconds": 1209600.0,
        "jitter_seconds": 30.0,
        "pause_on_failure": 1,
        "description": "why",
        "queue": "q",
        "priority": 3,
        "ttl_seconds": 3600.0,
        "timeout_seconds": 7200.0,
        "max_retries": 1,
        "tags": ["red"],
        "metadata": {"a": 1},
    }
    assert {name: made[name] for name in wanted} == wanted


def test_show_tells_it_in_words() -> None:
    rota(f"{NIGHTLY} --overlap-policy cancel_previous --missed-run-policy execute_once --max-runs 10")
    said = rota("schedule show nightly").stdout
    assert "nightly  active  At 02:30, in America/New_York" in said
    assert "A run that is still going is cancelled when the next one is due." in said
    assert "A time missed by more than 1 minute is made up for once" in said
    assert "It ends after 10 runs; there have been 0." in said
    assert "America/New_York" in said
    assert "YOUR TIME" in said
    assert sum(line[:1].isdigit() for line in said.splitlines()) == 5
    assert "It has not run yet." in said


def test_a_grace_that_nobody_gave_is_the_distance_to_the_next_time() -> None:
    rota("schedule create quick -t tick --interval 10s")
    assert document("schedule show quick")["misfire_grace_seconds"] is None
    assert "A time missed by more than 10 seconds is skipped" in rota("schedule show quick").stdout
    assert document("schedule update quick --misfire-grace 60s")["misfire_grace_seconds"] == 60
    assert "A time missed by more than 1 minute is skipped" in rota("schedule show quick").stdout
    assert document("schedule update quick --clear misfire-grace")["misfire_grace_seconds"] is None


def test_show_has_the_last_runs_as_letters_in_a_pipe() -> None:
    rota(NIGHTLY)
    first, second = (rota("schedule trigger nightly").stdout.strip() for _ in range(2))
    rota(f"cancel {first}")
    said = rota("schedule show nightly").stdout
    assert "\n  XR\n" in said
    assert "C completed  F failed  S skipped  R running  X cancelled  B buffered" in said
    shown = document("schedule show nightly")
    assert [run["task_id"] for run in shown["runs"]] == [second, first]
    assert len(shown["next"]) == 5
    assert shown["words"] == "At 02:30, in America/New_York"


def test_the_ledger_is_asked_for_every_status_and_has_a_mark_for_each() -> None:
    rota(NIGHTLY)
    task = rota("schedule trigger nightly").stdout.strip()
    for status in RunStatus:
        found = document(f"schedule runs nightly --status {status}")["runs"]
        assert [run["task_id"] for run in found] == [task] * (status is RunStatus.RUNNING)
    assert {str(status) for status in RunStatus} == set(LEGEND)
    assert set(LEGEND) <= MARKS.keys()


def test_trigger_may_bring_another_input() -> None:
    rota(NIGHTLY)
    task = document("schedule trigger nightly -i '{\"full\": true}'")
    assert task["input"] == {"full": True}
    status = rota(f"status {task['id']}").stdout
    assert "schedule: nightly" in status
    (run,) = document("schedule runs nightly")["runs"]
    assert (run["trigger"], run["task_id"], run["status"]) == ("manual", task["id"], "running")
    assert document("list --schedule nightly --count") == {"count": 1}


def test_pause_resume_enable_disable() -> None:
    rota(NIGHTLY)
    said = rota("schedule pause nightly --note 'the move'").stdout
    assert re.search(r"paused (just now|\d+s ago) by user:", said), said
    assert " the move " in rota("schedule list").stdout
    assert ": the move" in rota("schedule show nightly").stdout
    assert document("schedule resume nightly")["enabled"] is True
    assert document("schedule disable nightly")["enabled"] is False
    assert document("schedule enable nightly")["enabled"] is True
    assert [each["id"] for each in document("schedule list --status active")["schedules"]] == ["nightly"]
    assert document("schedule list --status paused")["schedules"] == []


def test_schedules_are_found_by_their_zone_and_their_template() -> None:
    rota(NIGHTLY)
    rota("template create ping --kind ping")
    rota("schedule create pings --template ping --cron '0 * * * *' --timezone Europe/Paris")

    def found(filters: str) -> list[str]:
        return [each["id"] for each in document(f"schedule list {filters}")["schedules"]]

    assert found("--timezone America/New_York") == ["nightly"]
    assert found("--timezone Europe/Paris") == found("--template ping") == ["pings"]
    beginning = document("template show ping")["id"][:-2]
    assert found(f"--template {beginning}") == ["pings"]
    assert found("--template ping --timezone America/New_York") == []
    assert "no schedules with template other in " in rota("schedule list --template other").stderr


def test_update_changes_what_is_named() -> None:
    rota(f"{NIGHTLY} --end-at 2100-01-01 -i '[1]'")
    changed = document("schedule update nightly --cron '0 4 * * *' --priority 9 --clear end-at")
    assert (changed["cron"], changed["timezone"]) == ("0 4 * * *", "America/New_York")
    assert (changed["priority"], changed["end_at"], changed["input"]) == (9, None, [1])
    assert "nothing to change" in complaint("schedule update nightly")
    assert "not 1" in complaint("schedule update nightly --priority 1 --if-version 1", code=1)


def test_history_of_a_schedule_says_what_changed() -> None:
    rota(NIGHTLY)
    rota("schedule update nightly --priority 9")
    rota("schedule pause nightly")
    lines = rota("schedule history nightly").stdout.splitlines()
    assert len(lines) == 4
    assert lines[2].endswith("target.priority: 128 → 9")
    assert "status: active → paused" in lines[3]
    assert document("schedule history nightly")[0]["action"] == "created"


def test_delete_and_restore() -> None:
    rota(NIGHTLY)
    assert document("schedule delete nightly") == {"id": "nightly", "deleted": True, "hard": False}
    assert "there is no schedule 'nightly'" in complaint("schedule show nightly", code=1)
    assert document("schedule list")["schedules"] == []
    assert "deleted" in rota("schedule list --deleted").stdout
    assert document("schedule restore nightly")["enabled"] is True
    said = complaint("schedule delete nightly --hard")
    assert said == "nobody can be asked here: give --yes"
    assert document("schedule show nightly")["id"]
    rota("schedule delete nightly --hard --yes")
    assert "there is no schedule" in complaint("schedule restore nightly", code=1)


def test_a_deleted_schedule_is_shown_by_its_id_and_its_name_is_free() -> None:
    rota(NIGHTLY)
    rota("schedule trigger nightly")
    id = document("schedule show nightly")["uid"]
    rota("schedule delete nightly")
    assert "there is no schedule 'nightly'" in complaint("schedule show nightly", code=1)
    listed = rota("schedule list --deleted").stdout.splitlines()[-1].split()
    assert (listed[:3], listed[-2:]) == (["nightly", id, "deleted"], ["0", "R"])
    said = rota(f"schedule show {id}").stdout
    assert said.splitlines()[0].split()[:3] == ["nightly", "deleted", "At"]
    assert re.search(r"state: +deleted (just now|\d+s ago); ", said), said
    assert f"`rota schedule restore {id}` brings it back" in " ".join(said.split())
    assert "Its one run so far:" in said
    assert "If it were resumed" not in said
    shown = document(f"schedule show {id}")
    assert (shown["id"], shown["uid"], shown["next"], len(shown["runs"])) == ("nightly", id, [], 1)
    assert shown["deleted_at"] is not None
    rota(f"schedule restore {id}")
    assert document("schedule show nightly")["uid"] == id


def test_a_retired_schedule_is_shown_by_its_id_and_names_who_took_its_key() -> None:
    rota("schedule create once -t backup --interval 1s --max-runs 1 --missed-run-policy execute_once")
    while (old := document("schedule show once"))["status"] != "completed":
        rota("tick")
    rota("schedule create once -t backup --run-at 2100-01-01T00:00Z")
    new = document("schedule show once")["uid"]
    said = " ".join(rota(f"schedule show {old['uid']}").stdout.split())
    assert f"its key was taken by schedule {new}" in said
    assert "restore" not in said
    assert len(document(f"schedule show {old['uid']}")["runs"]) == len(old["runs"]) > 0


def test_preview_of_a_schedule() -> None:
    rota(NIGHTLY)
    assert len(document("schedule preview nightly -n 7")) == 7
    shown = rota("schedule preview nightly -n 2").stdout
    assert shown.count("\n") == 4
    assert "does not exist in America/New_York, where clocks go forward" in shown


def test_why_answers_in_words() -> None:
    rota(NIGHTLY)
    assert "nightly" in rota("schedule why nightly 2026-03-08T02:00").stdout
    answer = document("schedule why nightly 2026-03-08T02:30")
    assert answer["id"] == "nightly"
    assert answer["words"]
    assert answer["run"] is None


def test_list_shows_words_next_times_and_last_runs() -> None:
    rota(NIGHTLY)
    rota("schedule trigger nightly")
    heading, line = rota("schedule list").stdout.splitlines()
    assert heading.split() == ["ID", "STATUS", "WHEN", "NEXT", "RUNS", "LAST"]
    assert line.startswith("nightly  active  At 02:30, in America/New_York")
    assert line.endswith("R")


# rota preview, which needs no store


def test_preview_of_the_issue() -> None:
    Path("rota.db").unlink(missing_ok=True)
    said = rota('preview "0 9 * * 1-5" --timezone Europe/London -n 10').stdout
    assert said.startswith("At 09:00, Monday through Friday, in Europe/London\n")
    assert said.count(" 09:00:00 ") >= 10
    assert not Path("rota.db").exists()


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("preview '0 0 30 2 *'", "It never fires"),
        ("preview '0 0 13 * 5'", "Both day fields"),
        ("preview '30 2 * * *' --timezone America/New_York --from 2026-03-07", "does not exist"),
        ("preview '30 1 * * *' --timezone America/New_York --from 2026-10-31", "comes twice"),
        ("preview '* * * * * *'", "86,400 times a day"),
        ("preview 1h --end-at 2000-01-01T00:00:00Z", "does not fire within these bounds"),
    ],
)
def test_preview_warns(line: str, warning: str) -> None:
    assert warning in rota(line).stdout
    assert any(warning in each for each in document(line)["warnings"])


def test_preview_refuses_what_is_no_timing_whatever_it_is_called() -> None:
    assert "is not a known time zone" in complaint("preview '0 0 * * *' --timezone Nowhere/never", code=2)


def test_preview_takes_rules_and_durations() -> None:
    rule = document("preview 'FREQ=DAILY;COUNT=3' --start-at 2100-01-01T10:00:00Z --from 2100-01-01")
    assert [time["at"] for time in rule["times"]] == [f"2100-01-0{day}T10:00:00Z" for day in (1, 2, 3)]
    every = document("preview 90m --start-at 2100-01-01T00:00:00Z --from 2100-01-01 -n 2")
    assert [time["at"] for time in every["times"]] == ["2100-01-01T00:00:00Z", "2100-01-01T01:30:00Z"]


def test_preview_shows_daylight_saving() -> None:
    line = "preview '30 2 * * *' --timezone America/New_York --from 2026-03-08 -n 1"
    (time,) = document(line)["times"]
    assert time["at"] == "2026-03-08T07:00:00Z"
    assert time["dst"]
    assert documents(line)[0]["timezone"] == "America/New_York"


def test_an_expired_task_reads_as_a_skipped_run_at_once() -> None:
    """No janitor has been there."""
    rota("schedule create brief -t work --interval 1h --ttl 1ms")
    rota("schedule trigger brief")
    time.sleep(0.5)  # each command asks the server for the time, and knows it as well as the answer was quick
    (run,) = document("schedule runs brief")["runs"]
    assert (run["status"], run["reason"], run["error"]) == ("skipped", "expired", None)
    assert "skipped" in rota("schedule runs brief").stdout
    assert "expired" in rota("schedule runs brief").stdout
    assert document("schedule show brief")["status"] == "active"


def test_backfill_says_what_it_would_do_and_does_it() -> None:
    rota("schedule create nightly -t report --cron '0 2 * * *'")
    asked = "schedule backfill nightly --from 2026-01-01T00:00Z --to 2026-01-03T00:00Z"
    assert rota(f"{asked} --dry-run").stdout == "dry run: would start 2 of 2 times\n"
    assert complaint(f"{asked} --no-wait") == "nobody can be asked here: give --yes"
    begun = document(f"{asked} --yes --no-wait")
    assert (begun["status"], begun["total"], begun["overlap_policy"]) == ("running", 2, "buffer_all")
    assert rota("schedule backfill nightly --cancel").stdout.startswith("cancelled (cancelled by ")
    assert "--from is missing" in rota("schedule backfill nightly", code=2).stderr


def test_who_stops_watching_a_backfill_is_told_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rota.surfaces.cli.commands.schedules._watch", interrupted)
    rota(NIGHTLY)
    asked = "schedule backfill nightly --from 2026-01-01T00:00Z --to 2026-01-03T00:00Z --yes"
    assert "it goes on; `rota schedule backfill nightly --cancel` ends it" in rota(asked, code=130).stderr
    assert document("schedule show nightly")["backfill"]["status"] == "running"
