"""Artifacts on the command line: `artifacts`, `artifact get`."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, in_a_folder, rota, use_store

APP = """
import rota

app = rota.App()


@app.task("report")
def report(context):
    context.artifact("report.pdf", bytes(range(256)) * 100)
    context.artifact("notes.txt", "All is well.")
    return {"pages": 3}
"""
BODY = bytes(range(256)) * 100


pytest_generate_tests = in_a_folder


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    use_store(monkeypatch, request.param)
    (tmp_path / "reporting.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_what_a_task_left_is_listed_and_written(folder: Path) -> None:
    task = rota("submit -t report").stdout.strip()
    assert document(f"artifacts {task}") == []
    assert "it has left nothing" in rota(f"artifacts {task}").stderr
    assert "1 completed" in rota("tick reporting:app").stdout
    found = document(f"artifacts {task}")
    assert [(each["name"], each["media_type"], each["size"]) for each in found] == [
        ("result", "application/json", 11),
        ("notes.txt", "text/plain; charset=utf-8", 12),
        ("report.pdf", "application/pdf", len(BODY)),
    ]
    assert set(found[2]) == {"id", "task_id", "name", "media_type", "size", "digest", "attempt", "created_at"}
    lines = rota(f"artifacts {task}").stdout.splitlines()
    assert lines[0].split() == ["NAME", "TYPE", "SIZE", "LEFT", "SHA-256"]
    assert lines[3].split()[-1] == sha256(BODY).hexdigest()
    assert rota(f"artifact get {task} notes.txt").stdout == "All is well."
    assert rota(f"artifact get {task} result").stdout == '{"pages":3}'
    assert rota(f"artifact get {task} report.pdf -o copy.pdf").stderr.strip() == (
        f"wrote {len(BODY):,} bytes to copy.pdf"
    )
    assert (folder / "copy.pdf").read_bytes() == BODY
    assert document(f"artifact get {task} report.pdf -o copy.pdf") == found[2]


def test_what_is_not_there_is_said(folder: Path) -> None:
    task = rota("submit -t report").stdout.strip()
    assert complaint("artifacts nobody", code=1) == "there is no task 'nobody'"
    assert complaint(f"artifact get {task} x", code=1) == "there is no artifact 'x'"
    assert complaint(f"artifact get {task} ../x").startswith("name: '../x' is not a valid name; accepted")
    rota("tick reporting:app")
    said = complaint(f"artifact get {task} notes.txt -o missing/folder")
    assert said == (
        "path: missing/folder cannot be written (No such file or directory);"
        " give the path of a file in a folder that exists"
    )
