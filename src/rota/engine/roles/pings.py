"""Pings to a monitor outside, such as Healthchecks: if they stay away, someone else says so.

A schedule with a `heartbeat_url` tells of its runs: `URL/start` when one begins, `URL` when it has succeeded,
`URL/fail` when it has failed, each with the run's id as `rid`. The fleet's own tells when a node begins, and every
minute, that the store answers and nobody is missed: `URL`, or `URL/fail` while an alarm about the fleet is open.

`Pings` is an observer: it hears of what is committed, and only puts it in a queue. The role sends from there, and tries
again a few times. What cannot be sent is dropped, and so is what a node that dies has not sent: the monitor outside
counts what comes, and work waits for none of it. Addresses that are not of the public internet are refused unless they
are allowed, as for HTTP tasks. A new `heartbeat_url` is known everywhere within a minute.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ...domain.errors import StoreError
from ...domain.model import RunStatus, Schedule, Task, TaskStatus
from ...domain.schedule.run import follows
from ...stores.base import Store, Tx
from ..clock import Clock, sleep
from ..observe.telemetry import Observation, Observer, PingFailed, TaskMoved, TaskStarted, TimesHandled
from ..work import as_work

if TYPE_CHECKING:
    import httpx

WAITING_AT_MOST = 1000
KNOWN_AT_MOST = 10_000
"""More than can wait."""
BELIEVED_FOR = timedelta(minutes=1)
TRIES = 3
PATIENCE = timedelta(seconds=10)
PAUSE = timedelta(seconds=2)
AT_ONCE = 8


class Ping(NamedTuple):
    """One ping: of which schedule (None: of the fleet), what it says (`start`, `fail`, or nothing: success), and
    of which run."""

    schedule_id: str | None
    says: str
    run_id: str | None = None


def ping_address(url: str, says: str, run_id: str | None) -> str:
    """The address as Healthchecks expects it; what is asked for behind a `?` stays there."""
    parts = urlsplit(url)
    path = f"{parts.path.rstrip('/')}/{says}" if says else parts.path
    rid = f"rid={run_id}" if run_id else ""
    query = "&".join(part for part in (parts.query, rid) if part)
    return urlunsplit(parts._replace(path=path, query=query))


class Pings:
    """An observer, and a role that sends what it heard. `fleet_url` is the fleet's own."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        observe: Observer,
        *,
        fleet_url: str | None = None,
        allow_private: bool = False,
    ) -> None:
        self.wake = asyncio.Event()
        self._store = store
        self._clock = clock
        self._known: dict[
            str, tuple[str | None, float]
        ] = {}  # address by schedule, and until when it is believed
        self._observe = observe
        self._fleet_url = fleet_url
        self._allow_private = allow_private
        self._waiting: deque[Ping] = deque(maxlen=WAITING_AT_MOST)
        self._client: httpx.AsyncClient | None = None

    def hear(self, seen: Observation) -> None:
        """Only what may concern a schedule is kept. Whether that has an address is known if its time was handled here;
        else it is looked up before it is sent."""
        match seen:
            case TaskStarted(task) if task.schedule_id is not None and task.attempt == 1:
                self._add(Ping(task.schedule_id, "start", task.run_id))
            case TaskMoved(task) if task.schedule_id is not None and (said := _says(task)) is not None:
                self._add(Ping(task.schedule_id, said, task.run_id))
            case TimesHandled(schedule, run, task):
                self._know(schedule.id, schedule.heartbeat_url)
                if task is None and run.status is RunStatus.FAILED:
                    self._add(Ping(schedule.id, "fail", run.id))

    @property
    def has_fleet_url(self) -> bool:
        return self._fleet_url is not None

    def tell_of_fleet(self, *, is_well: bool) -> None:
        if self._fleet_url is not None:
            self._add(Ping(None, "" if is_well else "fail"))

    async def run_once(self) -> None:
        """Send what waits, a few at once."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            while self._unknown(batch):
                await self._look_up(self._unknown([*batch, *self._waiting]))
            urls = [(each, self._url_of(each)) for each in batch]
            await asyncio.gather(*(self._send(each, url) for each, url in urls if url is not None))

    async def finish(self) -> None:
        """Send what is left, if that does not take long."""
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await self.run_once()
        except (TimeoutError, StoreError):
            pass  # the monitor outside counts what comes
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _add(self, ping: Ping) -> None:
        if ping.schedule_id is None or self._may_have_url(ping.schedule_id):
            self._waiting.append(ping)
            self.wake.set()

    def _may_have_url(self, schedule_id: str) -> bool:
        url, until = self._known.get(schedule_id, ("", 0.0))
        return url is not None or until <= self._clock.monotonic()

    def _know(self, schedule_id: str, url: str | None) -> None:
        self._known.pop(schedule_id, None)
        if len(self._known) >= KNOWN_AT_MOST:
            del self._known[next(iter(self._known))]  # the oldest
        self._known[schedule_id] = (url, self._clock.monotonic() + BELIEVED_FOR.total_seconds())

    def _unknown(self, pings: Iterable[Ping]) -> list[str]:
        """In their order, so that the addresses that are forgotten for them are of those that were sent before."""
        now = self._clock.monotonic()
        ids = dict.fromkeys(each.schedule_id for each in pings if each.schedule_id is not None)
        return [id for id in ids if self._known.get(id, (None, 0.0))[1] <= now]

    async def _look_up(self, ids: list[str]) -> None:
        """All that wait, in one read."""
        found = await self._store.read(_schedules(ids))
        for id in ids:
            self._know(id, found[id].heartbeat_url if id in found else None)

    def _url_of(self, ping: Ping) -> str | None:
        return self._fleet_url if ping.schedule_id is None else self._known[ping.schedule_id][0]

    async def _send(self, ping: Ping, url: str) -> None:
        address = ping_address(url, ping.says, ping.run_id)
        problem = ""
        for number in range(TRIES):
            if number:
                await sleep(PAUSE * number)
            try:
                async with asyncio.timeout(PATIENCE.total_seconds()):
                    answer = await self._kept_client().get(address)
                if answer.is_success:
                    return
                problem = f"it answered {answer.status_code}"
            except Exception as error:  # whatever the network does, work goes on
                problem = "install rota[http]" if isinstance(error, ImportError) else type(error).__name__
        self._observe(PingFailed(urlsplit(url).hostname or "", problem))

    def _kept_client(self) -> httpx.AsyncClient:
        from ..runtimes.http import new_client

        self._client = self._client or new_client(allow_private=self._allow_private)
        return self._client


def _says(task: Task) -> str | None:
    if task.status is TaskStatus.PENDING:
        return None
    return {RunStatus.COMPLETED: "", RunStatus.FAILED: "fail"}.get(follows(task))


@as_work
async def _schedules(tx: Tx, ids: list[str]) -> dict[str, Schedule]:
    return await tx.get_many(Schedule, ids)
