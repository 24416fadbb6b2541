"""`async def` tests with a `world`: on the memory store, in virtual time. What stores differ in is tested elsewhere."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from rota.engine.roles import janitor, scheduler, worker
from worlds import DAY, STORES, play


@pytest.fixture(autouse=True)
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Days of virtual time would be spent on looks that find nothing; what happens is due at a time, or hinted at."""
    if request.node.get_closest_marker("hours"):
        for role in (janitor, scheduler, worker):
            monkeypatch.setattr(role, "LOOK_AGAIN", DAY)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return tmp_path


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or "world" not in pyfuncitem.funcargs:
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    others = {name: value for name, value in pyfuncitem.funcargs.items() if name in names and name != "world"}
    folder: Any = pyfuncitem.funcargs["world"]
    play(lambda world: pyfuncitem.obj(world, **others), STORES["memory"], folder)
    return True
