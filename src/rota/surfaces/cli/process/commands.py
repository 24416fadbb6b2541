"""Commands that keep running: up, worker, scheduler run, monitor, serve. And tick, which makes one pass."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..apps import load_app
from ..options import DURATION, LOG_LEVELS, PROCESSES, SIZE, together
from ..session import Session, command

if TYPE_CHECKING:
    from .monitoring import MonitoringOptions

_allow_shell = click.option(
    "--allow-shell",
    is_flag=True,
    default=None,
    help="Run the shell commands of templates, as the user that runs this. [default: no]",
)
_worker_options = together(
    click.option("--queues", metavar="A,B", help="Only tasks of these queues. [default: all]"),
    click.option("--concurrency", type=int, metavar="N", help="How many tasks at once. [default: 50]"),
    click.option("--lease", type=DURATION, help="How long a dead worker keeps its tasks. [default: 30s]"),
    click.option(
        "--shutdown-timeout", type=DURATION, help="How long to wait for handlers at the end. [default: 30s]"
    ),
    _allow_shell,
    click.option(
        "--allow-private-addresses",
        is_flag=True,
        default=None,
        help="Let the requests of templates go to private and local addresses, too. [default: no]",
    ),
    click.option(
        "--all-tenants",
        is_flag=True,
        help="Run the tasks of every tenant, even if one is set. [default: unless --tenant is given]",
    ),
)
_http_options = together(
    click.option("--host", metavar="HOST", help="The address to serve the HTTP API on. [default: 127.0.0.1]"),
    click.option(
        "--port", type=int, help="The port to serve it on; 0 picks one and says which. [default: 8000]"
    ),
)
_log_option = click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    envvar="ROTA_LOG",
    help="Log to stderr from this level on; as JSON if that is no terminal. [default: warning]",
)
_monitoring_options = together(
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
    _log_option,
)
_MONITORING = ("metrics_port", "metrics_host", "log_level")


@command(
    examples=[
        "rota up --demo",
        "rota up shop.tasks:app",
        "rota up shop.tasks:app --reload               # and again after each edit",
        "rota up shop.tasks:app --queues default,mail --concurrency 20",
        "rota up shop.tasks:app --port 9000            # the HTTP API is there",
        "rota up shop.tasks:app --metrics-port 9464 --log-level info",
        "rota up --allow-shell            # the shell commands of templates, such as those of a crontab",
        "rota up                          # only schedules and upkeep, or the app of rota.toml",
    ]
)
@click.argument("app", required=False)
@click.option("--reload", is_flag=True, help="Start again after each edit of a Python file in this folder.")
@click.option("--demo", is_flag=True, help="An example app, in a store of its own unless you name one.")
@_http_options
@click.option("--no-http", "http", flag_value=False, default=None, help="Serve no HTTP API.")
@_worker_options
@_monitoring_options
def up(session: Session, app: str | None, demo: bool, reload: bool, **flags: Any) -> None:
    """Scheduler, worker, janitor and the HTTP API in one process; prints what happens as it happens.

    APP is module:app, looked up from the current folder. Ctrl-C (or SIGTERM) stops it: handlers may
    finish, what does not is handed back. A second Ctrl-C hands back at once."""
    from .http import HttpOptions
    from .running import ProcessOptions, run

    if reload:
        from .reload import run_reloading

        return run_reloading(session, [part for part in sys.argv[1:] if part != "--reload"])
    if demo and app is not None:
        raise click.UsageError("--demo brings its own app; leave the other one out")
    settings = session.store_settings(app=app, **flags)
    options = ProcessOptions(
        settings,
        all_tenants=flags["all_tenants"],
        scheduler=True,
        janitor=True,
        monitoring=_monitoring(flags),
        http=HttpOptions(settings) if settings["http"] else None,
    )
    if demo:
        from .demo import in_demo_store

        with in_demo_store(options) as shown:
            return run(session, shown)
    return run(session, options.with_app(load_app(settings["app"])).with_commands())


@command(
    examples=[
        "rota worker shop.tasks:app",
        "rota worker shop.tasks:app --queues mail --concurrency 200",
        "rota worker shop.tasks:app --processes auto  # one for each processor",
        "rota worker --allow-shell                    # only the commands of templates",
    ]
)
@click.argument("app", required=False)
@click.option(
    "--processes",
    type=PROCESSES,
    default="1",
    envvar="ROTA_PROCESSES",
    help="How many worker processes; auto: as many as processors. They stop together, and one that dies is started "
    "anew. Each takes tasks, and a metrics port, of its own (the next ones). [default: 1]",
)
@click.option("--process", "number", type=int, hidden=True, help="Which of several processes this is.")
@_worker_options
@_monitoring_options
def worker(session: Session, app: str | None, processes: int, number: int | None, **flags: Any) -> None:
    """Run the tasks of an app, and return those of workers that died: `rota scheduler run` and `rota monitor`
    are the other roles."""
    settings = session.store_settings(app=app, **flags)
    if settings["app"] is None and not settings["allow_shell"]:
        raise click.UsageError(
            "no app was given; write rota worker module:app, or rota worker --allow-shell for shell commands only"
        )
    known = load_app(settings["app"])
    if processes > 1:
        _run_several(session, processes, flags["metrics_port"])
        return
    from .running import ProcessOptions, run

    options = ProcessOptions(
        settings, all_tenants=flags["all_tenants"], monitoring=_monitoring(flags), number=number
    )
    run(session, options.with_app(known).with_commands())


def _run_several(session: Session, processes: int, metrics_port: int | None) -> None:
    if sys.platform == "win32":
        raise click.UsageError(
            "--processes needs signals and process groups: on Windows, start several workers"
        )
    from .supervision import supervise

    def arguments(number: int) -> list[str]:
        own = ["--processes", "1", "--process", str(number)]
        if metrics_port:
            own += ["--metrics-port", str(metrics_port + number)]
        return [*sys.argv[1:], *own]

    supervise(session, processes, arguments)


@command(name="run", examples=["rota scheduler run", "rota scheduler run --json >> fired.jsonl"])
@_monitoring_options
def run_scheduler(session: Session, **flags: Any) -> None:
    """Fire schedules until stopped. Any number may run at once: each due time starts one task."""
    from .running import ProcessOptions, run

    run(session, ProcessOptions(session.store_settings(), scheduler=True, monitoring=_monitoring(flags)))


@command(examples=["rota monitor", "rota monitor --enable-scheduler"])
@click.option("--enable-scheduler", is_flag=True, help="Fire schedules, too.")
@_monitoring_options
def monitor(session: Session, enable_scheduler: bool, **flags: Any) -> None:
    """The janitor: returns the tasks of dead workers, marks expiries, forgets what has been kept long
    enough."""
    from .running import ProcessOptions, run

    settings, monitoring = session.store_settings(), _monitoring(flags)
    run(session, ProcessOptions(settings, scheduler=enable_scheduler, janitor=True, monitoring=monitoring))


@command(
    examples=[
        "rota tick                        # in cron or a lambda: fire what is due, clean up",
        "rota tick shop.tasks:app         # and run the tasks that are ready",
    ]
)
@click.argument("app", required=False)
@_worker_options
@_log_option
def tick(session: Session, app: str | None, **flags: Any) -> None:
    """One pass of everything: fire what is due, return lost tasks, mark expiries, and, with an app, run
    what is ready until nothing is.

    Ctrl-C (or SIGTERM) stops it: handlers may finish, what does not is handed back. The exit code is 130 then."""
    from .running import ProcessOptions, run_once

    settings = session.store_settings(app=app, **flags)
    options = ProcessOptions(
        settings,
        all_tenants=flags["all_tenants"],
        scheduler=True,
        janitor=True,
        monitoring=_monitoring(flags),
    )
    run_once(session, options.with_app(load_app(settings["app"])).with_commands())


@command(
    examples=[
        "rota serve",
        "rota serve shop.tasks:app --engine           # and run its tasks and schedules, in one process",
        "rota keys create --tenant acme --role operator --name ci && rota serve --host 0.0.0.0 --port 80",
        "rota serve --rate-limit 50 --max-body 256KB",
    ]
)
@click.argument("app", required=False)
@_http_options
@click.option("--rate-limit", type=int, metavar="N", help="Requests a second for each key. [default: 500]")
@click.option("--max-body", type=SIZE, help="How large the body of a request may be. [default: 2MB]")
@_allow_shell
@click.option("--strict", is_flag=True, help="Refuse kinds of tasks that APP does not have.")
@click.option("--engine", is_flag=True, help="Fire schedules, run tasks and do the upkeep here, too.")
@_log_option
def serve(session: Session, app: str | None, strict: bool, engine: bool, **flags: Any) -> None:
    """Serve the HTTP API, and nothing else: schedules and tasks run where `rota up` or the other roles do.

    APP is module:app: python templates must then name one of its functions, and with --strict whatever is submitted
    or scheduled must be one of its kinds. Beyond this machine (--host 0.0.0.0) it is served only if there are API
    keys."""
    from .http import HttpOptions
    from .running import ProcessOptions, run

    settings = session.store_settings(app=app, **flags)
    known = load_app(settings["app"])
    if strict and known is None:
        raise click.UsageError("--strict needs an app; write rota serve module:app --strict")
    options = ProcessOptions(
        settings,
        scheduler=engine,
        janitor=engine,
        app=known if engine else None,
        monitoring=_monitoring(flags),
        http=HttpOptions(settings, is_all=True, app=known, strict=strict),
    )
    run(session, options.with_commands() if engine else options)


def _monitoring(flags: dict[str, Any]) -> MonitoringOptions:
    from .monitoring import MonitoringOptions

    return MonitoringOptions(**{name: flags[name] for name in _MONITORING if name in flags})
