"""The pages of the dashboard, without a browser: who sees what, what forms do, and that what people wrote is inert."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastapi.routing
import httpx
import pytest
from fastapi import FastAPI, Request

from dashboard_world import furnish
from http_world import new_tenant
from rota import Queue
from rota.domain.model import Role
from rota.engine.clock import SystemClock
from rota.surfaces.dashboard.texts import TEMPLATES
from rota.surfaces.http import create_app
from rota.surfaces.http.access import Caller
from served import Served, serving, shown

HERE = {"Sec-Fetch-Site": "same-origin"}
PLACES = (
    "",
    "/schedules",
    "/schedules?state=late",
    "/schedules?state=failing",
    "/schedules?sort=next",
    "/schedules?sort=outcome",
    "/schedules?text=report&kind=report&tag=finance",
    "/schedules/sync-orders",
    "/schedules/sync-orders/runs?status=failed",
    "/schedules/daily-report/versions",
    "/tasks",
    "/tasks?status=failed",
    "/workflows",
    "/nodes",
    "/nodes/worker-a",
    "/queues",
    "/alarms",
    "/calendars",
    "/forecast",
    "/forecast?zone=Asia/Kolkata",
    "/calendars/closing-days",
    "/audit?what=schedule",
    "/tenants",
    "/alarms?over=1&schedule=nightly-backup",
)


@pytest.fixture(scope="module")
def local() -> Iterator[Served]:
    """Without keys: this machine needs no sign-in."""
    with serving("memory:", rate=100_000) as served:
        served.call(furnish)
        yield served


@pytest.fixture(scope="module")
def keyed() -> Iterator[Served]:
    with serving("memory:", rate=100_000) as served:
        yield served


def browser(served: Served, headers: dict[str, str] = HERE) -> httpx.Client:
    client = served.client()
    client.headers.update(headers)
    return client


class Links(HTMLParser):
    """Every address that a page leads to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attributes)
        for name in ("href", "src"):
            if value := given.get(name):
                self.found.add(value.partition("#")[0])
        self.found.discard("")


