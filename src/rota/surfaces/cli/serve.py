"""`rota serve`: the HTTP API as a process of its own."""

from __future__ import annotations

from typing import Any

import click

from .command import command
from .parse import SIZE
from .roles import http_options, load_named, log_option
from .session import Session, with_session

__all__ = ["serve"]


@command(
    examples=[
        "rota serve",
        "rota serve shop.tasks:app --engine           # and run its tasks and schedules, in one process",
        "rota keys create --tenant acme --role operator --name ci && rota serve --host 0.0.0.0 --port 80",
        "rota serve --rate-limit 50 --max-body 256KB",
    ]
)
@click.argument("app", required=False)
@http_options
@click.option("--rate-limit", type=int, metavar="N", help="Requests a second for each key. [default: 500]")
@click.option("--max-body", type=SIZE, help="How large the body of a request may be. [default: 2MB]")
@click.option("--strict", is_flag=True, help="Refuse kinds of tasks that APP does not have.")
@click.option("--engine", is_flag=True, help="Fire schedules, run tasks and keep house here, too.")
@log_option
@with_session
def serve(
    session: Session, app: str | None, strict: bool, engine: bool, log_level: str | None, **flags: Any
) -> None:
    """Serve the HTTP API, and nothing else: schedules and tasks run where `rota up` or the other roles do.

    APP is module:app: python templates must then name one of its functions, and with --strict whatever is submitted
    or scheduled must be one of its kinds. Beyond this machine (--host 0.0.0.0) it is served only if there are API
    keys."""
    from .door import Http
    from .running import Plan, Watch, run

    settings = session.settings(app=app, **flags)
    known = load_named(settings["app"])
    if strict and known is None:
        raise click.UsageError("--strict needs an app; write rota serve module:app --strict")
    plan = Plan(
        settings,
        scheduler=engine,
        janitor=engine,
        app=known if engine else None,
        watch=Watch(log_level=log_level),
        http=Http(settings, is_all=True, app=known, strict=strict),
    )
    run(session, plan)
