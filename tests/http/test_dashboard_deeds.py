"""What people do to schedules on the dashboard: backfills, pauses with an end, exports; and what follows what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from http_world import eventually, example_app, new_tenant
from served import Served, serving, shown

HERE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving("memory:", example_app(), engine=True, rate=100_000) as served:
        yield served


class Shop:
    """A tenant of its own, and a browser in it."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.tenant = new_tenant()
        self.client = served.client()
        self.client.headers.update(HERE)

    def call(self, ask: Any) -> Any:
        return self.served.call(ask, self.tenant)

    def page(self, place: str, status: int = 200, **query: str) -> str:
        return shown(self.client, f"/ui/{self.tenant}/{place}", status, **query)

    def post(self, place: str, **form: Any) -> httpx.Response:
        return self.client.post(f"/ui/{self.tenant}/{place}", data=form)


@pytest.fixture
def shop(served: Served) -> Shop:
    return Shop(served)


def test_a_backfill_is_counted_run_and_seen(shop: Shop) -> None:
    shop.call(
        lambda queue: queue.create_schedule(
            "hourly", cron="0 * * * *", timezone="Asia/Tokyo", task_type="echo"
        )
    )
    asked = shop.page("schedules/hourly/backfill")
    assert "on the clock of Asia/Tokyo" in asked
    days = re.findall(r'type="date" value="([^"]+)"', asked)
    times = re.findall(r'value="(\d\d:\d\d)" placeholder', asked)
    start, end = (f"{day}T{time}" for day, time in zip(days, times, strict=True))
    first = datetime.fromisoformat(start)
    assert datetime.fromisoformat(end) - first == timedelta(hours=23, minutes=59)
    counted = shop.page("schedules/hourly/backfill", start=start, end=end, overlap_policy="allow")
    assert "24 tasks start, all at once, beside its own times." in counted
    assert "Run 24 times" in counted
    assert shop.call(lambda queue: queue.get_schedule("hourly")).backfill is None
    begun = shop.post(
        "schedules/hourly/backfill", start=start, end=end, overlap_policy="allow", confirmed="yes"
    )
    assert "The backfill has begun" in shop.client.get(begun.headers["location"]).text
    eventually(lambda: not shop.call(lambda queue: queue.get_schedule("hourly")).backfill.is_open)
    assert re.search("Backfill completed:.*<b>24 of 24</b> started", shop.page("schedules/hourly"), re.DOTALL)
    rows = shop.call(lambda queue: queue.runs("hourly"))
    assert min(each.scheduled_at for each in rows) == first.replace(tzinfo=UTC) - timedelta(hours=9)
    assert "24 times are in this stretch, and each has run." in shop.page(
        "schedules/hourly/backfill", 422, start=start, end=end
    )
    assert "is before start" in shop.page("schedules/hourly/backfill", 422, start=end, end=start)
    assert "is not a time" in shop.page("schedules/hourly/backfill", 422, start="then", end=end)


def test_a_backfill_is_cancelled(shop: Shop) -> None:
    shop.call(lambda queue: queue.create_schedule("slow", cron="* * * * *", task_type="nobody-has-it"))
    ago = datetime.now(UTC) - timedelta(hours=1)
    shop.call(lambda queue: queue.backfill("slow", ago, ago + timedelta(minutes=30)))
    assert "Cancel it" in shop.page("schedules/slow")
    assert ">Backfill</a>" not in shop.page("schedules/slow"), "one is under way"
    assert "will not be. What was started goes on." in shop.page("schedules/slow/backfill/cancel")
    done = shop.post("schedules/slow/backfill/cancel", confirmed="yes")
    assert "The backfill was cancelled." in shop.client.get(done.headers["location"]).text


