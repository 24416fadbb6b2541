"""`rota up --demo`: the example app in a store of its own, and what to try beside it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import click

from ..session import Session
from .demo_app import app
from .running import Plan

__all__ = ["in_demo_store"]

_TRY = (
    ("rota schedule list", "every schedule, when it is next due, how it went"),
    ("rota schedule show backup", "one of them, in words"),
    ("rota schedule runs backup", "what became of each expected time"),
    ('rota submit -t greet -i \'{"name":"Ada"}\'', "a task of your own"),
    ("rota tail", "every change of every task, live"),
)


@contextmanager
def in_demo_store(session: Session, plan: Plan) -> Iterator[Plan]:
    """The store that was named, or else one that is gone afterwards."""
    if not plan.settings.is_default("store"):
        yield replace(plan.with_app(app), hints=_hints(plan.address))
        return
    folder = tempfile.mkdtemp(prefix="rota-demo-")
    try:
        address = f"sqlite:///{folder}/rota.db"
        yield replace(plan.with_app(app), store=address, hints=_hints(address))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hints(address: str) -> tuple[str, ...]:
    width = max(len(line) for line, _ in _TRY)
    lines = [
        f"  {click.style(line.ljust(width), fg='green')}  {click.style(what, dim=True)}"
        for line, what in _TRY
    ]
    return (
        "",
        "Try, in another terminal:",
        f"  {click.style(f'export ROTA_STORE={address}', fg='green')}",
        *lines,
        "",
    )
