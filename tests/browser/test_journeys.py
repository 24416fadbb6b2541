"""Journeys through the dashboard in a real browser. Debian's chromium is installed if it can be; where it cannot, these
tests say so, and are the only ones that are skipped. `tests/http/test_dashboard.py` has what needs no browser."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import debian
from dashboard_world import furnish
from http_world import example_app
from rota import App, Queue
from served import Served, serving

PAGES = (
    "/ui/default/forecast",
    "/ui/default",
    "/ui/default/schedules",
    "/ui/default/schedules/sync-orders",
    "/ui/default/schedules/sync-orders/runs",
    "/ui/default/schedules/daily-report/versions",
    "/ui/default/schedules/daily-report/pause",
    "/ui/default/new",
    "/ui/default/tasks?status=failed",
    "/ui/default/workflows",
    "/ui/default/nodes",
    "/ui/default/nodes/worker-a",
    "/ui/default/queues",
    "/ui/default/queues/mail/resume",
    "/ui/default/alarms?over=1",
    "/ui/default/schedules/daily-report/put-back?version=1",
    "/ui/default/audit",
    "/ui/default/calendars",
    "/ui/default/calendars/closing-days",
    "/ui/default/calendars/closing-days/edit",
    "/ui/default/tenants",
    "/ui/default/schedules/sync-orders/backfill",
    "/ui/default/keys",
    "/sign-in",
)

THEMES: dict[Any, Any] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
"""All of axe's rules in one theme; in the other what differs there."""


SIZE: Any = {"width": 1240, "height": 800}
NARROW: Any = {"width": 360, "height": 700}


def chromium() -> str:
    """Where it is; installed first, if this may be done here."""
    found = debian.program("chromium")
    if found is None:
        pytest.skip("chromium is not here and cannot be installed; install it with: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"], timeout=180_000)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shop() -> Iterator[Served]:
    with serving("memory:") as served:
        served.call(furnish)
        yield served


@pytest.fixture(scope="module")
def working() -> Iterator[Served]:
    """With an engine, which runs what is due."""
    with serving("memory:", example_app(), engine=True) as served:
        yield served


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Page]:
    """To open one takes half a second of the processor."""
    context = browser.new_context(timezone_id="Asia/Tokyo", viewport=SIZE)
    page = context.new_page()
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)  # a page that takes a second to read is read every twenty
    yield page
    context.close()


@pytest.fixture
def page(window: Page) -> Iterator[Page]:
    """A page in which nothing is refused by its own policy, and no script fails. It remembers nothing of the last."""
    wrong: list[str] = []
    heard: dict[Any, Any] = {
        "pageerror": lambda error: wrong.append(str(error)),
        "console": lambda line: wrong.append(line.text) if "Content Security" in line.text else None,
    }
    for event, hear in heard.items():
        window.on(event, hear)
    yield window
    window.evaluate("localStorage.clear(); sessionStorage.clear()")
    window.context.clear_cookies()
    window.goto("about:blank")
    window.set_viewport_size(SIZE)
    for event, hear in heard.items():
        window.remove_listener(event, hear)
    assert not wrong


def test_a_schedule_made_in_the_editor_is_seen_to_fire(page: Page, working: Served) -> None:
    page.goto(f"{working.url}/")
    page.get_by_role("link", name="Schedules", exact=True).click()
    page.get_by_role("link", name="New schedule").click()
    page.get_by_label("Name").fill("every-second")
    page.get_by_text("Cron line").click()
    page.locator("input[name=when]").fill("99 * * * *")
    expect(page.locator("#meaning")).to_contain_text("99")
    page.locator("input[name=when]").fill("* * * * * *")
    expect(page.locator("#meaning")).to_contain_text("Every second")
    page.get_by_label("Kind of task").fill("echo")
    page.get_by_role("button", name="Create schedule").click()
    expect(page.locator("h1")).to_have_text("every-second")
    expect(page.locator("[data-strip] a[data-status=completed]").first).to_be_attached()

    page.get_by_role("link", name="Pause", exact=True).click()
    page.get_by_label("Why").fill("for lunch")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#lead")).to_contain_text("for lunch")

    page.get_by_role("link", name="Edit").click()
    page.locator("input[name=when]").fill("0 12 * * 2")
    expect(page.get_by_label("How often")).to_have_value("week")
    expect(page.get_by_label("Time of day")).to_have_value("12:00")
    page.get_by_label("Mon", exact=True).click()
    expect(page.locator("input[name=when]")).to_have_value("0 12 * * 1,2")
    page.get_by_label("Tue", exact=True).click()
    expect(page.locator("#meaning")).to_contain_text("only on Monday")
    with page.expect_navigation():
        page.get_by_role("button", name="Save as version").click()
    expect(page.locator("#lead")).to_contain_text("Monday")
    page.get_by_role("link", name="Versions").click()
    expect(page.locator("ins").filter(has_text="0 12 * * 1")).to_be_visible()


