"""Servers for the suite: one for each store, shared by the tests of a module. They cost less to start than to keep: an
engine that idles takes a hundredth of a processor, and there would be many of them beside all other tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from http_world import ADDRESSES, Shop, Tenant, example_app
from served import Served
from worlds import THOROUGH

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A module of this folder runs on one of the stores, in `make test-all` on both: what differs between them is
    the business of the conformance suite."""
    left_out = [] if THOROUGH else [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _is_left_out(item: pytest.Item) -> bool:
    if (
        HERE not in item.path.parents
        or not isinstance(item, pytest.Function)
        or not hasattr(item, "callspec")
    ):
        return False
    stores = list(ADDRESSES)
    own = stores[crc32(item.path.stem.encode()) % len(stores)]
    given = {item.callspec.params.get(name) for name in ("served", "still", "api", "fresh")} & set(stores)
    return bool(given) and given != {own}


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
