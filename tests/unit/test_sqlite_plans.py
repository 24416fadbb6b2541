"""Each statement of the SQLite store uses the index that it names: it seeks, never walks a table, never
sorts needlessly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from rota.stores.sql_files import migrations
from rota.stores.sqlite.file import SqliteFile
from rota.stores.sqlite.queries import COUNT, FIND, SEEK, tally_statement
from rota.stores.sqlite.tx import STATEMENTS

SORTED = {
    "task_list_running",  # as many as workers run at once
    "task_list_pending",  # at most 10 000, else task_list is taken
    "task_list_past_expiry",  # what the janitor has not swept yet
    "outdated_zones_before",  # only when the time zone data has changed
    "outdated_zones_after",
    "open_tasks_pending",  # nobody lists all that is open: it is tallied
    "open_tasks_running",
    "tasks_in_line",  # the first of each line: as many as are let in
    "latest_runs",  # the latest of each schedule of a page
    "tasks_by_beginning",  # those of about a minute, since these are eight characters or more
}
"""Statements that sort what they found, with the reason why that is little."""

WALKED = {
    "task_list_running",
    "task_list_pending",
    "open_tasks_pending",
    "open_tasks_running",
}
"""Statements that walk a whole (partial) index: the same reasons."""


TABLE = "(task|schedule|run|event|template|apikey|tenant|receipt)"


@pytest.fixture(scope="module")
def db() -> Iterator[apsw.Connection]:
    db = apsw.Connection(":memory:")
    for step in migrations("sqlite"):
        db.execute(step.sql)
    yield db
    db.close()


def plan(db: apsw.Connection, statement: str) -> list[str]:
    names = dict.fromkeys(re.findall(r":(\w+)", statement))
    places = len(set(re.findall(r"\?(\d*)", statement)))
    values = names or (None,) * places
    return [row[3] for row in db.execute(f"explain query plan {statement}", values)]


@pytest.mark.parametrize("name", FIND)
def test_finds_use_their_index(db: apsw.Connection, name: str) -> None:
    steps = plan(db, FIND[name])
    index = re.search(r"indexed by (\w+)", FIND[name])
    assert index is not None, "every query names its index"
    walks = [step for step in steps if re.match(rf"(SCAN|SEARCH) {TABLE}\b", step)]
    by_id = re.compile(r"sqlite_autoindex_\w+_1 \(id=\?\)")
    assert [walk for walk in walks if index[1] not in walk and not by_id.search(walk)] == [], steps
    if name not in WALKED:
        assert not [step for step in walks if step.startswith("SCAN")], steps
    assert any("USE TEMP B-TREE FOR" in step for step in steps) == (name in SORTED), steps


@pytest.mark.parametrize("name", COUNT)
def test_counts_use_their_index(db: apsw.Connection, name: str) -> None:
    steps = plan(db, COUNT[name])
    if name not in WALKED:
        assert not [step for step in steps if re.match(rf"SCAN {TABLE}\b", step)], steps


@pytest.mark.parametrize("name", COUNT)
def test_counts_sort_nothing(db: apsw.Connection, name: str) -> None:
    """So that a count with a limit stops there."""
    assert not [step for step in plan(db, COUNT[name]) if "TEMP B-TREE" in step]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("open_tasks_pending", "task_pending"),
        ("open_tasks_running", "task_lease"),
        ("past_expiry", "task_expiry"),
        ("schedule_list", "schedule_created"),
        ("schedule_list_of_all", "schedule_of_all"),
    ],
)
def test_tallies_walk_only_what_they_count(db: apsw.Connection, name: str, index: str) -> None:
    steps = plan(db, tally_statement(name, "tenant, status"))
    [walk] = [step for step in steps if re.match(rf"(SCAN|SEARCH) {TABLE}\b", step)]
    assert f"INDEX {index}" in walk


@pytest.mark.parametrize("name", ["next_lane", "next_lane_in_queue", "next_priority"])
def test_lanes_are_found_by_seeking(db: apsw.Connection, name: str) -> None:
    [step] = plan(db, SEEK[name])
    assert step.startswith("SEARCH task USING COVERING INDEX task_pending"), step


@pytest.mark.parametrize("statements", STATEMENTS.values(), ids=lambda statements: statements.table.name)
def test_records_are_written_and_read_by_their_id(db: apsw.Connection, statements: object) -> None:
    for name in ("replace", "delete", "get", "get_many"):
        steps = plan(db, getattr(statements, name))
        assert any("(id=?)" in step for step in steps), (name, steps)
        assert not [step for step in steps if re.match(r"SCAN (?!json_each)", step)], (name, steps)


@pytest.mark.parametrize("statements", STATEMENTS.values(), ids=lambda each: each.table.name)
def test_writes_make_no_table_of_their_own(db: apsw.Connection, statements: Any) -> None:
    """As SQLite does for `status in (…)` with three values or more in the condition of an index: for every row."""
    for statement in (statements.insert, statements.replace, statements.delete):
        values = (None,) * max(int(number) for number in re.findall(r"\?(\d+)", statement))
        steps = [row[1] for row in db.execute(f"explain {statement}", values)]
        assert "OpenEphemeral" not in steps


def test_statements_are_not_planned_anew_for_other_values(tmp_path: Path) -> None:
    db = SqliteFile(tmp_path / "rota.db", timedelta(seconds=1)).connect("pragma user_version")
    assert db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1)
    db.close()
