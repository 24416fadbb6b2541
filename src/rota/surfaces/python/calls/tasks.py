"""The calls of a queue that are about tasks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any, Unpack

from msgspec.structs import replace

from ....domain import task as life
from ....domain.checks import check_duration, check_number, check_text, check_time, shown, storable
from ....domain.errors import Invalid, NotFound, StoreError
from ....domain.model import LIVE, Change, Task, TaskStatus
from ....domain.options import Duration, SubmitManyOptions, SubmitOptions, TaskFilters
from ....domain.task import Submission
from ....engine import commands, queries
from ....engine.clock import SystemClock, is_virtual, sleep
from ....engine.observe import tracing
from ....stores.base import Store
from ....stores.queries import Cursor
from .. import arguments
from .base import CANDIDATES, LIMIT, Batch, Calls, Page, Report, check_limit, only_one, page_of

Tasks = list[Task]
AT_ONCE = 500
"""As many tasks are in one commit."""
WHOLE = 36
"""How long an id is."""
_BEGINNING = re.compile("[0-9a-f-]+")
LOOK_AGAIN = timedelta(seconds=30)

_TASKS = frozenset({Task})


class TaskCalls(Calls):
    """Submit tasks, find them, and change what becomes of them."""

    @cached_property
    def _looks(self) -> SharedLooks:
        return SharedLooks()

    async def submit(
        self, kind: str, input: Any = None, *, connection: Any = None, **options: Unpack[SubmitOptions]
    ) -> Task:
        """Submit a task, to run now or at `schedule_at`. It is durable when this returns.

        On PostgreSQL, `connection` is one of yours (asyncpg or psycopg): the task then exists if and only if the
        transaction commits that is open on it."""
        asked = arguments.submission(kind, input, options)
        self._check_input(kind, input)
        task = await self._submit(asked, connection)
        await self._warn_of_unhandled((task.kind, task.queue))
        return task

    async def submit_many(
        self, tasks: Iterable[tuple[str, Any]], **options: Unpack[SubmitManyOptions]
    ) -> Tasks:
        """Submit many `(kind, input)` pairs in one transaction: all of them or none. Options as in `submit`."""
        return await self._submit_pairs(tasks, options, is_workflow=False)

    async def _submit_pairs(
        self, tasks: Iterable[tuple[str, Any]], options: SubmitManyOptions, *, is_workflow: bool
    ) -> Tasks:
        if options.get("idempotency_key") is not None:
            raise Invalid("idempotency_key", "one key cannot stand for many tasks", "leave it out")
        asked = [
            replace(each, is_workflow=is_workflow) for each in arguments.submissions(_pairs(tasks), options)
        ]
        for number, each in enumerate(asked):
            try:
                self._check_input(each.kind, each.input)
            except Invalid as problem:
                raise problem.among("tasks", number) from None
        submitted = await self._submit_all(asked, None) if asked else []
        await self._warn_of_unhandled(*{(task.kind, task.queue) for task in submitted})
        return submitted

    async def get(self, task_id: str) -> Task:
        return await self.store.read(queries.one_task(self.tenant, task_id_of(task_id)))

    async def task_id(self, beginning: str) -> str:
        """The id of the one task whose id begins so. With more than 100,000 tasks at least 8 characters are needed.
        What cannot be the beginning of an id is taken as it is."""
        text = task_id_of(beginning)
        if len(text) >= WHOLE or not _BEGINNING.fullmatch(text):
            return text
        found = await self.store.read(queries.tasks_by_beginning(self.tenant, text, CANDIDATES + 1))
        id = only_one("task", text, {task.id: f"{task.kind}, {task.status}" for task in found})
        if id is None:
            raise NotFound("task", text)
        return id

    async def list(
        self, *, limit: int = LIMIT, cursor: str | None = None, **filters: Unpack[TaskFilters]
    ) -> Page[Task]:
        """The newest tasks that match; give a page's `next_cursor` as `cursor` to go on."""
        wanted = _wanted(filters)
        wanted["after"] = arguments.parsed_cursor(cursor)
        found = await self.store.read(queries.task_page(self.tenant, check_limit(limit), **wanted))
        return page_of(found, limit, lambda task: task.created_at)

    async def recent(
        self,
        *,
        back: Duration | None = None,
        limit: int = LIMIT,
        cursor: str | None = None,
        **filters: Unpack[TaskFilters],
    ) -> tuple[Page[Task], timedelta | None]:
        """As `list`, for people who wait: only tasks created within `back` are looked through. Without it, as far back
        as about 10,000 tasks reach. The second is how far that was; None: to the first."""
        wanted = _wanted(filters)
        wanted["after"] = arguments.parsed_cursor(cursor)
        reach = None if back is None else check_duration("back", back)
        found = await self.store.read(queries.recent_tasks(self.tenant, check_limit(limit), reach, **wanted))
        return page_of(found.tasks, limit, lambda task: task.created_at), found.back

    async def count(self, *, at_most: int | None = None, **filters: Unpack[TaskFilters]) -> int:
        """How many tasks match. With `at_most` the counting stops there: to count costs as much as there are."""
        most = None if at_most is None else check_number("at_most", at_most, 1, 1_000_000_000)
        return await self.store.read(queries.count_matching(self.tenant, most, **_wanted(filters)))

    async def history(self, task_id: str) -> tuple[Change, ...]:
        """What happened to a task, oldest first."""
        return (await self.get(task_id)).history

    async def cancel(self, task_id: str, reason: str = "") -> Task:
        """Cancel a task: at once if it is pending; if it is running its handler is asked to stop."""
        why = check_text("reason", reason)
        work = commands.cancel_task(self.tenant, task_id_of(task_id), self.actor, why)
        return await self._commit(work)

    request_cancellation = cancel

    async def cancel_many(
        self,
        task_ids: Iterable[str] | None = None,
        *,
        reason: str = "",
        report: Report | None = None,
        **filters: Unpack[TaskFilters],
    ) -> int:
        """Cancel the tasks named, or all live ones that match the filters, in commits of 500; how many were
        cancelled or asked to stop. `report` is called after each commit with how many tasks it looked at.

        A task that has ended meanwhile is passed over."""
        if task_ids is not None or filters.get("status") is not None:
            return await _through(partial(self.cancel_page, task_ids, reason=reason, **filters), report)
        cancelled = 0
        for state in (TaskStatus.PENDING, TaskStatus.RUNNING):
            filters["status"] = state
            cancelled += await _through(partial(self.cancel_page, reason=reason, **filters), report)
        return cancelled

    async def cancel_page(
        self,
        task_ids: Iterable[str] | None = None,
        *,
        reason: str = "",
        cursor: str | None = None,
        **filters: Unpack[TaskFilters],
    ) -> Batch:
        """One commit of `cancel_many`: the tasks named, or the next 500 that match the filters and are pending (or
        running: `status="running"`). Give its `next_cursor` as `cursor` to go on."""
        why = check_text("reason", reason)
        wanted = _wanted(filters)
        if task_ids is not None:
            _check_alone("task_ids", wanted)
            ids = _ids(task_ids)
            return Batch(
                len(await self._commit(commands.cancel_listed(self.tenant, ids, self.actor, why))), len(ids)
            )
        wanted["status"] = wanted.get("status") or TaskStatus.PENDING
        if wanted["status"] not in LIVE:
            problem = f"a task that is {wanted['status']} cannot be cancelled any more"
            raise Invalid("status", problem, "accepted are pending and running")
        wanted["after"] = arguments.parsed_cursor(cursor)
        query = await self.store.read(queries.task_query(self.tenant, **wanted))
        return _batch(await self._commit(commands.cancel_tasks(query, AT_ONCE, self.actor, why)))

    async def mark_expired(self, task_id: str) -> Task:
        """Expire a pending task by hand."""
        return await self._commit(commands.expire_task(self.tenant, task_id_of(task_id), self.actor))

    async def replay(self, task_id: str, *, from_step: str | None = None) -> Task:
        """Run a failed or cancelled task again, with fresh retries. A workflow goes on where it failed, or from the
        step with this key: what came before is not done again."""
        step = None if from_step is None else check_text("from_step", from_step)
        return await self._commit(commands.replay_task(self.tenant, task_id_of(task_id), self.actor, step))

    async def replay_many(
        self,
        *,
        since: Duration | None = None,
        dry_run: bool = False,
        report: Report | None = None,
        **filters: Unpack[TaskFilters],
    ) -> int:
        """Run again all failed tasks that match the filters (or cancelled ones: `status="cancelled"`), with fresh
        retries, in commits of 500; how many there are. With `since`, only those that ended at most that long ago; with
        `dry_run` they are only counted. What has expired meanwhile is passed over. `report` is called after each commit
        with how many tasks it looked at."""
        period = None if since is None else check_duration("since", since)
        ended_since = None if period is None else await self.now() - period
        page = partial(self.replay_page, ended_since=ended_since, dry_run=dry_run, **filters)
        return await _through(page, report)

    async def replay_page(
        self,
        *,
        ended_since: datetime | None = None,
        dry_run: bool = False,
        cursor: str | None = None,
        **filters: Unpack[TaskFilters],
    ) -> Batch:
        """One commit of `replay_many`: the next 500 that match the filters. Give its `next_cursor` as `cursor` to go
        on."""
        wanted = _wanted(filters)
        wanted["status"] = wanted.get("status") or TaskStatus.FAILED
        if wanted["status"] not in life.REPLAYABLE:
            problem = f"a task that is {wanted['status']} cannot be replayed"
            raise Invalid("status", problem, "accepted are failed and cancelled")
        wanted["after"] = arguments.parsed_cursor(cursor)
        query = await self.store.read(queries.task_query(self.tenant, **wanted))
        since = None if ended_since is None else check_time("ended_since", ended_since)
        work = commands.replay_tasks(query, since, AT_ONCE, self.actor, dry_run=dry_run)
        return _batch(await (self.store.read(work) if dry_run else self._commit(work)))

    async def archive(self, task_id: str) -> Task:
        """Put an ended task away."""
        return await self._commit(commands.archive_task(self.tenant, task_id_of(task_id), self.actor))

    async def wait(self, task_id: str, timeout: Duration | None = None) -> Task:  # noqa: ASYNC109  a word of the API
        """The task once it has ended; TimeoutError if that takes longer than `timeout`."""
        id = task_id_of(task_id)
        at_most = None if timeout is None else check_duration("timeout", timeout).total_seconds()
        try:
            async with asyncio.timeout(at_most):
                while True:
                    changed = asyncio.ensure_future(self.store.wait(None, of=_TASKS))
                    try:
                        await sleep(timedelta(0))
                        task = await self._looks.look(self.store, self.tenant, id)
                        if not task.is_live:
                            return task
                        again = self._until_looked_again(task, await self.now())
                        await asyncio.wait({changed}, timeout=again)
                    finally:
                        changed.cancel()
        except TimeoutError:
            problem = f"task {id} has not ended in time; `rota status {id}` says where it is"
            raise TimeoutError(problem) from None

    def _until_looked_again(self, task: Task, now: datetime) -> float | None:
        """Seconds: a change is hinted, but an expiry comes about without one. The time of the machine does not come to
        an expiry because virtual time passes."""
        expires_at = task.expires_at if task.status is TaskStatus.PENDING else None
        if is_virtual() and (expires_at is None or isinstance(self.clock, SystemClock)):
            return None
        left = LOOK_AGAIN if expires_at is None else expires_at - now
        return max(0.0, (left if is_virtual() else min(LOOK_AGAIN, left)).total_seconds())

    async def _submit(self, asked: Submission, connection: object) -> Task:
        return (await self._submit_all([asked], connection))[0]

    async def _submit_all(self, asked: Sequence[Submission], connection: object) -> Tasks:
        with tracing.submitting(asked[0].kind, len(asked)) as trace:
            if trace is not None:
                asked = [replace(each, trace=trace) for each in asked]
            work = commands.submit_tasks([(self._new_id(), each) for each in asked], self.tenant, self.actor)
            return await (self._commit(work) if connection is None else self.store.join(connection, work))


