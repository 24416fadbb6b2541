"""A node: the loops that run in one process. `Worker` is what programs use: it runs tasks, and by default it also
fires schedules and does the upkeep, since any number of each may run anywhere."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from types import TracebackType
from typing import Any, Unpack, cast

from .. import __version__
from ..domain.checks import check_duration, check_number, check_queue
from ..domain.errors import Invalid, Unavailable
from ..domain.model import Alarm, NodeState, PausedQueue, Schedule, Tenant
from ..domain.options import Duration
from ..domain.tenants import EVERY_TENANT
from ..stores.base import PendingTask
from .app import HOOKS, App, Hook
from .clock import SystemClock, is_done, new_id
from .commands import Retention
from .guard import guarded_loop, is_a, is_cancelled
from .handing_back import hand_back
from .handlers.functions import TaskQueue
from .loops import Backoff, Hints, HintsOf, Loop, MergedHints, NoHints, Recovery, keep_running
from .observe.log import log_observation
from .observe.telemetry import HookFailed, LoopFailed, Observer, fan_out
from .outward import OutwardOptions, outward_roles
from .roles.alarms import SCAN_EVERY, AlarmWatch
from .roles.heartbeat import Heartbeat
from .roles.janitor import GRACE, Forgetter, Janitor
from .roles.jumps_and_blocks import EVERY as BEAT
from .roles.jumps_and_blocks import BlockWatch, JumpWatch
from .roles.leases import LEASE, QueueLike
from .roles.scheduler import Scheduler
from .roles.set_back import SetBack
from .roles.worker import TaskWorker, call_hooks, run_hooks
from .runtimes.runtimes import Runtimes
from .signals import handling_signals

SHUTDOWN = timedelta(seconds=30)
EARLY = timedelta(milliseconds=2)
LAST_BEAT = timedelta(seconds=1)
ALARM_LULL = timedelta(seconds=1)
"""Nobody is told of a failure sooner; and a busy store is asked for alarms no more often."""
ROLES = ("scheduler", "worker", "janitor")
_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)
"""For times that the store sets."""


class Node:
    """Some roles, run until `stop()`. Subclasses or callers say which."""

    always_sweeps = False
    """Whether it returns the tasks of dead workers also if it is told to be no janitor."""
    serves_http = False
    """Whether its process answers requests, too: others are told."""

    def __init__(
        self,
        queue: QueueLike,
        *,
        scheduler: bool = True,
        janitor: bool = True,
        observers: Iterable[Observer] = (),
        retention: Retention | None = None,
        shutdown_timeout: Duration = SHUTDOWN,
        node_id: str | None = None,
        allow_private_addresses: bool = False,
        **outward: Unpack[OutwardOptions],
    ) -> None:
        self.queue = queue
        self.node_id = node_id or f"{socket.gethostname()}:{os.getpid()}:{new_id()[-6:]}"
        self._patience = check_duration("shutdown_timeout", shutdown_timeout)
        self._patient_until = 0.0
        observers = tuple(observers)
        self.notices, self.pings = outward_roles(queue, outward, observers, allow_private_addresses)
        self.observe = fan_out((log_observation, *observers, self.pings.hear))
        self.jump_watch = JumpWatch(queue.clock, self.observe, self._jumped)
        in_real_time = isinstance(queue.clock, SystemClock)
        self._heartbeat_every = queue.store.heartbeat
        if not in_real_time:  # virtual days have many seconds; no laptop sleeps in them
            self.jump_watch.every = self._heartbeat_every = timedelta(hours=1)
        self.heartbeat = Heartbeat(queue.store, self._described)
        self.set_back = SetBack(queue.store, self.observe)
        look = self.jump_watch.look
        self.scheduler: Scheduler | None = None
        self.janitor: Janitor | None = None
        self.forgetter: Forgetter | None = None
        self.alarms: AlarmWatch | None = None
        if scheduler:
            early = EARLY if in_real_time else timedelta(0)  # virtual timers are exact
            self.scheduler = Scheduler(queue.store, self.observe, look_for_jumps=look, early=early)
        if janitor or self.always_sweeps:
            self.janitor = Janitor(queue.store, queue.clock, self.observe, look_for_jumps=look)
        if janitor:
            retention = retention or Retention()
            self.forgetter = Forgetter(queue.store, retention, queue.clock)
            scan_every = SCAN_EVERY if in_real_time else timedelta(hours=1)
            self.alarms = AlarmWatch(
                queue.store,
                queue.clock,
                self.observe,
                kept=retention.runs,
                scan_every=scan_every,
                pings=self.pings,
                node_id=self.node_id,
            )
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._tick_now = asyncio.Event()
        self._recovery = Recovery()

    def stop(self) -> None:
        """Ask for a graceful end; `run()` returns when it has come."""
        self._stop.set()

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the end was asked for, by `stop()` or by a signal."""
        return self._stop

    async def run(self, *, handle_signals: bool = True) -> None:
        """Run until `stop()`, SIGTERM or SIGINT."""
        with handling_signals(self._signalled, enabled=handle_signals):
            await self._take_role()
            async with self._seen():
                await self._run()
                await self.pings.finish()

    async def _take_role(self) -> None:
        """Where a server shows who is connected, it is to show what we are."""
        await self.queue.store.take_role("-".join(self._role_names()))

    def _role_names(self) -> tuple[str, ...]:
        mine = {name for name, *_ in self._roles()}
        return tuple(name for name in ROLES if name in mine)

    @property
    def _tells_of_fleet(self) -> bool:
        return self.alarms is not None and self.pings.has_fleet_url

    def _described(self) -> NodeState:
        """The node, as its heartbeat tells of it. A scheduler and a janitor work for every tenant."""
        return NodeState(
            id=self.node_id,
            tenant=EVERY_TENANT,
            host=socket.gethostname(),
            pid=os.getpid(),
            release=__version__,
            roles=(
                *self._role_names(),
                *["heartbeats"] * self._tells_of_fleet,
                *["http"] * self.serves_http,
            ),
            started_at=_UNKNOWN,
            seen_at=_UNKNOWN,
            heartbeat=self._heartbeat_every,
        )

    @asynccontextmanager
    async def _seen(self) -> AsyncIterator[None]:
        """Others see meanwhile that this node is alive, and in the end that it is gone. If the store does not take
        that, they see it when the heartbeat stays away."""
        stop = asyncio.Event()
        beating = asyncio.create_task(
            self._keep("heartbeat", self.heartbeat, NoHints(), None, stop), name="rota-heartbeat"
        )
        try:
            yield
        finally:
            stop.set()
            ending = asyncio.create_task(self._end_heartbeat(beating))
            await is_done(ending, at_most=LAST_BEAT)  # also in a hurry: else it seems alive for minutes
            for task in (beating, ending):
                task.cancel()
            await asyncio.gather(beating, ending, return_exceptions=True)

    async def _end_heartbeat(self, beating: asyncio.Task[None]) -> None:
        await asyncio.wait({beating})
        try:
            await self.heartbeat.end()
        except Exception as error:
            self.observe(LoopFailed("heartbeat", error, timedelta(0)))

    async def run_once(self) -> timedelta:
        """One pass of every role; the shortest delay that any of them returned."""
        delays: list[timedelta | None] = []
        self.jump_watch.look("one pass")
        await self.set_back.run_once()
        if self.scheduler is not None:
            delays.append(await self.scheduler.run_once())
        if self.janitor is not None and self.forgetter is not None:
            delays.append(await self.janitor.look_twice())
            delays.append(await self.forgetter.run_once())
        if self.alarms is not None:
            delays.append(await self.alarms.look_at_all())
        return min((delay for delay in delays if delay is not None), default=timedelta(0))

    async def run_passes(self, passes: Coroutine[Any, Any, None]) -> bool:
        """Await a coroutine that makes passes (`run_once()`), until `stop()`, SIGTERM or SIGINT: these end it as they
        end `run()`. Returns whether it came to its end."""
        with handling_signals(self._signalled):
            passing = asyncio.create_task(passes, name="rota-passes")
            ending = asyncio.create_task(self._end_passes(passing), name="rota-end")
            try:
                await asyncio.wait({passing})
            finally:
                for each in (passing, ending):
                    each.cancel()
                await asyncio.gather(passing, ending, return_exceptions=True)
                await self._hand_back()
        return not passing.cancelled() and passing.result() is None and not self._stop.is_set()

    async def _end_passes(self, passing: asyncio.Task[None]) -> None:
        await self._end_in_time([passing])

    async def _hand_back(self) -> None:
        """What the passes have left running; here, nothing."""

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self._keep(name, role, hints, wake, self._stop), name=f"rota-{name}")
                for name, role, hints, wake in self._roles()
            ]
            group.create_task(self._end_in_time(loops), name="rota-end")

    async def _end_in_time(self, loops: Sequence[asyncio.Task[None]]) -> None:
        """Rounds under way may finish, for as long as a stop may take. One that waits for the store longer is given
        up: whatever it was about, the next node finds it."""
        await self._stop.wait()
        self._patient_until = self.queue.clock.monotonic() + self._patience.total_seconds()
        ended = asyncio.create_task(_all_ended(loops))
        try:
            await is_done(ended, at_most=self._patience, unless=self._hurry)
        finally:
            for loop in (*loops, ended):
                loop.cancel()
            await asyncio.gather(ended, return_exceptions=True)

    def _roles(self) -> Iterator[tuple[str, Loop, Hints, asyncio.Event | None]]:
        no_hints = NoHints()
        yield "jump watch", self.jump_watch, no_hints, None
        yield "set back", self.set_back, no_hints, self.set_back.wake
        if self.scheduler is not None:
            planned = HintsOf(self.queue.store, Schedule, Tenant)
            yield "scheduler", self.scheduler, MergedHints(planned), self._tick_now
        if self.janitor is not None:
            yield "janitor" if self.forgetter is not None else "sweep", self.janitor, no_hints, None
        if self.forgetter is not None:
            yield "forgetter", self.forgetter, no_hints, None
        if self.alarms is not None:
            watched = HintsOf(self.queue.store, Schedule)
            yield "alarms", self.alarms, MergedHints(watched, ALARM_LULL), None
        if self.notices is not None:
            told = HintsOf(self.queue.store, Alarm)
            yield "notices", self.notices, MergedHints(told, ALARM_LULL), None
        yield "heartbeats", self.pings, no_hints, self.pings.wake

    async def _keep(
        self, name: str, role: Loop, hints: Hints, wake: asyncio.Event | None, stop: asyncio.Event
    ) -> None:
        def failed(error: BaseException, again_in: timedelta) -> None:
            is_outage = isinstance(error, Unavailable) and not error.is_busy and role is not self.forgetter
            if self.janitor is not None and is_outage:
                self.janitor.saw_outage = True  # by any role; a part of an archive may be away by itself
            self.observe(LoopFailed(name, error, again_in))

        await keep_running(
            role,
            hints,
            stop=stop,
            wake=wake,
            on_error=failed,
            recovery=self._recovery,
            longest_rest=self._longest_rest,
        )

    def _longest_rest(self) -> timedelta:
        return Backoff.LONGEST

    def _jumped(self, by: timedelta) -> None:
        if by < timedelta(0):
            self.set_back.stepped_back()
        if self.scheduler is not None:
            self.scheduler.jumped = True
        if self.janitor is not None:
            self.janitor.hold_off()
        self._tick_now.set()

    def _signalled(self) -> None:
        if self._stop.is_set():
            self._hurry.set()  # asked twice: end at once
        self.stop()


