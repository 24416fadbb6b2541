"""Programs of Debian that tests use: installed first, where this may be done."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

WITH_ADMINS = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


@cache
def program(name: str) -> str | None:
    """Where the program is that the package of the same name has. The processes of a run come here together: one
    installs, the others wait for it."""
    if (found := _found(name)) or os.geteuid() != 0 or not shutil.which("apt-get"):
        return found
    install = f"command -v {name} || (apt-get update --quiet && apt-get install --yes --quiet {name})"
    lock = Path(tempfile.gettempdir()) / "rota-tests-debian.lock"
    command = ["flock", str(lock), "sh", "-c", install]
    subprocess.run(command, capture_output=True, check=False, timeout=280, stdin=subprocess.DEVNULL)
    return _found(name)


def _found(name: str) -> str | None:
    return shutil.which(name, path=WITH_ADMINS)