async def test_a_server_that_has_started_has_its_pages_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first who looks waits for no template to be compiled, and for no route to be built."""
    TEMPLATES.cache.clear()  # type: ignore[union-attr]  # there is one
    api = create_app("memory:")
    made: list[str] = []
    async with api.router.lifespan_context(api):
        for maker, name in ((TEMPLATES, "compile"), (fastapi.routing, "get_dependant")):
            monkeypatch.setattr(maker, name, lambda *given, name=name, **more: made.append(name))
        transport = httpx.ASGITransport(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for place in (
                "/ui/default",
                "/ui/default/schedules",
                "/ui/default/new",
                "/api/tenants/default/schedules",
            ):
                assert (await client.get(place)).status_code == 200
    assert made == []


async def test_an_overview_says_what_is_still_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    api, counted = create_app("memory:"), asyncio.Event()
    last_day, overview = Queue.last_day, Queue.overview

    async def slow_day(queue: Queue) -> Any:
        await counted.wait()
        return await last_day(queue)

    async def slow_overview(queue: Queue) -> Any:
        await counted.wait()
        return await overview(queue)

    monkeypatch.setattr(Queue, "last_day", slow_day)
    transport = httpx.ASGITransport(api)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        while "The store is being asked" in (page := (await client.get("/ui/default")).text):
            await asyncio.sleep(0)  # on a busy machine it answers too late for the first page
        assert "The tasks of the last day are being counted." in page
        assert "No task is running." in page
        monkeypatch.setattr(Queue, "overview", slow_overview)
        assert "The store is being asked what is wrong." in (await client.get("/ui/other")).text
        assert "There are no schedules yet." in (await client.get("/ui/other/schedules")).text
        counted.set()
        page = await _until_made(client, "/ui/default")
        assert "No task came in the last day" in page
        assert "Nothing is late" in await _until_made(client, "/ui/other")


async def _until_made(client: httpx.AsyncClient, place: str) -> str:
    while "being" in (page := (await client.get(place)).text):
        await asyncio.sleep(0)
    return page


def test_every_link_leads_somewhere(local: Served) -> None:
    client, waiting = local.client(), ["/ui/default"]
    known = {pattern(place) for place in waiting}
    while waiting:
        place = waiting.pop()
        answer = client.get(place)
        assert answer.status_code == 200, f"{place}: {answer.status_code}"
        if answer.headers["content-type"].startswith("text/html"):
            for each in sorted(Links(answer.text).found):
                link = f"{place.partition('?')[0]}{each}" if each[:1] == "?" else each
                if pattern(link) not in known:
                    known.add(pattern(link))
                    waiting.append(link)
    assert len(known) > 20


def pattern(place: str) -> str:
    """Pages of one sort count as one."""
    path, _, query = place.partition("?")
    path = re.sub(r"/(schedules|tasks|nodes|queues|keys|calendars|tenants)/[^/]+", r"/\1/…", path)
    return f"{path}?{','.join(sorted(re.findall(r'(?:^|&)([^=&]+)', query)))}"


@pytest.mark.parametrize("place", PLACES)
def test_a_page_has_a_strict_policy_and_no_code_of_its_own(local: Served, place: str) -> None:
    answer = local.client().get(f"/ui/default{place}")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]* src=)", answer.text)
    assert len(answer.content) < 100_000


def test_the_home_page_leads_to_the_callers_tenant(local: Served) -> None:
    answer = local.client().get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/default")


def test_without_the_dashboard_there_are_no_pages() -> None:
    paths = {getattr(route, "path", "") for route in create_app("memory:", dashboard=False).routes}
    assert not {path for path in paths if path == "/" or path.startswith("/ui")}


def test_the_overview_says_what_is_wrong_first(local: Served) -> None:
    page = shown(local.client(), "/ui/default")
    assert page.index("What is wrong") < page.index("Running now") < page.index("Due within the hour")
    assert "could have begun a minute ago, and no worker took it" in page
    assert "orders.example did not answer" in page


def test_the_list_filters_by_its_address(local: Served) -> None:
    client = local.client()
    assert "daily-report" in shown(client, "/ui/default/schedules?text=report")
    assert "sync-orders" not in shown(client, "/ui/default/schedules?text=report")
    assert "sync-orders" in shown(client, "/ui/default/schedules?state=failing")
    assert "until the migration is done" in shown(client, "/ui/default/schedules?state=paused")
    assert "No schedule matches" in shown(client, "/ui/default/schedules?text=zzz")
    for filters, key, other in (
        ("timezone=America/New_York", "nightly-backup", "daily-report"),
        ("tag=finance", "month-close", "sync-orders"),
        ("text=close_", "month-close", "daily-report"),
        ("text=SHOP", "price-feed", "daily-report"),
        ("sort=next&tag=shop&text=feed", "price-feed", "sync-orders"),
        ("state=failing&kind=report", "daily-report", "sync-orders"),
    ):
        page = shown(client, f"/ui/default/schedules?{filters}")
        assert f'/schedules/{key}"' in page, filters
        assert f'/schedules/{other}"' not in page, filters
    assert "is not known" in shown(client, "/ui/default/schedules?state=odd", 422)


def test_times_and_reasons_are_told_as_elsewhere(local: Served) -> None:
    """No clock but one, no word of the machine."""
    client = local.client()
    assert "the run before was still going" in shown(client, "/ui/default/schedules/sync-orders/runs")
    assert ">overlap" not in shown(client, "/ui/default/schedules/sync-orders/runs")
    task = local.call(lambda queue: queue.list(status="failed", workflow=False, limit=1))[0]
    assert re.search(r"<time [^>]+ data-second>", shown(client, f"/ui/default/tasks/{task.id}"))
    audit = shown(client, "/ui/default/audit?name=cleanup-sessions")
    assert re.search("paused at: <del>none</del> <ins><time ", audit)
    assert "(its policy is one at a time)" in shown(client, "/ui/default/schedules/sync-orders")
    for action in ("alarmed", "changed+the+alarms+of"):
        audit = shown(client, f"/ui/default/audit?action={action}")
        assert "<b>changed the alarms of</b> tenant default" in audit
    for place in (
        "/new?type=cron&when=0+9+*+*+*",
        "/schedules/daily-report/pause",
        "/schedules/daily-report/backfill",
    ):
        page = shown(client, f"/ui/default{place}")
        assert 'type="time"' not in page, "browsers show these on a clock of their own"
        assert "datetime-local" not in page


def test_whoever_did_something_is_called_by_name() -> None:
    """A key is a person's: what the API puts before its name is not shown."""
    with serving("memory:", actor="key:Ada Morgan") as served:
        client = served.client()

        async def prepare(queue: Queue) -> str:
            await queue.create_calendar("days", days=["2026-12-24"])
            await queue.create_schedule("s", cron="0 9 * * *", task_type="t")
            await queue.pause_schedule("s", "lunch")
            await queue.resume_schedule("s")
            task = await queue.trigger_schedule("s")
            await queue.cancel(task.id, "enough")
            return str(task.id)

        task = served.call(prepare)
        run = served.call(lambda queue: queue.runs("s"))[0]
        chosen = f"/schedules/s?at={quote(run.scheduled_at.isoformat())}"
        for place in (
            "",
            "/schedules",
            "/schedules/s/versions",
            f"/tasks/{task}",
            "/calendars",
            "/audit",
            chosen,
        ):
            assert "key:Ada" not in shown(client, f"/ui/default{place}"), place
        assert "cancelled by Ada Morgan: enough" in shown(client, f"/ui/default/tasks/{task}")
        assert "paused by: <del>none</del> <ins>Ada Morgan</ins>" in shown(client, "/ui/default/audit")