async def _through(page: Callable[..., Awaitable[Batch]], report: Report | None) -> int:
    """Page after page, to the last; how many were changed."""
    changed, cursor = 0, None
    while True:
        batch = await page(cursor=cursor)
        changed += batch.changed
        if report is not None:
            report(batch.seen)
        if (cursor := batch.next_cursor) is None:
            return changed


def _batch(page: tuple[int, int, Cursor | None]) -> Batch:
    changed, seen, after = page
    return Batch(changed, seen, None if after is None else arguments.cursor_text(after.at, after.id))


def _wanted(filters: TaskFilters) -> dict[str, Any]:
    """The filters, checked, by the names that the stores know them by."""
    wanted = arguments.filters(TaskFilters, filters)
    if "workflow" in wanted:
        wanted["is_workflow"] = wanted.pop("workflow")
    return wanted


def _pairs(tasks: object) -> Iterable[tuple[str, Any]]:
    for number, pair in enumerate(_listed("tasks", tasks, "give a list of (kind, input) pairs")):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise Invalid(f"tasks[{number}]", f"{shown(pair)} is not a pair", "give (kind, input) pairs")
        yield pair[0], pair[1]


def _ids(values: object) -> tuple[str, ...]:
    listed = _listed("task_ids", values, "give a list of the ids of tasks")
    return tuple(task_id_of(value, f"task_ids[{number}]") for number, value in enumerate(listed))


