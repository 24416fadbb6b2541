"""`rota … | head`: it ends as other tools do, quietly and with the exit code of SIGPIPE."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import PATIENCE, bare_folder, rota
from forked import Forked

BROKEN_PIPE = 141
COMMANDS = [
    "--help",
    "list",
    "list --json",
    "list --count",
    "tail",
    "schedule show often",
    "cancel --all",
    "doctor",
    "config",
    "preview '0 9 * * *'",
    "completion bash",
    "tick shop:app",
    "up --no-http",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    (tmp_path / "shop.py").write_text("import rota\napp = rota.App()\napp.task('work')(lambda: None)\n")
    rota("submit -t work")
    rota("schedule create often -t work --interval 1s --overlap-policy allow")
    return tmp_path


def started(line: str, stdout: int, stderr: int = subprocess.PIPE) -> Forked:
    return Forked(shlex.split(line), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


def test_a_command_whose_output_nobody_reads_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    processes = {line: started(line, writing) for line in COMMANDS}
    os.close(writing)
    for line, process in processes.items():
        _, said = process.communicate(timeout=2 * PATIENCE)
        assert (process.returncode, said) == (BROKEN_PIPE, b""), line


def test_nor_is_an_error_that_nobody_reads_an_accident() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = started("status nonsense", subprocess.DEVNULL, stderr=writing)
    os.close(writing)
    assert process.wait(PATIENCE) == BROKEN_PIPE


@pytest.mark.parametrize("line", ["scheduler run", "up shop:app --no-http --json"])
def test_what_runs_ends_quietly_when_nobody_reads_any_more(line: str) -> None:
    process = started(line, subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(PATIENCE) == BROKEN_PIPE
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_nobody_who_reads(closed: str) -> None:
    """As under some supervisors."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m rota list {closed}', sys.executable], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_output_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("wb") as full:
        process = started("list", full.fileno())
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert said == b"error: the output could not be written: No space left on device\n"
