"""A folder as the bucket: what is acknowledged is on the disk. Shown by the order of the system's calls."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bucket.faulty import ManualClock
from records import schedule, task
from rota.domain.errors import Unavailable
from rota.domain.model import TaskStatus
from rota.stores.bucket.service.bucket import Bucket, Denied, FolderRequests, Taken
from rota.stores.bucket.store import BucketStore
from stores import EAGER, START, put

Call = tuple[str, str]


OPEN_FILES = Path("/proc/self/fd")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """What the process asked of the file system, in order: ("fsync" | "named" | "mkdir", path)."""
    if not OPEN_FILES.exists():
        pytest.skip(f"no {OPEN_FILES} here: which file is synced cannot be seen")
    made: list[Call] = []
    fsync = os.fsync

    def syncing(opened: int) -> None:
        fsync(opened)
        made.append(("fsync", os.readlink(OPEN_FILES / str(opened))))

    def noting(name: str, act: str, which: int) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def noted(*given: Any, **named: Any) -> Any:
            answer = real(*given, **named)
            made.append((act, str(given[which])))
            return answer

        monkeypatch.setattr(os, name, noted)

    monkeypatch.setattr(os, "fsync", syncing)
    noting("link", "named", 1)
    noting("replace", "named", 1)
    noting("mkdir", "mkdir", 0)
    return made


def is_durable(calls: list[Call], path: Path) -> bool:
    """The body was on the disk before it had its name, the name was after it, and so are the folders it is in."""
    named = max(at for at, call in enumerate(calls) if call == ("named", str(path)))
    body = any(
        act == "fsync" and other.startswith(f"{path}#") and at < named
        for at, (act, other) in enumerate(calls)
    )
    home = ("fsync", str(path.parent)) in calls[named:]
    made = [(at, Path(other)) for at, (act, other) in enumerate(calls) if act == "mkdir"]
    folders = all(
        ("fsync", str(folder.parent)) in calls[at:] for at, folder in made if folder in path.parents
    )
    return body and home and folders


@pytest.mark.parametrize("act", ["create", "put"])
@pytest.mark.parametrize("key", ["log/000000000001.json", "schedules/a/history/now.json"])
def test_what_is_acknowledged_is_on_the_disk(tmp_path: Path, calls: list[Call], act: str, key: str) -> None:
    requests = FolderRequests(tmp_path / "new" / "bucket")
    assert list(requests.list("", None)) == []
    assert not (tmp_path / "new").exists()  # reading makes no folder
    getattr(requests, act)(key, b"text")
    assert {("fsync", str(tmp_path / "new")), ("fsync", str(tmp_path))} <= set(calls)
    assert is_durable(calls, tmp_path / "new" / "bucket" / key)
    assert requests.get(key).body == b"text"
    assert list(requests.list("", None)) == [key]


def test_a_put_takes_the_place_of_what_was_there_and_a_create_does_not(tmp_path: Path) -> None:
    bucket = Bucket(FolderRequests(tmp_path))
    bucket.put("snapshot/1.json", b"one")
    bucket.put("snapshot/1.json", b"two")
    with pytest.raises(Taken):
        bucket.create("snapshot/1.json", b"three")
    assert bucket.get("snapshot/1.json") == b"two"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["1.json"]


def test_a_put_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = FolderRequests(tmp_path)
    requests.put("snapshot/1.json", b"one")

    def full(opened: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        requests.put("snapshot/1.json", b"two")
    assert requests.get("snapshot/1.json").body == b"one"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["1.json"]


def test_a_folder_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    requests = FolderRequests(tmp_path)
    requests.put("schedules/a.json", b"1")
    requests.delete(["schedules/a.json"])
    (tmp_path / "schedules").rmdir()
    requests.put("schedules/a.json", b"2")
    assert requests.get("schedules/a.json").body == b"2"


def _deleted(bucket: Path) -> None:
    shutil.rmtree(bucket)


def _moved(bucket: Path) -> None:
    bucket.rename(bucket.with_name("moved"))


def _replaced(bucket: Path) -> None:
    copy = shutil.copytree(bucket, bucket.with_name("copy"))
    bucket.rename(bucket.with_name("old"))
    copy.rename(bucket)


def _made_anew(bucket: Path) -> None:
    """By another node, perhaps with the numbers that the old folders had."""
    shutil.rmtree(bucket)
    (bucket / "log").mkdir(parents=True)


def _without_log(bucket: Path) -> None:
    shutil.rmtree(bucket / "log")


@pytest.mark.parametrize("happens", [_deleted, _moved, _replaced, _made_anew, _without_log])
async def test_nothing_is_written_to_a_bucket_that_was_deleted_moved_or_replaced(
    tmp_path: Path, happens: Callable[[Path], None]
) -> None:
    bucket = tmp_path / "bucket"
    store = BucketStore(FolderRequests(bucket), ManualClock(START), EAGER)
    await store.open()
    await put(store, task("t1"))
    happens(bucket)
    left = sorted(bucket.rglob("*"))
    for _ in range(2):
        with pytest.raises(Unavailable, match="was deleted, moved or replaced while it was open"):
            await put(store, task("t2"))
    assert sorted(bucket.rglob("*")) == left, "no folder is made anew"
    await store.close()


def test_whether_a_bucket_that_goes_meanwhile_was_written_to_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = FolderRequests(tmp_path / "bucket")
    requests.create("log/1.json", b"1")
    link = os.link

    def linked_then_moved(source: Path, target: Path) -> None:
        link(source, target)
        (tmp_path / "bucket").rename(tmp_path / "moved")

    monkeypatch.setattr(os, "link", linked_then_moved)
    with pytest.raises(Unavailable, match="was deleted, moved or replaced") as told:
        requests.create("log/2.json", b"2")
    assert not isinstance(told.value, Denied)


async def test_no_entry_of_the_log_names_what_is_not_on_the_disk(tmp_path: Path, calls: list[Call]) -> None:
    """Snapshots and segments, before the entry that speaks of them has its name."""
    store = BucketStore(
        FolderRequests(tmp_path), ManualClock(START), replace(EAGER, retention=EAGER.window * 100)
    )
    await store.open()
    await put(store, schedule("s", key="s"))
    for number in range(12):
        await put(store, task(f"t{number}", status=TaskStatus.COMPLETED, completed_at=START))
        await asyncio.sleep(0.02)
    async with asyncio.timeout(60):
        while not store.opened.log.snapshot:  # on a busy machine upkeep is behind
            await asyncio.sleep(0.02)
    await put(store, task("last"))
    await store.close()
    named: set[str] = set()
    for entry in sorted((tmp_path / "log").iterdir()):
        said = msgspec.json.decode(entry.read_bytes())
        before = calls[: calls.index(("named", str(entry)))]
        keys = [said["segment"]["key"]] if "segment" in said else []
        keys += [f"snapshot/{said['snapshot']:012}.json"] if said.get("snapshot") else []
        for key in keys:
            assert is_durable(before, tmp_path / key), (entry.name, key)
        named.update(key.partition("/")[0] for key in keys)
        assert is_durable(calls, entry)
    assert named == {"snapshot", "archive"}
    assert is_durable(calls, tmp_path / "schedules" / "s.json"), "the views, too"


def test_a_folder_that_is_removed_while_others_write_into_it_fails_nobody(tmp_path: Path) -> None:
    requests = FolderRequests(tmp_path)

    def busy(number: int) -> None:
        for _ in range(200):
            requests.put(f"schedules/s/history/{number}.json", b"{}")
            requests.delete([f"schedules/s/history/{number}.json"])

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(busy, range(4)))
    assert list((tmp_path / "schedules").iterdir()) == []


def test_one_that_cannot_be_deleted_keeps_no_other_there(tmp_path: Path) -> None:
    bucket = Bucket(FolderRequests(tmp_path))
    bucket.put("schedules/a.json/inside.json", b"{}")
    bucket.put("schedules/b.json", b"{}")
    with pytest.raises(Unavailable, match=r"schedules/a\.json"):
        bucket.delete(["schedules/a.json", "schedules/b.json"])
    assert bucket.list("") == ["schedules/a.json/inside.json"]


DYING = """
import os, sys
from pathlib import Path
from rota.stores.bucket.service.bucket import FolderRequests

