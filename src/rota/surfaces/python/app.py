"""App as programs use it: the engine's, which a queue can be opened for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Unpack

from ...domain.options import ScheduleOptions
from ...domain.plan import naming
from ...engine import app
from ...engine.clock import Clock
from . import arguments
from .client import Connecting, Queue, connect

_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


class App(app.App):
    """The registry of a program: its tasks, workflows, schedules, what it provides, and hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.inject = {**self.inject, Queue: attrgetter("queue")}

    def connect(
        self,
        store: str | None = None,
        *,
        bucket: str | None = None,
        tenant: str = "default",
        actor: str | None = None,
        clock: Clock | None = None,
    ) -> Connecting:
        """As `rota.connect`. Until the queue is closed, the functions of this app are submitted to it, and inputs that
        their handlers cannot take are refused."""
        opening = connect(store, bucket=bucket, tenant=tenant, actor=actor, clock=clock, app=self)
        return _ConnectingApp(self, opening.open)

    def schedule(self, schedule_id: str, **options: Unpack[ScheduleOptions]) -> None:
        """Declare a schedule; a worker that starts creates it, or brings it up to date. Options as in
        `Queue.create_schedule`."""
        with naming("schedule", schedule_id), arguments.in_words_of(options):
            arguments.new_schedule(options, _ANY_TIME)  # refused here, where it is declared
        super().schedule(schedule_id, **options)


class _ConnectingApp(Connecting):
    """Connects the app with the queue while that is open."""

    def __init__(self, app: App, opening: Callable[[], Coroutine[Any, Any, Queue]]) -> None:
        super().__init__(opening)
        self._app = app
        self._before: Any = None

    async def open(self) -> Queue:
        queue = await super().open()
        self._before, self._app.queue = self._app.queue, queue
        return queue

    async def __aexit__(self, *about: object) -> None:
        self._app.queue = self._before
        await super().__aexit__(*about)
