"""Questions about who serves what, each a work for `store.read`: which nodes there are, what is in which queue, what a
task waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from ...domain import gate
from ...domain import serving as fleet
from ...domain.model import Gate, NodeState, PausedQueue, Task
from ...domain.serving import Waiting, explain, paused_id
from ...stores.base import Tx
from ...stores.queries import EndedTasks, GateList, PausedQueues, UpcomingTasks
from ..commands.gates import first_in_lines
from ..commands.serving import every_node
from ..commands.shared import find_task
from ..work import as_work, tally_open

PAUSED_AT_MOST = 10_000
LOOKED_AT = 100
LOOKED_AT_IN_LINE = 1000
ENDED_AT_MOST = 500
STRETCHES = (timedelta(minutes=5), timedelta(seconds=20), timedelta(seconds=1))
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class QueueUse(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, and what is in it. `oldest_at` is since when the first of its tasks could run, or waits in the line of a
    limit; None: none does.
    `ended_per_minute` is how many of its tasks ended in a minute, over the last five, or less if that is many.
    `paused` says who paused it, when and why; None: it is not."""

    name: str
    pending: int = 0
    running: int = 0
    workers: int = 0
    oldest_at: datetime | None = None
    ended_per_minute: float = 0.0
    paused: PausedQueue | None = None


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of the store, dead ones too, and as of when."""

    nodes: Sequence[NodeState]
    at: datetime

    @property
    def alive(self) -> list[NodeState]:
        return fleet.living(self.nodes, self.at)


@as_work
async def fleet_of(tx: Tx, tenant: str | None) -> Fleet:
    """The nodes that a tenant may see (None: all)."""
    nodes = await every_node(tx)
    return Fleet(nodes=nodes if tenant is None else fleet.seen_by(nodes, tenant), at=tx.now)


@as_work
async def queues_in_use(tx: Tx, tenant: str) -> list[QueueUse]:
    """Every queue of the tenant that has or had tasks within minutes, is paused, or is served by name; by name."""
    tasks: Counter[tuple[str, str]] = Counter()
    for (owner, queue, status), number in (await tally_open(tx, "tenant", "queue", "status")).items():
        if owner == tenant:
            tasks[queue, status] += number
    paused = {each.queue: each for each in await tx.find(PausedQueues(tenant=tenant), PAUSED_AT_MOST)}
    workers = fleet.living(fleet.workers_of(await every_node(tx), tenant), tx.now)
    rates, lined = await _rates(tx, tenant), await _lined_at(tx, tenant)
    served = {name for node in workers for name in node.queues or ()}
    names = {queue for queue, _ in tasks} | paused.keys() | served | rates.keys()
    return [
        QueueUse(
            name=name,
            pending=tasks[name, "pending"],
            running=tasks[name, "running"],
            workers=sum(node.queues is None or name in node.queues for node in workers),
            oldest_at=(
                await _oldest_at(tx, tenant, name, lined.get(name)) if tasks[name, "pending"] else None
            ),
            ended_per_minute=rates.get(name, 0.0),
            paused=paused.get(name),
        )
        for name in sorted(names)
    ]


async def _rates(tx: Tx, tenant: str) -> dict[str, float]:
    """How many tasks of each queue ended in a minute. Of many, those of the last seconds tell; at least so many."""
    found: list[Task] = []
    length = STRETCHES[0]
    for length in STRETCHES:
        found = await tx.find(EndedTasks(tenant=tenant, since=tx.now - length), ENDED_AT_MOST)
        if len(found) < ENDED_AT_MOST:
            break
    number = Counter(task.queue for task in found)
    return {queue: each * (timedelta(minutes=1) / length) for queue, each in number.items()}


async def _oldest_at(tx: Tx, tenant: str, queue: str, lined_at: datetime | None) -> datetime | None:
    found = await tx.find(UpcomingTasks(after=LONG_AGO, queues=(queue,), tenant=tenant), LOOKED_AT)
    ready_at = next((task.available_at for task in found if task.is_available_at(tx.now)), None)
    return min((at for at in (ready_at, lined_at) if at is not None), default=None)


async def _lined_at(tx: Tx, tenant: str) -> dict[str, datetime]:
    """Since when the first in a line waits, by queue. If there are very many lines, only some are looked at."""
    gates = await tx.find(GateList(tenant=tenant), LOOKED_AT_IN_LINE)
    waiting = [each.id for each in gates if each.has_line]
    lines = await first_in_lines(tx, waiting, 1) if waiting else {}
    found: dict[str, datetime] = {}
    for task in (task for line in lines.values() for task in line.tasks):
        found[task.queue] = min(task.available_at, found.get(task.queue, task.available_at))
    return found


@as_work
async def waiting_of(tx: Tx, tenant: str, id: str) -> Waiting | None:
    """The reason why a task waits."""
    return await wait_of(tx, await find_task(tx, tenant, id))


async def wait_of(tx: Tx, task: Task) -> Waiting | None:
    if not task.is_live:
        return None
    paused = await tx.get(PausedQueue, paused_id(task.tenant, task.queue))
    limited, holding = await _limit_of(tx, task), await _holding(tx, task)
    return explain(task, tx.now, await every_node(tx), paused, limited, holding)


async def _holding(tx: Tx, task: Task) -> list[PausedQueue]:
    """The paused queues in which tasks of its kind have passed the gate in whose line it waits: only few are looked
    at."""
    if task.line is None or gate.is_of_queue(task.line):
        return []
    found = []
    for paused in await tx.find(PausedQueues(tenant=task.tenant), LOOKED_AT):
        query = UpcomingTasks(after=LONG_AGO, queues=(paused.queue,), kinds=(task.kind,), tenant=task.tenant)
        waiting = await tx.find(query, LOOKED_AT)
        if paused.queue != task.queue and any(task.line in each.gates[: each.passed] for each in waiting):
            found.append(paused)
    return found


async def _limit_of(tx: Tx, task: Task) -> str | None:
    """The limit that keeps it waiting, in words; None: it is in no line, and waits for no moment of a rate."""
    gates = await tx.get_many(Gate, task.gates)
    if not gates:
        return None
    if task.line is None or task.line not in gates:
        return gate.describe_moment(task, list(gates.values()), tx.now)
    line = (await first_in_lines(tx, [task.line], LOOKED_AT_IN_LINE))[task.line].tasks
    before = next((number for number, other in enumerate(line) if other.id == task.id), len(line))
    return gate.describe_line(gates[task.line], before, is_more=before == LOOKED_AT_IN_LINE)
