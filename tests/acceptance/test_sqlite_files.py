"""SQLite files as they are in life: locked, read-only, full, damaged, shared, and processes that are
killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import rota
from records import task
from rota.domain.errors import Corrupt, Invalid, RotaError, Unavailable
from rota.domain.model import Schedule, Task
from rota.stores.base import Tx
from rota.stores.queries import ReadyTasks
from rota.stores.sqlite import file as sqlite_file
from rota.stores.sqlite.store import SqliteStore
from stores import TestClock, connections_in, find, get, put

CHILD = """
import asyncio, os, resource, sys
sys.path.insert(0, {tests!r})
import rota
from records import task
from stores import put
from rota.domain.errors import StoreError
from rota.engine.clock import SystemClock
from rota.stores.sql_files import migrations
from rota.stores.sqlite.store import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1], SystemClock())
{body}

try:
    asyncio.run(main())
except StoreError as error:
    print(type(error).__name__, error, sep=": ", flush=True)
"""

WRITE_FOREVER = """
    await store.open()
    async def client(name):
        n = 0
        while True:
            await put(store, task(f"{name}-{n}", input="x" * 300))
            print(f"{name}-{n}", flush=True)
            n += 1
    await asyncio.gather(*(client(f"c{i}") for i in range(8)))
"""

WRITE_WHEN_TOLD = """
    await store.open()
    for line in sys.stdin:
        await put(store, task(line.strip()))
        print("done", flush=True)
    await store.close()
"""

WRITE_AS_NOBODY = """
    migrations("sqlite")
    if os.getuid() == 0:  # who may write anything
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    await store.open()
    await put(store, task("new"))
    await store.close()
    print("fine")
"""

OUTGROW_THE_LIMIT = """
    await store.open()
    await put(store, task("small"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, resource.RLIM_INFINITY))
    try:
        await put(store, task("large", input="x" * 1_000_000))
    except StoreError as error:
        print(type(error).__name__, error, sep=": ")
    await put(store, task("after"))
    print(sorted(each.id for each in (await store.snapshot())["task"]))
    await store.close()
