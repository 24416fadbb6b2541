"""Templates on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, rota


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    rota("migrate")
    return tmp_path


def test_a_shell_template_from_its_creation_to_its_end(folder: Path) -> None:
    line = "template create hello --shell 'echo hello $INPUT_name' --parameters '{\"name\":\"Ada\"}' --max-retries 0"
    assert rota(line).stdout == "created hello: shell, echo hello $INPUT_name\n"
    shown = rota("template show hello").stdout
    assert "runs      shell: echo hello $INPUT_name" in shown
    assert 'input     {"name": "Ada"}' in shown
    assert [each["alias"] for each in document("template list")["templates"]] == ["hello"]
    task = rota("template execute hello").stdout.strip()
    (folder / "shop.py").write_text("import rota\napp = rota.App()\n")
    rota("tick shop:app")
    assert document(f"status {task}")["status"] == "pending"
    rota("tick shop:app --allow-shell")
    done = document(f"status {task}")
    assert (done["status"], done["output"]["stdout"]) == ("completed", "hello Ada\n")
    alone = rota("template execute hello").stdout.strip()
    rota("tick")
    assert document(f"status {alone}")["status"] == "pending"
    rota("tick --allow-shell")  # commands need no app
    assert document(f"status {alone}")["status"] == "completed"


def test_a_schedule_runs_a_template_and_goes_with_it() -> None:
    rota(
        "template create ping --http 'POST https://example.com/ping' --header 'X-Key: secret:PING' --body '{}'"
    )
    found = document("template show ping")
    assert found["command"]["headers"] == {"X-Key": "secret:PING"}
    assert (found["command"]["method"], found["command"]["body"]) == ("POST", {})
    rota("schedule create every-hour --template ping --cron '0 * * * *'")
    assert document("schedule show every-hour")["template_id"] == found["id"]
    rota("template delete ping")
    assert document("schedule list")["schedules"] == []
    assert "there is no template 'ping'" in complaint("template show ping", code=1)


def test_update_changes_what_is_named() -> None:
    made = document('template create backup --kind backup --timeout 5m --schema \'{"required":["day"]}\'')
    assert (made["runtime"], made["timeout_seconds"], made["enabled"]) == ("python", 300, True)
    assert "input.day: it is missing" in complaint("template execute backup", code=2)
    changed = document("template update backup --no-enabled --clear timeout --clear parameters-schema")
    assert (changed["enabled"], changed["timeout_seconds"], changed["parameters_schema"]) == (
        False,
        None,
        None,
    )
    assert "template backup is disabled" in complaint("template execute backup", code=1)
    listed = document('template update backup --runtime shell --command \'["ls","-l"]\'')
    assert (listed["kind"], listed["command"]["run"]) == ("rota.shell", ["ls", "-l"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("template create x", "nothing to run was given; give one of --kind, --shell, --http and --command"),
        ("template create x --kind a --shell ls", "--shell was given together with --kind"),
        ("template create x --command '[]'", "--runtime and --command belong together"),
        ("template create x --kind a --body '{}'", "--header and --body belong to --http"),
        ("template create x --http https://e.com --header nothing", "has no colon; write 'Name: value'"),
        ("template create x --http ftp://e.com", "command.url: 'ftp://e.com' is not a URL"),
        ("template update x", "nothing to change was given"),
        (
            "schedule create x --template y -t z --interval 5m",
            "--template was given together with --task-type",
        ),
        ("schedule create x --template y --interval 5m", "there is no template 'y'"),
    ],
)
def test_bad_input_is_one_sentence(line: str, said: str) -> None:
    assert said in complaint(line, code=2)


def test_what_a_template_says_itself_is_refused_in_plain_words() -> None:
    rota("template create tidy --http https://example.org")
    rota("schedule create tidy --template tidy --interval 1h")
    assert complaint("schedule update tidy --priority 3") == (
        "--priority: a schedule that runs a template has none; it takes input"
    )
    assert "this schedule runs a template; " in complaint("schedule update tidy --task-type x")
