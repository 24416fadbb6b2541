"""Works on who serves what. A node says of itself that it lives and what it does. A queue needs no record; one that is
paused has one, which every claim looks at."""

from __future__ import annotations

from msgspec.structs import replace

from ...domain.errors import Refused
from ...domain.model import NodeState, PausedQueue, Runtime, Template
from ...domain.serving import forgotten, living, pause, paused_id, runs_no_shell
from ...stores.base import Tx
from ...stores.queries import NodeList
from ..work import as_work
from .shared import audit, find_every, put_audited


@as_work
async def write_node(tx: Tx, state: NodeState) -> NodeState:
    """Say that the node is alive, and what it does. Both times are those of the store: `started_at` is that of the
    first heartbeat."""
    old = await tx.get(NodeState, state.id)
    if old is None:
        return tx.put(replace(state, started_at=tx.now, seen_at=tx.now))
    return tx.put(replace(state, version=old.version, started_at=old.started_at, seen_at=tx.now))


@as_work
async def remove_node(tx: Tx, id: str) -> None:
    """The node has stopped as it should."""
    known = await tx.get(NodeState, id)
    if known is not None:
        tx.delete(known)


@as_work
async def forget_nodes(tx: Tx) -> int:
    """Remove the records of nodes that have been dead for long, and are not missed; how many went."""
    gone = forgotten(await every_node(tx), tx.now)
    for node in gone:
        tx.delete(node)
    return len(gone)


async def every_node(tx: Tx) -> list[NodeState]:
    """All nodes of the store, dead ones too; by id."""
    return await find_every(tx, NodeList())


async def check_shell(tx: Tx, template: Template) -> None:
    """A shell command needs a worker that may run it. While no worker is known, one may still be started."""
    if template.runtime is Runtime.SHELL and runs_no_shell(
        living(await every_node(tx), tx.now), template.tenant
    ):
        raise Refused("no_shell", tenant=template.tenant)


@as_work
async def pause_queue(tx: Tx, act: str, tenant: str, queue: str, actor: str, note: str) -> PausedQueue:
    """Let no worker take its tasks. Pausing again changes the note, and keeps since when and by whom. `act` is the id
    of this call: a queue has no version that the audit could count by."""
    old = await tx.get(PausedQueue, paused_id(tenant, queue))
    if old is not None and (not note or note == old.note):
        return old
    new = pause(tenant, queue, tx.now, actor, note)
    if old is not None:
        new = replace(old, note=note)
    return put_audited(tx, "paused", actor, old, new, note, act=act)


@as_work
async def resume_queue(tx: Tx, act: str, tenant: str, queue: str, actor: str) -> bool:
    """Let workers take its tasks again; whether it was paused."""
    old = await tx.get(PausedQueue, paused_id(tenant, queue))
    if old is None:
        return False
    tx.delete(old)
    audit(tx, "resumed", actor, old, None, act=act)
    return True