class Worker(Node):
    """Runs the tasks of some queues with the handlers of an app, and, unless told otherwise, the schedules and the
    upkeep too. It returns the tasks of dead workers in any case: where a worker is left, nothing waits for a
    janitor."""

    always_sweeps = True

    def __init__(
        self,
        queue: QueueLike,
        app: App | None = None,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 50,
        lease: Duration = LEASE,
        shutdown_timeout: Duration = SHUTDOWN,
        scheduler: bool = True,
        janitor: bool = True,
        all_tenants: bool = False,
        allow_shell: bool = False,
        allow_private_addresses: bool = False,
        observers: Iterable[Observer] = (),
        retention: Retention | None = None,
        worker_id: str | None = None,
        on_startup: Hook | None = None,
        on_shutdown: Hook | None = None,
        on_success: Hook | None = None,
        on_error: Hook | None = None,
        **outward: Unpack[OutwardOptions],
    ) -> None:
        super().__init__(
            queue,
            scheduler=scheduler,
            janitor=janitor,
            observers=observers,
            retention=retention,
            shutdown_timeout=shutdown_timeout,
            node_id=worker_id,
            allow_private_addresses=allow_private_addresses,
            **outward,
        )
        self.app = (app or App()).derived()
        self.app.inject = {**self.app.inject, type(queue): attrgetter("queue")}
        self.app.queue = cast(TaskQueue, queue)  # for functions that are registered with this worker
        self.task, self.workflow = self.app.task, self.app.workflow
        self._add_hooks(on_startup, on_shutdown, on_success, on_error)
        self.worker_id = self.node_id
        self._started = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._lease = check_duration("lease", lease, least=timedelta(seconds=1))
        self.tasks = TaskWorker(
            queue,
            self.app,
            worker_id=self.worker_id,
            queues=_checked_queues(queues),
            concurrency=check_number("concurrency", concurrency, 1, 100_000),
            observe=self.observe,
            lease=self._lease,
            all_tenants=all_tenants,
            runtimes=Runtimes(
                self.app, allow_shell=allow_shell, allow_private_addresses=allow_private_addresses
            ),
        )
        if self.janitor is not None:
            self.janitor.expect_leases(self._lease)
        if self.scheduler is not None:
            self.scheduler.claim_with_tick = self.tasks.claim_with_tick

    def _add_hooks(self, *hooks: Hook | None) -> None:
        for name, hook in zip(HOOKS, hooks, strict=True):
            if hook is not None:
                self.app.hooks[name].append(hook)

    def on_startup(self, hook: Hook) -> Hook:
        return self.app.on_startup(hook)

    def on_shutdown(self, hook: Hook) -> Hook:
        return self.app.on_shutdown(hook)

    def on_success(self, hook: Hook) -> Hook:
        return self.app.on_success(hook)

    def on_error(self, hook: Hook) -> Hook:
        return self.app.on_error(hook)

    async def run_once(self) -> timedelta:
        """One pass of every role, and then until the tasks claimed in it have ended and are settled."""
        delay = await super().run_once()
        with guarded_loop():
            own = await self.tasks.run_once()
            if not self.tasks.is_idle:
                async with self._kept():
                    own = await self._until_idle()
            await self._close_resources()
        return min(delay, own)

    async def _close_resources(self) -> None:
        """One that cannot be closed harms nobody."""
        try:
            await self.tasks.resources.close()
        except BaseException as error:
            if is_a(error, asyncio.CancelledError) and is_cancelled():
                raise
            self.observe(HookFailed("provide", error))

    async def _end_passes(self, passing: asyncio.Task[None]) -> None:
        await self._stop.wait()
        self.tasks.accepting = False
        await super()._end_passes(passing)

    async def _hand_back(self) -> None:
        if not self._stop.is_set():  # a pass has failed: handlers have as long as after a stop
            self._patient_until = self.queue.clock.monotonic() + self._patience.total_seconds()
        with guarded_loop():
            if not self.tasks.is_idle or self.tasks.may_hold_more:
                async with self._kept():
                    await self._drain()
            await self._close_resources()

    async def _until_idle(self) -> timedelta:
        own = timedelta(0)
        while not self.tasks.is_idle:
            await self.tasks.wake.wait()
            self.tasks.wake.clear()
            own = await self.tasks.run_once()
        return own

    async def __aenter__(self) -> Worker:
        """The worker runs beside the block, and is stopped at its end. One that cannot start raises here."""
        running = asyncio.create_task(self.run(handle_signals=False), name="rota-running")
        started = asyncio.create_task(self._started.wait())
        try:
            await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            running.cancel()
            raise
        finally:
            started.cancel()
        if running.done():
            await running
        self._running = running
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._running is not None:
            await self._running

    async def run(self, *, handle_signals: bool = True) -> None:
        """Run until `stop()`, SIGTERM or SIGINT; then let handlers finish, for a while, and hand back the rest."""
        self.app.check()
        try:
            await call_hooks(self.app, "on_startup", (self,))  # one that raises is a reason not to start
            with guarded_loop(), handling_signals(self._signalled, enabled=handle_signals):
                await self._take_role()
                await self.queue.declare_limits(self.app)
                if self.app.schedules:
                    await self.queue.declare_schedules(self.app)
                async with self._seen(), self._kept():
                    self._started.set()
                    await self._run()
                    await self._drain()
                    await self.pings.finish()
        finally:
            self.tasks.close()
            await self._close_resources()
            await self.tasks.runtimes.close()
            await run_hooks(self.app, "on_shutdown", (self,), self.observe)

    async def _run(self) -> None:
        watching = asyncio.create_task(self._watch_for_blocks())
        try:
            await super()._run()
        finally:
            watching.cancel()

    def _roles(self) -> Iterator[tuple[str, Loop, Hints, asyncio.Event | None]]:
        yield from super()._roles()
        hints = HintsOf(self.queue.store, PendingTask, PausedQueue, Tenant)
        yield "worker", self.tasks, hints, self.tasks.wake

    def _described(self) -> NodeState:
        return self.tasks.described(super()._described())

    @asynccontextmanager
    async def _kept(self) -> AsyncIterator[None]:
        """Keep up what must go on until the last result is settled: leases are renewed, and what is held up is tried
        again."""
        never, tasks = asyncio.Event(), self.tasks
        loops = [
            asyncio.create_task(self._keep(name, role, NoHints(), wake, never), name=f"rota-{name}")
            for name, role, wake in (
                ("worker's leases", tasks.leases, tasks.leases.wake),
                ("worker's blocked results", tasks.blocked, tasks.blocked.wake),
            )
        ]
        try:
            yield
        finally:  # nothing is held any more, or the store takes nothing and it is given up
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    def _longest_rest(self) -> timedelta:
        """Who holds leases or results, or may do so, comes back in time for them, and before anyone takes them for
        lost."""
        longest = super()._longest_rest()
        holds_none = self.tasks.is_idle and not self.tasks.may_hold_more
        return longest if holds_none else min(longest, self._lease / 10, GRACE / 2)

    async def _watch_for_blocks(self) -> None:
        if isinstance(self.queue.clock, SystemClock):  # in virtual time nothing blocks
            await BlockWatch(
                lambda: self.tasks.kinds_running, self.observe, max(self._lease / 3, 2 * BEAT)
            ).run()

    async def _drain(self) -> None:
        left = timedelta(seconds=max(0.0, self._patient_until - self.queue.clock.monotonic()))
        await hand_back(self.tasks, self.observe, left=left, patience=self._patience, hurry=self._hurry)

    def _jumped(self, by: timedelta) -> None:
        super()._jumped(by)
        self.tasks.renew_soon()


async def _all_ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _checked_queues(queues: object) -> list[str] | None:
    if queues is None:
        return None
    if isinstance(queues, str) or not isinstance(queues, Iterable):
        raise Invalid("queues", f"{queues!r:.60} is not a list", "give a list of names, such as ['default']")
    return [check_queue(name, "queues") for name in queues]
