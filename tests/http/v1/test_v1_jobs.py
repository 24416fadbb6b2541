"""Jobs: listed, looked at, cancelled, followed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from http_world import eventually
from rota import Queue
from rota.surfaces.http.v1 import answers as answers
from served import Served
from v1_world import Api, shaped


def test_a_job_and_its_artifact(api: Api) -> None:
    task = api.task(parameters={"keep": 2})
    job = api.ended(task.execute())
    shaped(answers.JobAnswer, job)
    assert (job["status"], job["task_id"], job["schedule_id"], job["error"]) == (
        "completed",
        task.id,
        None,
        None,
    )
    assert job["submitted_at"] <= job["started_at"] <= job["finished_at"]
    assert job["artifact"] == {
        "task": {
            "id": task.id,
            "command": "backup_database",
            "task_type": "python",
            "parameters": {"keep": 2},
        },
        "result": {"compressed": False, "kept": 2},
        "error": None,
    }


def test_a_failed_job_has_the_traceback(api: Api) -> None:
    job = api.ended(api.task("broken").execute())
    shaped(answers.JobAnswer, job)
    assert (job["status"], job["error"]) == ("failed", "RuntimeError: the disk is full")
    assert job["artifact"]["result"] is None
    error = job["artifact"]["error"]
    assert (error["type"], error["message"]) == ("RuntimeError", "the disk is full")
    assert "raise RuntimeError" in error["traceback"]


def test_jobs_in_pages(fresh: Served) -> None:
    api = Api(fresh)
    assert api.ask("GET", "jobs") == {"items": [], "total": 0, "page": 1, "size": 20, "pages": 0}
    task = api.task()
    made = [task.execute() for _ in range(5)]
    seen = []
    for number in (1, 2, 3):
        page = api.ask("GET", f"jobs?page={number}&size=2")
        shaped(answers.JobsAnswer, page)
        assert {name: page[name] for name in ("total", "page", "size", "pages")} == {
            "total": 5,
            "page": number,
            "size": 2,
            "pages": 3,
        }
        seen += [job["id"] for job in page["items"]]
    assert seen == made[::-1]
    assert api.ask("GET", "jobs?page=4&size=2")["items"] == []
    api.ask("DELETE", f"jobs/{made[0]}")
    (canceled,) = api.ask("GET", "jobs?status=canceled")["items"]
    assert (canceled["id"], canceled["status"]) == (made[0], "canceled")
    assert api.ask("GET", "jobs?status=pending")["total"] == 4
    fresh.call(lambda queue: queue.archive(made[0]))
    assert api.job(made[0])["status"] == "canceled"


def test_pages_that_lie_far_behind(fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before a page is passed over in portions."""
    monkeypatch.setattr("rota.surfaces.http.v1.jobs.AT_ONCE", 7)
    made = fresh.call(lambda queue: queue.submit_many([("backup_database", None)] * 50))
    expected = sorted((task.id for task in made), reverse=True)
    found = Api(fresh).ask("GET", "jobs?page=5&size=9")["items"]
    assert [job["id"] for job in found] == expected[36:45]
    found = Api(fresh).ask("GET", "jobs?page=6&size=9")["items"]
    assert [job["id"] for job in found] == expected[45:]


@pytest.mark.parametrize("query", ["page=0", "size=0", "size=101", "page=x", "page=501&size=20", "page=1e9"])
def test_what_pages_are_refused(still: Api, query: str) -> None:
    found = still.refused("GET", f"jobs?{query}")
    assert found["field"] == query.partition("=")[0]
    still.ask("GET", "jobs?page=500&size=20")


def test_jobs_that_are_not_there(still: Api) -> None:
    for method, path in (("GET", "jobs/none"), ("DELETE", "jobs/none"), ("GET", "jobs/none/$stream")):
        still.refused(method, path, None, 404, "not_found")


