"""Each scenario is played on two stores, in `make test-all` on every one: `def test_x(world): world(scenario)`, or an
`async def` with a `w`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from worlds import EVERY_STORE, START, Scenario, play, seldom_looks, two_stores

__all__ = ["seldom_looks"]

Play = Callable[..., None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = any("world" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "world" in metafunc.fixturenames and not named:
        metafunc.parametrize("world", two_stores(metafunc.definition.nodeid), indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    def run(scenario: Scenario, start: datetime = START) -> None:
        play(scenario, EVERY_STORE[request.param], tmp_path, start)

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An `async def` test that takes `world` is the scenario: its parameter is the World."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or "world" not in pyfuncitem.funcargs:
        return None
    marked = pyfuncitem.get_closest_marker("start")
    others = {
        name: value
        for name, value in pyfuncitem.funcargs.items()
        if name in inspect.signature(pyfuncitem.obj).parameters and name != "world"
    }
    start = marked.args[0] if marked else START
    play: Any = pyfuncitem.funcargs["world"]
    play(lambda w: pyfuncitem.obj(w, **others), start)
    return True