def test_what_is_put_back_names_only_what_differs(local: Served) -> None:
    page = shown(local.client(), "/ui/default/schedules/daily-report/put-back?version=1")
    assert re.findall("<li>([^:]+):", page) == ["input"]


def test_the_overview_of_tasks_that_no_schedule_started(local: Served) -> None:
    """Nothing is measured of lateness then."""
    tenant = new_tenant()
    local.call(lambda queue: queue.submit("echo", {}), tenant)
    page = shown(local.client(), f"/ui/{tenant}")
    assert "1 task in the last day" in page
    assert "no schedule ran" in page


def keys_of(page: str) -> list[str]:
    """The schedules of a list, in its order."""
    return re.findall(r'<a class="key" href="[^"]*">([^<]+)</a>', page)


def test_the_list_is_sorted_by_its_address(local: Served) -> None:
    client = local.client()
    every = local.call(lambda queue: queue.list_schedules(limit=1000))
    by_name = keys_of(shown(client, "/ui/default/schedules?sort=name"))
    assert by_name == sorted(each.key for each in every)
    by_next = keys_of(shown(client, "/ui/default/schedules?sort=next"))
    due = {each.key: each.due_at for each in every}
    times = [due[key] for key in by_next]
    known = [at for at in times if at is not None]
    assert times == [*sorted(known), *([None] * (len(times) - len(known)))]
    assert sorted(by_next) == by_name
    by_outcome = keys_of(shown(client, "/ui/default/schedules?sort=outcome"))
    assert by_outcome == ["sync-orders", *(key for key in by_name if key != "sync-orders")]
    both = keys_of(shown(client, "/ui/default/schedules?sort=name&tag=finance&state=active"))
    assert both == ["daily-report", "month-close"]
    assert keys_of(shown(client, "/ui/default/schedules?sort=name&state=failing")) == [
        "daily-report",
        "sync-orders",
    ]
    assert "is not known" in shown(client, "/ui/default/schedules?sort=odd", 422)


@pytest.mark.parametrize("sort", ["name", "next", "outcome", ""])
def test_pages_of_a_sorted_list_cover_it_once(
    local: Served, monkeypatch: pytest.MonkeyPatch, sort: str
) -> None:
    monkeypatch.setattr("rota.surfaces.dashboard.schedules.listing.LIMIT", 5)
    client = local.client()
    found, place = [], f"/ui/default/schedules?sort={sort}"
    while place:
        page = shown(client, place)
        found += keys_of(page)
        more = re.search(r'href="([^"]+)" rel="next"', page)
        place = unescape(more[1]) if more else ""
    every = local.call(lambda queue: queue.list_schedules(limit=1000))
    assert sorted(found) == sorted(each.key for each in every)


