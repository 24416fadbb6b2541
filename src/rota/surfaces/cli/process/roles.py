"""Commands that keep running: up, worker, scheduler run, monitor. And tick, which makes one pass.

`rota serve`: the HTTP API as a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..command import command
from ..parse import DURATION, load_app
from ..session import Session, with_session

if TYPE_CHECKING:
    from ....engine.app import App
    from .metrics import MonitoringOptions
from ..parse import SIZE

__all__ = [
    "http_options",
    "load_named",
    "log_option",
    "monitor",
    "run_scheduler",
    "serve",
    "tick",
    "up",
    "worker",
]

LEVELS = (
    "debug",
    "info",
    "warning",
    "error",
)  # as in surfaces/cli/process/logs.py, which the help need not import
MONITORING = ("metrics_port", "metrics_host", "log_level")


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
        click.option(
            "--all-tenants",
            is_flag=True,
            help="Run the tasks of every tenant, even if one is set. [default: unless --tenant is given]",
        ),
    )
    return _with_options(function, options)


def http_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option(
            "--host", metavar="HOST", help="The address to serve the HTTP API on. [default: 127.0.0.1]"
        ),
        click.option(
            "--port", type=int, help="The port to serve it on; 0 picks one and says which. [default: 8000]"
        ),
    )
    return _with_options(function, options)


def _watch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    metrics = (
        click.option(
            "--metrics-port",
            type=click.IntRange(0, 65535),
            envvar="ROTA_METRICS_PORT",
            help="Serve /metrics for Prometheus here; 0 picks a port and says which. [default: nowhere]",
        ),
        click.option(
            "--metrics-host",
            metavar="HOST",
            default="127.0.0.1",
            envvar="ROTA_METRICS_HOST",
            help="The address to serve them on: anyone who reaches it may read them. [default: 127.0.0.1]",
        ),
    )
    return _with_options(log_option(function), metrics)


def log_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        envvar="ROTA_LOG",
        help="Log to stderr from this level on; as JSON if that is no terminal. [default: warning]",
    )(function)


def _with_options(function: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function


@command(
    examples=[
        "rota up --demo",
        "rota up shop.tasks:app",
        "rota up shop.tasks:app --queues default,mail --concurrency 20",
        "rota up shop.tasks:app --port 9000            # the HTTP API is there",
        "rota up shop.tasks:app --metrics-port 9464 --log-level info",
        "rota up                          # only schedules and housekeeping, or the app of rota.toml",
    ]
)
@click.argument("app", required=False)
@click.option("--demo", is_flag=True, help="An example app, in a store of its own unless you name one.")
@http_options
@click.option("--no-http", "http", flag_value=False, default=None, help="Serve no HTTP API.")
@_worker_options
@_watch_options
@with_session
def up(session: Session, app: str | None, demo: bool, **flags: Any) -> None:
    """Scheduler, worker, janitor and the HTTP API in one process; prints what happens as it happens.

    APP is module:app, looked up from the current folder. Ctrl-C (or SIGTERM) stops it: handlers may
    finish, what does not is handed back. A second Ctrl-C hands back at once."""
    from .http import Http
    from .running import Plan, run

    if demo and app is not None:
        raise click.UsageError("--demo brings its own app; leave the other one out")
    settings = session.settings(app=app, **_given(flags))
    plan = Plan(
        settings,
        all_tenants=flags["all_tenants"],
        scheduler=True,
        janitor=True,
        monitoring=_monitoring(flags),
        http=Http(settings) if settings["http"] else None,
    )
    if demo:
        from .demo import in_demo_store

        with in_demo_store(session, plan) as shown:
            run(session, shown)
    else:
        run(session, plan.with_app(load_named(settings["app"])))


@command(
    examples=[
        "rota worker shop.tasks:app",
        "rota worker shop.tasks:app --queues mail --concurrency 200",
    ]
)
@click.argument("app", required=False)
@_worker_options
@_watch_options
@with_session
def worker(session: Session, app: str | None, **flags: Any) -> None:
    """Run the tasks of an app, and nothing else: `rota scheduler run` and `rota monitor` are the other
    roles."""
    from .running import Plan, run

    settings = session.settings(app=app, **_given(flags))
    if settings["app"] is None:
        raise click.UsageError("no app was given; write rota worker module:app")
    plan = Plan(
        settings,
        all_tenants=flags["all_tenants"],
        scheduler=False,
        janitor=False,
        monitoring=_monitoring(flags),
    )
    run(session, plan.with_app(load_named(settings["app"])))


@command(name="run", examples=["rota scheduler run", "rota scheduler run --json >> fired.jsonl"])
@_watch_options
@with_session
def run_scheduler(session: Session, **flags: Any) -> None:
    """Fire schedules until stopped. Any number may run at once: each due time starts one task."""
    from .running import Plan, run

    run(session, Plan(session.settings(), scheduler=True, janitor=False, monitoring=_monitoring(flags)))


@command(examples=["rota monitor", "rota monitor --enable-scheduler"])
@click.option("--enable-scheduler", is_flag=True, help="Fire schedules, too.")
@_watch_options
@with_session
def monitor(session: Session, enable_scheduler: bool, **flags: Any) -> None:
    """The janitor: returns the tasks of dead workers, marks expiries, forgets what has been kept long
    enough."""
    from .running import Plan, run

    plan = Plan(session.settings(), scheduler=enable_scheduler, janitor=True, monitoring=_monitoring(flags))
    run(session, plan)


@command(
    examples=[
        "rota tick                        # in cron or a lambda: fire what is due, clean up",
        "rota tick shop.tasks:app         # and run the tasks that are ready",
    ]
)
@click.argument("app", required=False)
@_worker_options
@log_option
@with_session
def tick(session: Session, app: str | None, **flags: Any) -> None:
    """One pass of everything: fire what is due, return lost tasks, mark expiries, and, with an app, run
    what is ready until nothing is."""
    from .running import Plan, run_once

    settings = session.settings(app=app, **_given(flags))
    plan = Plan(
        settings,
        all_tenants=flags["all_tenants"],
        scheduler=True,
        janitor=True,
        monitoring=_monitoring(flags),
    )
    run_once(session, plan.with_app(load_named(settings["app"])))


def load_named(name: str | None) -> App | None:
    return None if name is None else load_app(name)


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if name not in ("all_tenants", *MONITORING)}


def _monitoring(flags: dict[str, Any]) -> MonitoringOptions:
    from .metrics import MonitoringOptions

    return MonitoringOptions(**{name: flags[name] for name in MONITORING if name in flags})


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
    from .http import Http
    from .running import MonitoringOptions, Plan, run

    settings = session.settings(app=app, **flags)
    known = load_named(settings["app"])
    if strict and known is None:
        raise click.UsageError("--strict needs an app; write rota serve module:app --strict")
    plan = Plan(
        settings,
        scheduler=engine,
        janitor=engine,
        app=known if engine else None,
        monitoring=MonitoringOptions(log_level=log_level),
        http=Http(settings, is_all=True, app=known, strict=strict),
    )
    run(session, plan)
