"""Commands about who serves what: workers, and the queues that they take tasks from, with their limits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ....domain.model import Limit, NodeState, PausedQueue
from ...durations import short
from .. import completing
from ..options import DURATION
from ..render import Cell
from ..session import Session, command

if TYPE_CHECKING:
    from ....engine.queries.serving import QueueUse
    from ...python.client import Queue


@command(examples=["rota workers", "rota workers --json | jq '.[] | select(.alive | not)'"])
def workers(session: Session) -> None:
    """The nodes that work for this tenant: what each does, and when it was seen last. One that was silent for three
    heartbeats is taken for dead, and is shown for another hour."""
    from ...shapes import node as shape

    found, now = session.run_timed(lambda queue: queue.nodes(dead=True))
    if session.as_json:
        return session.screen.json([shape(node, now) for node in found])
    if not found:
        return session.say_none("nodes", {}, "`rota up` or `rota worker module:app` starts one")
    headings = ("ID", "STATUS", "ROLES", "KINDS", "QUEUES", "SLOTS", "SINCE", "SEEN")
    rows = [_node_row(session, node, now) for node in found]
    return session.screen.table(headings, rows, yields=("SINCE", "QUEUES", "ROLES", "SLOTS", "KINDS"))


def _node_row(session: Session, node: NodeState, now: datetime) -> list[Cell | str]:
    from ....domain.serving import is_alive

    status = Cell("alive", "green") if is_alive(node, now) else Cell("silent", "red")
    queues = "all" if node.queues is None else ", ".join(node.queues)
    is_worker = "worker" in node.roles
    return [
        Cell(node.id, "bold"),
        status,
        ", ".join(node.roles),
        ", ".join(node.kinds) or "-",
        queues if is_worker else "-",
        _slots(node) if is_worker else "-",
        session.screen.away(node.started_at, now),
        session.screen.away(node.seen_at, now),
    ]


def _slots(node: NodeState) -> str:
    """The slots that are taken, as far as that is told, of all."""
    return f"{node.slots}" if node.running is None else f"{sum(node.running.values())} of {node.slots}"


@command(examples=["rota limits", "rota limits --json"])
def limits(session: Session) -> None:
    """The limits of tasks, by kind and by queue: how many at once, how many begin in a while, and for each value of
    which field of the input. One that a handler has goes with its code, when a worker starts; the others stay until
    they are taken away."""
    from ...shapes import task_limits as shape

    async def both(queue: Queue) -> tuple[dict[str, Limit], dict[str, Limit]]:
        return await queue.task_limits(), await queue.task_limits(declared=True)

    found = shape(*session.run(both))
    if session.as_json:
        return session.screen.json(found)
    if not found:
        return session.say_none("limits", {}, "`rota queue limit` sets one, and a handler may have one")
    return session.screen.table(
        ("LIMITS", "AT ONCE", "RATE", "FOR EACH", "SET BY"), [_limit_row(each) for each in found]
    )


def _limit_row(limit: dict[str, Any]) -> list[Cell | str]:
    what = f"kind {limit['kind']}" if limit["kind"] else f"queue {limit['queue']}"
    numbers = [str(limit[name] or "-") for name in ("concurrency", "rate", "key")]
    return [Cell(what, "bold"), *numbers, "its handler" if limit["declared"] else "a call"]


@command(name="list", examples=["rota queue list", "rota queue list --json"])
def list_queues(session: Session) -> None:
    """Every queue that has or had tasks within minutes, is paused, or is served by name; how long the oldest task has
    been ready, and how many end in a minute."""
    from ...shapes import queue_use as shape

    found, now = session.run_timed(lambda queue: queue.list_queues())
    if session.as_json:
        return session.screen.json([shape(use, now) for use in found])
    if not found:
        return session.say_none("queues", {}, "none has open tasks, and none is paused")
    headings = ("QUEUE", "STATUS", "PENDING", "RUNNING", "WORKERS", "OLDEST", "A MINUTE", "NOTE")
    rows = [_queue_row(session, use, now) for use in found]
    return session.screen.table(headings, rows, yields=("WORKERS", "A MINUTE", "OLDEST", "NOTE"))


def _queue_row(session: Session, use: QueueUse, now: datetime) -> list[Cell | str]:
    status = session.screen.status("active" if use.paused is None else "paused")
    oldest = "-" if use.oldest_at is None else short(now - use.oldest_at)
    numbers = [f"{number:,}" for number in (use.pending, use.running, use.workers)]
    note = "" if use.paused is None else use.paused.note
    return [Cell(use.name, "bold"), status, *numbers, oldest, f"{use.ended_per_minute:,.3g}", note]


@command(examples=["rota queue pause mail --note 'the mail server is moving'"])
@click.argument("name", shell_complete=completing.queues)
@click.option("--note", default="", metavar="TEXT", help="Why, for those who look.")
def pause(session: Session, name: str, note: str) -> None:
    """Let no worker take tasks of a queue until it is resumed. What runs goes on, and tasks can be submitted."""
    _show_paused(session, session.run(lambda queue: queue.pause_queue(name, note)), "paused")


@command(examples=["rota queue resume mail"])
@click.argument("name", shell_complete=completing.queues)
def resume(session: Session, name: str) -> None:
    """Let workers take tasks of a queue again."""
    was_paused = session.run(lambda queue: queue.resume_queue(name))
    done = "resumed" if was_paused else "not paused"
    session.tell({"queue": name, "was_paused": was_paused}, f"{name} was {done}")


@command(examples=["rota queue drain mail --timeout 5m --note 'deploying'"])
@click.argument("name", shell_complete=completing.queues)
@click.option("--note", default="", metavar="TEXT", help="Why, for those who look.")
@click.option("--timeout", type=DURATION, help="Give up after this long. The queue stays paused.")
def drain(session: Session, name: str, note: str, timeout: timedelta | None) -> None:
    """Pause a queue, and wait until nothing of it runs any more. What is pending stays, and runs when the queue is
    resumed."""

    async def drained(queue: Queue) -> PausedQueue:
        running = await queue.count(queue=name, status="running") if session.screen.is_watched else None
        try:
            with session.screen.progress(f"waiting for the tasks of {name}", running) as bar:
                return await queue.drain_queue(name, note, timeout, report=bar.advance)
        except TimeoutError:
            raise TimeoutError(
                f"tasks of queue {name} still run; it is paused, and `rota queue list` says how many they are"
            ) from None

    _show_paused(session, session.run(drained), "paused, and nothing of it runs")


def _show_paused(session: Session, paused: PausedQueue, what: str) -> None:
    session.tell(paused, f"{paused.queue} is {what}; `rota queue resume {paused.queue}` ends that")


@command(
    examples=[
        "rota queue limit mail --rate 50/s --concurrency 10",
        "rota queue limit mail            # show it",
        "rota queue limit mail --off",
    ]
)
@click.argument("queue_name", metavar="QUEUE", shell_complete=completing.queues)
@click.option("--concurrency", type=int, metavar="NUMBER", help="At most so many of its tasks at once.")
@click.option("--rate", metavar="RATE", help="At most so many begin in a while: 50/s, 100/m, 3/10s.")
@click.option("--off", is_flag=True, help="Take the limit away.")
def limit(session: Session, queue_name: str, concurrency: int | None, rate: str | None, off: bool) -> None:
    """Limit the tasks of a queue, on all workers together; without options, show its limit. What is not named is not
    limited. Tasks that wait are planned anew."""
    is_given = concurrency is not None or rate is not None
    if off and is_given:
        raise click.UsageError("--off takes the limit away: give it without --concurrency and --rate")
    if off or is_given:
        session.run(lambda queue: queue.limit_queue(queue_name, concurrency=concurrency, rate=rate))
    found = session.run(lambda queue: queue.task_limits()).get(f"queue:{queue_name}")
    at_once, in_a_while = (None, None) if found is None else (found.concurrency, found.rate)
    parts = [] if at_once is None else [f"at most {at_once} at once"]
    parts += [] if in_a_while is None else [f"at most {in_a_while}"]
    session.tell(
        {"queue": queue_name, "concurrency": at_once, "rate": in_a_while},
        f"{click.style(queue_name, bold=True)}: {', '.join(parts) or 'no limit'}",
    )
