"""Shell commands: what they are given, how they end, how they are stopped."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from keeper import started_at
from rota import TaskStatus
from rota.domain.errors import Invalid
from rota.domain.model import Task
from rota.engine.runtimes import output, shell
from runtimes.world import Bench

NASTY = '\'; echo pwned; "$(echo pwned)" `echo pwned` $HOME && \n rm -rf / #'


async def gone(pid: int) -> bool:
    """Within what a signal takes to arrive."""
    for _ in range(3000):
        if started_at(pid) is None:
            return True
        await asyncio.sleep(0.01)
    return False


async def left(bench: Bench, task: Task, name: str) -> bytes:
    return await (await bench.queue.open_artifact(task.id, name)).read()


async def test_a_line_leaves_its_code_and_what_it_wrote(bench: Bench) -> None:
    done = await bench.shell("echo out; echo err >&2")
    assert (done.status, done.kind) == (TaskStatus.COMPLETED, "rota.shell")
    assert done.output == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n"}
    assert {line.message for line in done.logs} == {"out", "err"}
    artifacts = await bench.queue.artifacts(done.id)
    assert {each.name for each in artifacts} == {"result", "stdout", "stderr"}
    assert {each.media_type for each in artifacts if each.name != "result"} == {"text/plain; charset=utf-8"}
    assert [await left(bench, done, name) for name in ("stdout", "stderr")] == [b"out\n", b"err\n"]


async def test_what_a_later_attempt_wrote_takes_the_place_of_the_earlier(bench: Bench) -> None:
    line = '[ "$ROTA_ATTEMPT" = 1 ] && { echo out; echo why >&2; exit 3; }; echo done'
    failed = await bench.shell(line)
    assert [await left(bench, failed, name) for name in ("stdout", "stderr")] == [b"out\n", b"why\n"]
    again = await bench.shell(line, max_retries=1, retry_policy=rota.RetryPolicy(initial=timedelta(0)))
    assert (again.status, again.attempt) == (TaskStatus.COMPLETED, 2)
    assert [await left(bench, again, name) for name in ("stdout", "stderr")] == [b"done\n", b""]


async def test_what_is_given_is_beside_the_line_and_never_in_it(bench: Bench) -> None:
    given = {"text": NASTY, "number": 5, "list": [1, "a"], "no-variable": 1, "PATH": "/tmp"}
    line = 'printf "%s|%s|%s|" "$INPUT_text" "$INPUT_number" "$INPUT_list"; cat'
    done = await bench.shell(line, given)
    text = done.output["stdout"]
    assert text.startswith(f'{NASTY}|5|[1,"a"]|')
    assert "pwned\n" not in text
    assert text.endswith('"no-variable":1,"PATH":"/tmp"}')


async def test_arguments_are_seen_by_no_shell(bench: Bench) -> None:
    done = await bench.shell(["printf", "%s", "$HOME; $(id) *"])
    assert done.output["stdout"] == "$HOME; $(id) *"


async def test_large_and_strange_fields_are_only_on_stdin(bench: Bench) -> None:
    done = await bench.shell(
        'cat >&2; printf "%s" "${INPUT_large-unset} ${INPUT_nul-unset}"',
        {"large": "x" * 40_000, "nul": "a\0b"},
    )
    assert done.output["stdout"] == "unset unset"
    assert '"nul":"a\\u0000b"}' in done.output["stderr"]


async def test_of_the_environment_it_sees_the_usual_and_what_it_names(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_STORE", "postgres://user:password@host/db")
    monkeypatch.setenv("SHOP_MODE", "test")
    monkeypatch.setenv("SHOP_OTHER", "hidden")
    done = await bench.shell({"run": "env", "environment": ["SHOP_MODE"]})
    found = dict(line.split("=", 1) for line in done.output["stdout"].splitlines())
    assert found["SHOP_MODE"] == "test"
    assert found["ROTA_TASK_ID"] == done.id
    assert {"PATH", "ROTA_ATTEMPT"} <= found.keys()
    assert not {"ROTA_STORE", "SHOP_OTHER"} & found.keys()


async def test_it_runs_in_its_directory(bench: Bench, tmp_path: Path) -> None:
    done = await bench.shell({"run": ["pwd", "-P"], "directory": str(tmp_path)})
    assert done.output["stdout"].strip() == str(tmp_path.resolve())


@pytest.mark.parametrize(
    ("codes", "code", "retries", "status"),
    [
        ({}, 3, 1, "pending"),
        ({"success_codes": [0, 3]}, 3, 1, "completed"),
        ({"success_codes": [3]}, 0, 1, "pending"),
        ({"retry_codes": [75]}, 75, 1, "pending"),
        ({"retry_codes": [75]}, 3, 1, "failed"),
        ({"retry_codes": []}, 3, 1, "failed"),
        ({}, 3, 0, "failed"),
    ],
)
async def test_codes_decide(
    bench: Bench, codes: dict[str, Any], code: int, retries: int, status: str
) -> None:
    done = await bench.shell({"run": f"echo why >&2; exit {code}", **codes}, max_retries=retries)
    assert (done.status, done.output["exit_code"]) == (status, code)
    if status != "completed":
        assert str(done.error) == f"ExitCode: the command exited with code {code}: why"
        assert done.error is not None
        assert done.error.traceback is None


async def test_a_signal_is_named(bench: Bench) -> None:
    done = await bench.shell("kill -9 $$")
    assert done.output["exit_code"] == 137
    assert str(done.error) == "ExitCode: the command was killed by SIGKILL"


async def test_a_program_that_is_not_there_is_a_failure(bench: Bench) -> None:
    done = await bench.shell(["rota-no-such-program"])
    assert str(done.error).startswith("NotStarted: the command cannot be started: ")
    done = await bench.shell({"run": "true", "directory": "/rota/no/such/folder"})
    assert "/rota/no/such/folder" in str(done.error)


async def test_bytes_that_are_no_text_survive(bench: Bench) -> None:
    done = await bench.shell(r"printf 'a\377b\000c \303\274\n'")
    assert done.output["stdout"] == "a\\xffb\\x00c ü\n"
    assert [line.message for line in done.logs] == ["a\\xffb\\x00c ü"]
    assert await left(bench, done, "stdout") == b"a\xffb\0c \xc3\xbc\n"


async def test_a_flood_of_output_is_bounded(bench: Bench) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = await bench.shell("echo first; yes | head -c 100000000; echo last")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = done.output["stdout"]
    assert text.startswith("first\ny\n")
    assert text.endswith("y\nlast\n")
    assert f"… {100_000_011 - 2 * output.KEPT:,} bytes are left out …" in text
    assert len(done.logs) == 200
    assert done.logs[-1].message == "last"
    file = await left(bench, done, "stdout")
    between = f"\n… {100_000_011 - output.SPOOLED - output.KEPT:,} bytes are left out …\n".encode()
    assert file[output.SPOOLED : -output.KEPT] == between
    assert file.startswith(b"first\ny\n")
    assert file.endswith(b"y\nlast\n")
    assert after - before < 50 * (1024 if sys.platform != "darwin" else 1024**2)


@pytest.mark.parametrize("size", [output.SPOOLED, output.SPOOLED + 1, output.SPOOLED + output.KEPT])
async def test_what_fits_with_its_end_is_kept_whole(bench: Bench, size: int) -> None:
    done = await bench.shell(f"head -c {size} /dev/zero")
    assert await left(bench, done, "stdout") == bytes(size)


async def test_a_line_without_end_is_cut(bench: Bench) -> None:
    done = await bench.shell("head -c 1000000 /dev/zero | tr '\\0' 'x'")
    assert [len(line.message) for line in done.logs] == [output.LINE_KEPT]


async def test_what_it_leaves_behind_is_killed(bench: Bench) -> None:
    """It holds the pipes open, too: the end of the command is the end."""
    done = await bench.shell("sleep 1000 & echo $!")
    assert done.status is TaskStatus.COMPLETED
    assert await gone(int(done.output["stdout"]))


async def test_a_timeout_ends_the_whole_group(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    line = f'(sleep 1000 & echo $! > "{file}"; wait) & wait'
    done = await bench.shell(f"echo begun; {line}", timeout=4)
    assert str(done.error) == "TimeoutError: ran longer than its timeout of 4 s"
    assert await left(bench, done, "stdout") == b"begun\n"
    assert await gone(int(file.read_text()))


async def test_a_group_that_ignores_the_signal_is_killed(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "KILL_AFTER", timedelta(milliseconds=100))
    file = tmp_path / "pid"
    line = f"trap '' TERM; (sleep 1000 & echo $! > \"{file}\"; wait); sleep 1000"
    done = await bench.shell(line, timeout=4)
    assert str(done.error) == "TimeoutError: ran longer than its timeout of 4 s"
    assert await gone(int(file.read_text()))


BOMB = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
born = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
leader = os.getpid()
for _ in range(8):
    os.fork()
os.write(born, b"%d\\n" % leader)
if os.getpid() != leader and os.getppid() == leader and os.fork() == 0:
    for _ in range(20_000):
        time.sleep(0.002)
        if os.fork():
            os._exit(0)
time.sleep(1000)
"""
"""256 processes that ignore SIGTERM, and eight that are another one every moment: bounded, should nobody kill them.
Faster, they are more than are buried on a busy machine, and no other test can start a process or a thread."""


