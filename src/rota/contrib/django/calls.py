"""Submitting tasks from views and models.

`submit` stores the task at once. `submit_on_commit` stores it right after the transaction that is open on Django's
connection: never for one that is rolled back, but not for one that commits just before the process dies, either. Where
that matters, `submit(…, using="default")` writes the task inside Django's own transaction: both or none. That needs
Rota's tables in the same PostgreSQL database."""

from __future__ import annotations

import atexit
import os
import threading
from functools import partial
from typing import Any, Unpack

from django.conf import settings
from django.db import connections, transaction

from ... import sync
from ...domain.errors import Invalid
from ...domain.model import Task
from ...domain.options import SubmitOptions

__all__ = ["queue", "setting", "submit", "submit_on_commit"]

_opening = threading.Lock()
_opened: dict[int, sync.Queue] = {}
"""By the process that has opened it: one that is forked has none yet."""


def setting(name: str) -> Any:
    """A setting of `ROTA` in the settings of the project; None if it is not there."""
    given = getattr(settings, "ROTA", {})
    if not isinstance(given, dict):
        raise Invalid("ROTA", "it is not a dict", "write ROTA = {'store': …, 'app': 'shop.tasks:app'}")
    return given.get(name)


def queue() -> sync.Queue:
    """The queue of this process. It is opened when it is first needed, and closed when the process ends."""
    process = os.getpid()
    with _opening:
        if process not in _opened:
            opened = sync.connect(setting("store"), tenant=setting("tenant") or "default")
            atexit.register(opened.close)
            _opened[process] = opened
        return _opened[process]


def submit(
    kind: str, input: Any = None, *, using: str | None = None, **options: Unpack[SubmitOptions]
) -> Task:
    """Submit a task. With `using`, the name of one of Django's databases, it exists if and only if the transaction
    commits that is open there."""
    connection = None if using is None else _postgres(using)
    return queue().submit(kind, input, connection=connection, **options)


def submit_on_commit(
    kind: str, input: Any = None, *, using: str | None = None, **options: Unpack[SubmitOptions]
) -> None:
    """Submit a task right after the open transaction has committed; at once, if there is none."""
    transaction.on_commit(partial(submit, kind, input, **options), using=using)


def _postgres(using: str) -> Any:
    wrapper = connections[using]
    if wrapper.vendor != "postgresql":
        problem = f"the database {using!r} is {wrapper.vendor}, whose transactions cannot be shared"
        raise Invalid("using", problem, "use PostgreSQL, or submit_on_commit")
    if not wrapper.in_atomic_block:
        raise Invalid(
            "using", f"no transaction is open on {using!r}", "submit inside of transaction.atomic()"
        )
    wrapper.ensure_connection()
    return wrapper.connection
