"""Hidden fields are hidden by every command, and a file that was exported so can be applied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, rota

SECRET = "s3cret"
GIVEN = json.dumps({"user": "ada", "password": SECRET})
APP = """
import rota

app = rota.App()


@app.task("echo")
def echo(input):
    return input


@app.workflow("both")
async def both(ctx, input):
    return await ctx.step(lambda: input, name="look")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    (tmp_path / "echoing.py").write_text(APP)
    (tmp_path / "rota.toml").write_text('[redact]\nfields = ["password"]\n')
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_no_command_prints_what_is_hidden(folder: Path) -> None:
    task = rota(["submit", "-t", "echo", "-i", GIVEN]).stdout.strip()
    flow = rota(["workflow", "start", "both", "-i", GIVEN]).stdout.split()[0]
    rota(["schedule", "create", "report", "-t", "echo", "--cron", "0 6 1 * *", "-i", GIVEN])
    rota(["template", "create", "mail", "--kind", "echo", "--parameters", GIVEN])
    rota("tick echoing:app")
    lines = [
        f"status {task}", "list", f"history {task}", f"wait {task}", "tail --no-follow", f"artifacts {task}",
        f"workflow show {flow}", "schedule show report", "schedule list", "schedule history report",
        "template show mail", "template list", "export", "export --format toml", "config",
    ]  # fmt: skip
    hidden = 0
    for line in lines:
        for form in (line, f"{line} --json"):
            said = rota(form).stdout
            assert SECRET not in said, form
            hidden += "[hidden]" in said
    assert hidden >= 14
    assert json.loads(rota(f"artifact get {task} result").stdout) == {"user": "ada", "password": "[hidden]"}


def test_an_exported_file_can_be_applied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rota(["schedule", "create", "report", "-t", "echo", "--cron", "0 6 1 * *", "-i", GIVEN])
    rota(["template", "create", "mail", "--kind", "echo", "--parameters", GIVEN])
    file = folder / "shop.json"
    file.write_text(rota("export --format json").stdout)
    assert document(f"plan {file}")["changed"] == 0
    file.write_text(file.read_text().replace("ada", "bob"))
    assert SECRET not in rota(f"plan {file}").stdout
    rota(f"apply {file} --yes")
    monkeypatch.setenv("ROTA_REDACT_FIELDS", "other")
    shown = document("schedule show report")
    assert shown["input"] == {"user": "bob", "password": SECRET}
    assert document("template show mail")["parameters"] == {"user": "bob", "password": SECRET}
    monkeypatch.delenv("ROTA_REDACT_FIELDS")
    rota("schedule delete report")
    said = complaint(f"apply {file} --yes")
    assert "input.password: [hidden] stands for nothing that is stored; give the value" in said
