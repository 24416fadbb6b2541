"""The command line at a terminal of 80 columns, and ids by their beginning."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import struct
import termios
from pathlib import Path

import pytest

from command_line import complaint, document, rota
from forked import Forked
from rota import Queue, sync
from rota.surfaces.cli import render
from rota.surfaces.cli.session import Session

KIND = "generate_the_quarterly_report_finance"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


AT_ONCE = """
import threading

class Timer(threading.Thread):
    def __init__(self, seconds, function):
        super().__init__(target=function)

    def cancel(self):
        pass

threading.Timer = Timer
"""
"""What would be shown after a second is shown at once."""


def at_terminal(*arguments: str, columns: int = 80, before: str = "") -> list[str]:
    """What a terminal of so many columns shows, line by line. `before` is code that is run before."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    unset = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = {**unset, "TERM": "xterm", "NO_COLOR": "1"}
    process = Forked(
        arguments, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, before=before
    )
    os.close(terminal)
    text = b""
    while True:
        try:
            piece = os.read(screen, 65536)
        except OSError:  # the end, on Linux
            break
        if not piece:
            break
        text += piece
    os.close(screen)
    process.wait()
    return text.decode().replace("\r\n", "\n").rstrip("\n").split("\n")


def test_what_matters_is_seen_in_eighty_columns() -> None:
    task = rota(f"submit -t {KIND} --queue the-slow-lane-of-finance --in 1h").stdout.strip()
    lines = at_terminal("list")
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["ID", "TYPE", "STATUS", "CREATED"]
    shown = lines[1].split()
    assert shown[:4] == [task[:18], KIND, "○", "pending"]
    assert document(f"status {shown[0]}")["id"] == task

    wide = at_terminal("list", "--wide")
    assert wide[0].split() == ["ID", "TYPE", "STATUS", "QUEUE", "CREATED", "DETAIL"]
    assert task in wide[1]
    assert "the-slow-lane-of-finance" in wide[1]


def test_sentences_are_broken_between_words(folder: Path) -> None:
    (folder / "crontab").write_text("0 9 * * * true\n")
    lines = at_terminal(
        "import", "crontab", "crontab", "--timezone", "America/Argentina/Buenos_Aires", "-o", "it.toml"
    )
    assert max(map(len, lines)) <= 80
    assert "`rota apply it.toml`" in " ".join(lines)
    long = "nightly-cleanup-of-temporary-files-of-the-shop"
    for line in (
        f"schedule create {long} -t send --cron '30 1 * * *' --timezone Europe/London",
        "preview '30 1 * * *' --timezone Europe/London",
        f"schedule show {long}",
        f"calendar create {long} --day 2026-12-25 --day 2026-12-26",
        "doctor",
        "",
    ):
        assert [each for each in at_terminal(*shlex.split(line)) if len(each) > 80] == [], line


def test_times_are_relative_and_local_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    task = rota("submit -t send --at 2031-05-01T03:00:00.123456Z").stdout.strip()
    due = next(line for line in at_terminal("status", task) if line.startswith("available_at"))
    assert due.startswith("available_at: in ")
    assert due.endswith("(2031-05-01 12:00:00 JST)")
    due = next(line for line in at_terminal("status", task, "--utc") if line.startswith("available_at"))
    assert due.endswith("(2031-05-01T03:00:00Z)")


def test_a_beginning_is_enough_wherever_an_id_is() -> None:
    task = rota("submit -t send").stdout.strip()
    for line in ("status", "history", "artifacts", "cancel", "replay", "workflow show"):
        assert rota(f"{line} {task[:18]}").stderr in ("", "it has left nothing\n"), line
    first, second = sorted(document("submit -t send -i {}")["id"] for _ in range(2))
    same = first[: next(n for n in range(36) if first[n] != second[n])]
    sentence = complaint(f"cancel {same}", code=1)
    assert f"tasks have an id that begins with '{same}': " in sentence
    assert f"{first} (send, pending)" in sentence
    assert f"{second} (send, pending)" in sentence
    assert complaint("status 01990000-0000", code=1) == "there is no task '01990000-0000'"


def test_a_beginning_is_as_short_as_it_is_unique() -> None:
    """A v7 id begins with the time, a derived one with anything: whatever tells it from the others will do."""
    rota("schedule create nightly -t report --cron '0 3 * * *'")
    derived = [rota("schedule trigger nightly").stdout.split()[-1] for _ in range(3)]
    task = rota("submit -t send").stdout.strip()
    everything = [task, *(each["id"] for each in document("list")["tasks"] if each["id"] != task)]
    assert len(everything) == 4, derived
    for id in everything:
        others = [other for other in everything if other != id]
        length = next(n for n in range(1, 37) if not any(other.startswith(id[:n]) for other in others))
        assert document(f"status {id[:length]}")["id"] == id
        if length > 1:
            assert f"{id} (" in complaint(f"status {id[: length - 1]}", code=1)


