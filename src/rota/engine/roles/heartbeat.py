"""The heartbeat of a node: every so often it writes down that it is alive, and what it does.

A heartbeat is one small write, and nothing is written in between. The store says how far apart they are: a write to a
bucket costs money. No other node is woken for it where that can be avoided.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from ...domain.model import NodeState
from ...stores.base import Store
from ..commands import remove_node, write_node


class Heartbeat:
    """`describe` gives what there is to say now; its times are set by the store."""

    def __init__(self, store: Store, describe: Callable[[], NodeState]) -> None:
        self._store = store
        self._describe = describe

    async def run_once(self) -> timedelta:
        state = self._describe()
        await self._store.transact(write_node(state))
        return state.heartbeat

    async def end(self) -> None:
        """Say that the node is gone."""
        await self._store.transact(remove_node(self._describe().id))