def test_the_strip_says_why_and_times_are_on_the_readers_clock(page: Page, shop: Served) -> None:
    page.goto(f"{shop.url}/ui/default/schedules/sync-orders")
    skipped = page.locator("[data-strip] a[data-status=skipped]").first
    skipped.hover()
    expect(page.locator("#why")).to_contain_text("still going")
    skipped.focus()
    page.keyboard.press("ArrowRight")
    name = page.evaluate("document.activeElement.getAttribute('aria-label')")
    expect(page.locator("#why")).to_contain_text(name)
    time = page.locator("#lead time").first
    assert "Asia/Tokyo" in str(time.get_attribute("title"))
    assert "UTC" in str(time.get_attribute("title"))


def test_the_keyboard_alone_finds_selects_and_pauses(page: Page, shop: Served) -> None:
    page.goto(f"{shop.url}/ui/default/schedules")
    page.keyboard.press("/")
    page.keyboard.type("month")
    expect(page).to_have_url(re.compile("text=month"))  # typed slowly, its beginning was looked for before
    expect(page.locator("[data-rows] tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[data-selected]")).to_have_text("1 selected")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Pause":
            break
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Pause 1 schedule?")
    page.keyboard.type("by keys alone")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("1 schedule paused.")


def test_a_day_is_backfilled(page: Page, working: Served) -> None:
    minute = (datetime.now(UTC).minute + 30) % 60  # no time of its own comes meanwhile
    working.call(lambda queue: queue.create_schedule("hourly", cron=f"{minute} * * * *", task_type="echo"))
    page.goto(f"{working.url}/ui/default/schedules/hourly")
    page.get_by_role("link", name="Backfill").click()
    page.get_by_label("How").select_option("all at once")
    page.get_by_role("button", name="Count them first").click()
    expect(page.locator(".lead")).to_contain_text("24 tasks start, all at once")
    page.get_by_role("button", name="Run 24 times").click()
    expect(page.locator("#lead")).to_contain_text("24 of 24 started")
    expect(page.locator("[data-strip] a[data-status=completed]")).to_have_count(24)


def test_many_are_exported_resumed_triggered_and_deleted(page: Page, working: Served) -> None:
    keys = [f"bulk-{letter}" for letter in "abc"]

    async def prepare(queue: Queue) -> None:
        for key in keys:
            await queue.create_schedule(key, cron="0 9 * * *", task_type="echo")
            await queue.pause_schedule(key, "not yet")

    def choose(verb: str) -> None:
        page.goto(f"{working.url}/ui/default/schedules?text=bulk-")
        for key in keys:
            page.get_by_label(f"Select {key}").check()
        page.get_by_role("button", name=verb, exact=True).click()

    def status() -> list[str]:
        found = working.call(lambda queue: queue.list_schedules(text="bulk-"))
        return [str(each.status) for each in found]

    working.call(prepare)
    with page.expect_download() as told:
        choose("Export")
    exported = Path(told.value.path()).read_text()
    assert told.value.suggested_filename == "schedules.yaml"
    assert [key for key in keys if key in exported] == keys
    choose("Resume")
    expect(page.locator(".lead")).to_contain_text(
        "3 of them will fire again, from their first time after now"
    )
    page.get_by_role("button", name="Resume 3 schedules").click()
    expect(page.get_by_role("status")).to_have_text("3 schedules resumed.")
    assert status() == ["active"] * 3
    choose("Trigger")
    expect(page.locator(".lead")).to_contain_text("3 tasks will be started now")
    page.get_by_role("button", name="Trigger 3 schedules").click()
    expect(page.get_by_role("status")).to_have_text("3 schedules triggered.")
    page.goto(f"{working.url}/ui/default/tasks?schedule=bulk-a")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    expect(page.locator("#list")).to_contain_text("completed")
    choose("Delete")
    expect(page.locator(".lead")).to_contain_text("3 of them are active, and will not fire again")
    page.get_by_role("button", name="Delete 3 schedules").click()
    expect(page.get_by_role("status")).to_have_text("3 schedules deleted.")
    assert status() == []


