"""What PostgreSQL shows of the processes that are connected to it."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import asyncpg
import pytest

from command_line import Process
from postgres_server import new_database


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("scheduler run", "scheduler"),
        ("monitor", "janitor"),
        ("up --demo", "scheduler-worker-janitor"),
    ],
)
def test_the_server_shows_in_which_role_a_process_is_connected(tmp_path: Path, line: str, role: str) -> None:
    store = new_database()
    others = "datname = current_database() and pid <> pg_backend_pid()"
    names = f"select application_name from pg_stat_activity where {others}"

    async def connected() -> list[str]:
        connection = await asyncpg.connect(store)
        try:
            return [name for (name,) in await connection.fetch(names)]
        finally:
            await connection.close()

    with Process(f"{line} --store {shlex.quote(store)}", tmp_path) as process:
        process.until("Ctrl-C stops it")
        shown = asyncio.run(connected())
    assert shown
    assert all(name.startswith(f"rota {role} ") and ":" in name for name in shown), shown
