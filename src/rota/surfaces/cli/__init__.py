"""The command line. `main` is the entry point; imports that cost time are made where they are used.

Begin with `root`, the tree of commands, and `session`, one call of them: its settings, its store, its output. `command`
has what all of them share: their help, their errors. Commands that answer and end are in `commands`, those that keep
running in `process`. `options` reads what is typed; `apps` finds the app that is named, `completing` the names that a
shell completes. `render` draws answers."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run `rota` and end the process."""
    code = 1
    atexit.register(lambda: _leave(code))  # the first that is registered is called last
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed when the process began
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115 - until the end
    from .command import flushed
    from .root import cli

    code = flushed(cli.main(prog_name="rota", standalone_mode=False))
    if _is_held_up():
        os._exit(code)  # a handler's thread that will not end must not keep the process alive
    sys.exit(code)


def _is_held_up() -> bool:
    here = threading.current_thread()
    return any(thread is not here and not thread.daemon for thread in threading.enumerate())


def _leave(code: int) -> None:
    """A thread that still runs, such as one that waits for a file that is locked, may crash the process if it wakes
    while Python takes the process apart."""
    if threading.active_count() > 1:
        from .command import flushed

        os._exit(flushed(code))
