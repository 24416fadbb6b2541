"""The Python API: `connect()` and `Queue`. Thin: arguments in, one transaction, records out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, NoReturn, TypeVar

from ...domain.errors import Invalid
from ...domain.tenants import check_tenant
from ...engine.app import App
from ...engine.clock import Clock, SystemClock
from ...engine.handlers.functions import TaskFunction
from ..stores import BUCKETS, open_store
from .calls.alarms import AlarmCalls
from .calls.artifacts import ArtifactCalls
from .calls.base import Batch, DueRuns, Page, Report, all_pages, check_actor
from .calls.calendars import CalendarCalls
from .calls.forecasts import ForecastCalls
from .calls.plans import PlanCalls
from .calls.schedules import ScheduleCalls
from .calls.serving import ServingCalls
from .calls.templates import TemplateCalls
from .calls.tenants import TenantCalls
from .calls.workflows import WorkflowCalls

__all__ = ["Batch", "Connecting", "DueRuns", "Page", "Queue", "Report", "all_pages", "connect"]

F = TypeVar("F", bound=TaskFunction[..., Any])
_A_BUCKET = "write my-queue, or an address such as s3://my-queue/prefix"


class Queue(
    WorkflowCalls,
    ArtifactCalls,
    ScheduleCalls,
    PlanCalls,
    ForecastCalls,
    TemplateCalls,
    CalendarCalls,
    TenantCalls,
    ServingCalls,
    AlarmCalls,
):
    """One tenant's tasks, schedules and templates in one store. Closed by `close()`, or by `async with`."""

    async def __aenter__(self) -> Queue:
        return self

    async def __aexit__(self, *about: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.store.close()

    def __reduce__(self) -> NoReturn:
        """A handler in a process that asks for a queue is told what to do instead."""
        raise TypeError("a queue belongs to its process; open one there with rota.connect()")

    def for_tenant(self, tenant: str) -> Queue:
        """The same store, for another tenant. Closing either closes the store of both."""
        other = Queue(
            self.store, tenant=tenant, actor=self.actor, clock=self.clock, new_id=self._new_id, app=self.app
        )
        other._known_nodes = self._known_nodes
        return other

    def bind(self, function: F) -> F:
        """The function, submitted to this queue: `await queue.bind(function).submit(…)`."""
        return function.bound_to(self)


class Connecting:
    """`await rota.connect()` and `async with rota.connect() as queue` both work."""

    def __init__(self, opening: Callable[[], Coroutine[Any, Any, Queue]]) -> None:
        self._opening = opening
        self._queue: Queue | None = None

    async def open(self) -> Queue:
        return await self._opening()

    def __await__(self) -> Generator[Any, None, Queue]:
        return self.open().__await__()

    async def __aenter__(self) -> Queue:
        self._queue = await self
        return self._queue

    async def __aexit__(self, *about: object) -> None:
        if self._queue is not None:
            await self._queue.close()


def connect(
    store: str | None = None,
    *,
    bucket: str | None = None,
    tenant: str = "default",
    actor: str | None = None,
    clock: Clock | None = None,
    app: App | None = None,
) -> Connecting:
    """Open a store and its queue. Without an address: ROTA_STORE, else the file rota.db. `bucket` is short for the
    store s3://BUCKET. With an `app`, the inputs of the tasks that it has are checked when they are submitted."""

    async def opening() -> Queue:
        check_tenant(tenant)
        check_actor(actor)
        time = clock or SystemClock()
        opened = await open_store(_address(store, bucket), time)
        return Queue(opened, tenant=tenant, actor=actor, clock=time, app=app)

    return Connecting(opening)


def _address(store: str | None, bucket: str | None) -> str | None:
    if bucket is None:
        return store
    if store is not None:
        raise Invalid("bucket", "a store was given, too", "give one of them")
    if not isinstance(bucket, str):
        raise Invalid("bucket", f"{bucket!r:.60} is not a name", _A_BUCKET)
    place = bucket.partition("?")[0]  # an endpoint behind it is an address, too
    if "://" not in place and not place.startswith("memory-bucket:"):
        return f"s3://{bucket}"
    if place.partition(":")[0] not in BUCKETS:
        raise Invalid("bucket", "it is the address of something else", _A_BUCKET)
    return bucket