"""


def child(body: str, path: Path) -> subprocess.Popen[str]:
    code = CHILD.format(tests=str(Path(__file__).parent.parent), body=body)
    command, pipe = [sys.executable, "-c", code, str(path)], subprocess.PIPE
    return subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def run_child(body: str, path: Path) -> str:
    process = child(body, path)
    out, error = process.communicate(timeout=60)
    assert error == ""
    return out.strip()


def contents(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def protect(path: Path, mode: int) -> None:
    path.chmod(mode)


async def open_and_read(store: SqliteStore) -> None:
    await store.open()
    await store.snapshot()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rota.db"


@pytest.fixture
def store(path: Path, runner: asyncio.Runner) -> Iterator[SqliteStore]:
    store = SqliteStore(path, TestClock(runner.get_loop()), busy_timeout=timedelta(milliseconds=50))
    runner.run(store.open())
    yield store
    runner.run(store.close())
    assert not connections_in(path.parent)


@pytest.fixture
def other(path: Path, store: SqliteStore) -> Iterator[apsw.Connection]:
    """Someone else who uses the file."""
    db = apsw.Connection(str(path))
    yield db
    db.close()


async def test_a_locked_file_is_unavailable_and_then_works_again(
    store: SqliteStore, other: apsw.Connection
) -> None:
    other.execute("begin immediate")
    with pytest.raises(
        Unavailable, match=r"rota.db was locked by another process for 0.05 s: close what holds it"
    ):
        await put(store, task("a"))
    assert await get(store, Task, "a") is None
    other.execute("rollback")
    await put(store, task("a"))
    assert await get(store, Task, "a") is not None


async def test_it_is_durable_by_default(store: SqliteStore) -> None:
    """Every commit is synced to the disk (2 is FULL) before it is acknowledged."""
    for pragma, value in (("synchronous", 2), ("journal_mode", "wal")):

        def ask(db: apsw.Connection, pragma: str = pragma) -> object:
            return db.execute(f"pragma {pragma}").get

        assert await store.opened.writer.run(ask) == value


async def test_what_an_edit_does_not_change_is_not_written(store: SqliteStore) -> None:
    """In a savepoint, or where it counts for a trigger, each of thousands of edits would cost as much as all before."""
    queue = rota.Queue(store)
    await queue.apply(_declared("0 9 * * *"))
    statements: list[str] = []

    def heard(cursor: object, sql: str, values: object) -> bool:
        statements.append(sql)
        return True

    def listen(db: apsw.Connection) -> None:
        db.set_exec_trace(heard)

    await store.opened.writer.run(listen)
    await queue.apply(_declared("0 10 * * *"))
    assert not any("savepoint" in each for each in statements)
    updates = [each for each in statements if each.startswith("update schedule")]
    assert len(updates) == 3
    assert not any(f"{column} = " in each for each in updates for column in ("key", "status", "deleted_at"))


def _declared(cron: str) -> dict[str, Any]:
    return {"schedules": {f"s{number}": {"task_type": "report", "cron": cron} for number in range(3)}}


@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "in a group"])
async def test_a_record_that_sqlite_cannot_take_leaves_nothing_of_its_work(
    store: SqliteStore, beside: int
) -> None:
    async def too_large(tx: Tx) -> None:
        tx.put(task("a"))
        tx.put(task("b", priority=2**70))

    answers = await asyncio.gather(
        store.transact(too_large), *(put(store, task("c")) for _ in range(beside)), return_exceptions=True
    )
    assert isinstance(answers[0], OverflowError)
    assert [each is not None for each in [await get(store, Task, id) for id in "abc"]] == [
        False,
        False,
        bool(beside),
    ]


async def test_readers_do_not_wait_for_a_writer(store: SqliteStore, other: apsw.Connection) -> None:
    await put(store, task("a"))
    other.execute("begin immediate")
    assert len(await find(store, ReadyTasks(at=await store.now()))) == 1
    other.execute("rollback")


async def test_a_read_sees_one_moment_and_holds_up_no_writer(store: SqliteStore) -> None:
    started, written = threading.Event(), threading.Event()

    async def work(tx: Tx) -> list[int]:
        before = await tx.count(ReadyTasks(at=tx.now))
        started.set()
        assert written.wait(60)
        return [before, await tx.count(ReadyTasks(at=tx.now))]

    reading = asyncio.create_task(store.read(work))
    assert await asyncio.to_thread(started.wait, 60)
    await put(store, task("a"))
    written.set()
    assert await reading == [0, 0]


async def test_reads_that_wait_for_their_turn_end_before_the_store_is_closed(store: SqliteStore) -> None:
    begun, may_end = threading.Event(), threading.Event()

    async def slow(tx: Tx) -> Task | None:
        begun.set()
        may_end.wait()
        return await tx.get(Task, "a")

    async def quick(tx: Tx) -> Task | None:
        return await tx.get(Task, "a")

    reads = [asyncio.create_task(store.read(work)) for work in (slow, quick, quick)]
    await asyncio.to_thread(begun.wait)
    closing = asyncio.create_task(store.close())
    for _ in range(5):
        await asyncio.sleep(0)
    may_end.set()
    await closing
    assert await asyncio.gather(*reads) == [None, None, None]


async def test_a_commit_here_ends_a_wait_without_looking(path: Path) -> None:
    clock = TestClock(asyncio.get_running_loop())
    store = SqliteStore(path, clock, poll_interval=timedelta(hours=1))
    await store.open()
    waiting = asyncio.create_task(store.wait(None))
    await asyncio.sleep(0)
    await put(store, task())
    await waiting
    await store.close()


async def test_a_work_waits_its_turn(store: SqliteStore, other: apsw.Connection) -> None:
    patient = SqliteStore(store.path, store.clock)
    await patient.open()
    other.execute("begin immediate")
    writing = asyncio.create_task(put(patient, task("a")))
    await asyncio.sleep(0.05)
    assert not writing.done()
    other.execute("commit")
    await writing
    await patient.close()


async def test_a_file_that_is_no_database_is_corrupt_and_left_alone(path: Path) -> None:
    write(path, before := b"these are my notes, not a database. " * 100)
    store = SqliteStore(path, TestClock(asyncio.get_running_loop()))
    with pytest.raises(Corrupt, match=r"rota.db is not a SQLite database: choose another file"):
        await store.open()
    assert contents(path) == before


async def test_a_missing_folder_is_named_and_not_created(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "not" / "here.db", TestClock(asyncio.get_running_loop()))
    with pytest.raises(Unavailable, match=r"the folder of .*here.db does not exist: create .*not first"):
        await store.open()
    assert not (tmp_path / "not").exists()


async def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, TestClock(asyncio.get_running_loop()))
    with pytest.raises(Unavailable, match="cannot be written"):
        await store.open()


async def test_a_damaged_record_is_named(store: SqliteStore, other: apsw.Connection) -> None:
    await put(store, task("good"), task("bad"))
    other.execute("""update task set body = '{"id": "bad"}' where id = 'bad'""")
    for use in (store.snapshot(), get(store, Task, "bad")):
        with pytest.raises(Corrupt, match="task bad cannot be read"):
            await use
    assert await get(store, Task, "good") is not None
    [found] = await find(store, ReadyTasks(at=await store.now()))
    assert found.id == "good"


async def test_a_damaged_file_is_corrupt(store: SqliteStore, path: Path) -> None:
    await put(store, *(task(input="x" * 500) for _ in range(200)))
    await store.close()
    content = bytearray(contents(path) or b"")
    content[8192:-4096] = os.urandom(len(content) - 8192 - 4096)
    write(path, bytes(content))
    with pytest.raises(Corrupt, match=r"rota.db is damaged .*: restore it from a copy"):
        await open_and_read(store)


async def test_a_full_disk_is_unavailable_for_what_does_not_fit(store: SqliteStore) -> None:
    await put(store, task("before"))
    await store.opened.writer.run(lambda db: db.execute("pragma max_page_count = 100").fetchall())

    def large(number: int) -> Any:
        return put(store, task(f"large-{number}", input="x" * 500_000))

    def small(number: int) -> Any:
        return put(store, task(f"small-{number}"))

    answers = await asyncio.gather(*(w(n) for n in range(4) for w in (small, large)), return_exceptions=True)
    for answer in answers[1::2]:
        assert isinstance(answer, Unavailable)
        assert "no space left to write" in str(answer)
    stored = [each.id for each in (await store.snapshot())["task"]]
    assert stored == ["before", "small-0", "small-1", "small-2", "small-3"]
    await store.opened.writer.run(lambda db: db.execute("pragma max_page_count = 100000").fetchall())
    await large(9)


def test_a_write_that_the_system_refuses_is_unavailable_and_the_store_goes_on(path: Path) -> None:
    lines = run_child(OUTGROW_THE_LIMIT, path).splitlines()
    assert lines[0].startswith(f"Unavailable: reading or writing {path} failed")
    assert lines[1] == "['after', 'small']"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everyone can reach."""
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


