"""The command about the limits of queues: how many tasks at once, and how many in a while."""

from __future__ import annotations

import click

from ..command import command
from ..session import Session, with_session

__all__ = ["limit"]


@command(
    examples=[
        "rota queue limit mail --rate 50/s --concurrency 10",
        "rota queue limit mail            # show it",
        "rota queue limit mail --off",
    ]
)
@click.argument("queue_name", metavar="QUEUE")
@click.option("--concurrency", type=int, metavar="NUMBER", help="At most so many of its tasks at once.")
@click.option("--rate", metavar="RATE", help="At most so many begin in a while: 50/s, 100/m, 3/10s.")
@click.option("--off", is_flag=True, help="Take the limit away.")
@with_session
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
    if session.as_json:
        session.screen.json({"queue": queue_name, "concurrency": at_once, "rate": in_a_while})
        return
    parts = [] if at_once is None else [f"at most {at_once} at once"]
    parts += [] if in_a_while is None else [f"at most {in_a_while}"]
    session.screen.say(f"{click.style(queue_name, bold=True)}: {', '.join(parts) or 'no limit'}")
