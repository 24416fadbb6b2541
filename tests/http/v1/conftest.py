"""Servers with the functions of document 004: one for each store, with an engine, and one without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from http_world import ADDRESSES, Shop
from served import Served, serving
from v1_world import Api, Clock, document_app


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(tmp_path_factory.mktemp, document_app)
    yield shop
    shop.close()


@pytest.fixture
def api(request: pytest.FixtureRequest, shop: Shop) -> Iterator[Api]:
    """With the engine in it."""
    api = Api(shop.server(request.param, engine=True))
    yield api
    api.close()


@pytest.fixture
def still(request: pytest.FixtureRequest, shop: Shop) -> Iterator[Api]:
    """Without an engine: nothing happens by itself."""
    api = Api(shop.server(request.param, engine=False))
    yield api
    api.close()


@pytest.fixture
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