def test_the_logs_of_a_running_task_are_seen_while_it_runs(page: Page) -> None:
    app, more, end = App(), threading.Event(), threading.Event()

    @app.task("talks")
    def talks(context: Any) -> str:
        context.log("the first line")
        more.wait(60)
        context.log("the second line")
        end.wait(60)
        return "said"

    with serving("memory:", app, engine=True) as served:
        try:
            id = served.call(lambda queue: queue.submit("talks", {})).id
            page.goto(f"{served.url}/ui/default/tasks/{id}")
            expect(page.locator(".log")).to_contain_text("the first line")
            expect(page.locator("#live")).to_have_text("live")
            more.set()
            expect(page.locator(".log")).to_contain_text("the second line")
            expect(page.locator("h1 + .chip")).to_contain_text("running")
        finally:
            more.set()
            end.set()
        expect(page.locator("h1 + .chip")).to_contain_text("completed")


HOSTILE = (
    "<script>document.title = 'taken'</script>",
    "<img src=x onerror=\"document.title = 'taken'\">",
    "]]></pre></section><iframe src=/></iframe>",
    "\u202egnirts עברית العربية",
    "w" * 5000,
)


def test_hostile_logs_and_files_are_inert(page: Page) -> None:
    app = App()

    @app.task("hostile", max_retries=0)
    async def hostile(context: Any) -> None:
        for line in HOSTILE:
            await context.log(line)
        await context.artifact("page.html", HOSTILE[0] + HOSTILE[1], media_type="text/html")
        await context.artifact("drawing.svg", f"<svg xmlns='http://www.w3.org/2000/svg'>{HOSTILE[0]}</svg>")
        raise RuntimeError(HOSTILE[0] + HOSTILE[2])

    with serving("memory:", app, engine=True) as served:
        id = served.call(lambda queue: queue.submit("hostile", {line[:200]: line for line in HOSTILE})).id
        page.goto(f"{served.url}/ui/default/tasks/{id}")
        expect(page.locator("h1 + .chip")).to_contain_text("failed")
        for line in HOSTILE:
            expect(page.locator(".log bdi", has_text=line[:500])).to_have_count(1)  # they are cut short
        assert page.locator("iframe, main img, main script").count() == 0
        assert "hostile" in page.title()
        for width in (1240, 360):
            page.set_viewport_size({"width": width, "height": 700})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        for name in ("page.html", "drawing.svg"):
            with page.expect_download() as told:
                page.get_by_role("link", name=name).click()
            assert told.value.suggested_filename == name
        address = page.get_by_role("link", name="page.html").get_attribute("href")
        with page.expect_download():
            page.evaluate("there => { location.href = there }", address)  # typed, instead of clicked
        assert "hostile" in page.title()


def test_a_workflow_is_retried_from_a_step(page: Page) -> None:
    app, done = App(), []

    @app.workflow("bake", max_retries=0)
    async def bake(ctx: Any) -> str:
        await ctx.step(lambda: done.append("mix"), name="mix")
        await ctx.step(oven, name="oven", retries=0)
        return "a cake"

    def oven() -> None:
        done.append("oven")
        if done.count("oven") == 1:
            raise RuntimeError("the oven is cold")

    with serving("memory:", app, engine=True) as served:
        id = served.call(lambda queue: queue.start_workflow("bake")).id
        page.goto(f"{served.url}/ui/default/tasks/{id}")
        expect(page.locator("h1 + .chip")).to_contain_text("failed")
        page.get_by_role("link", name="oven", exact=True).click()
        expect(page.locator("#step")).to_contain_text("the oven is cold")
        page.get_by_role("link", name="Retry from this step").click()
        expect(page.locator("h1")).to_have_text("Retry from oven?")
        expect(page.locator(".lead")).to_contain_text("1 step is kept and not done again; 1 is dropped")
        page.get_by_role("button", name="Retry from oven").click()
        expect(page.locator("h1 + .chip")).to_contain_text("completed")
        assert done == ["mix", "oven", "oven"]


