"""Commands about the store and the settings: migrate, doctor, config."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..command import command
from ..render import Cell
from ..session import Session, with_session

if TYPE_CHECKING:
    from ....stores.base import Store
    from .doctor import Finding

__all__ = ["config", "doctor", "migrate"]


@command(
    examples=["rota migrate", "rota migrate --plan", "rota migrate --store sqlite:////var/lib/shop/rota.db"]
)
@click.option("--plan", is_flag=True, help="Only print the SQL that would be run.")
@with_session
def migrate(session: Session, plan: bool) -> None:
    """Bring the store's schema up to date. Doing it twice does no harm; a newer store is refused."""
    store = _store(session)
    if plan:
        return _show_plan(session, store)
    with session.screen.progress("migrating", None):
        applied = asyncio.run(_migrated(store))
    if session.as_json:
        return session.screen.json({"store": store.url, "applied": list(applied)})
    schema = f"the schema {store.schema}" if store.schema else "the schema"
    done = f"applied {', '.join(applied)}, {schema} is now" if applied else f"nothing to do, {schema} is"
    session.screen.say(f"{store.url}: {done} current")
    return None


def _show_plan(session: Session, store: Store) -> None:
    sql = asyncio.run(_planned(store))
    if session.as_json:
        return session.screen.json({"store": store.url, "plan": sql})
    session.screen.say(sql or f"-- {store.url}: nothing to do, the schema is current")
    return None


async def _planned(store: Store) -> str:
    plan = await store.plan()
    await store.close()
    return plan


async def _migrated(store: Store) -> Sequence[str]:
    applied = await store.migrate()
    await store.close()
    return applied


@command(examples=["rota doctor", "rota doctor --deep", "rota doctor --json | jq '.[] | select(.ok | not)'"])
@click.option("--deep", is_flag=True, help="Read every record, too.")
@click.option(
    "--repair", is_flag=True, help="Say what can be done about what cannot be read. Changes nothing."
)
@with_session
def doctor(session: Session, deep: bool, repair: bool) -> None:
    """Look for trouble: is the store reachable, writable and current, do the clocks agree, is anything
    overdue, lost or stuck? Each with what to do about it. Exit code 1 if something is wrong."""
    from .doctor import examine

    settings = session.settings()
    store = _store(session)
    findings = asyncio.run(examine(store, settings["tenant"], deep=deep, repair=repair))
    if session.as_json:
        session.screen.json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            _say(session, finding)
    if not all(finding.ok for finding in findings):
        raise click.exceptions.Exit(1)


def _say(session: Session, finding: Finding) -> None:
    sign, colour = ("✓", "green") if finding.ok else ("✗", "red")
    if not session.screen.is_terminal:
        sign = "ok  " if finding.ok else "FAIL"
    session.screen.say(
        f"{click.style(sign, fg=colour)} {click.style(finding.check.ljust(10), bold=True)} {finding.found}"
    )
    if finding.advice:
        session.screen.say(f"  {' ' * 10} {click.style('→ ' + finding.advice, fg='yellow')}")


def _store(session: Session) -> Store:
    from ....engine.clock import SystemClock
    from ...stores import make_store

    return make_store(session.settings()["store"], SystemClock())


@command(examples=["rota config", "ROTA_TENANT=acme rota config", "rota config --profile production --json"])
@with_session
def config(session: Session) -> None:
    """What is set, and where it came from: a flag, a variable, rota.toml, or the default."""
    from ...settings import FIELDS

    settings = session.settings()
    shown = {field.name: _shown(settings[field.name]) for field in FIELDS}
    sources = {field.name: settings.found[field.name].source for field in FIELDS}
    if session.as_json:
        document: dict[str, Any] = {
            name: {"value": value, "source": sources[name]} for name, value in shown.items()
        }
        document["profile"] = {"value": settings.profile.value, "source": settings.profile.source}
        document["file"] = str(settings.file) if settings.file else None
        return session.screen.json(document)
    rows: list[list[Cell | str]] = [
        [field.name, Cell(_text(shown[field.name]), "bold"), Cell(sources[field.name], "cyan"), field.about]
        for field in FIELDS
    ]
    session.screen.table(("SETTING", "VALUE", "FROM", "WHAT"), rows)
    where = f"file: {settings.file}" if settings.file else "file: no rota.toml here"
    profile = f", profile {settings.profile.value}" if settings.profile.value else ""
    session.screen.say(where + profile)
    return None


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else "-" if value is None else str(value)


def _shown(value: Any) -> Any:
    """Without secrets; durations as they are written."""
    from datetime import timedelta

    from ...durations import short
    from ...stores import without_secrets

    if isinstance(value, timedelta):
        return short(value)
    if isinstance(value, tuple):
        return list(value)
    return without_secrets(value) if isinstance(value, str) else value
