"""Help, errors, exit codes, settings, store, completion, and what the terminal sees."""

from __future__ import annotations

import json
import os
import pty
import resource
import runpy
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from command_line import ROTA, bare_folder, complaint, document, rota
from forked import Forked
from rota.surfaces.cli.command import Command, Group

ROOT = Path(__file__).parents[2]
REFERENCE = runpy.run_path(str(ROOT / "tools" / "make_command_reference.py"))
COMMANDS = dict(REFERENCE["commands"]())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    rota("migrate")
    return tmp_path


def test_the_reference_is_current() -> None:
    """If not: `make generated`."""
    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == REFERENCE["reference"]()


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_help_with_an_example(path: str) -> None:
    command = COMMANDS[path]
    assert isinstance(command, (Command, Group))
    assert command.help
    assert command.examples
    assert all("rota" in example for example in command.examples)
    for param in command.params:
        if param.param_type_name == "option":
            assert getattr(param, "help", None), f"{path} {param.name} has no help"
    said = rota([*path.split()[1:], "--help"]).stdout
    assert "Usage: rota" in said
    assert "Examples:" in said
    assert command.examples[0] in said


def test_rota_alone_prints_help() -> None:
    assert rota("").stdout.startswith(rota("--help").stdout)
    assert rota("schedule").stdout == rota("schedule --help").stdout
    assert rota("--version").stdout.startswith("rota ")


BAD = [
    ("nonsense", "there is no command 'nonsense'"),
    ("schedul", "did you mean 'schedule'?"),
    ("schedule creat", "did you mean 'create'?"),
    ("list --colour", "no such option"),
    ("submit", "missing option"),
    ("submit -t 'two words'", "--task-type: 'two words' is not a valid name"),
    ("submit -t t -i '{bad'", "is not JSON"),
    ("submit -t t -i NaN", "is not JSON"),
    ("submit -t t -i @missing.json", "missing.json cannot be read"),
    ("submit -t t --in soon", "'soon' is not a duration"),
    ("submit -t t --in -5m", "is not a duration"),
    ("submit -t t --in 99999999999w", "too"),
    ("submit -t t --ttl 5x", "'5x' is not a duration"),
    ("submit -t t --ttl 1e3", "'1e3' is not a duration"),
    ("submit -t t --at tomorrow", "'tomorrow' is not a time"),
    ("submit -t t --at 2026-02-30", "is not a time"),
    ("submit -t t --at 2100-01-01 --in 1h", "--at and --in were both given"),
    ("submit -t t --ttl 1h --expires-at 2100-01-01", "--ttl and --expires-at were both given"),
    ("submit -t t --priority 256", "--priority: 256 is not accepted"),
    ("submit -t t --priority high", "'high' is not a valid integer"),
    ("submit -t t --queue ''", "--queue: '' is not a valid name"),
    ("submit -t t --tag 'a b'", "--tag: 'a b' is not a valid name"),
    ("submit -t t --max-retries -1", "--max-retries: -1 is not accepted"),
    ('submit -t t --metadata \'{"a":{"b":{"c":{"d":1}}}}\'', "--metadata"),
    ("list --status gone", "'gone' is not one of"),
    ("list --limit 0", "--limit: 0 is not accepted"),
    ("list --cursor nonsense", "--cursor: 'nonsense' is not a cursor"),
    ("status", "missing argument"),
    ("cancel", "name the tasks, or give --all"),
    ("cancel some --queue q", "filters work together with --all"),
    ("wait", "missing argument"),
    ("schedule create s -t t", "give exactly one of cron, interval, run_at, rrule"),
    ("schedule create s --cron '0 9 * * *'", "no task was given"),
    ("schedule create s -t t --cron '61 * * * *'", "--cron: minute field '61' is out of range"),
    ("schedule create s -t t --cron '* * *'", "--cron:"),
    ("schedule create s -t t --cron '0 0 30 2 *'", "--cron:"),
    ("schedule create s -t t --cron '0 9 * * *' --interval 5m", "together with"),
    (
        "schedule create s -t t --cron '0 9 * * *' --timezone Mars/Base",
        "'Mars/Base' is not a known time zone",
    ),
    ("schedule create s -t t --interval 0s", "--interval"),
    ("schedule create s -t t --rrule FREQ=NEVER", "--rrule:"),
    ("schedule create s -t t --run-at 2000-01-01", "--run-at: 2000-01-01T00:00:00+00:00 has passed"),
    ("schedule create s -t t --interval 1h --overlap-policy maybe", "'maybe' is not one of"),
    ("schedule create s -t t --interval 1h --max-runs -1", "--max-runs: -1 is not accepted"),
    (
        "schedule create s -t t --interval 1h --end-at 2000-01-01",
        "--end-at: 2000-01-01T00:00:00+00:00 has passed",
    ),
    ("schedule create '' -t t --interval 1h", "schedule_id: '' is not a valid name"),
    ("schedule why s", "missing argument"),
    ("schedule why s yesterday", "'yesterday' is not a time"),
    ("preview '* * * *'", "cron:"),
    ("preview '0 9 * * *' --timezone Nowhere", "'Nowhere' is not a known time zone"),
    ("preview '0 9 * * *' -n 0", "0 is not in the range"),
    ("up nowhere:app", "there is no module 'nowhere'"),
    ("up json:app", "json has no 'app'; it has no rota.App at all"),
    ("up json:loads", "has a 'loads' that is no rota.App"),
    ("up json:app --demo", "--demo brings its own app"),
    ("worker", "no app was given"),
    ("worker :app", "names no module"),
    ("--store foo://bar list", "--store: 'foo://bar' has an unknown scheme"),
    ("--store sqlite:// list", "names no file"),
    ("--profile none config", "there is no [profile.none]"),
    ("completion tcsh", "'tcsh' is not one of"),
]


