"""An `async def` test that takes `bench` runs on a bench: a worker in real time that may run shell commands. Each runs
on one of the stores, in `make test-all` on all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from runtimes.world import on_bench
from stores import ADDRESSES
from worlds import THOROUGH

PLACES: dict[str, Callable[[Path], str]] = {"memory": lambda folder: "memory:", **ADDRESSES}
OPTIONS: dict[str, Any] = {"allow_shell": True, "allow_private_addresses": True}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bench" in metafunc.fixturenames:
        places = list(PLACES)
        own = places[crc32(metafunc.definition.nodeid.encode()) % len(places)]
        metafunc.parametrize("bench", places if THOROUGH else [own], indirect=True)


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where its records are. The bench is filled in when the test is called."""
    return PLACES[request.param](tmp_path)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or "bench" not in pyfuncitem.funcargs:
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    others = {
        name: value for name, value in pyfuncitem.funcargs.items() if name in wanted and name != "bench"
    }
    store = str(pyfuncitem.funcargs["bench"])
    on_bench(lambda bench: pyfuncitem.obj(bench, **others), store, **OPTIONS)
    return True
