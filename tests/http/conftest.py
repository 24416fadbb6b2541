"""Servers for the suite: one for each store, shared by the tests of a module. They cost less to start than to keep: an
engine that idles takes a hundredth of a processor, and there would be many of them beside all other tests."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest

from http_world import ADDRESSES, Shop, Tenant, example_app
from served import Served
from worlds import THOROUGH

SERVERS = ("served", "still", "api", "fresh")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module of this folder runs on one of the stores, in `make test-all` on both: what differs between them is
    the business of the conformance suite."""
    stores = list(ADDRESSES)
    own = stores[crc32(metafunc.definition.path.stem.encode()) % len(stores)]
    for name in SERVERS:
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, stores if THOROUGH else [own], indirect=True)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(tmp_path_factory.mktemp, example_app, rate=100_000)
    yield shop
    shop.close()


@pytest.fixture
def served(request: pytest.FixtureRequest, shop: Shop) -> Served:
    """With the engine in it."""
    return shop.server(request.param, engine=True)


@pytest.fixture
def still(request: pytest.FixtureRequest, shop: Shop) -> Served:
    """Without an engine: nothing happens by itself."""
    return shop.server(request.param, engine=False)


@pytest.fixture
def tenant(served: Served) -> Tenant:
    return Tenant(served)


@pytest.fixture
def quiet(still: Served) -> Tenant:
    return Tenant(still)