def test_a_pause_ends_by_itself_on_the_clock_of_the_schedule(shop: Shop) -> None:
    for key in ("a", "b"):
        shop.call(
            lambda queue, key=key: queue.create_schedule(
                key, cron="0 9 * * *", timezone="Asia/Tokyo", task_type="t"
            )
        )
    day = (datetime.now(UTC) + timedelta(days=2)).date()
    wrong = shop.post("schedules/a/pause", note="n", until="2020-01-01T00:00")
    assert (wrong.status_code, 'value="2020-01-01"' in wrong.text) == (422, True)
    shop.post("schedules/a/pause", note="moving", until=[str(day), "12:00"])
    paused = shop.call(lambda queue: queue.get_schedule("a"))
    assert paused.pause_until == datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=3)
    assert "It resumes by itself" in shop.page("schedules/a")
    question = shop.post("schedules", action="pause", key=["a", "b"])
    assert "on the clock of UTC" in question.text
    shop.post("schedules", action="pause", key=["b"], note="all", until=[str(day), "9:05"], confirmed="yes")
    also = shop.call(lambda queue: queue.get_schedule("b"))
    assert (also.pause_note, also.pause_until.hour) == ("all", 9)


def test_the_selected_are_exported_as_a_file_that_can_be_applied(shop: Shop) -> None:
    template = shop.call(lambda queue: queue.create_template("page", "echo"))
    shop.call(lambda queue: queue.apply({"schedules": {"a": {"template": "page", "interval": "5m"}}}))
    shop.call(lambda queue: queue.create_schedule("b", cron="0 9 * * *", task_type="t"))
    answer = shop.post("schedules", action="export", key=["a"])
    assert answer.headers["content-disposition"] == 'attachment; filename="schedules.yaml"'
    assert template.alias in answer.text
    assert "0 9 * * *" not in answer.text
    from rota.surfaces import files

    document = files.read_text(answer.text, "yaml")
    assert not shop.call(lambda queue: queue.plan(document)).changes


def test_a_schedule_names_what_it_follows_and_what_follows_it(shop: Shop) -> None:
    shop.call(lambda queue: queue.create_schedule("load", cron="0 3 * * *", task_type="t"))
    shop.call(lambda queue: queue.create_schedule("report", after=["load"], task_type="t"))
    before, after = shop.page("schedules/load"), shop.page("schedules/report")
    assert re.search(r"When it ends, <a[^>]*/schedules/report\">report</a> runs.", before)
    assert re.search(r"It comes after <a[^>]*/schedules/load\">load</a>", after)
    assert ">Backfill</a>" not in after, "it has no times of its own"


def test_a_calendar_is_made_shown_edited_and_deleted(shop: Shop) -> None:
    assert "There are no calendars yet." in shop.page("calendars")
    wrong = shop.post("calendars/new", name="off", days="2027-13-01")
    assert (wrong.status_code, "2027-13-01" in wrong.text) == (422, True)
    made = shop.post("calendars/new", name="off", days="2099-12-24", rules="FREQ=WEEKLY;BYDAY=SA,SU")
    page = shop.client.get(made.headers["location"]).text
    assert "The calendar is saved." in page
    assert page.count("<li><b>S") == 12, "its next weekends"
    shop.call(lambda queue: queue.create_schedule("a", cron="0 9 * * *", task_type="t", exclude=["off"]))
    assert re.search(r">a</a>.*left out", shop.page("calendars/off"), re.DOTALL)
    form = shop.page("calendars/off/edit")
    assert "1 schedule names it" in form
    version = re.findall(r'name="version" value="(\d+)"', form)[0]
    saved = shop.post(
        "calendars/off/edit", rules="FREQ=WEEKLY;BYDAY=SU", windows="22:00-06:00", version=version
    )
    assert "planned anew" in shop.client.get(saved.headers["location"]).text
    assert "1 rule, 22:00-06:00" in shop.page("calendars")
    assert shop.post("calendars/off/edit", rules="FREQ=DAILY", version=version).status_code == 422
    assert shop.post("calendars/off/delete").status_code == 409
    shop.call(lambda queue: queue.delete_schedule("a", hard=True))
    assert "/calendars?said=delete" in shop.post("calendars/off/delete").headers["location"]


