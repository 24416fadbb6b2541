"""Servers with the functions of document 004: one for each store, with an engine, and one without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from http_world import ADDRESSES
from served import Served, serving
from v1_world import Api, Clock, document_app

Servers = Callable[[str, bool], Served]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    known: dict[tuple[str, bool], Served] = {}
    with ExitStack() as stack:

        def server(store: str, engine: bool) -> Served:
            if (store, engine) not in known:
                address = ADDRESSES[store](tmp_path_factory.mktemp(f"v1-{store}"))
                known[store, engine] = stack.enter_context(serving(address, document_app(), engine=engine))
            return known[store, engine]

        yield server


@pytest.fixture(params=ADDRESSES)
def api(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Api]:
    """With the engine in it."""
    api = Api(servers(request.param, True))
    yield api
    api.close()


@pytest.fixture(params=ADDRESSES)
def still(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Api]:
    """Without an engine: nothing happens by itself."""
    api = Api(servers(request.param, False))
    yield api
    api.close()


@pytest.fixture(params=ADDRESSES)
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """A store that nobody has used, without an engine."""
    with serving(ADDRESSES[request.param](tmp_path), document_app()) as served:
        yield served


@pytest.fixture
def clock() -> Clock:
    """The time of the document."""
    return Clock("2025-10-17T10:00:00Z")


@pytest.fixture
def then(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A server at that time; SQLite, because PostgreSQL has a clock of its own."""
    monkeypatch.setattr("served.SystemClock", lambda: clock)
    with serving(f"sqlite:///{tmp_path}/rota.db", document_app()) as served:
        yield Api(served)