@pytest.mark.parametrize(("line", "said"), BAD, ids=[line for line, _ in BAD])
def test_bad_input_is_one_sentence_and_exit_code_2(line: str, said: str) -> None:
    assert said in complaint(line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("status nonsense", "there is no task 'nonsense'"),
        ("history nonsense", "there is no task 'nonsense'"),
        ("schedule show nonsense", "there is no schedule 'nonsense'"),
        ("schedule why nonsense 2026-03-08", "there is no schedule 'nonsense'"),
        ("schedule trigger nonsense", "there is no schedule 'nonsense'"),
        ("list --schedule nonsense", "there is no schedule 'nonsense'"),
    ],
)
def test_what_is_refused_has_exit_code_1(line: str, said: str) -> None:
    assert said in complaint(line, code=1)


def test_a_key_that_is_taken_is_refused() -> None:
    rota("schedule create s -t t --interval 1h")
    assert "'s' is already in use" in complaint("schedule create s -t t --interval 1h", code=1)


def test_a_store_that_is_away_is_one_sentence_and_what_to_try() -> None:
    said = complaint("submit -t t --store sqlite:////nowhere/at/all/rota.db", code=1)
    assert "/nowhere/at/all" in said
    assert "try `rota doctor`" in said


def test_a_module_that_cannot_be_imported_is_named_with_its_line(folder: Path) -> None:
    (folder / "broken_app.py").write_text("x = 1\ny = x / 0\n")
    said = complaint("worker broken_app:app")
    assert "broken_app cannot be imported: ZeroDivisionError: division by zero" in said
    assert "line 2" in said
    (folder / "unread_app.py").write_text("x = 1\ny = (\n")
    assert complaint("worker unread_app:app").endswith(
        "SyntaxError: '(' was never closed (unread_app.py, line 2)"
    )
    refused = "import rota\napp = rota.App()\napp.task('t')(lambda *args: 0)\n"
    (folder / "refused_app.py").write_text(refused)
    assert complaint("worker refused_app:app").endswith("refused_app.py, line 3)"), "not a line of Rota"


def test_config_says_where_values_come_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "rota.toml").write_text('tenant = "a"\n[profile.big]\nconcurrency = 7\n')
    monkeypatch.setenv("ROTA_STORE", "sqlite:///env.db")
    found = document("config --profile big")
    assert found["store"] == {"value": "sqlite:///env.db", "source": "ROTA_STORE"}
    assert found["tenant"] == {"value": "a", "source": "rota.toml"}
    assert found["concurrency"] == {"value": 7, "source": "rota.toml [profile.big]"}
    assert found["lease"] == {"value": "30s", "source": "default"}
    assert document("config --store memory:")["store"] == {"value": "memory:", "source": "--store"}
    assert "rota.toml [profile.big]" in rota("config --profile big").stdout


def test_migrate_says_what_it_did() -> None:
    line = "migrate --store sqlite:///new.db"
    assert document(line) == {"store": "sqlite:///new.db", "applied": ["0001_core"]}
    assert document(line)["applied"] == []
    assert "nothing to do" in rota(line).stdout


def test_doctor_is_content_with_a_fresh_store() -> None:
    rota("migrate")
    findings = document("doctor --deep")
    assert all(finding["ok"] for finding in findings)
    assert {"store", "schema", "writable", "clock", "schedules", "leases", "states"} <= {
        finding["check"] for finding in findings
    }


