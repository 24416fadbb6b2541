"""Nodes, and the queues that they take tasks from: who is alive and what they hold, how much waits and since when."""

from __future__ import annotations

from fastapi import Response

from ...domain.errors import NotFound, Refused
from ...domain.model import TaskStatus
from ...domain.serving import is_alive
from ..shapes import task_limits
from .visit import FormField, Visit

HELD = 1000
SHOWN = 100
ACTIONS = ("pause", "resume")


async def nodes(visit: Visit) -> Response:
    found = await visit.queue.nodes(dead=True)
    now = await visit.queue.now()
    alive = {node.id for node in found if is_alive(node, now)}
    return visit.show(
        "nodes.html",
        nodes=sorted(found, key=lambda node: (node.id not in alive, node.host, node.id)),
        alive=alive,
        now=now,
    )


async def one_node(visit: Visit) -> Response:
    id = visit.part("id")
    node = next((each for each in await visit.queue.nodes(dead=True) if each.id == id), None)
    if node is None:
        raise NotFound("node", id)
    running = await visit.queue.list(status=TaskStatus.RUNNING, limit=HELD)
    now = await visit.queue.now()
    held = [task for task in running if task.worker_id == id]
    return visit.show(
        "node.html",
        node=node,
        is_alive=is_alive(node, now),
        held=held[:SHOWN],
        number=len(held),
        is_partial=running.next_cursor is not None,
        now=now,
    )


async def queues(visit: Visit) -> Response:
    words = {"pause": "The queue was paused.", "resume": "The queue was resumed."}
    found = await visit.service.shared_soon(("queues", visit.tenant), visit.queue.list_queues)
    if found is None:
        return visit.being_made("Queues", "Their tasks are being counted.")
    return visit.show(
        "queues.html",
        queues=found,
        limits=task_limits(await visit.queue.task_limits(), await visit.queue.task_limits(declared=True)),
        now=await visit.queue.now(),
        said=words.get(visit.asked("said") or ""),
    )


async def ask_about_queue(visit: Visit) -> Response:
    return await _question(visit, visit.action(*ACTIONS))


async def _question(visit: Visit, action: str, problem: str | None = None) -> Response:
    name = visit.part("name")
    use = next((each for each in await visit.queue.list_queues() if each.name == name), None)
    pending, running = (0, 0) if use is None else (use.pending, use.running)
    if action == "pause":
        consequence = (
            f"No worker takes tasks of it until it is resumed: {pending:,} wait there now."
            f" The {running:,} that run go on, and new ones can be submitted."
        )
    else:
        consequence = f"Workers take its tasks again: {pending:,} wait there now."
    return visit.ask(
        f"{action.capitalize()} queue {name}",
        consequence,
        back=visit.url("queues"),
        verb=action.capitalize(),
        fields=[FormField("note", "Why (others will read it)", visit.given("note") or "")]
        if action == "pause"
        else [],
        problem=problem,
    )


async def act_on_queue(visit: Visit) -> Response:
    action, name = visit.action(*ACTIONS), visit.part("name")
    try:
        if action == "pause":
            await visit.queue.pause_queue(name, visit.given("note") or "")
        else:
            await visit.queue.resume_queue(name)
    except Refused as refused:
        return await _question(visit, action, str(refused))
    visit.service.forget("queues", visit.tenant)
    return visit.go(visit.url("queues", said=action))
