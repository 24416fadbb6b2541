"""A real PgBouncer in transaction mode, where the machine has one. `tests/pooler.py` is the case that always runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import debian

_SETTINGS = """
[databases]
* = host={server} user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
unix_socket_mode = 0777
auth_type = any
pool_mode = transaction
default_pool_size = 3
ignore_startup_parameters = extra_float_digits
logfile = {folder}/log
"""


@asynccontextmanager
async def running(folder: Path, server: Path) -> AsyncIterator[None]:
    """One that listens on a socket in `folder` and forwards to the server whose socket is in `server`."""
    path = debian.program("pgbouncer")
    assert path is not None
    settings = folder / "pgbouncer.ini"
    settings.write_text(_SETTINGS.format(folder=folder, server=server))
    as_whom = ["--user", "nobody"] if os.getuid() == 0 else []
    if as_whom:
        folder.chmod(0o777)
    with (folder / "said").open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            path, *as_whom, "--quiet", str(settings), stdout=said, stderr=said
        )
    try:
        async with asyncio.timeout(60):
            while not await _accepts(folder / ".s.PGSQL.6432"):
                assert process.returncode is None, (folder / "said").read_text()
                await asyncio.sleep(0.01)
        (folder / ".s.PGSQL.5432").symlink_to(folder / ".s.PGSQL.6432")
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _accepts(address: Path) -> bool:
    """Whether it listens there. (The socket is there before that: bind comes before listen.)"""
    try:
        _, writer = await asyncio.open_unix_connection(address)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    writer.close()
    return True
