"""Artifacts over HTTP: listed, streamed, in ranges, and never taken for a page."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import httpx
import pytest

from http_world import Tenant, eventually, problem
from rota.surfaces.http.tenants import answers
from v1_world import shaped

TEXT = "0123456789"
TIMES = 300_000
BODY = (TEXT * TIMES).encode()
"""More than a piece of any store."""
ETAG = f'"{sha256(BODY).hexdigest()}"'


def left(tenant: Tenant, name: str = "digits.txt", times: int = TIMES, **more: Any) -> str:
    """The path of the artifacts of a task that left this."""
    input = {"name": name, "text": TEXT, "times": times, **more}
    id = tenant.post("task-executions", {"kind": "leave", "input": input})["id"]
    eventually(lambda: tenant.get(f"task-executions/{id}")["status"] == "completed")
    return f"task-executions/{id}/artifacts"


def fetch(tenant: Tenant, path: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return tenant.http.get(tenant.path(path), headers=named)


def test_what_a_task_left_is_listed_and_fetched(tenant: Tenant) -> None:
    path = left(tenant)
    found = tenant.get(path)
    shaped(answers.FilesAnswer, found)
    shaped(answers.FileAnswer, found["items"][1])
    assert [each["name"] for each in found["items"]] == ["result", "digits.txt"]
    assert found["items"][1]["mediaType"] == "text/plain; charset=utf-8"
    assert found["items"][1]["digest"] == sha256(BODY).hexdigest()
    answer = fetch(tenant, f"{path}/digits.txt")
    assert answer.status_code == 200
    assert answer.content == BODY
    expected = {
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(BODY)),
        "content-disposition": "attachment; filename=\"digits.txt\"; filename*=UTF-8''digits.txt",
        "x-content-type-options": "nosniff",
        "content-security-policy": "sandbox; default-src 'none'",
        "accept-ranges": "bytes",
        "etag": ETAG,
    }
    assert {name: answer.headers[name] for name in expected} == expected
    assert fetch(tenant, f"{path}/result").json() == "left"
    head = tenant.http.head(tenant.path(f"{path}/digits.txt"))
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(BODY)), b"")
    for known in (ETAG, f'"other", {ETAG}', "*"):
        assert fetch(tenant, f"{path}/digits.txt", if_none_match=known).status_code == 304, known


def test_ranges(tenant: Tenant) -> None:
    path = f"{left(tenant)}/digits.txt"
    size = len(BODY)
    for wanted, (start, stop) in {
        "bytes=0-0": (0, 1),
        "bytes=5-14": (5, 15),
        f"bytes={1024 * 1024 - 3}-{1024 * 1024 + 3}": (1024 * 1024 - 3, 1024 * 1024 + 4),
        "bytes=2999990-": (2_999_990, size),
        "bytes=2999990-99999999": (2_999_990, size),
        "bytes=-7": (size - 7, size),
    }.items():
        answer = fetch(tenant, path, range=wanted)
        assert (answer.status_code, answer.content) == (206, BODY[start:stop])
        assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
    for whole in ("bytes=0-1,3-4", "lines=1-2", "bytes=-", "bytes=9-3", f"bytes=-{size + 5}"):
        answer = fetch(tenant, path, range=whole)
        assert (answer.status_code, len(answer.content)) == (200, size), whole
    assert fetch(tenant, path, range="bytes=0-1", if_range='"other"').status_code == 200
    assert fetch(tenant, path, range="bytes=0-1", if_range=ETAG).status_code == 206
    for outside in (f"bytes={size}-", "bytes=-0"):
        answer = fetch(tenant, path, range=outside)
        assert problem(answer, 416, "no_such_range")["field"] == "Range"
        assert answer.headers["content-range"] == f"bytes */{size}"


@pytest.mark.parametrize(
    ("name", "plain", "encoded"),
    [
        ('a"b%.html', "a_b_.html", "a%22b%25.html"),
        ("Größe; x=1.txt", "Gr__e; x=1.txt", "Gr%C3%B6%C3%9Fe%3B%20x%3D1.txt"),
        ("page.html", "page.html", "page.html"),
    ],
)
def test_a_browser_saves_it_and_shows_no_page(tenant: Tenant, name: str, plain: str, encoded: str) -> None:
    path = left(tenant, name, times=1, type="text/html")
    answer = tenant.http.get(tenant.path(f"{path}/{encoded}"))
    assert (answer.status_code, answer.content) == (200, TEXT.encode())
    assert answer.headers["content-type"] == "text/html"
    said = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
    assert answer.headers["content-disposition"] == said


def test_who_may_and_what_is_not_there(tenant: Tenant) -> None:
    path = left(tenant, times=1)
    other = Tenant(tenant.server)
    for there in (path, f"{path}/digits.txt"):
        problem(fetch(other, there), 404, "not_found")
        crossing = other.http.get(tenant.path(there))
        assert crossing.status_code in (403, 404)
        assert tenant.server.client().get(tenant.path(there)).status_code == 401
    viewer = tenant.server.client(tenant.server.key(tenant.name, "viewer", "eyes"))
    assert viewer.get(tenant.path(f"{path}/digits.txt")).text == TEXT
    assert (
        "there is no artifact 'nothing'"
        in problem(fetch(tenant, f"{path}/nothing"), 404, "not_found")["detail"]
    )
    for hostile in ("..%2f..%2fkeys", "..%5Ckeys", "%2e%2e%2f", "a%0d%0aX: y"):
        assert problem(fetch(tenant, f"{path}/{hostile}"), 422, "invalid")["field"] == "name"


def test_content_that_is_missing_is_said_before_the_answer_begins(tenant: Tenant) -> None:
    path = left(tenant)
    id = path.split("/")[1]
    opened = tenant.call(lambda queue: queue.open_artifact(id, "digits.txt"))
    tenant.call(lambda queue: queue.store.contents.delete([opened.artifact.content]))
    problem(fetch(tenant, f"{path}/digits.txt"), 500, "corrupt")
