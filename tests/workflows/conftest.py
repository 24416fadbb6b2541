"""`async def` tests with a `world`: on the memory store, in virtual time. What stores differ in is tested elsewhere."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from worlds import STORES, play, seldom_looks

__all__ = ["seldom_looks"]


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
