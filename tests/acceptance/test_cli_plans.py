"""Schedules in a file on the command line: plan, apply, export."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, rota
from rota.surfaces import files

FILE = """\
templates:
  backup:
    shell: pg_dump shop
schedules:
  nightly:
    template: backup
    cron: 0 3 * * *
    timezone: Europe/London
  sync:
    task_type: sync
    interval: 1:30  # a text, as in YAML 1.2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    rota("migrate")
    (tmp_path / "rota.yaml").write_text(FILE.replace("1:30  # a text, as in YAML 1.2", "1m30s"))
    return tmp_path


def test_a_file_from_its_plan_to_its_change(folder: Path) -> None:
    plan = rota("plan rota.yaml").stdout
    assert "+ template backup: created\n    shell: pg_dump shop\n" in plan
    assert "    template: backup, cron: 0 3 * * *, timezone: Europe/London\n" in plan
    assert re.search(
        r"within 14 days 1[345] times appear: ", plan
    )  # 13 or 15 if London's clocks change in them
    assert plan.endswith("3 created. Nothing runs now.\n")
    assert max(map(len, plan.splitlines())) <= 80
    assert complaint("apply rota.yaml") == "nobody can be asked here: give --yes"
    assert rota("apply rota.yaml --yes").stdout.endswith("Applied.\n")
    assert rota("plan rota.yaml --check").stdout == "No change: 3 are as declared.\n"
    rota("schedule update nightly --description mine")
    file = folder / "rota.yaml"
    file.write_text(file.read_text().replace("0 3 *", "0 4 *").partition("  sync:")[0])
    changed = rota("plan rota.yaml --check", code=1).stdout
    assert "    cron: 0 3 * * * → 0 4 * * *\n" in changed
    assert "03:00 → 04:00" in changed
    assert "kept: description is mine by hand, the file says default" in changed
    assert "- sync: no longer in the file: it stays as it is (--prune pauses it)\n" in changed
    pruned = document("apply rota.yaml --yes --prune")
    assert (pruned["changed"], pruned["removed"]) == (1, 1)
    assert document("schedule show sync")["status"] == "paused"
    assert document("schedule show nightly")["description"] == "mine"
    assert rota("apply rota.yaml --yes --force").stdout.endswith("Applied.\n")
    assert document("schedule show nightly")["description"] == ""


@pytest.mark.parametrize("suffix", ["yaml", "toml", "json"])
def test_a_file_has_the_format_of_its_name_whatever_is_printed(folder: Path, suffix: str) -> None:
    rota("apply rota.yaml --yes")
    said = document(f"export -o out.{suffix}")
    assert said["file"] == f"out.{suffix}"
    assert said["schedules"] == len(files.read(folder / f"out.{suffix}")["schedules"])
    (folder / "crontab").write_text("0 9 * * * true\n")
    taken = document(f"import crontab crontab --timezone Europe/Paris -o cron.{suffix}")
    assert taken == {"file": f"cron.{suffix}", "taken": 1, "zones": ["Europe/Paris"]}
    assert len(files.read(folder / f"cron.{suffix}")["schedules"]) == 1


@pytest.mark.parametrize("suffix", ["yaml", "toml", "json"])
def test_what_is_exported_changes_nothing(folder: Path, suffix: str) -> None:
    rota("apply rota.yaml --yes")
    line = [
        "schedule",
        "create",
        "by-hand",
        "-t",
        "t",
        "--rrule",
        "FREQ=DAILY",
        "--input",
        '{"a b": ["x\\n", 1]}',
    ]
    rota([*line, "--retry-policy", "initial=5s", "--tag", "one"])
    rota(f"export -o all.{suffix}")
    assert rota(f"plan all.{suffix} --check").stdout == "No change: 4 are as declared.\n"
    if suffix == "json":
        assert json.loads(rota("export --format json").stdout) == json.loads(
            (folder / "all.json").read_text()
        )


def test_the_app_of_a_module_declares_schedules_too(folder: Path) -> None:
    (folder / "shop.py").write_text(
        "import rota\napp = rota.App()\n@app.task(cron='0 9 * * *')\ndef report() -> None: ...\n"
    )
    assert "+ report: created" in rota("plan shop:app").stdout
    rota("apply shop:app --yes")
    assert rota("plan shop:app --check").stdout == "No change: 1 are as declared.\n"


