"""Works on nodes: what a process says of itself while it lives, and what becomes of its record."""

from __future__ import annotations

from msgspec.structs import replace

from ...domain.model import NodeState
from ...domain.serving import is_forgotten
from ...stores.base import Tx, Work
from ...stores.queries import NodeList

__all__ = ["every_node", "forget_nodes", "remove_node", "write_node"]

NODES_AT_ONCE = 1000


def write_node(state: NodeState) -> Work[NodeState]:
    """Say that the node is alive, and what it does. Both times are those of the store: `started_at` is that of the
    first heartbeat."""

    async def work(tx: Tx) -> NodeState:
        old = await tx.get(NodeState, state.id)
        if old is None:
            return tx.put(replace(state, started_at=tx.now, seen_at=tx.now))
        return tx.put(replace(state, version=old.version, started_at=old.started_at, seen_at=tx.now))

    return work


def remove_node(id: str) -> Work[None]:
    """The node has stopped as it should."""

    async def work(tx: Tx) -> None:
        known = await tx.get(NodeState, id)
        if known is not None:
            tx.delete(known)

    return work


def forget_nodes() -> Work[int]:
    """Remove the records of nodes that have been dead for long; how many went."""

    async def work(tx: Tx) -> int:
        gone = [node for node in await every_node(tx) if is_forgotten(node, tx.now)]
        for node in gone:
            tx.delete(node)
        return len(gone)

    return work


async def every_node(tx: Tx) -> list[NodeState]:
    """All nodes of the store, dead ones too; by id."""
    found: list[NodeState] = []
    while True:
        page = await tx.find(NodeList(after=found[-1].id if found else None), NODES_AT_ONCE)
        found += page
        if len(page) < NODES_AT_ONCE:
            return found