def chunks():
    yield b"x" * 100_000
    os._exit(9)

FolderRequests(Path(sys.argv[1])).put_parts(sys.argv[2], chunks())
"""


def test_what_a_dead_process_left_of_a_large_object_can_be_found_and_deleted(tmp_path: Path) -> None:
    folder = FolderRequests(tmp_path)
    key = "artifacts/large"
    assert subprocess.run([sys.executable, "-c", DYING, tmp_path, key], check=False).returncode == 9
    with pytest.raises(FileNotFoundError):
        folder.get(key)
    assert list(folder.list("artifacts/", None)) == [key]
    folder.delete([key])
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
    folder.put_parts(key, iter([b"all", b" of it"]))
    assert folder.get(key).body == b"all of it"
    assert list(folder.list("artifacts/", None)) == [key]


KILLED = """
import os, sys
from pathlib import Path
from rota.stores.bucket.service.bucket import FolderRequests

os.link = lambda *_: os._exit(9)
FolderRequests(Path(sys.argv[1])).create(sys.argv[2], b"x" * 100_000)
"""


def test_what_a_dead_process_left_of_a_small_object_is_removed_when_it_is_old(tmp_path: Path) -> None:
    folder, now = FolderRequests(tmp_path), datetime.now(UTC)
    keys = ["log/00/17", "segments/2026/11.json.gz"]
    for key in keys:
        left = subprocess.run([sys.executable, "-c", KILLED, tmp_path, key], check=False)
        assert left.returncode == 9
    folder.put("schedules/a#1.json", b"a view")
    for path in tmp_path.rglob("*#1.json"):
        os.utime(path, (0, 0))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3
    folder.remove_unfinished(now - timedelta(hours=1))
    assert all(path.exists() for path in files), "someone may be writing them"
    folder.remove_unfinished(now + timedelta(hours=1))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a#1.json"]
    FolderRequests(tmp_path / "never made").remove_unfinished(now)


async def test_upkeep_removes_what_killed_processes_left_in_a_folder(tmp_path: Path) -> None:
    clock = ManualClock(datetime.now(UTC))
    store = BucketStore(FolderRequests(tmp_path), clock, EAGER)
    await store.open()
    await put(store, task("first"))
    left = tmp_path / "log" / "0000000099#123456"
    left.write_bytes(b"half")
    clock.at += 2 * EAGER.retention
    for number in range(2 * EAGER.snapshot_every):
        await put(store, task(f"t-{number}"))
    await store.close()
    assert not left.exists()
    assert list((tmp_path / "log").iterdir())
