"""Commands about access: the keys of the HTTP API, and tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ....domain.model import ApiKey, Tenant
from ...durations import short
from ..options import DURATION, NONE, NUMBER_OR_NONE, SIZE, given, page_options, together
from ..render import Cell, size_in_words
from ..session import Session, command

if TYPE_CHECKING:
    from ....engine.queries import TenantUse

EVERY_TENANT = "*"


@command(
    examples=[
        "rota keys create --tenant acme --role operator --name ci",
        "rota keys create --tenant '*' --role admin --name operations   # every tenant",
    ]
)
@click.option(
    "--role",
    required=True,
    type=click.Choice(["viewer", "operator", "admin"]),
    help="viewer looks; operator also runs, pauses, triggers and submits; admin does everything.",
)
@click.option(
    "--name", required=True, metavar="TEXT", help="What it is for: changes made with it carry this name."
)
def create_key(session: Session, role: str, name: str) -> None:
    """Make a key for the HTTP API, for the tenant of --tenant ('*' is every tenant). The key is printed once; what is
    stored is a hash, from which it cannot be had again."""
    every = session.settings()["tenant"] == EVERY_TENANT
    made, token = _for_any_tenant(session, every).run(
        lambda queue: queue.create_key(name, role, every_tenant=every), creates=True
    )
    if session.as_json:
        from ...shapes import plain

        return session.screen.json({**plain(made), "key": token})
    session.screen.say(token)
    whose = "every tenant" if every else f"tenant {made.tenant}"
    return session.screen.remark(
        f"made the key {name} for {whose}, role {role}: keep it now, it is not shown again"
    )


@command(examples=["rota keys list", "rota keys list --tenant acme --json"])
@page_options(100)
def list_keys(session: Session, limit: int, cursor: str | None) -> None:
    """The keys of the tenant of --tenant, or else of all; newest first, revoked ones too."""
    every = _names_no_tenant(session)
    page = _for_any_tenant(session, every).run(
        lambda queue: queue.list_keys(every_tenant=every, limit=limit, cursor=cursor)
    )
    if session.as_json:
        return session.screen.json({"keys": page, "next_cursor": page.next_cursor})
    if not page:
        return session.say_none("keys", {}, "`rota keys create --help` shows how to make one")
    ids = session.screen.ids(key.id for key in page)
    rows = [_key_row(session, ids[key.id], key) for key in page]
    headings = ("ID", "NAME", "TENANT", "ROLE", "CREATED", "BY", "STATUS")
    session.screen.table(headings, rows, yields=("BY", "CREATED"))
    return session.say_more(page)


def _key_row(session: Session, id: str, key: ApiKey) -> list[Cell | str]:
    status = Cell("good", "green")
    if key.revoked_at is not None:
        status = Cell(f"revoked {session.screen.clock(key.revoked_at)} by {key.revoked_by}", "bright_black")
    made = session.screen.clock(key.created_at)
    return [id, Cell(key.name, "bold"), key.tenant, str(key.role), made, key.created_by, status]


@command(
    examples=["rota keys revoke 01a1e1f8-cb85-726a-9c17-676e22677d13", "rota keys revoke ci --tenant acme"]
)
@click.argument("key_id")
def revoke_key(session: Session, key_id: str) -> None:
    """End a key, named by its id, or by its name if only one has it. It stops working within seconds, everywhere."""
    every = _names_no_tenant(session)
    revoked = _for_any_tenant(session, every).run(lambda queue: queue.revoke_key(key_id, every_tenant=every))
    name = click.style(revoked.name, bold=True)
    session.tell(revoked, f"revoked {name} ({revoked.id}) of tenant {revoked.tenant}")


def _names_no_tenant(session: Session) -> bool:
    """No tenant was named, or all were."""
    settings = session.settings()
    return settings.is_default("tenant") or settings["tenant"] == EVERY_TENANT


def _for_any_tenant(session: Session, every: bool) -> Session:
    """`*` is a word of keys; a queue is always one tenant's."""
    return Session({**session.flags, "tenant": "default"}) if every else session


