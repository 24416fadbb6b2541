"""The pages of the forecast, without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape

import httpx
import pytest

from rota import Queue
from served import Served, serving
from served import shown as html_of

AT = (datetime.now(UTC) + timedelta(hours=6)).replace(minute=0, second=0, microsecond=0)


async def crowd(queue: Queue) -> None:
    for number in range(12):
        await queue.create_schedule(f"s{number}", task_type="work", cron=f"0 {AT.hour} * * *")


@pytest.fixture
def served() -> Iterator[Served]:
    with serving("memory:", rate=100_000) as served:
        served.call(crowd)
        yield served


def shown(client: httpx.Client, place: str, status: int = 200) -> str:
    return unescape(html_of(client, place, status))


def test_a_peak_is_seen_opened_and_spread(served: Served) -> None:
    client = served.client()
    client.headers["Sec-Fetch-Site"] = "same-origin"
    page = shown(client, "/ui/default/forecast?zone=Asia/Kolkata")
    local = AT + timedelta(hours=5, minutes=30)
    assert "12 runs in the next 24 hours. At most 12 in one minute" in page
    reading = f"{local:%a} {local.day} {local:%b} {local:%H:%M}"
    assert f"12 schedules fire at {reading}; spreading 11 of them" in page
    assert f'aria-label="Spread the schedules of {reading}"' in page
    assert page.count('class="heat-5"') in (6, 7), "every day that has this hour still to come"
    [cell] = set(re.findall(r'class="heat-5" href="([^"]+)" aria-label="' + f"{local:%a}", page))
    hour = shown(client, cell)
    assert "12 runs of 12 schedules." in hour
    assert hour.count("not known yet") == 12
    [question] = set(re.findall(r'href="([^"]+/spread\?[^"]+)"', page))
    asked = shown(client, re.sub("over=[0-9]+", "over=10", question))
    assert "Spread 11 schedules</button>" in asked
    form = dict(re.findall(r'name="(at|over|token|zone)" value="([^"]*)"', asked))
    done = client.post("/ui/default/forecast/spread", data=form)
    assert done.status_code == 303
    assert "11 schedules were spread over 10 minutes." in shown(client, done.headers["location"])
    offsets = [each.offset for each in served.call(lambda queue: queue.list_schedules())]
    assert len({each // timedelta(minutes=1) for each in offsets}) == 10, "every minute has one or two"
    again = client.post("/ui/default/forecast/spread", data=form)
    assert "Nothing was done: nothing at" in shown(client, again.headers["location"])


def test_what_cannot_be_shown_says_why(served: Served) -> None:
    client = served.client()
    assert "Nothing is coming within seven days." in shown(client, "/ui/nobody/forecast")
    assert "'soon' is not a time" in shown(client, "/ui/default/forecast/hour?at=soon", 422)
    assert "has passed" in shown(client, "/ui/default/forecast/hour?at=2020-01-01T00:00Z", 422)
    assert "is no number of minutes" in shown(
        client, "/ui/default/forecast/spread?at=2030-01-01T00:00Z&over=x", 422
    )
    quiet = AT + timedelta(hours=1)
    assert "is worth spreading" in shown(
        client, f"/ui/default/forecast/spread?at=2030-01-01T{quiet:%H}:00Z", 409
    )


def test_a_viewer_sees_who_meets_and_no_button(served: Served) -> None:
    key = served.key("default", "viewer")
    client = served.client()
    client.headers["Authorization"] = f"Bearer {key}"
    page = shown(client, "/ui/default/forecast")
    assert "12 schedules fire at" in page
    assert "Spread them" not in page
    shown(client, "/ui/default/forecast/spread?at=2030-01-01T00:00Z", 403)