def test_what_takes_longer_than_a_second_shows_that_it_lives() -> None:
    task = rota("submit -t nobody").stdout.strip()
    shown = "\n".join(at_terminal("wait", task, "--timeout", "3s"))
    assert "waiting for sqlite:///rota.db" in shown
    assert "has not ended in time" in shown


def test_what_is_found_is_not_written_out_for_nobody() -> None:
    """`asyncio.run` writes out what it returns: seconds, of the plan of a large file."""
    written: list[str] = []

    class Found:
        def __repr__(self) -> str:
            written.append("out")
            return "found"

    async def work(queue: Queue) -> Found:
        return Found()

    assert isinstance(Session({}).run(work, creates=True), Found)
    assert written == []


def test_a_bar_is_alone_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits meanwhile shows no sign of life of its own: both would write on the same line."""
    shown: list[tuple[str, int | None]] = []

    class Sign:
        def __init__(self, what: str, total: int | None, *, of_bytes: bool) -> None:
            shown.append((what, total))

        def stop(self) -> None: ...

    monkeypatch.setattr(render, "_is_terminal", lambda stream: True)
    monkeypatch.setattr(render, "Sign", Sign)
    screen = render.Screen()
    with screen.progress("backfilling", 10), screen.busy("waiting beside a bar"):
        pass
    with screen.busy("waiting alone"):
        pass
    assert shown == [("backfilling", 10), ("waiting alone", None)]


def test_what_is_done_in_bulk_has_a_bar(folder: Path) -> None:
    (folder / "lines.jsonl").write_text("{}\n" * 600)
    shown = "\n".join(at_terminal("submit", "-t", "send", "-i", "@lines.jsonl", before=AT_ONCE))
    assert "submitting" in shown
    assert "600/600" in shown
    for line, about in (
        ("cancel --all --type send", "cancelling"),
        ("replay --status cancelled --since 1h --dry-run", "counting"),
        ("replay --status cancelled --type send", "replaying"),
    ):
        shown = "\n".join(at_terminal(*line.split(), before=AT_ONCE))
        assert about in shown
        assert "600/600" in shown, line
        assert "600 tasks" in shown


def test_a_plan_an_apply_and_an_export_have_bars(folder: Path) -> None:
    declared = {f"job-{number}": {"task_type": "send", "cron": "0 9 * * *"} for number in range(300)}
    (folder / "it.json").write_text(json.dumps({"schedules": declared}))
    rota("migrate")
    shown = "\n".join(at_terminal("plan", "it.json", before=AT_ONCE))
    assert "reading it.json" in shown
    assert "planning" in shown
    assert "300/300" in shown
    shown = "\n".join(at_terminal("apply", "it.json", "--yes", before=AT_ONCE))
    assert "300/300" in shown
    assert "applying 300 changes" in shown
    assert "600/900" in shown, "compared and ready; then all of them are written at once"
    shown = "\n".join(at_terminal("export", "-o", "it.yaml", before=AT_ONCE))
    assert "waiting for sqlite:///rota.db" in shown
    assert "writing YAML" in shown
    assert "300/300" in shown
    assert "wrote it.yaml: 0 calendars, 0 templates, 300 schedules" in shown.splitlines()[-1]
    size = (folder / "it.yaml").stat().st_size
    shown = "\n".join(at_terminal("plan", "it.yaml", before=AT_ONCE))
    assert f"{size / 1000:.1f}/{size / 1000:.1f} kB" in shown
    assert rota("plan it.json").stderr == ""
    document = json.loads("\n".join(at_terminal("plan", "it.json", "--json", before=AT_ONCE)))
    assert document["unchanged"] == 300


def test_a_schedule_that_is_removed_with_its_runs_has_a_bar() -> None:
    rota("schedule create busy -t send --interval 1h")
    for _ in range(3):
        rota("schedule trigger busy")
    rota("schedule delete busy")
    shown = "\n".join(at_terminal("schedule", "delete", "busy", "--hard", "--yes", before=AT_ONCE))
    assert "removing runs" in shown
    assert "3/3" in shown
    assert "deleted busy" in shown


def test_a_deep_look_has_a_bar() -> None:
    for _ in range(2):
        rota("submit -t send")
    shown = "\n".join(at_terminal("doctor", "--deep", before=AT_ONCE))
    assert "reading every record" in shown
    assert "2/2" in shown


def test_no_bar_is_shown_to_programs() -> None:
    rota("submit -t send")
    assert rota("cancel --all").stderr == ""
    rota("replay --status cancelled")
    shown = "\n".join(at_terminal("cancel", "--all", "--json", before=AT_ONCE))
    assert json.loads(shown) == {"cancelled": 1}


def test_a_key_is_revoked_by_the_beginning_of_its_id() -> None:
    key = document("keys create --role viewer --name phone")["id"]
    assert "revoked phone" in rota(f"keys revoke {key[:18]}").stdout
    one, two = (document(f"keys create --role viewer --name {name}")["id"] for name in ("ci", "cd"))
    assert f"{two} (cd, viewer), {one} (ci, viewer)" in complaint("keys revoke 0", code=1)
    same = next(n for n in range(36) if one[n] != two[n])
    assert "revoked ci" in rota(f"keys revoke {one[: same + 1]}").stdout
    assert "revoked cd" in rota("keys revoke 0").stdout


def test_an_end_of_a_list_in_another_order_is_refused() -> None:
    with sync.connect("sqlite:///rota.db") as queue:
        for name in ("a", "b"):
            queue.create_schedule(name, task_type="send", interval="1h")
        newest = queue.list_schedules(limit=1).next_cursor
    said = complaint(f"schedule list --cursor {newest}")
    assert said.endswith("is where a list in another order ended; give the next_cursor of a page by name")


def test_what_may_have_been_meant_is_said() -> None:
    rota("schedule create daily-report -t report --cron '0 9 * * *'")
    rota("template create backup --kind backup")
    assert complaint("schedule show daly-report", code=1) == (
        "there is no schedule 'daly-report'; did you mean 'daily-report'?"
    )
    assert complaint("template show backp", code=1).endswith("did you mean 'backup'?")
    assert complaint("schedule show something-else", code=1) == "there is no schedule 'something-else'"
    known = document("schedule show daily-report")["uid"]
    rota("schedule delete daily-report")
    sentence = complaint("schedule show daily-report", code=1)
    assert f"one with the id {known} was deleted at " in sentence
    assert sentence.endswith("`rota schedule restore daily-report` brings it back")
    rota("calendar create closing-days --day 2026-12-25")
    assert complaint("calendar show closing-day", code=1).endswith("did you mean 'closing-days'?")
    rota("tenant create acme")
    assert complaint("tenant suspend acmee", code=1).endswith("did you mean 'acme'?")
    assert complaint("list --status faild").endswith("; did you mean 'failed'?")
    assert complaint("list --stat x") == (
        "no such option '--stat'; did you mean one of: '--status', '--tag', '--tenant'?"
    )
    assert complaint("list --quee x") == "no such option '--quee'; did you mean '--queue'?"


def test_an_empty_answer_names_the_store_and_the_filter() -> None:
    rota("migrate")
    assert rota("list --status failed -t send").stderr == (
        "no tasks with status failed, type send in sqlite:///rota.db\n"
    )
    assert rota("workflow list --tenant acme").stderr == "no workflows of tenant acme in sqlite:///rota.db\n"
    assert "no schedules with status draft in " in rota("schedule list --status draft").stderr
    for line, what in (("calendar list", "calendars"), ("alarms", "open alarms")):
        assert rota(line).stderr.startswith(f"no {what} in sqlite:///rota.db"), line


def test_schedules_are_listed_by_name_and_what_is_left_out_is_said() -> None:
    for name in ("beta", "alpha", "gamma"):
        rota(f"schedule create {name} -t report --cron '0 9 * * *'")
    listed = rota("schedule list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["ID", "alpha", "beta", "gamma"]
    assert listed.stderr == ""
    part = rota("schedule list -n 2")
    assert [line.split()[0] for line in part.stdout.splitlines()] == ["ID", "alpha", "beta"]
    assert part.stderr == "there may be more: --limit 4\n"
    first = document("schedule list -n 2")
    assert [each["id"] for each in first["schedules"]] == ["alpha", "beta"]
    rest = document(f"schedule list -n 2 --cursor {first['next_cursor']}")
    assert ([each["id"] for each in rest["schedules"]], rest["next_cursor"]) == (["gamma"], None)
    rota("schedule delete alpha")
    with_deleted = rota("schedule list --deleted").stdout.splitlines()
    assert [line.split()[0] for line in with_deleted] == ["ID", "alpha", "beta", "gamma"]


def test_settings_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_KEEP_TASKS", "forever")
    shown = {line.split("  ")[0]: line for line in rota("config").stdout.splitlines()}
    assert " forever " in shown["keep_tasks"]
    assert " 2 MB " in shown["max_body"]
    assert " no " in shown["allow_shell"]
    assert " none " in shown["heartbeat_url"]
    assert " none " in shown["redact_fields"]
    assert document("config")["max_body"]["value"] == 2 * 1024 * 1024


def test_rota_alone_says_what_to_do_next(folder: Path) -> None:
    assert rota("").stdout.endswith("Begin with rota up --demo: schedules that fire before your eyes.\n")
    (folder / "broken.py").write_text("import rota\napp = rota.App(")
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").write_text("")
    (folder / "shop" / "tasks.py").write_text("import rota\n\nraise SystemExit\njobs = rota.App()\n")
    assert rota("").stdout.endswith("There is an app here. Run it with rota up shop.tasks:jobs\n")
    (folder / "hello.py").write_text("from rota import App\napp: App = App()\n")
    assert "There are apps here: hello:app, shop.tasks:jobs." in rota("").stdout