def group_of(leader: int) -> list[int]:
    """The pids of a process group, without those that have ended."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, group = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) == leader and state != "Z":
                found.append(int(name))
    return found


async def test_a_fork_bomb_ends_with_its_group(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "KILL_AFTER", timedelta(milliseconds=100))
    file = tmp_path / "born"
    await bench.queue.create_template(
        "bomb", runtime="shell", command=[sys.executable, "-c", BOMB, str(file)]
    )
    task = await bench.queue.execute_template("bomb")
    running = asyncio.create_task(bench.worker.run(handle_signals=False))
    while not file.exists() or len(file.read_text().splitlines()) < 256:
        await asyncio.sleep(0.01)
    leader = int(file.read_text().split()[0])
    assert len(group_of(leader)) >= 256
    await bench.queue.cancel(task.id)
    ended = await bench.queue.wait(task.id, timeout=120)
    bench.worker.stop()
    await running
    assert ended.status is TaskStatus.CANCELLED
    for _ in range(3000):
        if not group_of(leader):
            break
        await asyncio.sleep(0.01)
    assert group_of(leader) == []


async def started(file: Path) -> None:
    while not file.exists():
        await asyncio.sleep(0.01)


async def test_a_cancel_stops_it_and_lets_it_tidy_up(bench: Bench, tmp_path: Path) -> None:
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    line = f"trap 'touch {tidied}; exit 0' TERM; touch {ready}; sleep 1000 & wait"
    await bench.queue.create_template("slow", runtime="shell", command=line)
    task = await bench.queue.execute_template("slow")
    running = asyncio.create_task(bench.worker.run(handle_signals=False))
    await started(ready)
    await bench.queue.cancel(task.id)
    ended = await bench.queue.wait(task.id, timeout=60)
    bench.worker.stop()
    await running
    assert ended.status is TaskStatus.CANCELLED
    assert tidied.exists()


async def test_a_stopping_worker_hands_it_back(bench: Bench, tmp_path: Path) -> None:
    worker = rota.Worker(bench.queue, allow_shell=True, shutdown_timeout=0)
    ready = tmp_path / "ready"
    await bench.queue.create_template(
        "slow", runtime="shell", command=f"echo $$ > {ready}.new; mv {ready}.new {ready}; sleep 1000"
    )
    task = await bench.queue.execute_template("slow")
    running = asyncio.create_task(worker.run(handle_signals=False))
    await started(ready)
    worker.stop()
    await running
    back = await bench.queue.get(task.id)
    assert (back.status, back.attempt) == (TaskStatus.PENDING, 0)
    assert await gone(int(ready.read_text()))


async def test_a_worker_that_may_not_leaves_it_alone(bench: Bench) -> None:
    await bench.queue.create_template("hello", runtime="shell", command="echo hello")
    task = await bench.queue.execute_template("hello")
    other = rota.Worker(bench.queue)
    await other.run_once()
    assert (await bench.queue.get(task.id)).status is TaskStatus.PENDING
    assert (await bench.done(task)).output["stdout"] == "hello\n"


async def test_a_submission_brings_no_command(bench: Bench) -> None:
    with pytest.raises(Invalid, match=r"^kind: 'rota.shell' runs the commands of templates; execute a templ"):
        await bench.queue.submit("rota.shell", {"run": "id"})


async def test_a_task_keeps_the_command_it_was_started_with(bench: Bench) -> None:
    made = await bench.queue.create_template("hello", runtime="shell", command="echo one")
    task = await bench.queue.execute_template("hello")
    await bench.queue.update_template(made.id, command="echo two")
    assert (await bench.done(task)).output["stdout"] == "one\n"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("", "command.run: "),
        ("  ", "command: it is empty"),
        ([], "command.run: "),
        (["ls", 5], "command.run[1]: expected a text, got a whole number"),
        ("a\0b", "command: it holds a NUL character"),
        ({"run": "ls", "shell": True}, "command.shell: a shell command has no such field; accepted are "),
        ({"run": "ls", "directory": "tmp"}, "command.directory: expected a text that begins with /"),
        (
            {"run": "ls", "environment": ["A B"]},
            "command.environment[0]: expected a text of letters, digits and _",
        ),
        ({"run": "ls", "success_codes": [256]}, "command.success_codes[0]: expected a whole number <= 255"),
        ({"run": "ls", "retry_codes": [0]}, "command.retry_codes: 0 is a success code, too"),
        ({"success_codes": [0]}, "command: object missing required field `run`"),
        (5, "command: 5 is not accepted; give a command line, a list of texts, or an object"),
    ],
)
async def test_a_command_that_cannot_be_is_refused(bench: Bench, command: Any, sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        await bench.queue.create_template("x", runtime="shell", command=command)
    assert str(refused.value).startswith(sentence)
    assert not await bench.queue.list_templates()


async def test_a_template_changes_its_runtime(bench: Bench) -> None:
    made = await bench.queue.create_template("x", "some.kind")
    changed = await bench.queue.update_template(made.id, runtime="shell", command=["ls", "-l"])
    assert (changed.kind, changed.command) == ("rota.shell", rota.ShellCommand(run=("ls", "-l")))
    assert await bench.queue.update_template(made.id, command=changed.command) == changed
    with pytest.raises(Invalid, match=r"^kind: it is missing"):
        await bench.queue.update_template(made.id, runtime="python")
    back = await bench.queue.update_template(made.id, runtime="python", kind="some.kind")
    assert (back.kind, back.command) == ("some.kind", "")