@pytest.mark.parametrize("what", ["file", "folder", "new file"])
async def test_read_only_is_one_clear_error(public: Path, what: str) -> None:
    path = public / "rota.db"
    if what != "new file":
        store = SqliteStore(path, TestClock(asyncio.get_running_loop()))
        await store.open()
        await store.close()
        protect(path, 0o444 if what == "file" else 0o666)
    if what != "file":
        protect(public, 0o555)
    before = contents(path)
    out = await asyncio.to_thread(run_child, WRITE_AS_NOBODY, path)
    assert (
        out
        == f"Unavailable: {path} cannot be written: the file and its folder must be writable for this user"
    )
    assert contents(path) == before


def test_what_was_acknowledged_survives_kill_9(path: Path, runner: asyncio.Runner) -> None:
    store = SqliteStore(path, TestClock(runner.get_loop()))
    acknowledged: set[str] = set()
    for number in range(3):
        process = child(WRITE_FOREVER.replace('f"c{i}"', f'f"r{number}c{{i}}"'), path)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(150)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout  # not communicate: it does not know what readline has read ahead
        process.communicate()
        acknowledged |= {line.strip() for line in lines if line.endswith("\n")}
    runner.run(store.open())
    stored = {each.id for each in runner.run(store.snapshot())["task"]}
    runner.run(store.close())
    assert len(acknowledged) >= 450
    assert acknowledged <= stored
    db = apsw.Connection(str(path))
    assert db.execute("pragma integrity_check").get == "ok"
    db.close()


@pytest.mark.parametrize("how", [*(["watch"] if sys.platform == "linux" else []), "header", "data version"])
async def test_a_commit_by_another_process_ends_a_wait(
    path: Path, how: str, monkeypatch: pytest.MonkeyPatch, runner: asyncio.Runner
) -> None:
    if how != "watch":
        monkeypatch.setattr(sqlite_file.FileWatch, "__init__", raise_os_error)
    if how == "data version":
        monkeypatch.setattr(sqlite_file.Header, "__init__", raise_os_error)
        monkeypatch.setattr("rota.stores.sqlite.store.SLOW_POLL_INTERVAL", timedelta(milliseconds=30))
    poll_interval = timedelta(hours=1) if how == "watch" else timedelta(milliseconds=20)
    store = SqliteStore(path, TestClock(asyncio.get_running_loop()), poll_interval=poll_interval)
    await store.open()
    process = await asyncio.to_thread(child, WRITE_WHEN_TOLD, path)
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(3):
        waiting = asyncio.create_task(store.wait(None))
        await asyncio.sleep(0.1)
        assert not waiting.done() or number == 0, "nothing was committed"
        process.stdin.write(f"task-{number}\n")
        process.stdin.flush()
        assert await asyncio.to_thread(process.stdout.readline) == "done\n"
        await waiting
    await asyncio.to_thread(process.communicate)
    assert len((await store.snapshot())["task"]) == 3
    await store.close()


