"""Every case runs on every store: none is skipped, overridden or written for one of them."""

from __future__ import annotations

import re
from pathlib import Path

from stores import STORES

_FORBIDDEN = re.compile(
    r"\bskip|xfail|MemoryStore|SqliteStore|BucketStore|url ==|url\.startswith|usefixtures\(.store"
)


def test_every_case_runs_on_every_store(cases: dict[str, set[str]]) -> None:
    assert len(cases) > 40
    assert {name: stores for name, stores in cases.items() if stores != set(STORES)} == {}


def test_no_case_knows_which_store_it_runs_on() -> None:
    for file in Path(__file__).parent.glob("test_*.py"):
        if file.name != Path(__file__).name:
            found = _FORBIDDEN.search(file.read_text("utf-8"))
            assert found is None, f"{file.name} mentions {found and found[0]}"