def test_a_sorted_list_with_a_rare_filter_looks_among_the_first(
    local: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.engine.queries.schedules.LOOKED_THROUGH", 2)
    client = local.client()
    page = shown(client, "/ui/default/schedules?sort=name&state=paused")
    assert "Among the first 2 schedules" in page
    assert keys_of(page) == ["cleanup-sessions"]
    page = shown(client, "/ui/default/schedules?sort=next&kind=newsletter")
    assert "Among the first 2 schedules" in page
    assert keys_of(page) == []
    assert keys_of(shown(client, "/ui/default/schedules?sort=next&kind=newsletter&among=all")) == [
        "newsletter"
    ]
    assert "Among the first" not in shown(client, "/ui/default/schedules?sort=name")


def test_a_schedule_tells_what_became_of_each_time(local: Served) -> None:
    page = shown(local.client(), "/ui/default/schedules/sync-orders")
    assert page.count("data-why=") == 80
    assert "skipped: the run before was still going" in page
    assert "A time missed by more than 1 minute is skipped" in page
    at = re.search(r'href="(\?at=[^"#]+|[^"]*at=[^"#]+)', page)
    assert at is not None
    assert 'id="why"' in shown(local.client(), at[1].replace("&amp;", "&"))


def test_a_pause_is_confirmed_with_its_consequence_and_done_once(local: Served) -> None:
    client = browser(local)
    page = shown(client, "/ui/default/schedules/newsletter/pause")
    assert "It will not fire until it is resumed" in page
    answer = client.post("/ui/default/schedules/newsletter/pause", data={"note": "<b>later</b>"})
    assert answer.status_code == 303
    page = shown(client, answer.headers["location"])
    assert "It was paused." in page
    assert "&lt;b&gt;later" in page
    client.post("/ui/default/schedules/newsletter/resume")
    assert local.call(lambda queue: queue.get_schedule("newsletter")).enabled


def test_many_are_counted_before_they_are_paused(local: Served) -> None:
    client = browser(local)
    form = {"action": "pause", "key": ["price-feed", "sync-orders"]}
    page = client.post("/ui/default/schedules", data=form).text
    assert "Pause 2 schedules?" in page
    assert "2 of them are due within the hour" in page
    assert local.call(lambda queue: queue.get_schedule("price-feed")).enabled, (
        "nothing is done before it is confirmed"
    )
    answer = client.post("/ui/default/schedules", data={**form, "confirmed": "yes"})
    assert "2 schedules paused." in shown(client, answer.headers["location"])
    client.post("/ui/default/schedules", data={**form, "action": "resume", "confirmed": "yes"})
    assert local.call(lambda queue: queue.get_schedule("price-feed")).enabled


def test_a_trigger_takes_another_input(local: Served) -> None:
    client = browser(local)
    assert "EMEA" in shown(client, "/ui/default/schedules/daily-report/trigger")
    bad = client.post("/ui/default/schedules/daily-report/trigger", data={"input": "{"})
    assert bad.status_code == 422
    assert "it is not JSON" in bad.text
    answer = client.post("/ui/default/schedules/daily-report/trigger", data={"input": '{"region": "APAC"}'})
    assert "APAC" in shown(client, answer.headers["location"])


def test_a_task_is_cancelled_and_replayed(local: Served) -> None:
    client = browser(local)
    id = local.call(lambda queue: queue.submit("cancel_me", {})).id
    assert "It will not run." in shown(client, f"/ui/default/tasks/{id}/cancel")
    client.post(f"/ui/default/tasks/{id}/cancel", data={"reason": "not needed"})
    assert "not needed" in shown(client, f"/ui/default/tasks/{id}")
    form = {"action": "replay", "id": [id], "confirmed": "yes"}
    assert "1 task run again" in shown(
        client, client.post("/ui/default/tasks", data=form).headers["location"]
    )
    assert local.call(lambda queue: queue.get(id)).status == "pending"


@pytest.mark.parametrize(
    "headers",
    [{}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://localhost:1"}],
)
def test_a_form_from_elsewhere_does_nothing(local: Served, headers: dict[str, str]) -> None:
    answer = browser(local, headers).post("/ui/default/schedules/daily-report/pause")
    assert answer.status_code == 403
    assert local.call(lambda queue: queue.get_schedule("daily-report")).enabled


def test_a_browser_without_fetch_headers_is_known_by_its_origin(local: Served) -> None:
    client = browser(local, {"Origin": local.url})
    assert client.post("/ui/default/schedules/daily-report/pause").status_code == 303
    assert client.post("/ui/default/schedules/daily-report/resume").status_code == 303


HOSTILE = ["<script>alert(1)</script>", "a/b?c#d%2e&<>\"'", "مرحبا", "x" * 255, "{{ 98765 * 4321 }}", ".."]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_inert(local: Served, name: str) -> None:
    tenant = new_tenant()
    given: dict[str, Any] = {"input": {name: name}, "metadata": {"note": name}, "description": name}
    local.call(lambda queue: queue.create_schedule(name, interval=60, task_type="t", **given), tenant)
    local.call(lambda queue: queue.pause_schedule(name, name), tenant)
    client = local.client()
    page = shown(client, f"/ui/{tenant}/schedules")
    assert Links(page).tags.count("script") == 1
    assert str(98765 * 4321) not in page  # a number that no tenant and no time has
    link = next(each for each in Links(page).found if re.search(r"/schedules/[^?]+$", each))
    page = shown(client, link)
    assert Links(page).tags.count("script") == 1
    failed = next(each for each in Links(shown(client, f"{link}/runs")).found if "status=failed" in each)
    assert "No run is failed" in shown(client, failed)
    for tab in ("runs", "versions", "delete"):
        assert Links(shown(client, f"{link}/{tab}")).tags.count("script") == 1


def test_what_a_task_carries_is_inert(local: Served) -> None:
    text = "</pre><script>alert(1)</script>" + "w" * 10_000
    task = local.call(lambda queue: queue.submit("t", {"html": text}, metadata={"m": text}), "inert")
    page = shown(local.client(), f"/ui/inert/tasks/{task.id}")
    assert Links(page).tags.count("script") == 1


# Who sees what


def signed_in(served: Served, key: str) -> httpx.Client:
    client = browser(served)
    answer = client.post("/sign-in", data={"key": key, "next": ""})
    assert answer.status_code == 303, answer.text
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    return client


def test_without_a_key_one_is_led_to_sign_in_and_back(keyed: Served) -> None:
    key = keyed.key("acme", "viewer")
    client = browser(keyed)
    answer = client.get("/ui/acme/schedules?state=paused")
    assert answer.status_code == 303
    assert "API key" in shown(client, answer.headers["location"])
    wrong = client.post("/sign-in", data={"key": "rota_wrong"})
    assert wrong.status_code == 401
    assert "not valid" in wrong.text
    back = client.post("/sign-in", data={"key": key, "next": "/ui/acme/schedules?state=paused"})
    assert back.headers["location"] == "/ui/acme/schedules?state=paused"
    assert client.get("/").headers["location"] == "/ui/acme"
    assert client.get("/ui/other").status_code == 404
    client.post("/sign-out")
    assert client.get("/ui/acme").status_code == 303


def test_who_signs_out_ends_the_session_also_for_a_copy_of_its_cookie(keyed: Served) -> None:
    key = keyed.key("acme", "viewer")
    client, other, copy = signed_in(keyed, key), signed_in(keyed, key), browser(keyed)
    copy.cookies.update(client.cookies)
    assert copy.get("/ui/acme").status_code == 200
    client.post("/sign-out")
    assert copy.get("/ui/acme").status_code == 303
    assert copy.get("/api/tenants/acme/schedules").status_code == 401
    assert other.get("/ui/acme").status_code == 200
    assert signed_in(keyed, key).get("/ui/acme").status_code == 200


@pytest.mark.parametrize("place", ["https://evil.example/", "//evil.example", "/\\evil.example", "evil"])
def test_sign_in_leads_nowhere_else(keyed: Served, place: str) -> None:
    client = browser(keyed)
    answer = client.post("/sign-in", data={"key": keyed.key("acme", "viewer"), "next": place})
    assert answer.headers["location"] == "/"


def test_a_link_from_another_site_is_asked_for_again_before_anyone_signs_in(keyed: Served) -> None:
    keyed.key("acme", "viewer")
    page = shown(browser(keyed, {"Sec-Fetch-Site": "cross-site"}), "/ui/acme")
    assert 'http-equiv="refresh"' in page


def test_a_viewer_sees_no_button_that_would_refuse_them(keyed: Served) -> None:
    keyed.call(lambda queue: queue.create_schedule("seen", interval=60, task_type="t"), "acme")
    client = signed_in(keyed, keyed.key("acme", "viewer"))
    for place in ("/ui/acme", "/ui/acme/schedules", "/ui/acme/schedules/seen", "/ui/acme/tasks"):
        page = shown(client, place)
        for word in (">Trigger<", ">Pause<", ">Delete<", ">Edit<", "New schedule", "/keys", ">Replay<"):
            assert word not in page, f"{place}: {word}"
    assert client.post("/ui/acme/schedules/seen/pause").status_code == 403
    assert "needs the role operator" in client.get("/ui/acme/schedules/seen/pause").text


def test_an_operator_may_pause_and_not_delete(keyed: Served) -> None:
    keyed.call(lambda queue: queue.create_schedule("kept", interval=60, task_type="t"), "acme")
    client = signed_in(keyed, keyed.key("acme", "operator"))
    assert ">Delete<" not in shown(client, "/ui/acme/schedules/kept")
    assert client.post("/ui/acme/schedules/kept/delete").status_code == 403
    assert client.post("/ui/acme/schedules", data={"action": "delete", "key": "kept"}).status_code == 403
    assert client.post("/ui/acme/schedules/kept/pause").status_code == 303


def test_a_revoked_key_is_signed_out(keyed: Served) -> None:
    admin = signed_in(keyed, keyed.key("gone", "admin", "first"))
    other = signed_in(keyed, keyed.key("gone", "viewer", "second"))
    assert other.get("/ui/gone").status_code == 200
    id = next(
        each.id for each in keyed.call(lambda queue: queue.list_keys(), "gone") if each.name == "second"
    )
    assert admin.delete(f"/api/tenants/gone/keys/{id}").status_code == 200
    assert other.get("/ui/gone").status_code == 303


class Ahead(SystemClock):
    """A clock that can be put forward."""

    by = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.by

    def monotonic(self) -> float:
        return super().monotonic() + self.by.total_seconds()


def test_the_session_in_the_cookie_is_rotated_and_ends() -> None:
    clock = Ahead()
    with serving("memory:", rate=100_000, clock=clock) as served:
        key = served.key("acme", "admin")
        client = signed_in(served, key)
        first = client.cookies["rota_session"]
        assert key.rpartition("_")[2] not in first, "it is not the key"
        assert "set-cookie" not in client.get("/ui/acme").headers
        clock.by = timedelta(hours=2)
        assert "HttpOnly" in client.get("/ui/acme").headers["set-cookie"]
        second = client.cookies["rota_session"]
        assert second != first
        clock.by = timedelta(hours=13)
        assert client.get("/ui/acme").status_code == 200, "it was away for eleven hours"
        client.cookies.set("rota_session", first)
        assert client.get("/ui/acme").status_code == 303, "the first one is over"


def test_a_revoked_key_is_signed_out_on_every_server(tmp_path: Path) -> None:
    clock, address = Ahead(), f"sqlite:///{tmp_path}/rota.db"
    with serving(address) as here, serving(address, clock=clock) as there:
        admin = signed_in(here, here.key("acme", "admin", "first"))
        other = signed_in(there, here.key("acme", "viewer", "second"))
        also = browser(here)
        also.cookies.update(other.cookies)
        assert [each.get("/ui/acme").status_code for each in (other, also)] == [200, 200]
        id = next(
            each.id for each in here.call(lambda queue: queue.list_keys(), "acme") if each.name == "second"
        )
        assert admin.post(f"/ui/acme/keys/{id}/revoke").status_code == 303
        clock.by = timedelta(seconds=3)
        assert [each.get("/ui/acme").status_code for each in (other, also)] == [303, 303]
        assert admin.get("/ui/acme").status_code == 200


def test_the_cookie_counts_for_nothing_that_another_site_sends(keyed: Served) -> None:
    client = signed_in(keyed, keyed.key("acme", "admin"))
    client.headers.pop("Sec-Fetch-Site")
    body = {"kind": "t"}
    assert client.get("/api/tenants/acme/task-executions").status_code == 200
    assert client.post("/api/tenants/acme/task-executions", json=body).status_code == 401
    client.headers["Sec-Fetch-Site"] = "cross-site"
    assert client.post("/api/tenants/acme/task-executions", json=body).status_code == 401


def test_assets_may_be_kept_and_others_are_not_there(local: Served) -> None:
    client = local.client()
    for name in ("tokens.css", "style.css", "rota.js", "icon.svg"):
        answer = client.get(f"/assets/{name}")
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert client.get("/assets/site.py").status_code == 404
    assert "There is no page" in shown(client, "/ui/default/nothing/of/this", 404)


# The editor, keys, audit


def test_the_editor_says_what_a_timing_means_before_it_is_saved(local: Served) -> None:
    client = local.client()
    page = shown(client, "/ui/default/new?type=cron&when=30+1+*+*+0&timezone=Europe/London")
    assert "Sunday" in page
    assert re.search(
        r"There it is \d\d:\d\d now. Clocks go (forward|back) on Sunday \d+ \w+, at 0[12]:00.", page
    )
    assert '<option value="Europe/Zurich">Switzerland</option>' in page
    assert page.count("<li><b>") == 10
    assert "Runs now: no." in page
    wrong = shown(client, "/ui/default/new?type=cron&when=99+1+*+*+*")
    assert re.search('is-failed"><b>cron: .*99', wrong)
    assert "is not a duration" in shown(client, "/ui/default/new?type=every&when=soon")
    assert "After a and b have each succeeded" in shown(client, "/ui/default/new?type=after&when=a,+b")
    assert "is not a time" in shown(client, "/ui/default/new?type=once&when=soon")


def test_a_schedule_is_made_and_edited_with_its_difference_shown_first(local: Served) -> None:
    client, tenant = browser(local), new_tenant()
    form = {
        "key": "made",
        "type": "cron",
        "when": "0 9 * * *",
        "timezone": "UTC",
        "task_type": "t",
        "input": '{"a": 1}',
    }
    answer = client.post(f"/ui/{tenant}/new", data=form)
    assert answer.status_code == 303, answer.text
    made_first = local.call(lambda queue: queue.get_schedule("made"), tenant)
    page = shown(client, f"/ui/{tenant}/schedules/made/edit?when=0+10+*+*+*")
    at_an_end = "(1 time vanishes, )?(1 time appears, )?"  # if it is between nine and ten now
    assert re.search(rf"Until \w+ \d+ \w+ \d\d:\d\d: {at_an_end}1[34] times move\.", page)
    page = shown(client, f"/ui/{tenant}/schedules/made/edit")
    assert "Its times stay as they are." in page
    seen = re.search(r'name="seen" value="(\w+)"', page)
    assert seen is not None
    local.call(lambda queue: queue.trigger_schedule("made"), tenant)
    changed = {**form, "when": "0 10 * * *", "seen": seen[1], "overlap": "allow"}
    answer = client.post(f"/ui/{tenant}/schedules/made/edit", data=changed)
    assert "Nothing ran because of it" in shown(client, answer.headers["location"])
    stale = client.post(f"/ui/{tenant}/schedules/made/edit", data={**changed, "when": "0 11 * * *"})
    assert stale.status_code == 422
    assert re.search(r"this machine saved version \d meanwhile, so nothing was changed", stale.text)
    assert re.search(r"<td>cron</td><td[^>]*>0 10 \* \* \*</td><td[^>]*>0 11 \* \* \*</td>", stale.text)
    assert "Save yours over theirs" in stale.text
    made = local.call(lambda queue: queue.get_schedule("made"), tenant)
    assert (made.timing.expression, made.overlap_policy, made.target.input) == (
        "0 10 * * *",
        "allow",
        {"a": 1},
    )
    place = f"/ui/{tenant}/schedules/made"
    change = "<del>0 9 * * *</del> <ins>0 10 * * *</ins>"
    assert change in shown(client, f"{place}/versions")
    assert shown(client, f"{place}/versions?old=1&new=2").count(change) == 2
    assert "They do not differ" in shown(client, f"{place}/versions?old=2&new=2")
    assert client.get(f"{place}/versions?old=1&new=99").status_code == 404
    assert "<ins>0 9 * * *</ins>" in shown(client, f"{place}/put-back?version=1")
    answer = client.post(f"{place}/put-back", data={"version": "1"})
    assert "Nothing ran because of it" in shown(client, answer.headers["location"])
    back = local.call(lambda queue: queue.get_schedule("made"), tenant)
    assert (back.timing, back.overlap_policy, back.version) == (made_first.timing, "skip", 3)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"key": ""}, "schedule_id"),
        ({"when": "not cron"}, "cron"),
        ({"input": "{"}, "it is not JSON"),
        ({"timezone": "Europe/Londn"}, "Europe/London"),
        ({"type": "odd"}, "type"),
        ({"task_type": "bad kind!"}, "bad kind"),
    ],
)
def test_what_is_wrong_with_a_form_is_said_and_what_was_typed_stays(
    local: Served, values: dict[str, str], words: str
) -> None:
    form = {
        "key": "kept",
        "type": "cron",
        "when": "0 9 * * *",
        "timezone": "UTC",
        "task_type": "t",
        "description": "typed",
    }
    answer = browser(local).post(f"/ui/{new_tenant()}/new", data=form | values)
    assert answer.status_code == 422
    assert words in answer.text
    assert "typed" in answer.text