_limit_options = together(
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


def _limits_in(options: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == NONE else value for name, value in given(options).items()}


@command(
    examples=[
        "rota tenant create acme",
        "rota tenant create acme --max-schedules 100 --max-pending 10000 --min-interval 10s --max-input 1MB",
    ]
)
@click.argument("name")
@_limit_options
def create_tenant(session: Session, name: str, **options: Any) -> None:
    """Create a tenant: 1 to 63 letters, digits and _ . -

    A tenant need not be created to be used; one that is not has the default limits."""
    tenant = session.run(lambda queue: queue.create_tenant(name, **_limits_in(options)), creates=True)
    session.tell(tenant, f"created {click.style(tenant.id, bold=True)}: {_limits_in_words(tenant)}")


@command(examples=["rota tenant list", "rota tenant list --json | jq '.[].id'"])
def list_tenants(session: Session) -> None:
    """Every tenant that was created, or has a schedule or an open task; what it has, and what it may have."""
    found = session.run(lambda queue: queue.list_tenants())
    if session.as_json:
        return session.screen.json([_tenant_document(each) for each in found])
    if not found:
        return session.say_none("tenants", {}, "`rota tenant create --help` shows how to make one")
    rows = [_tenant_row(each) for each in found]
    return session.screen.table(
        ("TENANT", "STATUS", "SCHEDULES", "OPEN TASKS", "LIMITS"), rows, yields=("LIMITS",)
    )


def _tenant_document(use: TenantUse) -> dict[str, Any]:
    from ...shapes import plain

    return {**plain(use.tenant), "schedule_count": use.schedules, "open_tasks": use.open_tasks}


def _tenant_row(use: TenantUse) -> list[Cell | str]:
    colour = "green" if use.tenant.status == "active" else "yellow"
    return [
        Cell(use.tenant.id, "bold"),
        Cell(str(use.tenant.status), colour),
        f"{use.schedules:,}",
        f"{use.open_tasks:,}",
        Cell(_limits_in_words(use.tenant), "bright_black"),
    ]


@command(
    examples=[
        "rota tenant limits acme",
        "rota tenant limits acme --max-schedules 500",
        "rota tenant limits acme --max-pending none",
    ]
)
@click.argument("name")
@_limit_options
def limits(session: Session, name: str, **options: Any) -> None:
    """Change the limits that are named; without options, show them. What a tenant has already stays."""
    changes = _limits_in(options)
    if changes:
        tenant = session.run(lambda queue: queue.set_limits(name, **changes))
    else:
        tenant = session.run(lambda queue: queue.get_tenant(name))
    session.tell(tenant, f"{click.style(tenant.id, bold=True)}: {_limits_in_words(tenant)}")


@command(examples=["rota tenant suspend acme --note 'invoice 2026-07 is open'"])
@click.argument("name")
@click.option("--note", default="", metavar="TEXT", help="Why; kept in the audit.")
def suspend_tenant(session: Session, name: str, note: str) -> None:
    """Let nothing new begin there: submissions, triggers and edits are refused, and what its schedules would have fired
    is recorded as skipped. Tasks that were submitted before still run."""
    tenant = session.run(lambda queue: queue.suspend_tenant(name, note))
    again = f"; `rota tenant resume {tenant.id}` ends it"
    session.tell(tenant, f"suspended {click.style(tenant.id, bold=True)}{again}")


@command(examples=["rota tenant resume acme"])
@click.argument("name")
def resume_tenant(session: Session, name: str) -> None:
    """End a suspension. What was skipped meanwhile is not made up for."""
    tenant = session.run(lambda queue: queue.resume_tenant(name))
    session.tell(tenant, f"resumed {click.style(tenant.id, bold=True)}")


def _limits_in_words(tenant: Tenant) -> str:
    most = tenant.limits
    pending = "no limit to" if most.pending_tasks is None else f"{most.pending_tasks:,}"
    return (
        f"{most.schedules:,} schedules, {pending} pending tasks, times at least {short(most.minimum_interval)} apart,"
        f" input up to {size_in_words(most.input_bytes)}"
    )