async def test_only_commits_of_others_end_a_wait_for_other_types(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(path, TestClock(asyncio.get_running_loop()))
    await other.open()
    waiting = asyncio.create_task(store.wait(None, of={Schedule}))
    await asyncio.sleep(0)
    for number in range(20):
        await asyncio.gather(put(store, task(f"a-{number}")), put(store, task(f"b-{number}")))
        store.opened.waiters.look_now()
        await asyncio.sleep(0)
        assert not waiting.done(), "the commit was our own, and wrote none"
    await put(other, task("of another"))
    await waiting
    await other.close()


def raise_os_error(*_: object) -> None:
    raise OSError("no shared memory here")


async def test_idle_costs_nothing(store: SqliteStore, runner: asyncio.Runner) -> None:
    statements: list[str] = []
    for thread in (store.opened.reader, store.opened.writer):
        await thread.run(lambda db: db.set_profile(lambda statement, _: statements.append(statement)))
    before = os.times()
    waiting = asyncio.create_task(store.wait(None))
    await asyncio.sleep(0.5)
    after = os.times()
    assert not waiting.done()
    assert statements == []
    assert (after.user + after.system) - (before.user + before.system) < 0.05
    await put(store, task())
    await waiting


async def test_two_stores_on_one_file_share_it(path: Path) -> None:
    store, second = (SqliteStore(path, TestClock(asyncio.get_running_loop())) for _ in range(2))
    await store.open()
    await second.open()

    def add(number: int) -> Any:
        async def work(tx: Tx) -> None:
            tx.put(task(f"t-{number}"))

        return work

    await asyncio.gather(
        *(each.transact(add(n * 2 + i)) for n in range(50) for i, each in enumerate((store, second)))
    )
    assert len((await store.snapshot())["task"]) == 100
    await second.close()
    await put(store, task("still open"))
    await store.close()


@pytest.mark.parametrize(
    ("url", "path", "seconds"),
    [
        ("sqlite:///rota.db", "rota.db", 30),
        ("sqlite:///some/rota.db", "some/rota.db", 30),
        ("sqlite:////var/lib/rota.db", "/var/lib/rota.db", 30),
        ("sqlite:///with%20space.db?busy_timeout=0.5", "with space.db", 0.5),
    ],
)
async def test_urls(url: str, path: str, seconds: float) -> None:
    store = SqliteStore.from_url(url, TestClock(asyncio.get_running_loop()))
    assert (store.path, store.busy_timeout.total_seconds()) == (Path(path), seconds)
    assert store.url == f"sqlite:///{path}"


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite://host/x", "sqlite:///", "postgresql:///x", "sqlite:///a?b=1"]
)
async def test_bad_urls(url: str) -> None:
    with pytest.raises(Invalid):
        SqliteStore.from_url(url, TestClock(asyncio.get_running_loop()))


async def test_bad_busy_timeout() -> None:
    with pytest.raises(RotaError, match="busy_timeout is 'long'; it is a number of seconds"):
        SqliteStore.from_url("sqlite:///a?busy_timeout=long", TestClock(asyncio.get_running_loop()))


@pytest.mark.parametrize("patience", [60, 2.4, 0.6])
async def test_a_lock_that_outlasts_the_lease_repeats_nothing(tmp_path: Path, patience: float) -> None:
    """Two workers with their janitors on one file, and someone with a transaction that stays open. Who wants to write a
    result waits for all of it; or gives up in between, and finds a sweep before it in the queue; or gives up often."""
    address, app, end, starts = (
        f"sqlite:///{tmp_path}/rota.db?busy_timeout={patience}",
        rota.App(),
        asyncio.Event(),
        [],
    )

    @app.task("work", max_retries=0)
    async def work(context: rota.Context) -> str:
        starts.append(context.task.id)
        await end.wait()
        return "done"

    async with rota.connect(address) as queue, rota.connect(address) as other:
        workers = [rota.Worker(each, app, lease=2) for each in (queue, other)]
        running = [asyncio.create_task(worker.run(handle_signals=False)) for worker in workers]
        tasks = await queue.submit_many([("work", None)] * 8)
        while len(starts) < len(tasks):
            await queue.store.wait(await queue.now() + timedelta(milliseconds=20))
        someone = apsw.Connection(str(tmp_path / "rota.db"))
        someone.set_busy_timeout(60_000)
        someone.execute("begin immediate")
        end.set()  # the results are there, and cannot be written
        for held in [await queue.get(each.id) for each in tasks]:
            assert held.lease_expires_at is not None
            while held.lease_expires_at + timedelta(seconds=1) > await queue.now():
                await asyncio.sleep(0.05)
        someone.execute("rollback")
        someone.close()
        done = [await queue.wait(each.id, 60) for each in tasks]
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
    assert {(each.status, each.attempt, each.output) for each in done} == {("completed", 1, "done")}
    assert sorted(starts) == sorted(each.id for each in tasks)
