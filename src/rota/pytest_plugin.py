"""What pytest learns from Rota: two fixtures, one mark, and how to run an `async` test in virtual time.

The plugin is found by its entry point. It imports nothing of Rota, and changes no test, unless a test asks for one of
its fixtures."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .scenario import Scenario
    from .surfaces.python.client import Queue

__all__ = ["rota_queue", "rota_scenario"]

_MARK = "rota(app, start): the app of `rota_scenario`, and the virtual time at which it begins"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARK)


@pytest.fixture
def rota_scenario(request: pytest.FixtureRequest) -> Iterator[Scenario]:
    """A queue in memory and a worker, in virtual time. `@pytest.mark.rota(app, start=…)` says of which app."""
    from .scenario import open_scenario, time_of
    from .testing import START, VirtualLoop

    app, start = _marked(request.node)
    begins = START if start is None else time_of(start)
    with asyncio.Runner(loop_factory=partial(VirtualLoop, begins)) as runner:
        if inspect.iscoroutinefunction(request.node.obj):
            request.node.obj = _running(runner, request.node.obj)
        scenario = open_scenario(app)
        yield runner.run(scenario.__aenter__())
        runner.run(scenario.__aexit__(None, None, None))


@pytest.fixture
def rota_queue(rota_scenario: Scenario) -> Queue:
    """The queue of the scenario."""
    return rota_scenario.queue


def _running(runner: asyncio.Runner, test: Callable[..., Any]) -> Callable[..., Any]:
    """An `async` test, as one that runs on the loop of its scenario."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        runner.run(test(*args, **kwargs))

    return run


def _marked(node: Any) -> tuple[Any, Any]:
    mark = node.get_closest_marker("rota")
    if mark is None:
        return None, None
    if len(mark.args) > 1 or mark.kwargs.keys() - {"app", "start"}:
        raise pytest.UsageError(
            f"@pytest.mark.rota takes an app and start=, and not {mark.args} {mark.kwargs}"
        )
    return (mark.args[0] if mark.args else mark.kwargs.get("app")), mark.kwargs.get("start")