def test_the_editor_keeps_several_timings_and_a_pause_says_until_when(local: Served) -> None:
    client, tenant = browser(local), new_tenant()
    timings = ["0 9 * * *", "0 17 * * *"]
    local.call(lambda queue: queue.create_schedule("both", timings=timings, task_type="t"), tenant)
    page = shown(client, f"/ui/{tenant}/schedules/both/edit")
    assert "several timings, which stay if this is left empty" in page
    form = {
        "type": "cron",
        "when": "",
        "timezone": "UTC",
        "task_type": "t",
        "input": "null",
        "description": "d",
    }
    assert client.post(f"/ui/{tenant}/schedules/both/edit", data=form).status_code == 303
    until = datetime(2099, 1, 1, tzinfo=UTC)
    kept = local.call(lambda queue: queue.pause_schedule("both", "a move", until=until), tenant)
    assert (len(kept.timing.timings), kept.description) == (2, "d")
    assert re.search(r"a move, until .*2099", shown(client, f"/ui/{tenant}/schedules"))


def test_the_editor_knows_calendars_and_schedules_that_follow_others(local: Served) -> None:
    client, tenant = browser(local), new_tenant()
    place = f"/ui/{tenant}/schedules"
    local.call(lambda queue: queue.create_calendar("weekends", rules=["FREQ=WEEKLY;BYDAY=SA,SU"]), tenant)
    local.call(lambda queue: queue.create_schedule("first", cron="0 12 * * *", task_type="t"), tenant)
    plain = shown(client, f"{place}/first/edit?exclude=weekends")
    assert ": 4 times vanish." in plain
    assert "nothing" in shown(client, f"{place}/first/edit?only=nothing").partition('is-failed"><b>')[2][:60]
    form = {"type": "cron", "when": "0 12 * * *", "timezone": "UTC", "task_type": "t", "exclude": "weekends"}
    assert client.post(f"{place}/first/edit", data=form).status_code == 303
    assert local.call(lambda queue: queue.get_schedule("first"), tenant).exclude == ("weekends",)
    assert 'name="exclude" value="weekends"' in shown(client, f"{place}/first/edit")
    assert "4 times appear" in shown(client, f"{place}/first/edit?exclude=")
    assert ": 8 times vanish." in shown(client, f"{place}/first/edit?excluded=next&when=0+12+*+*+6")
    assert (
        client.post(f"{place}/first/edit", data={**form, "excluded": "next", "offset": "90s"}).status_code
        == 303
    )
    first = local.call(lambda queue: queue.get_schedule("first"), tenant)
    assert (first.excluded_policy, first.offset) == ("next", timedelta(seconds=90))
    page = shown(client, f"{place}/first/edit")
    assert '<option value="next" selected>' in page
    assert 'name="offset" value="1m30s"' in page
    assert "offset" in shown(client, f"{place}/first/edit?offset=soon").partition('is-failed"><b>')[2][:60]
    assert client.post(f"{place}/first/edit", data={**form, "offset": ""}).status_code == 303
    assert not local.call(lambda queue: queue.get_schedule("first"), tenant).offset
    after = {"key": "second", "type": "after", "when": "first", "after_on": "end", "after_delay": "10m"}
    assert client.post(f"/ui/{tenant}/new", data={**after, "task_type": "t"}).status_code == 303
    timing = local.call(lambda queue: queue.get_schedule("second"), tenant).timing
    assert (timing.schedules, timing.on, timing.delay) == (("first",), "end", timedelta(minutes=10))
    page = shown(client, f"{place}/second/edit")
    assert 'name="after_delay" value="10m"' in page
    assert '<option value="end" selected>' in page


