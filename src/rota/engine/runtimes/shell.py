"""Shell commands: a process group of its own, the input beside the command and never in it, and an end that is sure.

The input is JSON on stdin, and each of its fields the variable `INPUT_<field>`: a text as it is, anything else as JSON.
A field that no variable can hold (another name than a variable's, a NUL, more than 32 KiB) is only on stdin. Of the
worker's own variables the command sees the usual ones and those that it names.

When the command has ended, what it left in its group is killed. To stop it, the group gets SIGTERM, and SIGKILL
`KILL_AFTER` later: before the executor gives it up.

What it wrote is left as the artifacts `stdout` and `stderr`, however it ended. If it was stopped, there is not much
time for that: what cannot be stored within `LEAVING` is lost.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import IO, Any

import msgspec

from ...domain.errors import PermanentError
from ...domain.model import Task
from ...domain.runtimes import ShellCommand
from ..clock import wait_for_any
from ..executor import AttemptFailed, Context
from .output import KeptOutput

KILL_AFTER = timedelta(seconds=3)
REAPED = timedelta(seconds=1)
"""How long a process that was killed may take to be gone."""
LEAVING = timedelta(seconds=1)
SHELL = ("/bin/sh", "-c")
USUAL = frozenset(["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"])
VARIABLE = re.compile(r"[A-Za-z0-9_]{1,200}")
LONGEST_VALUE = 32 * 1024


async def run_shell(context: Context) -> dict[str, Any]:
    """Run the command of the task; its exit code and what it wrote."""
    command = context.task.command
    if not isinstance(command, ShellCommand):
        raise PermanentError("the task has no shell command; such tasks are started from templates")
    with KeptOutput(context.log) as stdout, KeptOutput(context.log) as stderr:
        try:
            code = await _ended(command, context.task, stdout, stderr)
        except asyncio.CancelledError:
            await _left_in_time(context, stdout, stderr)
            raise
        await _leave(context, stdout, stderr)
    output = {"exit_code": code, "stdout": stdout.text, "stderr": stderr.text}
    if code in command.success_codes:
        return output
    is_permanent = command.retry_codes is not None and code not in command.retry_codes
    raise AttemptFailed("ExitCode", _sentence(code, stderr.last_line), output, is_permanent=is_permanent)


async def _leave(context: Context, stdout: KeptOutput, stderr: KeptOutput) -> None:
    """Both, also if they are empty: what an earlier attempt wrote must not seem to be of this one."""
    for name, stream in (("stdout", stdout), ("stderr", stderr)):
        await context.artifact(name, stream.file(), media_type="text/plain; charset=utf-8")


async def _left_in_time(context: Context, stdout: KeptOutput, stderr: KeptOutput) -> None:
    leaving = asyncio.gather(_leave(context, stdout, stderr), return_exceptions=True)  # it is stopped anyway
    await wait_for_any(leaving, at_most=LEAVING)
    leaving.cancel()


async def _ended(command: ShellCommand, task: Task, stdout: KeptOutput, stderr: KeptOutput) -> int:
    """Run it to its end, however that comes; the code as a shell would tell it: 128 and more for a signal."""
    async with stdout.pipe() as out, stderr.pipe() as err:
        process = await _started(command, task, out, err)
        exited = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({exited})
        except asyncio.CancelledError:
            _signal_group(process, signal.SIGTERM)
            await wait_for_any(exited, at_most=KILL_AFTER)
            raise
        finally:
            _signal_group(process, signal.SIGKILL)
            await wait_for_any(exited, at_most=REAPED)
        code = exited.result()
    return code if code >= 0 else 128 - code


async def _started(
    command: ShellCommand, task: Task, out: IO[bytes], err: IO[bytes]
) -> asyncio.subprocess.Process:
    line = command.run
    program = (*SHELL, line) if isinstance(line, str) else line
    try:
        with tempfile.TemporaryFile() as stdin:  # a file: a command that reads none of it holds nobody up
            stdin.write(msgspec.json.encode(task.input))
            stdin.seek(0)
            return await asyncio.create_subprocess_exec(
                *program,
                stdin=stdin,
                stdout=out,
                stderr=err,
                cwd=command.directory,
                env=environment(command, task, os.environ),
                start_new_session=True,
            )
    except OSError as problem:
        raise AttemptFailed("NotStarted", f"the command cannot be started: {problem}") from None
    finally:
        out.close()
        err.close()


def environment(command: ShellCommand, task: Task, own: Mapping[str, str]) -> dict[str, str]:
    """The variables that the command gets."""
    wanted = USUAL | set(command.environment)
    found = {name: value for name, value in own.items() if name in wanted or name.startswith("LC_")}
    found.setdefault("PATH", os.defpath)
    fields = task.input if isinstance(task.input, dict) else {}
    for name, value in fields.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if VARIABLE.fullmatch(name) and "\0" not in text and len(text.encode()) <= LONGEST_VALUE:
            found[f"INPUT_{name}"] = text
    found["ROTA_TASK_ID"] = task.id
    found["ROTA_ATTEMPT"] = str(task.attempt)
    if task.scheduled_at is not None:
        found["ROTA_SCHEDULED_AT"] = task.scheduled_at.isoformat()
    return found


def _signal_group(process: asyncio.subprocess.Process, wanted: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS: a group of the dead is not permitted
        os.killpg(process.pid, wanted)


def _sentence(code: int, last_line: str) -> str:
    if code > 128 and code - 128 in {number.value for number in signal.Signals}:
        what = f"the command was killed by {signal.Signals(code - 128).name}"
    else:
        what = f"the command exited with code {code}"
    return f"{what}: {last_line[:200]}" if last_line else what
