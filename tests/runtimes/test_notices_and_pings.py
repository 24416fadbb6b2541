"""What goes out about alarms and runs, to a real server: notices through apprise, and heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import rota
from records import alarm, run, schedule, task
from rota.domain.alarm import FLEET
from rota.domain.errors import Invalid
from rota.domain.model import Alarm
from rota.domain.tenants import EVERY_TENANT
from rota.engine.observe.telemetry import Observation, PingFailed, TaskStarted, TimesHandled
from rota.engine.roles import pings as pings_module
from rota.engine.roles.notices import Notices, check_addresses, label_of
from rota.engine.roles.pings import Pings
from rota.stores.base import Store, Work
from rota.stores.queries import AlarmList
from runtimes.http_server import Misbehaving
from stores import find, put

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # of apprise


@asynccontextmanager
async def world() -> AsyncIterator[tuple[rota.Queue, Misbehaving]]:
    async with rota.connect("memory:") as queue, Misbehaving().listening() as server:
        yield queue, server


async def stored(store: Store) -> list[Alarm]:
    return [each for each in await find(store, AlarmList(tenant=None)) if isinstance(each, Alarm)]


async def overdue_alarm(queue: rota.Queue, **values: Any) -> None:
    long_ago = (await queue.now()) - pings_module.PATIENCE * 2
    await put(queue.store, alarm(began_at=long_ago, tell_at=long_ago, **values))


async def test_a_burst_is_one_message_and_who_was_told_is_written_down() -> None:
    async with world() as (queue, server):
        address = f"json://127.0.0.1:{server.port}/hook"
        notices = Notices(queue.store, [address])
        assert await notices.run_once() is None
        for number in range(30):
            await overdue_alarm(queue, subject=f"s{number}")
        await notices.run_once()
        [asked] = server.asked
        body = msgspec.json.decode(asked.body)
        assert (asked.method, asked.path) == ("POST", "/hook")
        assert (body["title"], body["type"]) == ("Rota: alarms: 30 began", "failure")
        assert "and 10 more" in body["message"]
        assert await notices.run_once() is None
        assert {each.told for each in await stored(queue.store)} == {(label_of(address),)}
        assert str(server.port) not in label_of(address)


async def test_what_cannot_be_sent_is_tried_again_for_those_who_do_not_know() -> None:
    async with world() as (queue, server):
        good, bad = f"json://127.0.0.1:{server.port}/ok", f"json://127.0.0.1:{server.port}/status/503"
        await overdue_alarm(queue)
        notices = Notices(queue.store, [good, bad])
        await notices.run_once()
        [known] = await stored(queue.store)
        assert known.told == (label_of(good),)
        assert known.tell_at is not None
        assert known.tell_at > await queue.now()
        assert [asked.path for asked in server.asked] == ["/ok", "/status/503"]
        await put(queue.store, replace(known, tell_at=known.began_at))
        await notices.run_once()
        assert [asked.path for asked in server.asked] == ["/ok", "/status/503", "/status/503"]


@pytest.mark.parametrize(("over", "type"), [((False, True), "failure"), ((True, True), "success")])
async def test_only_a_message_of_what_is_over_is_good_news(over: tuple[bool, ...], type: str) -> None:
    async with world() as (queue, server):
        for number, is_over in enumerate(over):
            ended = await queue.now() if is_over else None
            await overdue_alarm(queue, subject=f"s{number}", over_at=ended)
        await Notices(queue.store, [f"json://127.0.0.1:{server.port}/"]).run_once()
        assert [msgspec.json.decode(asked.body)["type"] for asked in server.asked] == [type]


async def test_there_are_so_many_messages_an_hour() -> None:
    async with world() as (queue, server):
        notices = Notices(queue.store, [f"json://127.0.0.1:{server.port}/"], per_hour=2)
        for number in range(3):
            await overdue_alarm(queue, subject=f"s{number}")
            delay = await notices.run_once()
        assert len(server.asked) in (2, 3)  # an hour may have begun
        assert delay is not None


def test_an_address_that_is_wrong_is_refused_without_being_shown() -> None:
    with pytest.raises(Invalid, match=r"address 1 \(nonsense\)") as caught:
        check_addresses(["nonsense://user:geheim@example.com"])
    assert "geheim" not in str(caught.value)


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not happened():
            await asyncio.sleep(0.01)


async def test_a_schedule_tells_of_its_runs() -> None:
    async with world() as (queue, server):
        app = rota.App()

        @app.task("work", max_retries=0)
        async def work(input: object) -> None:
            if input == "bad":
                raise ValueError("no")

        for key in ("good", "bad"):
            url = f"{server.url}/ping/{key}"
            await queue.create_schedule(key, task_type="work", interval=3600, input=key, heartbeat_url=url)
        await queue.create_schedule("silent", task_type="work", interval=3600)
        worker = rota.Worker(queue, app, allow_private_addresses=True, heartbeat_url=f"{server.url}/fleet")
        running = asyncio.create_task(worker.run(handle_signals=False))
        runs = {key: (await queue.trigger_schedule(key)).run_id for key in ("good", "bad", "silent")}
        await until(lambda: len(server.asked) == 5)
        assert worker.alarms is not None
        await worker.alarms.scan()
        await until(lambda: len(server.asked) == 6)
        worker.stop()
        await running
        good, bad = f"?rid={runs['good']}", f"?rid={runs['bad']}"
        assert {asked.path for asked in server.asked} == {
            *(
                f"/ping/good/start{good}",
                f"/ping/good{good}",
                f"/ping/bad/start{bad}",
                f"/ping/bad/fail{bad}",
            ),
            "/fleet",
        }


@pytest.mark.parametrize(("is_well", "path"), [(True, "/fleet"), (False, "/fleet/fail")])
async def test_the_fleet_tells_when_a_node_begins(is_well: bool, path: str) -> None:
    """A monitor outside does not wait for the first look at the fleet, a minute later."""
    async with world() as (queue, server):
        if not is_well:
            await overdue_alarm(queue, tenant=EVERY_TENANT, subject_id=FLEET, subject=FLEET)
        worker = rota.Worker(
            queue, rota.App(), allow_private_addresses=True, heartbeat_url=f"{server.url}/fleet"
        )
        running = asyncio.create_task(worker.run(handle_signals=False))
        await until(lambda: len(server.asked) == 1)
        worker.stop()
        await running
        assert [asked.path for asked in server.asked] == [path]


async def test_a_heartbeat_that_does_not_arrive_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pings_module, "PAUSE", pings_module.PAUSE / 100)
    async with world() as (queue, server):
        seen: list[Observation] = []
        for url, allowed, times in ((f"{server.url}/status/503", True, 3), (f"{server.url}/x", False, 0)):
            server.asked.clear()
            pings = Pings(queue.store, queue.clock, seen.append, fleet_url=url, allow_private=allowed)
            pings.tell_of_fleet(is_well=True)
            await pings.finish()
            assert len(server.asked) == times
        assert [type(each) for each in seen] == [PingFailed, PingFailed]
        assert "status" not in str(seen[0])  # what is behind the host may be a secret


async def test_a_retry_is_no_other_start() -> None:
    async with world() as (queue, server):
        pings = Pings(queue.store, queue.clock, lambda seen: None, allow_private=True)
        made = await queue.create_schedule("s", task_type="w", interval=60, heartbeat_url=f"{server.url}/s")
        for attempt in (1, 2):
            pings.hear(TaskStarted(task(schedule_id=made.id, run_id="r", attempt=attempt)))
        await pings.finish()
        assert [asked.path for asked in server.asked] == ["/s/start?rid=r"]


async def test_where_a_schedule_fires_its_address_is_known_without_a_look() -> None:
    """Ten thousand that fire at once and have no heartbeats ask the store nothing."""
    async with world() as (queue, server):
        pings = Pings(queue.store, queue.clock, lambda seen: None, allow_private=True)
        silent, loud = schedule(), schedule(heartbeat_url=f"{server.url}/s")  # neither is stored
        for each in (silent, loud):
            pings.hear(TimesHandled(each, run(schedule_id=each.id), task(schedule_id=each.id)))
        pings.hear(TaskStarted(task(schedule_id=silent.id, run_id="r", attempt=1)))
        assert not pings.wake.is_set()
        pings.hear(TaskStarted(task(schedule_id=loud.id, run_id="r", attempt=1)))
        await pings.finish()
        assert [asked.path for asked in server.asked] == ["/s/start?rid=r"]


async def test_addresses_of_all_that_wait_are_looked_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if as many as can wait are all that are remembered."""
    monkeypatch.setattr(pings_module, "KNOWN_AT_MOST", 50)
    async with world() as (queue, server):
        reads = 0

        async def counted(work: Work[Any]) -> Any:
            nonlocal reads
            reads += 1
            return await read(work)

        read = queue.store.read
        monkeypatch.setattr(queue.store, "read", counted)
        pings = Pings(queue.store, queue.clock, lambda seen: None, allow_private=True)
        made = [schedule(heartbeat_url=f"{server.url}/{number}") for number in range(80)]
        await put(queue.store, *made)
        for some in (made[:50], made[30:]):
            server.asked.clear()
            for each in some:
                pings.hear(TaskStarted(task(schedule_id=each.id, run_id="r", attempt=1)))
            await pings.run_once()
            paths = sorted(f"/{made.index(each)}/start?rid=r" for each in some)
            assert sorted(asked.path for asked in server.asked) == paths
        await pings.finish()
        assert reads == 2, "those that wait push out what was sent before, not each other"


