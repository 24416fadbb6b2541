"""Servers for the suite: one for each store, shared by the tests of a module. They cost less to start than to keep: an
engine that idles takes a hundredth of a processor, and there would be many of them beside all other tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from http_world import ADDRESSES, Shop, Tenant, example_app
from served import Served


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(tmp_path_factory.mktemp, example_app, rate=100_000)
    yield shop
    shop.close()


@pytest.fixture(params=ADDRESSES)
def served(request: pytest.FixtureRequest, shop: Shop) -> Served:
    """With the engine in it."""
    return shop.server(request.param, engine=True)


@pytest.fixture(params=ADDRESSES)
def still(request: pytest.FixtureRequest, shop: Shop) -> Served:
    """Without an engine: nothing happens by itself."""
    return shop.server(request.param, engine=False)


@pytest.fixture
def tenant(served: Served) -> Tenant:
    return Tenant(served)


@pytest.fixture
def quiet(still: Served) -> Tenant:
    return Tenant(still)
