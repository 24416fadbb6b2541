"""PostgreSQL in virtual time is a world of its own: what holds in it, so that simulations can rely on it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from records import task
from rota.stores.base import Tx
from worlds import EVERY_STORE, World, play


def test_a_commit_is_heard_of_also_if_the_node_that_made_it_has_died(tmp_path: Path) -> None:
    """It dies while the work runs, on the store's own loop."""
    begun, goes_on = threading.Event(), threading.Event()

    async def work(tx: Tx) -> None:
        begun.set()
        goes_on.wait(60)
        tx.put(task())

    async def scenario(world: World) -> None:
        hint = asyncio.create_task(world.store.wait(None))
        commit = asyncio.create_task(world.store.transact(work))
        await asyncio.to_thread(begun.wait, 60)
        commit.cancel()
        await asyncio.gather(commit, return_exceptions=True)
        goes_on.set()
        async with asyncio.timeout(60):
            await hint

    play(scenario, EVERY_STORE["postgres"], tmp_path)