def test_a_deleted_schedule_is_shown_by_its_id_without_what_cannot_be_done_to_it(shop: Shop) -> None:
    made = shop.call(lambda queue: queue.create_schedule("a", cron="0 9 * * *", task_type="t"))
    task = shop.call(lambda queue: queue.trigger_schedule("a"))
    shop.call(lambda queue: queue.delete_schedule("a"))
    shop.page("schedules/a", 404)
    page = shop.page(f"schedules/{made.id}")
    assert "Deleted " in page
    assert f"rota schedule restore {made.id}" in page
    assert 'class="button' not in page
    assert "if it were resumed" not in page
    for tab in ("", "/runs", "/versions"):
        page = shop.page(f"schedules/{made.id}{tab}")
        assert f'href="/ui/{shop.tenant}/schedules/{made.id}/runs"' in page
        assert f"/tasks?schedule={made.id}" in page
        assert "put-back" not in page
    assert f"/tasks/{task.id}" in shop.page(f"schedules/{made.id}/runs")
    assert f"/schedules/{made.id}" in shop.page(f"tasks/{task.id}")
    for deed in ("edit", "trigger", "pause", "delete", "backfill", "put-back"):
        shop.page(f"schedules/{made.id}/{deed}", 404)


def test_a_retired_schedule_is_shown_beside_the_one_that_took_its_key(shop: Shop) -> None:
    soon = {"interval": 1, "max_runs": 1, "missed_run_policy": "execute_once"}
    old = shop.call(lambda queue: queue.create_schedule("once", task_type="t", **soon))
    eventually(lambda: shop.call(lambda queue: queue.get_schedule("once")).status == "completed")
    at = next(run.scheduled_at for run in shop.call(lambda queue: queue.runs("once")) if run.target_id)
    later = at + timedelta(days=9)
    new = shop.call(lambda queue: queue.create_schedule("once", run_at=later, task_type="t"))
    page = shop.page(f"schedules/{old.id}")
    assert f"its key was taken by schedule {new.id}" in page
    assert "rota schedule restore" not in page
    ran = shop.page(f"schedules/{old.id}", at=at.isoformat())
    assert re.search(r'id="why".*?/tasks/', ran, re.DOTALL), "its own time, not one of the other's"
    assert "Trigger</a>" in shop.page("schedules/once")


def test_the_audit_is_filtered(shop: Shop) -> None:
    shop.call(lambda queue: queue.create_schedule("a", cron="0 9 * * *", task_type="t"))
    shop.post("schedules/a/pause", note="for lunch")
    shop.call(lambda queue: queue.create_calendar("off", days=["2099-01-01"]))
    everything = shop.page("audit")
    assert [everything.count(f"<b>{each}</b>") for each in ("created", "paused")] == [2, 1]
    assert shop.page("audit", what="calendar").count("<b>created</b>") == 1
    assert "<b>paused</b>" in shop.page("audit", who="LOCAL", name="a", action="paused")
    assert "Nothing matches since then." in shop.page("audit", who="nobody")


def test_tenants_are_for_whoever_may_act_in_all_of_them(shop: Shop) -> None:
    name = new_tenant()
    assert shop.post("tenants", name=name).status_code == 303
    assert name in shop.page("tenants")
    assert shop.post("tenants", name="no good name/").status_code == 422
    form = shop.page(f"tenants/{name}/limits")
    assert 'name="minimum_interval"' in form
    limits = {"schedules": "5", "pending_tasks": "", "minimum_interval": "1m", "input_bytes": "1000"}
    assert shop.post(f"tenants/{name}/limits", **limits).status_code == 303
    found = shop.call(lambda queue: queue.get_tenant(name)).limits
    assert (found.schedules, found.pending_tasks, found.minimum_interval) == (5, None, timedelta(minutes=1))
    assert shop.post(f"tenants/{name}/limits", **{**limits, "schedules": "many"}).status_code == 422
    assert shop.post(f"tenants/{name}/suspend", note="unpaid").status_code == 303
    assert "suspended" in shop.page("tenants")
    assert shop.post(f"tenants/{name}/resume").status_code == 303
    with serving("memory:") as keyed:
        client = keyed.client(keyed.key("acme", "admin"))
        assert client.get("/ui/acme/tenants").status_code == 404
        assert "Tenants" not in client.get("/ui/acme/keys").text