DOUBLED = "".join(f"  {'x' * n}: &{'x' * n} [*{'x' * (n - 1)}, *{'x' * (n - 1)}]\n" for n in range(2, 40))
WRONG = [
    ("rota.yaml", f"schedules:\n  x: &x {{}}\n{DOUBLED}", "file: rota.yaml has too many values; the most is"),
    ("rota.yaml", "schedules: &a {a: {input: *a}}", "file: rota.yaml is nested too deeply; the most is 100"),
    ("rota.json", '{"schedules": %s' % ("[" * 9999), "file: rota.json is nested too deeply; the most is 100"),
    ("rota.yaml", FILE, "schedule 'sync': interval: '1:30' is not a duration"),
    ("rota.yaml", "schedules:\n  a: {cron: '* * * * *'}\n", "schedule 'a': task_type: no task was given"),
    ("rota.yaml", "schedules:\n  a: {}\n  a: {}\n", "file: rota.yaml is not YAML: 'a' is there twice"),
    ("rota.yaml", "schedules: {a: [}", "file: rota.yaml is not YAML: "),
    (
        "rota.yaml",
        "schedules:\n  ? [a, b]\n  : {}\n",
        "file: rota.yaml is not YAML: the key in line 2 is no text",
    ),
    (
        "rota.yaml",
        "schedules: {a: !!timestamp x}",
        "file: rota.yaml is not YAML: a value is not what its tag",
    ),
    (
        "rota.yaml",
        "schedules: {a: !!bool x}",
        "file: rota.yaml is not YAML: a value is not what its tag says",
    ),
    ("rota.json", '{"id": [], "target_type": "task"}', "id: there is no such section"),
    ("rota.json", '{"id": "a", "target_type": {}}', "id: there is no such section"),
    ("rota.json", '{"calendars": {"a": {"ics": "\\ud800"}}}', "ics: '\\ud800' cannot be the name of a file"),
    ("rota.json", '{"calendars": {"a": {"ics": "a\\u0000"}}}', "ics: 'a\\x00' cannot be the name of a file"),
    ("rota.yaml", "schedules: [a]", "schedules: it is no mapping"),
    ("rota.yaml", "jobs: {}", "jobs: there is no such section; accepted are schedules, templates, calendars"),
    ("rota.yaml", "schedules: {a: }", "schedules: 'a' has no options"),
    ("all.toml", "[schedules", "file: all.toml is not TOML: "),
    ("rota.json", '{"schedules": {"a": {}, "a": {}}}', "file: rota.json is not JSON: 'a' is there twice"),
    ("rota.ini", "", "file: 'rota.ini' is of no known format"),
]


@pytest.mark.parametrize(("name", "text", "sentence"), WRONG)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(
    folder: Path, name: str, text: str, sentence: str
) -> None:
    (folder / name).write_text(text)
    assert complaint(f"plan {name}").startswith(sentence)
    assert complaint(f"apply {name} --yes").startswith(sentence)
    assert document("schedule list")["schedules"] == []


def test_a_crontab_becomes_a_file_and_changes_nothing(folder: Path) -> None:
    (folder / "cron").write_text("HI=1\n# hello\n0 9 * * * echo hello\n@reboot x\n")
    made = rota("import crontab cron --timezone UTC -o cron.yaml")
    assert "warning: line 4 was not taken: @reboot is no time" in made.stderr
    assert (
        "took 1 line, on the clock of UTC; nothing is changed yet: `rota apply cron.yaml` shows"
        in made.stderr
    )
    assert document("schedule list")["schedules"] == []
    assert "shell: export HI=1; echo hello" in rota("apply cron.yaml --yes").stdout
    assert document("schedule show echo")["description"] == "hello"
    assert complaint("import crontab missing").startswith("missing cannot be read: No such file")


def test_calendars_in_a_file(folder: Path) -> None:
    event = "BEGIN:VEVENT\nUID:1\nDTSTART;VALUE=DATE:20301224\nEND:VEVENT\n"
    (folder / "team.ics").write_text(f"BEGIN:VCALENDAR\n{event}END:VCALENDAR\n", "utf-8")
    file = folder / "free.yaml"
    named = "schedules: {s: {task_type: work, cron: 0 9 * * *, timezone: UTC, exclude: [team]}}\n"
    file.write_text(f"calendars:\n  team: {{ics: team.ics, description: ours}}\n{named}", "utf-8")
    assert "+ calendar team: created\n" in rota("plan free.yaml").stdout
    rota("apply free.yaml --yes")
    exported = rota("export").stdout
    assert exported.startswith("calendars:\n  team:\n    days:\n    - '2030-12-24'\n    description: ours\n")
    file.write_text(f"calendars:\n  team: {{rules: [FREQ=DAILY;INTERVAL=2]}}\n{named}", "utf-8")
    changed = rota("plan free.yaml").stdout
    assert (
        "~ s: changed\n    calendar team: as it is → as declared\n    within 14 days 7 times vanish"
        in changed
    )
    rota("apply free.yaml --yes")
    assert rota("plan free.yaml").stdout == "No change: 2 are as declared.\n"
    file.write_text("calendars: {team: {ics: none.ics}}\n", "utf-8")
    assert "none.ics cannot be read" in complaint("plan free.yaml")


def test_the_file_of_settings_is_not_written_over() -> None:
    assert "rota.toml is where settings are" in complaint(
        "import crontab - -o rota.toml", stdin="* * * * * true\n"
    )
    assert not Path("rota.toml").exists()