def test_an_interval_that_is_not_edited_keeps_its_beat(local: Served) -> None:
    tenant = new_tenant()
    before = local.call(lambda queue: queue.create_schedule("beat", interval=5400, task_type="t"), tenant)
    form = {"type": "every", "when": "1h30m", "timezone": "UTC", "task_type": "t", "description": "new"}
    assert browser(local).post(f"/ui/{tenant}/schedules/beat/edit", data=form).status_code == 303
    after = local.call(lambda queue: queue.get_schedule("beat"), tenant)
    assert (after.timing, after.next_run_at, after.description) == (before.timing, before.next_run_at, "new")


def test_an_admin_makes_and_revokes_keys(keyed: Served) -> None:
    client = signed_in(keyed, keyed.key("staff", "admin", "boss"))
    answer = client.post("/ui/staff/keys", data={"name": "new hire", "role": "viewer"})
    shown_once = re.search(r"rota_[\w-]+", answer.text)
    assert shown_once is not None
    other = signed_in(keyed, shown_once[0])
    assert other.get("/ui/staff").status_code == 200
    assert other.get("/ui/staff/keys").status_code == 403
    page = shown(client, "/ui/staff/keys")
    assert shown_once[0] not in page
    revoke = re.search(r'href="([^"]+/revoke)"', page)
    assert revoke is not None
    assert "signed out wherever they are" in shown(client, revoke[1])
    assert client.post(revoke[1]).status_code == 303
    assert other.get("/ui/staff").status_code == 303
    own = client.get("/api/tenants/staff/keys").json()["items"][-1]["id"]
    assert client.post(f"/ui/staff/keys/{own}/revoke").status_code == 422
    assert "new hire" in shown(client, "/ui/staff/audit")
    assert "is not a day" in shown(client, "/ui/staff/audit?since=yesterday", 422)


