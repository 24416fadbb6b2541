"""PostgreSQL in virtual time is a world of its own: what holds in it, so that simulations can rely on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from records import task
from rota.stores.base import Tx
from worlds import EVERY_STORE, World, play


def test_a_commit_is_heard_of_also_if_the_node_that_made_it_has_died(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        async def work(tx: Tx) -> None:
            tx.put(task())

        hint = asyncio.create_task(world.store.wait(None))
        commit = asyncio.create_task(world.store.transact(work))
        await asyncio.sleep(0)
        commit.cancel()
        async with asyncio.timeout(60):
            await hint

    play(scenario, EVERY_STORE["postgres"], tmp_path)
