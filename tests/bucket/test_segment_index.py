"""Where an id may be: found at once, however long the archive is."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count as counting_up
from typing import Any

import pytest
from msgspec.structs import replace

from bucket.faulty import FaultyRequests, ManualClock
from records import task
from rota.domain.errors import Conflict
from rota.domain.model import Task, TaskStatus
from rota.domain.task import Submission
from rota.engine import commands
from rota.engine.commands.upkeep import Retention, forget_old
from rota.stores.bucket.archive import (
    archive as archive_module,
)
from rota.stores.bucket.archive import (
    segments as segments_module,
)
from rota.stores.bucket.archive.archive import first_rows
from rota.stores.bucket.archive.segments import SEGMENTS, Fingerprints, Segment, SegmentIndex, fingerprint
from rota.stores.bucket.service.bucket import MemoryRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.memory.state import Row
from rota.stores.queries import TaskList
from stores import EAGER, START, count, get, put
from worlds import seeds

_names = counting_up()


def segment(key: str, ids: dict[str, list[str]]) -> Segment:
    packed = {name: Fingerprints.of(each) for name, each in ids.items()}
    return Segment(key=key, ids=packed, groups={}, spans={}, counts={})


def keys(index: SegmentIndex, id: str) -> list[str]:
    return index.of(fingerprint(id))


def test_a_fingerprint_is_what_it_was_when_the_first_segments_were_written() -> None:
    assert fingerprint("t0007").hex() == "aac213a0f226463c"
    assert fingerprint("ü\ud800").hex() == "c272fe6916e9ae83"
    assert Fingerprints.of(["t0007", "t0008", "t0007"]) == b"".join(
        sorted([fingerprint("t0007"), fingerprint("t0008")])
    )


@pytest.mark.parametrize("size", [0, 1, 2, 3, 500])
def test_fingerprints_know_their_first_and_their_last(size: int) -> None:
    ids = [f"id-{n}" for n in range(size)]
    prints = Fingerprints(Fingerprints.of(ids))
    assert len(prints) == size
    assert all(id in prints for id in ids)
    assert not any(f"other-{n}" in prints for n in range(100))
    assert not prints.has(b"\0" * 8)
    assert not prints.has(b"\xff" * 8)


def test_an_id_may_be_nowhere_in_one_segment_or_in_several() -> None:
    index = SegmentIndex()
    assert keys(index, "a") == []
    index.add([segment("1", {"task": ["a", "b"], "run": ["a"]}), segment("2", {"task": ["c"]})])
    index.add([segment("3", {"event": ["a"]})])
    assert keys(index, "a") == ["1", "3"]
    assert keys(index, "b") == ["1"]
    assert keys(index, "c") == ["2"]
    assert keys(index, "d") == []
    index.remove("1")
    assert keys(index, "a") == ["3"]
    assert keys(index, "b") == []
    index.remove("3")
    index.remove("2")
    assert keys(index, "a") == []
    assert index.tables == 0


def test_a_walk_goes_on_at_the_beginning_of_its_table() -> None:
    index = SegmentIndex(least_bits=4)
    last = [b"\xff" * 7 + bytes([n]) for n in range(4)]
    index.add([replace(segment("1", {}), ids={"task": b"".join(last)})])
    index.add([replace(segment("2", {}), ids={"task": b"\0" * 8})])
    assert all("1" in index.of(each) for each in last)
    assert "2" in index.of(b"\0" * 8)
    assert index.of(b"\x80" + b"\0" * 7) == []


@pytest.mark.parametrize("seed", seeds(few=2, every=4))
@pytest.mark.parametrize(("bits", "most_segments"), [(4, 7), (6, 65_535), (20, 65_535)])
def test_nothing_is_lost_while_segments_come_and_go(seed: int, bits: int, most_segments: int) -> None:
    chance = random.Random(seed)
    index, alive, number = SegmentIndex(bits, most_segments), dict[str, list[str]](), counting_up()
    for _ in range(120):
        made = {str(next(number)): [str(chance.randrange(2000)) for _ in range(chance.randrange(1, 12))]}
        made |= {str(next(number)): [str(chance.randrange(2000))] for _ in range(chance.choice((0, 0, 0, 9)))}
        alive |= made
        index.add(segment(key, {"task": ids}) for key, ids in made.items())
        for key in chance.sample(sorted(alive), chance.randrange(min(len(alive), 5))):
            index.remove(key)
            del alive[key]
        key = chance.choice([*alive, ""])
        assert all(key in keys(index, id) for id in alive.get(key, []))
    assert all(key in keys(index, id) for key, ids in alive.items() for id in ids)
    assert {key for id in range(2000) for key in keys(index, str(id))} <= alive.keys()
    for key in alive:
        index.remove(key)
    assert index.tables == 0


def test_tables_are_few_and_small_whether_segments_come_at_once_or_one_by_one() -> None:
    ids = [[f"{n}/{m}" for m in range(40)] for n in range(1000)]
    segments = [segment(str(n), {"task": each}) for n, each in enumerate(ids)]
    at_once, one_by_one = SegmentIndex(least_bits=8), SegmentIndex(least_bits=8)
    at_once.add(segments)
    for each in segments:
        one_by_one.add([each])
    assert at_once.tables == 1
    assert one_by_one.tables <= 12
    for index in (at_once, one_by_one):
        assert index.size < 12 * 40_000
        asked = [len(keys(index, f"other {n}")) for n in range(2000)]
        assert sum(asked) < 8 * len(asked)


def test_where_the_oldest_go_and_new_ones_come_the_tables_stay_as_few() -> None:
    index = SegmentIndex(least_bits=8)
    for n in range(3000):
        index.add([segment(str(n), {"task": [f"{n}/{m}" for m in range(10)]})])
        if n >= 100:
            index.remove(str(n - 100))
        assert index.size < 50 * 1000
    assert all(keys(index, f"{n}/{m}") for n in range(2900, 3000) for m in range(10))


class Work:
    """What was done to look ids up."""

    def __init__(self) -> None:
        self.prints = 0
        self.segments = 0


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    work = Work()

    def counting_print(text: str) -> bytes:
        work.prints += 1
        return fingerprint(text)

    def counting_has(self: Fingerprints, wanted: bytes) -> bool:
        work.segments += 1
        return has(self, wanted)

    has = Fingerprints.has
    with monkeypatch.context() as patch:
        for module in (archive_module, segments_module):
            patch.setattr(module, "fingerprint", counting_print)
        patch.setattr(Fingerprints, "has", counting_has)
        yield work


def ended(number: int, **changes: Any) -> Task:
    at = START - timedelta(days=30) + number * timedelta(minutes=1)
    values = {"status": TaskStatus.COMPLETED, "created_at": at, "completed_at": at, "available_at": at}
    return task(f"t{number:04}", **{**values, **changes})


async def opened(**changes: Any) -> tuple[BucketStore, FaultyRequests]:
    tuning = replace(EAGER, archive_at_least=10, archive_at_most=10, snapshot_every=10**6, views="off")
    requests = FaultyRequests(MemoryRequests(f"index {next(_names)}"))
    store = BucketStore(requests, ManualClock(START), replace(tuning, **changes))
    await store.open()
    return store, requests


async def archive(store: BucketStore) -> None:
    while await store.opened.upkeep.archive_once():
        pass


def held(store: BucketStore) -> dict[str, Any]:
    return store.opened.replica.archive.segments


NEW = [(f"new {n}", Submission(kind="t", input={})) for n in range(20)]


@pytest.mark.parametrize(
    ("act", "asked_at_least"),
    [
        (lambda: commands.submit_tasks(NEW, "default", "me"), 0),
        (lambda: commands.archive_task("default", "t0003", "me"), 1),
        (lambda: forget_old(Retention(), 5), 10),
    ],
    ids=["new records", "an archived one is written again", "archived ones are deleted"],
)
async def test_a_commit_asks_few_segments_however_many_there_are(
    act: Any, asked_at_least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: dict[int, Work] = {}
    for segments in (2, 60):
        store, _ = await opened()
        await put(store, *(ended(n) for n in range(10 * segments)))
        await archive(store)
        assert len(held(store)) == segments
        with counted(monkeypatch) as done[segments]:
            await store.transact(act())
        await store.close()
    assert done[60].prints == done[2].prints > 0
    assert done[60].segments >= asked_at_least
    assert done[60].segments <= done[2].segments + 5, "two ids may happen to belong into one slot"


async def test_a_listing_makes_one_fingerprint_however_many_segments_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = await opened()
    await put(store, *(ended(n) for n in range(300)))
    await archive(store)
    with counted(monkeypatch) as work:
        assert await count(store, TaskList(tenant="nobody", at=START, kind="t")) == 0
    assert work.prints == 1
    await store.close()


def rows(*sizes: int) -> list[Row]:
    return [Row(ended(n), b"x" * size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        ((), 0),
        ((40,), 1),
        ((100,), 1),
        ((101,), 1),
        ((101, 1), 1),
        ((50, 50), 2),
        ((50, 51), 1),
        ((50, 51, 1), 1),
        ((10,) * 30, 10),
        ((1, 1000, 1), 1),
    ],
)
def test_a_segment_takes_what_its_text_allows_and_at_least_one(sizes: tuple[int, ...], taken: int) -> None:
    made = rows(*sizes)
    assert first_rows(made, 100) == made[:taken]


LARGE = {"x": "y" * 9_000}


async def test_large_records_go_to_many_segments_and_none_is_left_behind() -> None:
    store, requests = await opened(archive_at_least=1000, archive_at_most=4000, archive_bytes=50_000)
    await put(store, *(ended(n, input=LARGE) for n in range(43)))
    await archive(store)
    assert [one.size for one in held(store).values()] == [5] * 8 + [3]
    texts = [gzip.decompress(requests.get(key)[0]) for key in held(store)]
    assert max(map(len, texts)) < 51_000
    await put(store, *(ended(n, input=LARGE) for n in range(43, 47)))
    await archive(store)
    assert len(held(store)) == 9, "four are not enough"
    await put(store, *(ended(n, input=LARGE) for n in range(47, 50)))
    await archive(store)
    assert [one.size for one in held(store).values()] == [5] * 8 + [3, 5, 2]
    for n in range(50):
        assert await get(store, Task, f"t{n:04}") is not None
    await store.close()


async def test_a_record_larger_than_a_segment_has_its_own() -> None:
    store, _ = await opened(archive_at_least=1000, archive_bytes=50_000)
    await put(store, ended(1), ended(2, input={"x": "y" * 60_000}), ended(3))
    await archive(store)
    assert [one.size for one in held(store).values()] == [1, 1, 1]
    assert await get(store, Task, "t0002") is not None
    await store.close()


async def test_what_is_many_but_small_goes_to_one_segment_and_few_stay() -> None:
    store, _ = await opened()
    await put(store, *(ended(n) for n in range(29)))
    await archive(store)
    assert [one.size for one in held(store).values()] == [10, 10]
    await store.close()


async def test_a_segment_whose_records_have_changed_meanwhile_is_removed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, requests = await opened()
    await put(store, *(ended(n) for n in range(10)))

    async def changed(work: object) -> bool:
        [made] = requests.list(SEGMENTS, None)
        raise Conflict(f"a record of {made} has changed")

    monkeypatch.setattr(store.opened.upkeep, "_transact", changed)
    with pytest.raises(Conflict):
        await store.opened.upkeep.archive_once()
    assert list(requests.list(SEGMENTS, None)) == []
    await store.close()
