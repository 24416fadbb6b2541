"""Commands about the keys of the HTTP API: create, list, revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..command import command
from ..render import Cell, seconds
from ..session import Session, with_session

if TYPE_CHECKING:
    from ....domain.model import ApiKey

__all__ = ["create", "list_keys", "revoke"]

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
@with_session
def create(session: Session, role: str, name: str) -> None:
    """Make a key for the HTTP API, for the tenant of --tenant ('*' is every tenant). The key is printed once; what is
    stored is a hash, from which it cannot be had again."""
    every = session.settings()["tenant"] == EVERY_TENANT
    made, token = _anywhere(session, every).run(
        lambda queue: queue.create_key(name, role, every_tenant=every), creates=True
    )
    if session.as_json:
        from ...shapes import api_key as shape

        return session.screen.json({**shape(made), "key": token})
    session.screen.say(token)
    whose = "every tenant" if every else f"tenant {made.tenant}"
    session.screen.remark(f"made the key {name} for {whose}, role {role}: keep it now, it is not shown again")
    return None


@command(examples=["rota keys list", "rota keys list --tenant acme --json"])
@click.option("-n", "--limit", default=100, show_default=True, help="How many.")
@click.option("--cursor", help="Go on where an earlier page ended.")
@with_session
def list_keys(session: Session, limit: int, cursor: str | None) -> None:
    """The keys of the tenant of --tenant, or else of all; newest first, revoked ones too."""
    every = _is_any(session)
    page = _anywhere(session, every).run(
        lambda queue: queue.list_keys(every_tenant=every, limit=limit, cursor=cursor)
    )
    if session.as_json:
        from ...shapes import api_key as shape

        return session.screen.json({"keys": [shape(key) for key in page], "next_cursor": page.next_cursor})
    if not page:
        return session.screen.remark("there are no keys; `rota keys create --help` shows how to make one")
    rows = [_row(key) for key in page]
    session.screen.table(("ID", "NAME", "TENANT", "ROLE", "CREATED", "BY", "STATUS"), rows)
    return None


def _row(key: ApiKey) -> list[Cell | str]:
    status = Cell("good", "green")
    if key.revoked_at is not None:
        status = Cell(f"revoked {seconds(key.revoked_at)} by {key.revoked_by}", "bright_black")
    made = seconds(key.created_at)
    return [key.id, Cell(key.name, "bold"), key.tenant, str(key.role), made, key.created_by, status]


@command(
    examples=["rota keys revoke 01a1e1f8-cb85-726a-9c17-676e22677d13", "rota keys revoke ci --tenant acme"]
)
@click.argument("key_id")
@with_session
def revoke(session: Session, key_id: str) -> None:
    """End a key, named by its id, or by its name if only one has it. It stops working within seconds, everywhere."""
    every = _is_any(session)
    revoked = _anywhere(session, every).run(lambda queue: queue.revoke_key(key_id, every_tenant=every))
    if session.as_json:
        from ...shapes import api_key as shape

        return session.screen.json(shape(revoked))
    session.screen.say(
        f"revoked {click.style(revoked.name, bold=True)} ({revoked.id}) of tenant {revoked.tenant}"
    )
    return None


def _is_any(session: Session) -> bool:
    """No tenant was named, or all were."""
    settings = session.settings()
    return settings.is_default("tenant") or settings["tenant"] == EVERY_TENANT


def _anywhere(session: Session, every: bool) -> Session:
    """`*` is a word of keys; a queue is always one tenant's."""
    return Session({**session.flags, "tenant": "default"}) if every else session
