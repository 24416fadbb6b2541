"""An `async def` test that takes `bench` runs on a bench: a worker in real time that may run shell commands."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from runtimes.world import on_bench

OPTIONS: dict[str, Any] = {"allow_shell": True, "allow_private_addresses": True}


@pytest.fixture
def bench() -> None:
    """Filled in when the test is called."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or "bench" not in pyfuncitem.funcargs:
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    others = {
        name: value for name, value in pyfuncitem.funcargs.items() if name in wanted and name != "bench"
    }
    on_bench(lambda bench: pyfuncitem.obj(bench, **others), **OPTIONS)
    return True
