"""What of a bucket is removed, judged by what is asked to be deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from rota.stores.bucket.archive.segments import SEGMENTS
from rota.stores.bucket.formats import entry_key, snapshot_keys
from rota.stores.bucket.log_removal import LogRemoval
from rota.stores.bucket.tuning import Tuning
from rota.stores.codec import micros
from stores import START

TUNING = Tuning(views="off")
OLD = f"{SEGMENTS}{micros(START - 2 * TUNING.retention)}-0.json.gz"


class Removing:
    """A removal at a time of ours, from a bucket that only lists."""

    def __init__(self, listed: Iterable[str], catch_up: Callable[[Any], None] = lambda archive: None) -> None:
        self.now = START
        self.deleted: set[str] = set()
        self.unfinished: list[datetime] = []
        self.archive = SimpleNamespace(segments={}, dropped=set[str]())
        bucket = SimpleNamespace(
            list=lambda prefix: [key for key in listed if key.startswith(prefix)],
            delete=self.deleted.update,
            remove_unfinished=self.unfinished.append,
        )
        log: Any = SimpleNamespace(
            bucket=bucket,
            replica=SimpleNamespace(lock=nullcontext(), archive=self.archive),
            time=SimpleNamespace(now=lambda: self.now, refresh=lambda: None),
            tuning=TUNING,
            snapshots={},
            floor=0,
            next_floor=0,
            catch_up=lambda: catch_up(self.archive),
        )
        self.log = log
        self.removal = LogRemoval(log)


def test_a_segment_that_only_an_unread_entry_names_stays() -> None:
    """It was written long before the entry: by a node that was slow in between."""
    found = Removing([OLD], catch_up=lambda archive: archive.segments.update({OLD: None}))
    found.removal.remove()
    assert not found.deleted
    nobodys = Removing([OLD])
    nobodys.removal.remove()
    assert nobodys.deleted == {OLD}


def test_a_segment_that_is_empty_stays_for_the_retention() -> None:
    """A node that is behind may still read it. Also if it is older than the node that looks for what was left over."""
    found = Removing([OLD])
    found.archive.dropped.add(OLD)
    for since in (0 * TUNING.retention, TUNING.retention / 2):
        found.now = START + since
        found.removal.remove()
        assert not found.deleted
    found.now = START + TUNING.retention
    found.removal.remove()
    assert found.deleted == {OLD}
    assert not found.archive.dropped


def test_what_is_half_written_is_looked_for_at_the_start_and_then_seldom() -> None:
    """It has to be as old as the retention, so that nobody is writing it."""
    found = Removing([])
    for since in (0 * TUNING.retention, TUNING.retention / 2, TUNING.retention):
        found.now = START + since
        found.removal.remove()
    assert found.unfinished == [START - TUNING.retention, START]


def test_every_entry_up_to_the_floor_goes_once_and_the_snapshots_before_it() -> None:
    found = Removing([entry_key(number) for number in range(1, 10)])
    for floor, gone in ((3, {1, 2, 3}), (5, {4, 5}), (5, set[int]()), (6, {6})):
        found.log.floor = floor
        found.log.snapshots = dict.fromkeys((2, floor), START)
        found.removal.remove()
        assert found.deleted == {*map(entry_key, gone), *snapshot_keys(2)}
        assert found.log.snapshots.keys() == {floor}
        found.deleted.clear()
