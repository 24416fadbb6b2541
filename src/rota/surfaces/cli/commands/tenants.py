"""Commands about tenants: create, list, limits, suspend, resume."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..command import command
from ..parse import DURATION, NONE, NUMBER_OR_NONE, SIZE
from ..render import Cell
from ..session import Session, with_session

if TYPE_CHECKING:
    from ....domain.model import Tenant
    from ....engine.queries import TenantUse

__all__ = ["create", "limits", "list_tenants", "resume", "suspend"]

_OPTIONS = (
    click.option(
        "--max-schedules", "schedules", type=int, metavar="N", help="How many schedules. [default: 10,000]"
    ),
    click.option(
        "--max-pending",
        "pending_tasks",
        type=NUMBER_OR_NONE,
        metavar="N",
        help="How many tasks may be pending; none for no limit. [default: none]",
    ),
    click.option(
        "--min-interval",
        "minimum_interval",
        type=DURATION,
        help="How close two times of a schedule may be. [default: 1s]",
    ),
    click.option(
        "--max-input",
        "input_bytes",
        type=SIZE,
        help="How large the input of a task may be: 512KB, 1MB. [default: 1MB]",
    ),
)


def _limits(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _given(options: dict[str, Any]) -> dict[str, Any]:
    chosen = {name: value for name, value in options.items() if value is not None}
    return {name: None if value == NONE else value for name, value in chosen.items()}


@command(
    examples=[
        "rota tenant create acme",
        "rota tenant create acme --max-schedules 100 --max-pending 10000 --min-interval 10s --max-input 1MB",
    ]
)
@click.argument("name")
@_limits
@with_session
def create(session: Session, name: str, **options: Any) -> None:
    """Create a tenant: 1 to 63 letters, digits and _ . -

    A tenant need not be created to be used; one that is not has the default limits."""
    tenant = session.run(lambda queue: queue.create_tenant(name, **_given(options)), creates=True)
    _answer(session, tenant, f"created {click.style(tenant.id, bold=True)}: {_in_words(tenant)}")


@command(examples=["rota tenant list", "rota tenant list --json | jq '.[].id'"])
@with_session
def list_tenants(session: Session) -> None:
    """Every tenant that was created, or has a schedule or an open task; what it has, and what it may have."""
    found = session.run(lambda queue: queue.list_tenants())
    if session.as_json:
        return session.screen.json([_document(each) for each in found])
    if not found:
        return session.screen.remark(
            "there are no tenants yet; `rota tenant create --help` shows how to make one"
        )
    rows = [_row(each) for each in found]
    session.screen.table(("TENANT", "STATUS", "SCHEDULES", "OPEN TASKS", "LIMITS"), rows)
    return None


def _document(use: TenantUse) -> dict[str, Any]:
    from ...shapes import tenant as shape

    return {**shape(use.tenant), "schedule_count": use.schedules, "open_tasks": use.open_tasks}


def _row(use: TenantUse) -> list[Cell | str]:
    colour = "green" if use.tenant.status == "active" else "yellow"
    return [
        Cell(use.tenant.id, "bold"),
        Cell(str(use.tenant.status), colour),
        f"{use.schedules:,}",
        f"{use.open_tasks:,}",
        Cell(_in_words(use.tenant), "bright_black"),
    ]


@command(
    examples=[
        "rota tenant limits acme",
        "rota tenant limits acme --max-schedules 500",
        "rota tenant limits acme --max-pending none",
    ]
)
@click.argument("name")
@_limits
@with_session
def limits(session: Session, name: str, **options: Any) -> None:
    """Change the limits that are named; without options, show them. What a tenant has already stays."""
    changes = _given(options)
    if changes:
        tenant = session.run(lambda queue: queue.set_limits(name, **changes))
    else:
        tenant = session.run(lambda queue: queue.get_tenant(name))
    _answer(session, tenant, f"{click.style(tenant.id, bold=True)}: {_in_words(tenant)}")


@command(examples=["rota tenant suspend acme --note 'invoice 2026-07 is open'"])
@click.argument("name")
@click.option("--note", default="", metavar="TEXT", help="Why; kept in the audit.")
@with_session
def suspend(session: Session, name: str, note: str) -> None:
    """Let nothing new begin there: submissions, triggers and edits are refused, and what its schedules would have fired
    is recorded as skipped. Tasks that were submitted before still run."""
    tenant = session.run(lambda queue: queue.suspend_tenant(name, note))
    again = f"; `rota tenant resume {tenant.id}` ends it"
    _answer(session, tenant, f"suspended {click.style(tenant.id, bold=True)}{again}")


@command(examples=["rota tenant resume acme"])
@click.argument("name")
@with_session
def resume(session: Session, name: str) -> None:
    """End a suspension. What was skipped meanwhile is not made up for."""
    tenant = session.run(lambda queue: queue.resume_tenant(name))
    _answer(session, tenant, f"resumed {click.style(tenant.id, bold=True)}")


def _answer(session: Session, tenant: Tenant, sentence: str) -> None:
    from ...shapes import tenant as shape

    session.screen.json(shape(tenant)) if session.as_json else session.screen.say(sentence)


def _in_words(tenant: Tenant) -> str:
    from ...durations import short

    given = tenant.limits
    pending = "no limit to" if given.pending_tasks is None else f"{given.pending_tasks:,}"
    return (
        f"{given.schedules:,} schedules, {pending} pending tasks, times at least {short(given.minimum_interval)} apart,"
        f" input up to {_size(given.input_bytes)}"
    )


def _size(count: int) -> str:
    for unit, size in (("MB", 1024 * 1024), ("KB", 1024)):
        if count % size == 0:
            return f"{count // size:,} {unit}"
    return f"{count:,} bytes"