@pytest.mark.parametrize("path", ["jobs/%00", "tasks/%00", "tasks/%00/$schedules/%00", "jobs/%ff/$stream"])
def test_strange_ids(still: Api, path: str) -> None:
    assert still.send("GET", path).status_code in (404, 422)


def test_cancel(api: Api) -> None:
    running = api.task("endless").execute()
    eventually(lambda: api.job(running)["status"] == "running")
    api.ask("DELETE", f"jobs/{running}")
    job = api.ended(running)
    assert (job["status"], job["artifact"]) == ("canceled", None)
    api.refused("DELETE", f"jobs/{running}", None, 409, "already_ended")


@contextmanager
def following(api: Api, id: str) -> Iterator[Iterator[str]]:
    with api.http.stream("GET", f"/api/v1/jobs/{id}/$stream") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no", "a proxy passes each event on"
        yield answer.iter_lines()


def event(lines: Iterator[str]) -> tuple[str, Any]:
    """The next one; comments are passed over."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            return fields["event"], json.loads(fields["data"])
    raise AssertionError("the stream ended")


def test_follow_until_the_end(api: Api) -> None:
    id = api.task("endless").execute()
    eventually(lambda: api.job(id)["status"] == "running")
    with following(api, id) as lines:
        assert event(lines) == ("status", api.job(id))
        api.ask("DELETE", f"jobs/{id}")
        seen = [event(lines)]
        while seen[-1][0] != "end":
            seen.append(event(lines))
        assert list(lines) == []
    shaped(answers.JobAnswer, seen[-1][1])
    assert seen[-1] == ("end", api.job(id))
    assert [job["status"] for name, job in seen if name == "status"][-1] == "canceled"


def test_follow_a_job_that_is_quick_or_over(api: Api) -> None:
    id = api.task().execute()
    for _ in range(2):
        with following(api, id) as lines:
            seen = [event(lines)]
            while seen[-1][0] != "end":
                seen.append(event(lines))
        assert seen[-1] == ("end", api.job(id))
        assert seen[-2] == ("status", api.job(id))
        assert seen[-1][1]["artifact"]["result"] == {"compressed": False, "kept": 7}


def test_follow_sees_each_change(still: Api) -> None:
    """Driven by hand: what is claimed here runs nowhere."""
    id = still.task().execute({"schedule_at": "2099-01-01T00:00:00Z"})
    with following(still, id) as lines:
        assert event(lines)[1]["status"] == "pending"
        still.served.call(lambda queue: queue.submit("other"))
        still.served.call(lambda queue: queue.cancel(id, "not needed"))
        name, job = event(lines)
        assert (name, job["status"], job["error"]) == ("status", "canceled", "not needed")
        assert event(lines) == ("end", job)


def test_follow_sees_a_job_expire(still: Api) -> None:
    soon = timedelta(seconds=4)
    task = still.served.call(lambda queue: queue.submit("backup_database", ttl=soon))
    with following(still, task.id) as lines:
        assert event(lines)[1]["status"] == "pending"
        assert event(lines)[1]["status"] == "expired"
        assert event(lines)[0] == "end"


def test_a_silent_stream_says_that_it_is_there(still: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.surfaces.http.v1.jobs.HEARTBEAT", timedelta(milliseconds=100))
    id = still.task().execute({"schedule_at": "2099-01-01T00:00:00Z"})
    with following(still, id) as lines:
        assert event(lines)[1]["status"] == "pending"
        assert next(line for line in lines if line.startswith(":"))


def test_a_stream_ends_when_the_client_goes_away(still: Api) -> None:
    async def waiting(queue: Queue) -> int:
        names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
        return sum(name.endswith(".wait") and name != "Event.wait" for name in names)  # the server's own

    before = still.served.call(waiting)
    id = still.task().execute({"schedule_at": "2099-01-01T00:00:00Z"})
    with following(still, id) as lines:
        event(lines)
        assert still.served.call(waiting) == before + 1
    eventually(lambda: still.served.call(waiting) == before)
    assert still.job(id)["status"] == "pending"
