"""What the figures about PostgreSQL share: a server on a real disk, `fsync` and `synchronous_commit` on, and a fresh
database for each contestant."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg

import measure

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from postgres_server import Server

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "replica",
    "autovacuum": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
}


@contextmanager
def server(parent: Path | None) -> Iterator[Server]:
    with measure.folder(parent) as place:
        place.chmod(0o755)
        own = Server(place / "server", SETTINGS)
        own.create()
        own.start()
        try:
            yield own
        finally:
            own.stop()


async def database(own: Server, name: str) -> str:
    """The address of a new, empty database."""
    await command(own, f"drop database if exists {name} with (force)")
    await command(own, f"create database {name}")
    await command(own, "checkpoint")
    return own.url(name)


async def command(own: Server, sql: str) -> None:
    connection = await asyncpg.connect(own.url("postgres"))
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


def cpu_seconds(own: Server) -> float:
    """What the server has used of the processors until now, all its processes together. (Linux only.)"""
    postmaster = (own.folder / "data" / "postmaster.pid").read_text().split()[0]
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if pid == postmaster:
            ticks += sum(map(int, fields[11:15]))  # and of those that have ended
        elif fields[1] == postmaster:
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def report(figure: str, results: dict[str, Any], aims: dict[str, bool], parent: Path | None) -> None:
    versions = {"postgresql": "18", "settings": SETTINGS}
    measure.report(figure, {**results, **versions}, aims, parent)
