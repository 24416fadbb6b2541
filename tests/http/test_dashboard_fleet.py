"""The pages of workflows, nodes, queues and artifacts, without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from dashboard_world import furnish
from http_world import eventually, example_app
from rota import Queue
from rota.domain.model import NodeState
from rota.stores.base import Tx
from served import Served, serving, shown

HERE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def shop() -> Iterator[Served]:
    with serving("memory:", rate=100_000) as served:
        served.call(furnish)
        yield served


@pytest.fixture(scope="module")
def working() -> Iterator[Served]:
    """With an engine, which runs workflows."""
    with serving("memory:", example_app(), engine=True) as served:
        yield served


def browser(served: Served) -> httpx.Client:
    client = served.client()
    client.headers.update(HERE)
    return client


def newest(served: Served, **filters: Any) -> str:
    return str(served.call(lambda queue: queue.list(limit=1, **filters))[0].id)


def test_a_workflow_that_waits_says_for_what_and_shows_what_it_did(shop: Served) -> None:
    id = newest(shop, workflow=True, status="pending")
    assert f"/tasks/{id}" in shown(shop.client(), "/ui/default/workflows")
    page = shown(shop.client(), f"/ui/default/tasks/{id}")
    assert "waits for the signal paid for at most" in page
    assert page.count('<rect class="g-') == 7
    assert re.search(r"g-pending[^>]*>.*invoice|invoice.*g-pending", page, re.DOTALL)
    chosen = shown(shop.client(), f"/ui/default/tasks/{id}?step=reserve")
    assert "&#34;shelf&#34;: &#34;B7&#34;" in chosen
    assert "Retry from" not in chosen, "it has not failed"


def test_a_signal_reaches_a_workflow_that_waits_for_it(working: Served) -> None:
    client = browser(working)
    id = working.call(lambda queue: queue.start_workflow("approval")).id
    eventually(lambda: working.call(lambda queue: queue.get(id)).waits_for)
    page = shown(client, f"/ui/default/tasks/{id}/signal")
    assert 'value="approved"' in page
    bad = client.post(f"/ui/default/tasks/{id}/signal", data={"name": "approved", "payload": "{"})
    assert (bad.status_code, "payload: it is not JSON" in bad.text) == (422, True)
    sent = client.post(f"/ui/default/tasks/{id}/signal", data={"name": "approved", "payload": '"by ada"'})
    assert "The signal was sent." in shown(client, sent.headers["location"])
    eventually(lambda: working.call(lambda queue: queue.get(id)).status == "completed")
    assert "by ada" in shown(client, f"/ui/default/tasks/{id}")
    late = client.post(f"/ui/default/tasks/{id}/signal", data={"name": "approved"})
    assert late.status_code == 422


def test_a_retry_from_a_step_says_what_is_kept_first(shop: Served) -> None:
    client = browser(shop)
    id = newest(shop, workflow=True, status="failed")
    page = shown(client, f"/ui/default/tasks/{id}?step=charge")
    assert "CardDeclined" in page
    place = re.search(r'href="([^"]*/replay[?]from_step=charge)"', page)
    assert place is not None
    assert "5 steps are kept and not done again; 1 is dropped" in shown(client, place[1])
    assert client.get(f"/ui/default/tasks/{id}/replay?from_step=none").status_code in (409, 422)
    client.post(f"/ui/default/tasks/{id}/replay", data={"from_step": "cool-down"})
    keys = [step.key for step in shop.call(lambda queue: queue.steps(id))]
    assert keys == ["reserve", "render:0", "render:1", "render:2"]


def test_nodes_say_who_is_alive_and_what_they_hold(shop: Served) -> None:
    page = shown(shop.client(), "/ui/default/nodes")
    assert page.index("shop-1") < page.index("shop-2") < page.index("shop-3")
    assert page.count("alive</span>") == 2
    assert "silent</span>" in page
    one = shown(shop.client(), "/ui/default/nodes/worker-a")
    assert ">backup</a>" in one
    assert "There is no" not in one
    assert shown(shop.client(), "/ui/default/nodes/gone", 404)
    assert "No node is known." in shown(shop.client(), "/ui/nobody/nodes")


def test_what_nodes_of_all_tenants_run_is_told_to_those_who_see_all() -> None:
    """Whoever looked first: the overview is shared by those who look at the same time."""
    with serving("memory:", example_app(), engine=True) as served:
        everyone, one = (served.client(served.key(tenant)) for tenant in ("*", "default"))
        eventually(lambda: served.call(lambda queue: queue.nodes()))
        for client, told in ((everyone, True), (one, False)):
            assert ("slots busy when they were heard last" in shown(client, "/ui/default")) == told
            assert ('<span class="soft">of ' in shown(client, "/ui/default/nodes")) == told


def test_a_schedule_whose_workers_are_all_silent_says_so_as_a_warning() -> None:
    async def schedule_after_the_last_worker(queue: Queue) -> None:
        now = await queue.now()
        silent = NodeState(
            id="w",
            host="h",
            pid=1,
            release="0.1.0",
            roles=("worker",),
            kinds=("report",),
            started_at=now - timedelta(hours=2),
            seen_at=now - timedelta(hours=1),
            heartbeat=timedelta(seconds=30),
        )

        async def work(tx: Tx) -> None:
            tx.put(silent)

        await queue.store.transact(work)
        await queue.create_schedule("daily", cron="0 9 * * *", task_type="report")

    with serving("memory:") as served:
        served.call(schedule_after_the_last_worker)
        page = shown(served.client(), "/ui/default/schedules/daily")
    assert '<small class="is-late">no worker is alive; the last one, w, was seen 1 hour ago</small>' in page


def test_a_task_says_why_it_waits_and_leads_to_its_node(shop: Served) -> None:
    mail = newest(shop, kind="send_mail")
    assert "(the provider is down)" in shown(shop.client(), f"/ui/default/tasks/{mail}")
    running = newest(shop, kind="backup", status="running")
    assert 'href="/ui/default/nodes/worker-a"' in shown(shop.client(), f"/ui/default/tasks/{running}")


def test_a_queue_is_paused_with_a_note_and_resumed(shop: Served) -> None:
    client = browser(shop)
    question = shown(client, "/ui/default/queues/mail/resume")
    assert "6 wait there now" in question
    client.post("/ui/default/queues/mail/resume")
    assert "the provider is down" not in shown(client, "/ui/default/queues")
    answer = client.post("/ui/default/queues/mail/pause", data={"note": "<b>again</b>"})
    page = shown(client, answer.headers["location"])
    assert "The queue was paused." in page
    assert "&lt;b&gt;again" in page
    assert client.get("/ui/default/queues/mail/drop").status_code == 404


def test_limits_are_listed_under_the_queues(shop: Served) -> None:
    shop.call(lambda queue: queue.limit_queue("mail", concurrency=1_000, rate="50/s"))
    page = shown(shop.client(), "/ui/default/queues")
    assert 'queue <span class="key">mail</span>' in page
    assert ">50/s<" in page
    shop.call(lambda queue: queue.limit_queue("mail"))
    assert ">50/s<" not in shown(shop.client(), "/ui/default/queues")


def test_all_that_match_are_counted_before_they_are_cancelled(shop: Served) -> None:
    client = browser(shop)
    shop.call(lambda queue: queue.submit_many([("many", n) for n in range(7)]), "bulk")
    form = {"action": "cancel-all", "kind": "many"}
    page = client.post("/ui/bulk/tasks", data=form).text
    assert "Cancel 7 tasks?" in page
    assert "All that have not ended with kind many" in page
    answer = client.post("/ui/bulk/tasks", data={**form, "confirmed": "yes", "reason": "enough"})
    assert "7 tasks cancelled" in shown(client, answer.headers["location"])
    again = {"action": "replay-all", "kind": "many", "status": "cancelled"}
    assert "Replay 7 tasks?" in client.post("/ui/bulk/tasks", data=again).text
    answer = client.post("/ui/bulk/tasks", data={**again, "confirmed": "yes"})
    assert "7 tasks run again" in shown(client, answer.headers["location"])


def test_what_a_task_left_is_saved_and_never_shown(working: Served) -> None:
    client = browser(working)
    hostile = {
        "name": "a b<script>.html",
        "text": "<script>alert(1)</script>",
        "times": 1,
        "type": "text/html",
    }
    id = working.call(lambda queue: queue.submit("leave", hostile)).id
    eventually(lambda: working.call(lambda queue: queue.get(id)).status == "completed")
    page = shown(client, f"/ui/default/tasks/{id}")
    place = re.search(r'href="(/api/[^"]+artifacts/[^"]+)" download', page)
    assert place is not None
    answer = client.get(place[1])
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.text == "<script>alert(1)</script>"


def test_alarms_come_first_and_say_what_is_wrong(shop: Served) -> None:
    overview = shown(shop.client(), "/ui/default")
    assert overview.index("the last 3 runs have failed") < overview.index("could have begun a minute ago")
    page = shown(shop.client(), "/ui/default/alarms")
    assert "it goes on" in page
    assert "nightly-backup" not in page
    assert "late by 10 minutes, 2 failures in a row" in page
    assert "12 minutes late" in shown(shop.client(), "/ui/default/alarms?over=1")
    assert "the last 3 runs have failed" in shown(shop.client(), "/ui/default/schedules/sync-orders")
    assert "No alarm is open." in shown(shop.client(), "/ui/nobody/alarms")
