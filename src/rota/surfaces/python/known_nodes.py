"""The nodes of a store, as a program knows them, so that it can warn of a kind that nobody handles.

The nodes are read once in a while, after a commit, so that a submission makes no round trip more. A warning is no more
than that: if the nodes cannot be read, nothing is known, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

from ...domain.errors import NotFound, StoreError
from ...domain.model import Target, TemplateTarget
from ...domain.serving import nobody_handles
from ...engine.clock import Clock
from ...engine.queries import one_template, serving
from ...engine.queries.serving import Fleet
from ...stores.base import Store

FRESH = timedelta(seconds=30)


class UnhandledKind(UserWarning):
    """A task was submitted, or a schedule created, of a kind that no live worker handles."""


class KnownNodes:
    """The nodes as they were seen last, at most `FRESH` ago."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None
        self._read_at: float | None = None

    async def unhandled(
        self, store: Store, clock: Clock, tenant: str, asked: Iterable[tuple[str, str]]
    ) -> list[str]:
        """A sentence for each kind that nobody handles in its queue."""
        if self._read_at is None or clock.monotonic() - self._read_at >= FRESH.total_seconds():
            self._read_at = clock.monotonic()
            try:
                self._fleet = await store.read(serving.fleet_of(None))
            except StoreError:  # what was asked for is stored already; only the warning is lost
                self._fleet = None
        seen = self._fleet
        if seen is None:
            return []
        said = {nobody_handles(seen.nodes, seen.at, tenant, kind, queue): None for kind, queue in asked}
        return [sentence for sentence in said if sentence is not None]


async def started_by(store: Store, tenant: str, targets: Sequence[Target]) -> list[tuple[str, str] | None]:
    """The kind and the queue of the task that each target starts. None: its template is gone, or cannot be read; then
    only a warning is lost."""
    templates: dict[str, tuple[str, str]] = {}
    for id in {each.template_id: None for each in targets if isinstance(each, TemplateTarget)}:
        with suppress(StoreError, NotFound):
            template = await store.read(one_template(tenant, id))
            templates[id] = (template.kind, template.queue)
    return [
        templates.get(each.template_id) if isinstance(each, TemplateTarget) else (each.kind, each.queue)
        for each in targets
    ]