def test_what_fires_at_once_is_spread(page: Page) -> None:
    with serving("memory:") as served:

        async def prepare(queue: Queue) -> None:
            for number in range(20):
                await queue.create_schedule(f"noon-{number}", cron="0 12 * * *", task_type="echo")

        served.call(prepare)
        page.goto(f"{served.url}/ui/default/forecast")
        page.get_by_text("Spread them").click()
        expect(page.locator("h1")).to_contain_text("Spread")
        page.get_by_role("link", name="10 minutes").click()
        expect(page.locator(".lead")).to_contain_text("over 10 minutes takes the peak from 20 to 2")
        page.get_by_role("button", name=re.compile("Spread .* schedules")).click()
        expect(page.get_by_role("status")).to_contain_text(
            re.compile(r"schedules were spread over 10 minutes\.")
        )
        expect(page.get_by_text("Spread them")).to_have_count(0)
        moved = served.call(lambda queue: queue.list_schedules())
        assert len({each.offset for each in moved}) > 9


def test_long_lists_of_schedules_tasks_and_tenants_are_walked(page: Page) -> None:
    with serving("memory:") as served:

        async def prepare(queue: Queue) -> None:
            for number in range(130):
                await queue.create_schedule(f"long-{number:03}", cron="0 12 * * *", task_type="echo")
                await queue.submit("echo", {"number": number})
                await queue.create_tenant(f"tenant-{number:03}")

        served.call(prepare)
        for place, link, rows in (("schedules?sort=name", "a.key", 130), ("tasks", "a.key", 130)):
            page.goto(f"{served.url}/ui/default/{place}")
            seen: list[str] = []
            while True:
                seen += page.locator(f"#list {link}").evaluate_all("all => all.map(each => each.href)")
                following = page.locator("a[rel=next]")
                if following.count() == 0:
                    break
                with page.expect_navigation():
                    following.click()
            assert (len(seen), len(set(seen))) == (rows, rows)
        page.goto(f"{served.url}/ui/default/tenants")
        expect(page.locator("main tbody tr")).to_have_count(131)
        page.get_by_role("link", name="tenant-129", exact=True).click()
        expect(page.locator("#live")).to_have_text("live")
        assert "/ui/tenant-129" in page.url


def test_two_who_edit_the_same_schedule_see_both_versions(page: Page, working: Served) -> None:
    working.call(lambda queue: queue.create_schedule("shared", cron="0 9 * * *", task_type="echo"))
    page.goto(f"{working.url}/ui/default/schedules/shared/edit")
    page.locator("input[name=when]").fill("0 10 * * *")
    expect(page.locator("#meaning .moved").first).to_be_visible()
    working.call(lambda queue: queue.update_schedule("shared", cron="0 11 * * *"))
    page.get_by_role("button", name="Save as version").click()
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"saved version \d+ meanwhile"))
    expect(page.locator(".both tbody")).to_contain_text("cron0 11 * * *0 10 * * *")
    page.get_by_role("button", name="Save yours over theirs").click()
    expect(page.locator("#lead")).to_contain_text("10:00")


def test_a_view_of_tasks_is_kept_under_a_name(page: Page, shop: Served) -> None:
    page.goto(f"{shop.url}/ui/default/tasks?status=failed&kind=sync_orders")
    page.get_by_label("Name of this view").fill("broken syncs")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Tasks", exact=True).click()
    page.get_by_role("link", name="broken syncs").click()
    assert page.url.endswith("/tasks?status=failed&kind=sync_orders")
    page.get_by_role("button", name="Forget the view broken syncs").click()
    expect(page.get_by_role("link", name="broken syncs")).to_have_count(0)


def test_a_task_is_cancelled_and_replayed_while_its_page_is_open(page: Page, shop: Served) -> None:
    id = shop.call(lambda queue: queue.submit("slow", {})).id
    page.goto(f"{shop.url}/ui/default/tasks/{id}")
    expect(page.locator("#live")).to_have_text("live")
    shop.call(lambda queue: queue.cancel(id, "from elsewhere"))
    expect(page.locator("#task")).to_contain_text("from elsewhere")
    page.get_by_role("link", name="Replay").click()
    page.get_by_role("button", name="Replay").click()
    expect(page.locator("h1 + .chip")).to_contain_text("pending")


