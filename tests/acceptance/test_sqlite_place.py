"""A SQLite file that is deleted, moved or replaced while it is open: nothing is committed into what nobody will find.

And who may read a new one."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from records import task
from rota.domain.errors import Unavailable
from rota.domain.model import Task
from rota.stores.base import Tx
from rota.stores.sqlite.store import SqliteStore
from stores import TestClock, get, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rota.db"


@pytest.fixture
def store(path: Path, runner: asyncio.Runner) -> Iterator[SqliteStore]:
    store = SqliteStore(path, TestClock(runner.get_loop()), busy_timeout=timedelta(milliseconds=50))
    runner.run(store.open())
    yield store
    runner.run(store.close())


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        beside(path, suffix).unlink()


def delete_wal(path: Path) -> None:
    beside(path, "-wal").unlink()


def delete_shm(path: Path) -> None:
    beside(path, "-shm").unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replace(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    copy.rename(path)


def replace_wal(path: Path) -> None:
    copy = path.with_name("copy.db-wal")
    shutil.copyfile(beside(path, "-wal"), copy)
    copy.rename(beside(path, "-wal"))


def link_in_a_circle(path: Path) -> None:
    """A path that cannot even be looked at."""
    move(path)
    path.symlink_to(path)


def delete_the_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


REMOVALS = [
    delete,
    delete_all,
    delete_wal,
    delete_shm,
    move,
    replace,
    replace_wal,
    link_in_a_circle,
    delete_the_folder,
]


async def ask(tx: Tx) -> None:
    await tx.get(Task, "a")


@pytest.mark.parametrize("remove", REMOVALS)
async def test_nothing_is_committed_into_a_file_that_is_gone(
    store: SqliteStore, path: Path, remove: Callable[[Path], None]
) -> None:
    await put(store, task("a"))
    remove(path)
    works = [
        put(store, task("b")),
        put(store, task("c")),
        store.transact(ask),
        store.read(ask),
        store.snapshot(),
    ]
    for answer in await asyncio.gather(*works, return_exceptions=True):
        assert isinstance(answer, Unavailable)
        assert answer.is_final
        others: dict[Any, str] = {delete_wal: "-wal", replace_wal: "-wal", delete_shm: "-shm"}
        name = "rota.db" + others.get(remove, "")
        assert str(answer) == (
            f"{path.with_name(name)} was deleted, moved or replaced while it was open, so nothing is written to it:"
            " put it back, or stop what uses the old one and open the store anew"
        )


async def test_a_file_that_is_put_back_is_used_again(store: SqliteStore, path: Path) -> None:
    away = path.with_name("away.db")
    path.rename(away)
    with pytest.raises(Unavailable, match="deleted, moved or replaced"):
        await put(store, task("a"))
    away.rename(path)
    await put(store, task("b"))
    assert await get(store, Task, "a") is None
    assert await get(store, Task, "b") is not None


async def test_a_file_that_goes_while_works_run_takes_none_of_them(store: SqliteStore, path: Path) -> None:
    away = path.with_name("away.db")

    async def work(tx: Tx) -> None:
        tx.put(task("a"))
        path.rename(away)

    with pytest.raises(Unavailable, match="deleted, moved or replaced"):
        await store.transact(work)
    away.rename(path)
    assert await get(store, Task, "a") is None


async def test_who_waits_is_woken_when_the_file_goes(store: SqliteStore, path: Path) -> None:
    waiting = asyncio.create_task(store.wait(None))
    await asyncio.sleep(0)
    path.rename(path.with_name("away.db"))
    await asyncio.wait_for(waiting, 60)


async def test_closing_the_old_file_leaves_its_successor_alone(path: Path) -> None:
    """The last one that closes a file deletes its -wal. What is at that path is another file's by then."""
    clock = TestClock(asyncio.get_running_loop())
    old, new = SqliteStore(path, clock), SqliteStore(path, clock)
    await old.open()
    await put(old, task("old"))
    delete_all(path)
    await new.open()
    await put(new, task("new"))
    await old.close()
    assert beside(path, "-wal").exists()
    await put(new, task("newer"))
    assert [each.id for each in (await new.snapshot())["task"]] == ["new", "newer"]
    await new.close()


async def test_a_relative_path_is_the_same_file_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("rota.db", TestClock(asyncio.get_running_loop()))
    await store.open()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    await put(store, task("a"))
    assert await get(store, Task, "a") is not None
    await store.close()


async def test_a_link_that_points_elsewhere_is_another_file(tmp_path: Path) -> None:
    link, first = tmp_path / "link.db", tmp_path / "first.db"
    link.symlink_to(first)
    store = SqliteStore(link, TestClock(asyncio.get_running_loop()))
    await store.open()
    await put(store, task("a"))
    shutil.copyfile(first, tmp_path / "second.db")
    link.unlink()
    link.symlink_to(tmp_path / "second.db")
    with pytest.raises(Unavailable, match=re.escape(f"{link} was deleted, moved or replaced")):
        await put(store, task("b"))
    await store.close()


def modes(folder: Path) -> dict[str, int]:
    return {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir() if not each.is_symlink()}


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("is_link", [False, True], ids=["a file", "a link to none"])
@pytest.mark.usefixtures("usual_umask")
async def test_a_new_file_is_readable_by_its_owner_only(tmp_path: Path, is_link: bool) -> None:
    path = tmp_path / "rota.db"
    if is_link:
        (tmp_path / "link.db").symlink_to(path)
    store = SqliteStore(tmp_path / "link.db" if is_link else path, TestClock(asyncio.get_running_loop()))
    await store.open()
    await put(store, task("a"))
    assert modes(tmp_path) == {"rota.db": 0o600, "rota.db-wal": 0o600, "rota.db-shm": 0o600}
    await store.close()


@pytest.mark.usefixtures("usual_umask")
async def test_a_file_that_others_may_use_stays_so(path: Path) -> None:
    path.touch(0o666)
    path.chmod(0o660)
    store = SqliteStore(path, TestClock(asyncio.get_running_loop()))
    await store.open()
    await put(store, task("a"))
    assert modes(path.parent) == {"rota.db": 0o660, "rota.db-wal": 0o660, "rota.db-shm": 0o660}
    await store.close()


@pytest.mark.usefixtures("usual_umask")
async def test_many_stores_that_make_one_new_file_share_it(path: Path) -> None:
    clock = TestClock(asyncio.get_running_loop())
    stores = [SqliteStore(path, clock) for _ in range(8)]
    await asyncio.gather(*(each.open() for each in stores))
    await asyncio.gather(*(put(each, task(f"t{n}")) for n, each in enumerate(stores)))
    assert len((await stores[0].snapshot())["task"]) == 8
    assert path.stat().st_mode & 0o777 == 0o600
    for each in stores:
        await each.close()