async def test_another_address_is_known_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as (queue, server):
        pings = Pings(queue.store, queue.clock, lambda seen: None, allow_private=True)
        made = await queue.create_schedule("s", task_type="w", interval=60, heartbeat_url=f"{server.url}/old")
        started = TaskStarted(task(schedule_id=made.id, run_id="r", attempt=1))
        pings.hear(started)
        await pings.run_once()
        await queue.update_schedule("s", heartbeat_url=f"{server.url}/new")
        later = queue.clock.monotonic() + pings_module.BELIEVED_FOR.total_seconds()
        monkeypatch.setattr(queue.clock, "monotonic", lambda: later)
        pings.hear(started)
        await pings.finish()
        assert [asked.path for asked in server.asked] == ["/old/start?rid=r", "/new/start?rid=r"]


@pytest.mark.parametrize(
    ("url", "says", "run_id", "expected"),
    [
        ("https://hc.example/abc", "", None, "https://hc.example/abc"),
        ("https://hc.example/abc/", "start", "r1", "https://hc.example/abc/start?rid=r1"),
        ("https://hc.example/abc?x=1", "fail", "r1", "https://hc.example/abc/fail?x=1&rid=r1"),
    ],
)
def test_addresses(url: str, says: str, run_id: str | None, expected: str) -> None:
    assert pings_module.ping_address(url, says, run_id) == expected
