"""`…/events` over real sockets: what happens arrives, to those who may hear it, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import rota
from rota.engine.changes import cursor
from rota.engine.clock import SystemClock
from rota.engine.commands import look_for_alarms
from rota.stores.base import Store
from rota.surfaces.http import create_app
from rota.surfaces.http.events import broadcast, live
from rota.surfaces.http.server.serving import prepared
from rota.surfaces.stores import make_store
from served import NO_CERTIFICATES
from stores import ADDRESSES, STORES

WITHIN = 60
KINDS = ["memory", "sqlite", "postgres", "folder"]


class Heard(dict[str, Any]):
    """One event: `id`, `event`, and the data's own fields."""


class Stream:
    """An open response, read event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()
        self.last_id = ""
        self.retry: str | None = None
        self.comments = 0

    async def next(self) -> Heard:
        """The next event. Positions and comments are taken note of on the way."""
        async with asyncio.timeout(WITHIN):
            while True:
                fields = await self._block()
                self.last_id = fields.get("id", self.last_id)
                self.retry = fields.get("retry", self.retry)
                if "data" in fields:
                    return Heard(
                        {**json.loads(fields["data"]), "event": fields["event"], "cursor": self.last_id}
                    )

    async def until(self, name: str) -> list[Heard]:
        """Everything up to the first event of this name."""
        heard = [await self.next()]
        while heard[-1]["event"] != name:
            heard.append(await self.next())
        return heard

    async def ends(self) -> None:
        async with asyncio.timeout(WITHIN):
            async for _ in self._lines:
                pass

    async def comment(self) -> None:
        """Wait for the next heartbeat."""
        before = self.comments
        async with asyncio.timeout(WITHIN):
            while self.comments == before:
                self.last_id = (await self._block()).get("id", self.last_id)

    async def close(self) -> None:
        await self._lines.aclose()  # type: ignore[attr-defined]  # it is a generator

    async def _block(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if not line:
                return fields
            name, _, value = line.partition(": ")
            self.comments += not name
            if name:
                fields[name] = value
        raise EOFError


class Site:
    """A server in this event loop, its queue, and a worker if one is started."""

    def __init__(self, api: Any, store: Store, url: str) -> None:
        self.api = api
        self.store = store
        self.url = url
        self.queue = rota.Queue(store, actor="tests")
        self.http = httpx.AsyncClient(base_url=url, timeout=WITHIN, verify=NO_CERTIFICATES)
        self.app = rota.App()

    @asynccontextmanager
    async def events(
        self, tenant: str = "default", *, last: str | None = None, key: str | None = None, **query: str
    ) -> AsyncIterator[Stream]:
        headers = {} if last is None else {"Last-Event-ID": last}
        headers |= {} if key is None else {"X-API-Key": key}
        path = f"/api/tenants/{tenant}/events"
        async with self.http.stream("GET", path, params=query, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            stream = Stream(response)
            try:
                yield stream
            finally:
                await stream.close()

    async def refused(self, tenant: str = "default", key: str | None = None, **query: str) -> Any:
        headers = {} if key is None else {"X-API-Key": key}
        answer = await self.http.get(f"/api/tenants/{tenant}/events", params=query, headers=headers)
        assert answer.headers["content-type"] == "application/problem+json"
        return answer

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        worker = rota.Worker(self.queue, self.app)
        running = asyncio.create_task(worker.run(handle_signals=False))
        try:
            yield
        finally:
            worker.stop()
            await running

    async def is_deserted(self) -> None:
        """Wait until nobody listens any more."""
        async with asyncio.timeout(WITHIN):
            while live.broadcasts_of(self.api).listening or live.broadcasts_of(self.api)._by_tenant:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def site(store: Store) -> AsyncIterator[Site]:
    await store.open()
    api = create_app(store, rate=10_000)
    listening = socket.create_server(("127.0.0.1", 0))
    stop = asyncio.Event()
    server = prepared(api, until=stop)
    serving = asyncio.create_task(server.serve([listening]))
    made = Site(api, store, f"http://127.0.0.1:{listening.getsockname()[1]}")
    try:
        while not server.started:
            await asyncio.sleep(0.005)
        yield made
        await made.is_deserted()
    finally:
        await made.http.aclose()
        stop.set()
        await serving
        await store.close()


Play = Callable[[Callable[[Site], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=KINDS)
def on_each(request: pytest.FixtureRequest, tmp_path: Path, runner: asyncio.Runner) -> Play:
    return lambda scenario: runner.run(_play(request.param, tmp_path, scenario))


@pytest.fixture
def on_one(tmp_path: Path, runner: asyncio.Runner) -> Play:
    return lambda scenario: runner.run(_play("memory", tmp_path, scenario))


async def _play(kind: str, folder: Path, scenario: Callable[[Site], Awaitable[None]]) -> None:
    async with site(STORES[kind](folder, SystemClock())) as made:
        await scenario(made)


def shaky(app: rota.App) -> None:
    @app.task("shaky", max_retries=1, retry_policy=rota.RetryPolicy(initial=timedelta(milliseconds=10)))
    async def run(context: rota.Context) -> dict[str, int]:
        if context.attempt == 1:
            raise ValueError("once")
        return {"attempt": context.attempt}


def test_the_steps_of_a_workflow_are_told(on_each: Play) -> None:
    async def scenario(s: Site) -> None:
        @s.app.workflow("order")
        async def order(ctx: rota.Workflow) -> None:
            await ctx.step(lambda: 40, name="charge")
            await ctx.receive("paid")

        async with s.events(types="step") as stream, s.working():
            run = await s.queue.start_workflow("order")
            heard = await stream.until("step.waiting")
            assert [(each["event"], each["key"], each["attempts"]) for each in heard] == [
                ("step.completed", "charge", 1),
                ("step.waiting", "receive:paid", 0),
            ]
            await s.queue.signal(run.id, "paid", 5)
            [last] = await stream.until("step.completed")
            assert (last["taskId"], last["output"], last["kind"]) == (run.id, 5, "receive")

    on_each(scenario)


def test_a_life_is_told_while_it_is_lived(on_each: Play) -> None:
    async def scenario(s: Site) -> None:
        shaky(s.app)
        async with s.events() as stream, s.events(types="run, schedule") as other, s.working():
            assert stream.response.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert stream.response.headers["cache-control"] == "no-store"
            assert stream.response.headers["x-accel-buffering"] == "no"
            task = await s.queue.submit("shaky", {"n": 1})
            heard = await stream.until("task.completed")
            assert stream.retry == "2000"
            assert [each["event"] for each in heard] == [
                "task.created",
                "task.started",
                "task.retrying",
                "task.started",
                "task.completed",
            ]
            assert {each["id"] for each in heard} == {task.id}
            assert heard[-1]["status"] == "completed"
            assert heard[-1]["output"] == {"attempt": 2}
            assert heard[-1]["scheduleName"] is None
            assert heard[2]["change"]["detail"].startswith("retry 1 of 1")
            schedule = await s.queue.create_schedule("mine", task_type="shaky", interval=timedelta(hours=1))
            await s.queue.trigger_schedule("mine")
            heard = await stream.until("run.completed")
            assert [each["event"] for each in heard[:3]] == [
                "schedule.created",
                "run.started",
                "task.created",
            ]
            told = [each for each in heard[1:] if each["event"] != "schedule.triggered"]
            assert len(told) == len(heard) - 2
            assert {each["scheduleName"] for each in told} == {"mine"}
            assert heard[-1]["scheduleId"] == schedule.id
            await s.queue.pause_schedule("mine", "enough")
            heard = await other.until("schedule.paused")
            assert [each["event"] for each in heard] == [
                "schedule.created",
                "run.started",
                "schedule.triggered",
                "run.completed",
                "schedule.paused",
            ]
            assert (heard[2]["name"], heard[2]["change"]["actor"]) == ("mine", "tests")
            assert heard[-1]["pauseNote"] == "enough"
            assert heard[-1]["change"]["actor"] == "tests"
        await s.is_deserted()

    on_each(scenario)


def test_a_skipped_run_is_told(on_one: Play) -> None:
    async def scenario(s: Site) -> None:
        is_over = asyncio.Event()

        @s.app.task("long")
        async def long(input: Any) -> None:
            await is_over.wait()

        await s.queue.create_schedule("often", task_type="long", interval=timedelta(seconds=1))
        async with s.events(types="run", schedule="often") as stream, s.working():
            heard = await stream.until("run.skipped")
            assert heard[-1]["reason"] == "overlap"
            assert heard[-1]["scheduleName"] == "often"
            is_over.set()

    on_one(scenario)


def test_it_goes_on_behind_the_last_event(on_each: Play) -> None:
    async def scenario(s: Site) -> None:
        tasks = [await s.queue.submit("none", n) for n in range(3)]
        async with s.events() as stream:
            tasks.append(await s.queue.submit("none", 3))
            first = await stream.next()
            assert first["id"] == tasks[3].id
        tasks.append(await s.queue.submit("none", 4))
        async with s.events(last=first["cursor"]) as stream:
            tasks.append(await s.queue.submit("none", 5))
            heard = [await stream.next()]
            while heard[-1]["id"] != tasks[-1].id:
                heard.append(await stream.next())
        ids = [each["id"] for each in heard]
        assert ids[-3:] == [task.id for task in tasks[-3:]], (
            "the overlap, then what was missed, then what came"
        )
        assert len(ids) == len(set(ids))
        async with s.events(lastEventId=stream.last_id) as again:
            assert (await again.next())["cursor"] in {each["cursor"] for each in heard}

    on_each(scenario)


def test_a_quiet_stream_knows_how_far_it_came(on_one: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HEARTBEAT", timedelta(milliseconds=50))

    async def scenario(s: Site) -> None:
        async with s.events(types="schedule") as stream:
            await stream.comment()
            begun = stream.last_id
            await s.queue.submit("none")
            while stream.last_id == begun:
                await stream.comment()
        async with s.events(last=stream.last_id) as stream:
            assert (await stream.next())["event"] == "task.created"

    on_one(scenario)


def test_other_tenants_and_roles(on_each: Play) -> None:
    async def scenario(s: Site) -> None:
        theirs = s.queue.for_tenant("theirs")
        mine = s.queue.for_tenant("mine")
        _, key = await mine.create_key("mine", "viewer")
        _, admin = await mine.create_key("admin", "admin")
        assert (await s.refused("theirs", key)).status_code == 404
        assert (await s.refused("mine")).status_code == 401
        assert (await s.refused("mine", key, types="key")).json()["code"] == "role_needed"
        async with s.events("mine", key=key) as viewer, s.events("mine", key=admin) as all_of_it:
            await theirs.submit("secret")
            await mine.create_key("third", "viewer")
            task = await mine.submit("ours")
            assert (await viewer.next())["id"] == task.id, "nothing else was to be heard"
            created = await all_of_it.next()
            assert created["event"] == "key.created"
            assert created["name"] == "third"
            assert "digest" not in json.dumps(created)
            assert (await all_of_it.next())["id"] == task.id
        other = await theirs.submit("secret")
        assert (await s.refused("mine", key, task=other.id)).status_code == 404

    on_each(scenario)


def test_a_revoked_key_stops_hearing(on_one: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HEARTBEAT", timedelta(milliseconds=50))
    monkeypatch.setattr(live, "CHECKED_EVERY", timedelta(milliseconds=100))

    async def scenario(s: Site) -> None:
        made, key = await s.queue.create_key("short", "viewer")
        async with s.events(key=key) as stream:
            await s.queue.revoke_key(made.id)
            await stream.ends()

    on_one(scenario)


def test_one_task_and_one_schedule(on_one: Play) -> None:
    async def scenario(s: Site) -> None:
        one, two = await s.queue.submit("none"), await s.queue.submit("none")
        await s.queue.create_schedule("a", task_type="none", interval=timedelta(hours=1))
        b = await s.queue.create_schedule("b", task_type="none", interval=timedelta(hours=1))
        async with s.events(task=two.id) as of_task, s.events(schedule=b.id) as of_schedule:
            for task in (one, two):
                await s.queue.cancel(task.id)
            for key in ("a", "b"):
                await s.queue.trigger_schedule(key)
                await s.queue.pause_schedule(key)
            assert (await of_task.next())["id"] == two.id
            heard = await of_schedule.until("schedule.paused")
            assert [each["event"] for each in heard] == [
                "run.started",
                "task.created",
                "schedule.triggered",
                "schedule.paused",
            ]
            assert heard[-1]["name"] == "b"

    on_one(scenario)


def test_alarms_are_told(on_each: Play) -> None:
    async def scenario(s: Site) -> None:
        made = await s.queue.create_schedule(
            "soon", task_type="none", interval=3600, max_runs=3, alarm_ending=timedelta(days=30)
        )
        async with s.events(types="alarm", schedule="soon") as stream:
            await s.queue.store.transact(look_for_alarms(10, timedelta(days=1)))
            opened = await stream.next()
            assert (opened["event"], opened["rule"], opened["subjectId"]) == (
                "alarm.opened",
                "ending",
                made.id,
            )
            await s.queue.pause_schedule("soon")
            await s.queue.store.transact(look_for_alarms(10, timedelta(days=1)))
            resolved = await stream.next()
            assert (resolved["event"], resolved["id"]) == ("alarm.resolved", opened["id"])

    on_each(scenario)


@pytest.mark.parametrize(
    ("query", "field"),
    [({"types": "task,nothing"}, "types"), ({"lastEventId": "yesterday"}, "Last-Event-ID")],
)
def test_what_is_refused(on_one: Play, query: dict[str, str], field: str) -> None:
    async def scenario(s: Site) -> None:
        answer = await s.refused(**query)
        assert answer.status_code == 422
        assert answer.json()["field"] == field
        assert (await s.refused(task="none")).status_code == 404
        assert (await s.refused(schedule="none")).status_code == 404

    on_one(scenario)


def test_too_long_ago_or_too_much(on_one: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "LIMIT", 5)

    async def scenario(s: Site) -> None:
        now = await s.store.now()
        async with s.events(last=cursor(now - timedelta(days=2), "task:1:1")) as stream:
            heard = await stream.next()
            assert (heard["event"], heard["reason"]) == ("resync", "too_old")
            await s.queue.submit_many([("none", None)] * 6)
            heard = await stream.next()
            assert (heard["event"], heard["reason"]) == ("resync", "too_many")
            task = await s.queue.submit("none")
            assert (await stream.next())["id"] == task.id
        async with s.events(last=cursor(now)) as stream:
            assert (await stream.next())["reason"] == "too_many"
            task = await s.queue.submit("none")
            assert (await stream.next())["id"] == task.id

    on_one(scenario)


def test_so_many_streams_and_no_more(on_one: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "PER_KEY", 2)
    monkeypatch.setattr(broadcast, "PER_PROCESS", 3)

    async def scenario(s: Site) -> None:
        _, one = await s.queue.create_key("one", "viewer")
        _, two = await s.queue.create_key("two", "viewer")
        async with s.events(key=one), s.events(key=one):
            answer = await s.refused(key=one)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
            async with s.events(key=two):
                assert (await s.refused(key=two)).status_code == 503
        await s.is_deserted()
        async with s.events(key=one):
            pass

    on_one(scenario)


def test_whoever_is_too_slow_is_dropped_and_the_others_go_on(
    on_one: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "BACKLOG", 5)
    monkeypatch.setattr(live, "LAST_WORDS_WITHIN", timedelta(milliseconds=50))

    async def scenario(s: Site) -> None:
        async with s.events() as quick:
            slow = socket.create_connection(("127.0.0.1", int(s.url.rpartition(":")[2])))
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"GET /api/tenants/default/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            broadcasts = live.broadcasts_of(s.api)
            async with asyncio.timeout(WITHIN):
                while broadcasts.listening < 2:
                    await asyncio.sleep(0.01)
            sent = 0
            async with asyncio.timeout(WITHIN):
                while broadcasts.listening == 2:  # until the buffers of both kernels are full, and its queue
                    task = await s.queue.submit("none", "x" * 900_000)
                    sent += 1
                    while (await quick.next())["id"] != task.id:
                        pass
            assert sent > 5
            task = await s.queue.submit("none")
            assert (await quick.next())["id"] == task.id
            slow.close()

    on_one(scenario)


def test_streams_end_when_the_server_stops(runner: asyncio.Runner, tmp_path: Path) -> None:
    async def main() -> None:
        async with site(STORES["memory"](tmp_path, SystemClock())) as s, s.events() as stream:
            live.broadcasts_of(s.api).end()
            await stream.ends()

    runner.run(main())


def test_nobody_listens_nothing_is_asked(on_one: Play) -> None:
    async def scenario(s: Site) -> None:
        asked = 0
        read = s.store.read

        async def counted(work: Any) -> Any:
            nonlocal asked
            asked += 1
            return await read(work)

        vars(s.store)["read"] = counted
        await s.queue.submit("none")
        async with s.events() as stream:
            await s.queue.submit("none")
            await stream.next()
        await s.is_deserted()
        assert asked > 0
        before = asked
        for _ in range(5):
            await s.queue.submit("none")
        assert asked == before

    on_one(scenario)


def test_the_store_is_away_when_one_wants_to_listen(on_one: Play) -> None:
    async def scenario(s: Site) -> None:
        await s.http.get("/health")
        read = s.store.read

        async def away(work: Any) -> Any:
            if "changes_since" in work.__qualname__:
                raise rota.Unavailable("away")
            return await read(work)

        vars(s.store)["read"] = away
        assert (await s.refused()).status_code == 503
        vars(s.store)["read"] = read
        async with s.events() as stream:
            task = await s.queue.submit("none")
            assert (await stream.next())["id"] == task.id

    on_one(scenario)


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "folder"])
def test_what_another_node_does_is_heard(kind: str, tmp_path: Path, runner: asyncio.Runner) -> None:
    address = ADDRESSES[kind](tmp_path)

    async def main() -> None:
        there = make_store(address, SystemClock())
        async with site(make_store(address, SystemClock())) as s, s.events() as stream:
            await there.open()
            try:
                task = await rota.Queue(there).submit("elsewhere")
                assert (await stream.next())["id"] == task.id
            finally:
                await there.close()

    runner.run(main())