def test_doctor_says_what_to_do() -> None:
    missing = rota("doctor --store sqlite:///other.db", code=1).stdout
    assert "FAIL store      there is no store at sqlite:///other.db" in missing
    assert "`rota migrate` makes one" in missing
    away = rota("doctor --store sqlite:////nowhere/at/all/rota.db", code=1).stdout
    assert "FAIL store" in away


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    script = rota(f"completion {shell}").stdout
    assert "_ROTA_COMPLETE" in script
    assert 'string split ","' not in script, "fish would cut descriptions at their first comma"


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("rota sche", "schedule"),
        ("rota list --sta", "--status"),
        ("rota schedule show n", "nightly"),
        ("rota list -t ti", "tidy_up"),
        ("rota preview x --timezone Europe/Lis", "Europe/Lisbon"),
        ("rota schedule create x --timezone lisb", "Europe/Lisbon"),
    ],
)
def test_completion_knows_commands_options_and_schedules(
    typed: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota("schedule create nightly -t tidy_up --interval 1h")
    monkeypatch.setenv("_ROTA_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    assert f"plain,{wanted}\n" in rota("").stdout


def test_completion_knows_the_ids_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    task = rota("submit -t send").stdout.strip()
    monkeypatch.setenv("_ROTA_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"rota status {task[:4]}")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert rota("").stdout == f"plain,{task}\n"


def test_help_loads_nothing_that_it_does_not_need() -> None:
    program = (
        "import sys; from rota.surfaces.cli.root import cli; cli.main(['--help'], standalone_mode=False);"
        "heavy = {'asyncio', 'msgspec', 'rich', 'apsw', 'rota.domain.model', 'logging', 'json'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def processor_time(*command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_takes_less_than_200_ms() -> None:
    """Of processor time, at best: a machine that is busy with something else does not count. Where Python alone takes
    longer to start than 15 ms, the machine is slow, and all of it may take so much longer."""
    times: list[float] = []
    bare: list[float] = []
    while not times or (min(times) >= 0.2 and len(times) < 10):
        times.append(processor_time(*ROTA, "--help"))
        bare.append(processor_time(sys.executable, "-c", "pass"))
    assert min(times) < 0.2 * max(1, min(bare) / 0.015), (times, bare)


def in_a_terminal(*arguments: str, **environment: str) -> tuple[str, int]:
    """What someone at a terminal sees, and the exit code."""
    main, side = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **environment}
    process = Forked(arguments, stdin=side, stdout=side, stderr=side, env=env)
    os.close(side)
    seen = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(main)
    return seen.decode(), process.wait()


def test_a_terminal_gets_colours_and_relative_times_and_a_pipe_does_not() -> None:
    rota("schedule create nightly -t backup --interval 2h")
    rota("schedule trigger nightly")
    seen, code = in_a_terminal("schedule", "show", "nightly")
    assert code == 0
    assert "\x1b[" in seen
    assert "▶" in seen
    seen, _ = in_a_terminal("schedule", "list")
    assert "in 2h" in seen
    assert "\x1b[" in seen
    piped = rota("schedule list").stdout
    assert "\x1b[" not in piped
    assert "in 2h" not in piped


def test_no_color_is_respected() -> None:
    rota("submit -t t")
    seen, _ = in_a_terminal("list", NO_COLOR="1")
    assert "pending" in seen
    assert "\x1b[" not in seen


def test_json_is_never_coloured() -> None:
    seen, _ = in_a_terminal("--json", "list")
    assert json.loads(seen) == {"tasks": [], "next_cursor": None}


def test_doctor_finds_states_that_it_does_not_know(folder: Path) -> None:
    rota("submit -t t")
    rota("schedule create s -t t --interval 1h")
    with closing(apsw.Connection("rota.db")) as db:
        db.execute("update task set status = 'odd', body = replace(body, 'created', 'made')")
        db.execute("update schedule set status = 'odd'")
    said = rota("doctor", code=1).stdout
    assert "FAIL states     1 tasks and 1 schedules are in an unknown state" in said


def test_doctor_refuses_a_store_of_a_newer_rota(folder: Path) -> None:
    rota("migrate")
    with closing(apsw.Connection("rota.db")) as db:
        db.execute("update rota_migration set number = 99 where number = 1")
    assert "use the version of rota that wrote it" in rota("doctor", code=1).stdout
    assert "newer version of rota" in complaint("list", code=1)
    (folder / "text.db").write_text("no database\n" * 100)
    assert "FAIL store" in rota("doctor --store sqlite:///text.db", code=1).stdout


def test_doctor_takes_no_file_for_an_older_schema_because_of_its_name(folder: Path) -> None:
    (folder / "rota migrate.db").write_text("no database\n" * 100)
    said = rota("doctor --store 'sqlite:///rota migrate.db'", code=1).stdout
    assert "FAIL store" in said
    assert "schema" not in said


def test_migrate_plan_prints_the_sql_and_changes_nothing() -> None:
    new = "--store sqlite:///new.db"
    planned = rota(f"migrate --plan {new}").stdout
    assert planned.startswith("begin immediate;")
    assert "create table task" in planned.lower()
    assert rota(f"migrate --plan {new}").stdout == planned
    rota(f"migrate {new}")
    assert "nothing to do" in rota(f"migrate --plan {new}").stdout