def test_an_application_that_knows_its_callers_needs_no_sign_in() -> None:
    async def identify(request: Request) -> Caller | None:
        name = request.headers.get("x-user")
        return None if name is None else Caller("acme", Role.VIEWER, f"user:{name}")

    with serving("memory:", identify=identify) as served:
        client = served.client()
        assert "user:ada" in client.get("/ui/acme", headers={"X-User": "ada"}).text
        assert "Sign out" not in client.get("/ui/acme", headers={"X-User": "ada"}).text
        assert "did not identify the caller" in shown(client, "/ui/acme", 401)


def test_mounted_below_another_address_every_link_stays_there(tmp_path: Path) -> None:
    outer = FastAPI()
    outer.mount("/rota", create_app(f"sqlite:///{tmp_path}/mounted.db"))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(outer, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            home = await client.get("/rota/")
            assert home.headers["location"] == "/rota/ui/default"
            return await client.get("/rota/ui/default/schedules")

    page = asyncio.run(ask()).text
    assert {link for link in Links(page).found if not link.startswith(("/rota/", "?"))} == set()
    assert 'data-events="/rota/api/tenants/default/events?' in page


def test_a_rare_filter_looks_among_the_newest_and_says_so(
    local: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every schedule would be read for a page; who wants that asks for it."""
    monkeypatch.setattr("rota.engine.queries.schedules.LOOKED_THROUGH", 1)
    with browser(local) as client:
        for asked in ("text=sync-orders", "kind=sync_orders", "tag=shop", "timezone=America/New_York"):
            page = client.get(f"/ui/default/schedules?{asked}").text
            assert "Among the newest 1 schedule" in page
            assert "No schedule matches" in page
            every = client.get(f"/ui/default/schedules?{asked}&among=all").text
            assert "Among the newest" not in every
            assert "No schedule matches" not in every
        assert "Among the newest" not in client.get("/ui/default/schedules").text
        monkeypatch.undo()
        assert "Among the newest" not in client.get("/ui/default/schedules?text=sync-orders").text
