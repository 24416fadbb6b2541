"""One suite for every store. `store` is open, empty, and must leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.stores.base import Store
from stores import STORES, TestClock, opened_store


@pytest.fixture
def clock(runner: asyncio.Runner) -> TestClock:
    return TestClock(runner.get_loop())


@pytest.fixture(params=STORES)
def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock, runner: asyncio.Runner
) -> Iterator[Store]:
    with opened_store(request.param, tmp_path, clock, runner) as store:
        yield store


_collected: dict[str, set[str]] = {}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Remember which cases run on which stores, for the guard."""
    if isinstance(item, pytest.Function) and "store" in item.fixturenames:
        name = item.callspec.params.get("store") if hasattr(item, "callspec") else None
        _collected.setdefault(f"{item.path.name}::{item.originalname}", set()).add(str(name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A case that is skipped has failed: it holds for every store or for none."""
    report: Any = yield
    if report.skipped and "store" in getattr(item, "fixturenames", ()):
        report.outcome = "failed"
        report.longrepr = "a conformance case may not be skipped"
    return report


@pytest.fixture
def cases() -> dict[str, set[str]]:
    """The cases of this suite, with the stores that each runs on."""
    return _collected
