"""Whatever goes wrong: one sentence on stderr and an exit code. Never a traceback, unless ROTA_DEBUG is
set."""

from __future__ import annotations

import errno
import os
import re
import sys

import click

__all__ = ["BROKEN_PIPE", "explained", "flushed"]

REFUSED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141  # the last two as a shell counts SIGINT and SIGPIPE


def explained(problem: BaseException) -> int:
    """Say what happened; the exit code."""
    from ...domain.errors import Invalid, Refused, StoreError

    match problem:
        case click.exceptions.Exit():
            return problem.exit_code
        case click.UsageError():
            return _say(_sentence(problem), USAGE)
        case click.ClickException():
            return _say(problem.format_message(), problem.exit_code)
        case click.Abort() | KeyboardInterrupt():
            return INTERRUPTED
        case Invalid():
            return _say(str(problem), USAGE)
        case Refused():
            return _say(str(problem), REFUSED)
        case StoreError() if "missing" in problem.details:
            return _say(f"{problem}: make one with `rota migrate`, or name another with --store", REFUSED)
        case StoreError():
            return _say(f"{problem}; try `rota doctor`, or name another store with --store", REFUSED)
        case OSError() if problem.errno in (errno.ENOSPC, errno.EIO):
            return _unwritten(problem)
        case TimeoutError():
            return _say(str(problem) or "it took too long", REFUSED)
    return _unexpected(problem)


def flushed(code: int) -> int:
    """Write out what is left of the output; the exit code, which is another one if that fails."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as problem:
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), stream.fileno()
            )  # what is left would fail again at exit
            code = BROKEN_PIPE if isinstance(problem, BrokenPipeError) else _unwritten(problem)
    return code


def _unwritten(problem: OSError) -> int:
    return _say(f"the output could not be written: {problem.strerror}", REFUSED)


def _say(sentence: str, code: int) -> int:
    text = re.sub(r"\s+", " ", sentence).strip()
    try:
        click.echo(f"{click.style('error:', fg='red', bold=True)} {text}", err=True, color=_coloured())
    except BrokenPipeError:
        return BROKEN_PIPE
    return code


def _coloured() -> bool | None:
    return False if os.environ.get("NO_COLOR") else None


def _sentence(problem: click.UsageError) -> str:
    """In our own style; where click only says that something is amiss, it is said where to look."""
    text = problem.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    if isinstance(problem, click.BadParameter) and not isinstance(problem, click.MissingParameter):
        return text
    path = problem.ctx.command_path if problem.ctx else "rota"
    return text if ";" in text or ": " in text else f"{text}; see `{path} --help`"


def _unexpected(problem: BaseException) -> int:
    if os.environ.get("ROTA_DEBUG"):
        import traceback

        traceback.print_exception(problem, file=sys.stderr)
    what = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
    advice = "this is a bug in rota, and ROTA_DEBUG=1 shows the traceback"
    return _say(f"something unexpected happened: {what}; {advice}", REFUSED)
