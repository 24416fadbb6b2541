"""Commands that keep running: up, worker, scheduler run, monitor. And tick, which makes one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from .command import command
from .parse import DURATION, load_app
from .session import Session, with_session

if TYPE_CHECKING:
    from ...engine.app import App

__all__ = ["monitor", "run_scheduler", "tick", "up", "worker"]


def _worker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--queues", metavar="A,B", help="Only tasks of these queues. [default: all]"),
        click.option("--concurrency", type=int, metavar="N", help="How many tasks at once. [default: 50]"),
        click.option("--lease", type=DURATION, help="How long a dead worker keeps its tasks. [default: 30s]"),
        click.option(
            "--shutdown-timeout",
            type=DURATION,
            help="How long to wait for handlers at the end. [default: 30s]",
        ),
        click.option("--all-tenants", is_flag=True, help="Run the tasks of every tenant."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command(
    examples=[
        "rota up --demo",
        "rota up shop.tasks:app",
        "rota up shop.tasks:app --queues default,mail --concurrency 20",
        "rota up                          # only schedules and housekeeping, or the app of rota.toml",
    ]
)
@click.argument("app", required=False)
@click.option("--demo", is_flag=True, help="An example app, in a store of its own unless you name one.")
@_worker_options
@with_session
def up(session: Session, app: str | None, demo: bool, **flags: Any) -> None:
    """Scheduler, worker and janitor in one process; prints what happens as it happens.

    APP is module:app, looked up from the current folder. Ctrl-C (or SIGTERM) stops it: handlers may
    finish, what does not is handed back. A second Ctrl-C hands back at once."""
    from .running import Plan, run

    if demo and app is not None:
        raise click.UsageError("--demo brings its own app; leave the other one out")
    settings = session.settings(app=app, **_given(flags))
    plan = Plan(settings, all_tenants=flags["all_tenants"], scheduler=True, janitor=True)
    if demo:
        from .demonstration import in_demo_store

        with in_demo_store(session, plan) as shown:
            run(session, shown)
    else:
        run(session, plan.with_app(_app(settings["app"])))


@command(
    examples=[
        "rota worker shop.tasks:app",
        "rota worker shop.tasks:app --queues mail --concurrency 200",
    ]
)
@click.argument("app", required=False)
@_worker_options
@with_session
def worker(session: Session, app: str | None, **flags: Any) -> None:
    """Run the tasks of an app, and nothing else: `rota scheduler run` and `rota monitor` are the other
    roles."""
    from .running import Plan, run

    settings = session.settings(app=app, **_given(flags))
    if settings["app"] is None:
        raise click.UsageError("no app was given; write rota worker module:app")
    plan = Plan(settings, all_tenants=flags["all_tenants"], scheduler=False, janitor=False)
    run(session, plan.with_app(_app(settings["app"])))


@command(name="run", examples=["rota scheduler run", "rota scheduler run --json >> fired.jsonl"])
@with_session
def run_scheduler(session: Session) -> None:
    """Fire schedules until stopped. Any number may run at once: each due time starts one task."""
    from .running import Plan, run

    run(session, Plan(session.settings(), scheduler=True, janitor=False))


@command(examples=["rota monitor", "rota monitor --enable-scheduler"])
@click.option("--enable-scheduler", is_flag=True, help="Fire schedules, too.")
@with_session
def monitor(session: Session, enable_scheduler: bool) -> None:
    """The janitor: returns the tasks of dead workers, marks expiries, forgets what has been kept long
    enough."""
    from .running import Plan, run

    run(session, Plan(session.settings(), scheduler=enable_scheduler, janitor=True))


@command(
    examples=[
        "rota tick                        # in cron or a lambda: fire what is due, clean up",
        "rota tick shop.tasks:app         # and run the tasks that are ready",
    ]
)
@click.argument("app", required=False)
@_worker_options
@with_session
def tick(session: Session, app: str | None, **flags: Any) -> None:
    """One pass of everything: fire what is due, return lost tasks, mark expiries, and, with an app, run
    what is ready until nothing is."""
    from .running import Plan, run_once

    settings = session.settings(app=app, **_given(flags))
    plan = Plan(settings, all_tenants=flags["all_tenants"], scheduler=True, janitor=True)
    run_once(session, plan.with_app(_app(settings["app"])))


def _app(name: str | None) -> App | None:
    return None if name is None else load_app(name)


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if name != "all_tenants"}
