"""What all tests share: `async def` tests run on the loop of the `runner` fixture, which other fixtures may
use, too."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from loops import tidy_runner
from worlds import THOROUGH

# The same examples every time, and no judgement by the clock: machines are shared and noisy.
settings.register_profile(
    "rota",
    derandomize=True,
    deadline=None,
    max_examples=100 if THOROUGH else 30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rota")

MEMORY = Path("/dev/shm")
MEMORY_AT_LEAST = 2 * 1024**3


def pytest_configure(config: pytest.Config) -> None:
    """Folders of tests are in memory where there is room for them: thousands of tests wait for no disk. Every seed of a
    test takes minutes, beside other work many. What tests start listens to Ctrl-C, also if a script runs them in the
    background."""
    if THOROUGH:
        config.option.timeout = config.option.timeout or 1800
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_AT_LEAST:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def databases_go_with_their_module() -> Iterator[None]:
    yield
    if "postgres_server" in sys.modules:  # most modules need none, and do not wait for its import
        sys.modules["postgres_server"].drop_databases()


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test."""
    with tidy_runner() as runner:
        yield runner


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """What is collected lives to the end. To look for garbage in it again and again takes a quarter of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest begin first, so that nobody waits for one that began last."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test, on the loop of its `runner` if it has one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    runner: Any = pyfuncitem.funcargs.get("runner")
    if runner is not None:
        runner.run(pyfuncitem.obj(**arguments))
    else:
        asyncio.run(pyfuncitem.obj(**arguments))
    return True