def task_id_of(value: object, field: str = "task_id") -> str:
    if not isinstance(value, str) or not value or storable(value) != value:
        raise Invalid(field, f"{shown(value)} is not an id", "give the id of a task")
    return value


def _listed(field: str, value: object, accepted: str) -> Iterable[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise Invalid(field, f"{shown(value)} is not a list", accepted)
    return value


def _check_alone(field: str, others: Mapping[str, object]) -> None:
    for name, value in others.items():
        if value is not None:
            raise Invalid(name, f"it was given together with {field}", "give one of them")


class SharedLooks:
    """Looks at tasks: one read at a time, for all who have asked by then.

    A call that waits looks after each commit that it hears of. If each read by itself, a thousand that wait would make
    a thousand reads for every commit: 6.0 ms of processor time for a workflow of three steps instead of 1.8."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._asked: list[_Look] = []

    async def look(self, store: Store, tenant: str, id: str) -> Task:
        """The task as it is now, or later."""
        look = _Look(id)
        self._asked.append(look)
        async with self._reading:
            if not look.is_done:  # nobody has looked for us, or whoever did was stopped
                await self._read(store, tenant, look)
        if look.task is None:
            raise NotFound("task", id)
        return look.task

    async def _read(self, store: Store, tenant: str, own: _Look) -> None:
        looks, self._asked = {own, *self._asked}, []
        try:
            found = await store.read(queries.some_tasks(tenant, {look.id for look in looks}))
        except StoreError:
            if len(looks) == 1:
                raise
            looks = {own}  # what cannot be read may be what another asks for
            found = await store.read(queries.some_tasks(tenant, [own.id]))
        for look in looks:
            look.task, look.is_done = found.get(look.id), True


class _Look:
    def __init__(self, id: str) -> None:
        self.id = id
        self.task: Task | None = None
        self.is_done = False