def test_a_workflow_is_followed_and_sent_what_it_waits_for(page: Page, working: Served) -> None:
    id = working.call(lambda queue: queue.start_workflow("approval")).id
    page.goto(f"{working.url}/ui/default/workflows")
    page.locator(f"a[href$='{id}']").click()
    expect(page.locator(".waits")).to_contain_text("waits for the signal approved")
    page.get_by_role("link", name="ask", exact=True).click()
    expect(page.locator("#step pre")).to_contain_text("asked")
    page.get_by_role("link", name="Send it").click()
    expect(page.get_by_label("Name")).to_have_value("approved")
    page.get_by_label("Payload").fill('"by ada"')
    page.get_by_role("button", name="Send a signal").click()
    expect(page.locator("h1 + .chip")).to_contain_text("completed")


def test_a_queue_is_paused_with_a_note_and_resumed(page: Page, shop: Served) -> None:
    page.goto(f"{shop.url}/ui/default/tasks")
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.get_by_role("link", name="Pause default").click()
    page.get_by_label("Why").fill("a new database")
    page.keyboard.press("Enter")
    expect(page.locator("#list")).to_contain_text("a new database")
    page.get_by_role("link", name="Resume default").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#list")).not_to_contain_text("a new database")


def test_sign_in_as_a_viewer_be_refused_and_sign_out_again(page: Page) -> None:
    with serving("memory:") as served:
        key = served.key("acme", "viewer", "ada")
        served.call(lambda queue: queue.create_schedule("seen", interval=60, task_type="t"), "acme")
        page.goto(f"{served.url}/ui/acme/schedules/seen")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("h1")).to_have_text("seen")
        expect(page.get_by_role("link", name="Pause", exact=True)).to_have_count(0)
        expect(page.locator("#live")).to_have_text("live")
        page.goto(f"{served.url}/ui/acme/schedules/seen/pause")
        expect(page.locator("main")).to_contain_text("needs the role operator; the key has the role viewer")
        page.goto(f"{served.url}/ui/acme/schedules/seen")
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("h1")).to_have_text("Sign in")
        page.goto(f"{served.url}/ui/acme")
        expect(page.locator("h1")).to_have_text("Sign in")


MADE = "() => !document.querySelector('meta[http-equiv=refresh]')"
"""A page that is being made comes again by itself: whoever looks at it must not be in the midst of that."""
WIDE = (
    "[...document.querySelectorAll('html, main > *, form > *, table')].some(each => each.scrollWidth > 360)"
)


def test_the_longest_words_stay_inside_the_window(page: Page, shop: Served) -> None:
    key, word = "W" * 250, "W" * 900

    async def prepare(queue: Queue) -> str:
        await queue.create_schedule(key, interval=3600, task_type="long", description=word, input=word)
        return str((await queue.trigger_schedule(key)).id)

    task = shop.call(prepare)
    page.set_viewport_size(NARROW)
    wide = []
    for place in ("", "schedules", f"schedules/{key}", f"schedules/{key}/versions", "tasks", f"tasks/{task}"):
        page.goto(f"{shop.url}/ui/default/{place}")
        page.wait_for_function(MADE)
        if page.evaluate(WIDE):
            wide.append(place)
    shop.call(lambda queue: queue.delete_schedule(key))
    assert not wide


def test_axe_finds_nothing_serious_and_nothing_scrolls_sideways(page: Page, shop: Served) -> None:
    axe = resources.files("axe_core_python").joinpath("axe.min.js").read_text()
    failed = shop.call(lambda queue: queue.list(status="failed", workflow=False, limit=1))[0].id
    workflow = shop.call(lambda queue: queue.list(status="failed", workflow=True, limit=1))[0].id
    page.set_viewport_size(NARROW)
    found = []
    for place in (*PAGES, f"/ui/default/tasks/{failed}", f"/ui/default/tasks/{workflow}?step=charge"):
        page.goto(shop.url + place)
        page.wait_for_function(MADE)
        page.evaluate(axe)
        for theme, rules in THEMES.items():
            page.emulate_media(color_scheme=theme)
            run = "rules => axe.run(document, {resultTypes: ['violations'], ...rules})"
            for each in page.evaluate(run, rules)["violations"]:
                if each["impact"] in ("serious", "critical"):
                    found.append(f"{place} ({theme}): {each['id']}: {each['nodes'][0]['html'][:160]}")
        if page.evaluate(WIDE):
            found.append(f"{place}: it is wider than the window")
    page.emulate_media(color_scheme="null")
    assert not found
