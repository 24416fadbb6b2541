"""HTTP tasks against a real server that does what servers do."""

from __future__ import annotations

import json
import resource
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rota
from rota import TaskStatus
from rota.domain.errors import Invalid
from rota.domain.runtimes import HttpRequest, fill, is_signed, signature_headers
from rota.engine.runtimes import http
from runtimes.http_server import Misbehaving
from runtimes.world import Bench


async def test_an_answer_is_kept(bench: Bench) -> None:
    async with Misbehaving().listening() as server:
        done = await bench.http(f"{server.url}/ping")
    assert done.status is TaskStatus.COMPLETED
    assert done.kind == "rota.http"
    assert (done.output["status"], done.output["body"], done.output["redirects"]) == (200, {"ok": True}, 0)
    assert server.asked[0].headers["idempotency-key"] == done.id


async def test_what_is_put_in_is_encoded_for_its_place(bench: Bench) -> None:
    nasty = '/../"&x=1 #ü\r\n'
    async with Misbehaving().listening() as server:
        request = {
            "method": "POST",
            "url": server.url + "/users/{{input.name}}?note={{ input.name }}&n={{input.n}}",
            "headers": {"X-Count": "{{input.n}}"},
            "body": {"whole": "{{input.list}}", "text": "Dear {{input.name}}!", "n": "{{input.n}}"},
        }
        done = await bench.http(request, {"name": nasty, "n": 5, "list": [1, {"a": None}]})
        assert done.status is TaskStatus.COMPLETED, done.error
    (asked,) = server.asked
    encoded = "%2F..%2F%22%26x%3D1%20%23%C3%BC%0D%0A"
    assert asked.path == f"/users/{encoded}?note={encoded}&n=5"
    assert asked.headers["x-count"] == "5"
    assert asked.headers["content-type"] == "application/json"
    expected = {"whole": [1, {"a": None}], "text": f"Dear {nasty}!", "n": 5}
    assert json.loads(asked.body) == expected


async def test_forms_and_plain_text(bench: Bench) -> None:
    async with Misbehaving().listening() as server:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        request = {"method": "POST", "url": server.url, "headers": form, "body": {"a": "{{input.a}}"}}
        await bench.http(request, {"a": "x&b=1"})
        text = {"Content-Type": "text/plain"}
        await bench.http({"method": "PUT", "url": server.url, "headers": text, "body": "as it is"})
    assert [asked.body for asked in server.asked] == [b"a=x%26b%3D1", b"as it is"]


@pytest.mark.parametrize(
    ("input", "sentence"),
    [
        ({}, "BadRequest: input.x: it is not there, and the request asks for it"),
        ({"x": ".."}, "BadRequest: input: it would lead to another path of the url; give no . or .. there"),
        ({"x": "a\r\nEvil: 1"}, "BadRequest: input: the header X-Name cannot hold it; give one line of"),
        (
            {"x": "José"},
            "BadRequest: input: the header X-Name cannot hold it; give one line of printable ASCII",
        ),
    ],
)
async def test_an_input_that_cannot_stand_there_fails_for_good(
    bench: Bench, input: dict[str, Any], sentence: str
) -> None:
    async with Misbehaving().listening() as server:
        request = {"url": server.url + "/{{input.x}}", "headers": {"X-Name": "{{input.x}}"}}
        done = await bench.http(request, input, max_retries=5)
    assert done.status is TaskStatus.FAILED
    assert str(done.error).startswith(sentence)
    assert not server.asked


async def test_private_addresses_are_refused_after_a_redirect(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "is_public", lambda address: address == "127.0.0.1")
    worker = rota.Worker(bench.queue)
    async with Misbehaving().listening() as server:
        place = f"http://127.0.0.2:{server.port}/"
        server.answers["/go"] = f"HTTP/1.1 302 There\r\nLocation: {place}\r\n\r\n".encode()
        made = await bench.queue.create_template(
            None, runtime="http", command=f"{server.url}/go", max_retries=3
        )
        task = await bench.queue.execute_template(made.id)
        await worker.run_once()
        done = await bench.queue.get(task.id)
    await worker.tasks.runtimes.close()
    assert str(done.error).startswith("AddressRefused: 127.0.0.2 is at 127.0.0.2, ")
    assert [each.path for each in server.asked] == ["/go"]


@pytest.mark.parametrize("status", [200, 201, 204, 299])
async def test_2xx_is_a_success(bench: Bench, status: int) -> None:
    async with Misbehaving().listening() as server:
        done = await bench.http(f"{server.url}/status/{status}")
    assert (done.status, done.output["status"]) == (TaskStatus.COMPLETED, status)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
async def test_what_may_pass_is_tried_again(bench: Bench, status: int) -> None:
    async with Misbehaving().listening() as server:
        done = await bench.http(f"{server.url}/status/{status}", max_retries=3)
    assert (done.status, done.retries) == (TaskStatus.PENDING, 1)
    assert str(done.error).startswith(f"HttpStatus: the server answered {status}")
    assert (done.output["status"], done.output["body"]) == (status, "why not")


@pytest.mark.parametrize("status", [304, 400, 401, 403, 404, 409, 410, 422, 451])
async def test_the_rest_fails_for_good(bench: Bench, status: int) -> None:
    async with Misbehaving().listening() as server:
        done = await bench.http(f"{server.url}/status/{status}", max_retries=3)
    assert (done.status, done.output["status"]) == (TaskStatus.FAILED, status)


async def test_retry_after_is_honoured(bench: Bench) -> None:
    at = datetime.now(UTC) + timedelta(hours=2)
    async with Misbehaving().listening() as server:
        soon = await bench.http(f"{server.url}/status/429/120", max_retries=3)
        date = f"{at:%a, %d %b %Y %H:%M:%S GMT}".replace(" ", "%20")
        late = await bench.http(f"{server.url}/status/503/{date}", max_retries=3)
    assert soon.available_at - soon.updated_at == timedelta(seconds=120)
    assert abs(late.available_at - at) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("5", timedelta(seconds=5)),
        ("999999999999", timedelta(days=1)),
        ("Wed, 21 Oct 2015 07:28:00 GMT", timedelta(0)),
        ("Fri, 01 Jan 2100 00:00:00 GMT", timedelta(days=1)),
        ("soon", None),
        ("", None),
        ("-1", None),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999", None),
        ("Mon, 99999999999999999999 Jan 2024 00:00:00 GMT", None),
    ],
)
def test_how_retry_after_is_read(text: str, delay: timedelta | None) -> None:
    assert http._asked_delay(text, datetime(2026, 1, 1, tzinfo=UTC)) == delay


@pytest.mark.parametrize(
    ("path", "patience", "error"), [("close", 60, "RemoteProtocolError"), ("hang", 0.3, "TimeoutError")]
)
async def test_a_server_that_breaks_off_or_hangs_is_tried_again(
    bench: Bench, path: str, patience: float, error: str
) -> None:
    async with Misbehaving().listening() as server:
        done = await bench.http(f"{server.url}/{path}", max_retries=3, timeout=patience)
    assert (done.status, done.retries) == (TaskStatus.PENDING, 1)
    assert done.error is not None
    assert done.error.type == error


async def test_a_server_that_is_not_there_is_tried_again(bench: Bench) -> None:
    async with Misbehaving().listening() as server:
        url = server.url
    done = await bench.http(url, max_retries=3)
    assert (done.status, str(done.error)) == (
        TaskStatus.PENDING,
        "ConnectError: All connection attempts failed",
    )


async def test_a_large_answer_is_bounded(bench: Bench) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with Misbehaving().listening() as server:
        done = await bench.http(f"{server.url}/large")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (len(done.output["body"]), done.output["is_whole"]) == (http.KEPT, False)
    assert after - before < 50 * 1024


@pytest.mark.parametrize(
    "body",
    [b"9" * 30, b'{"a": [1e5, -9223372036854775809]}', b"[" * 64 + b"]" * 64, b"[" * 9000 + b"]" * 9000],
)
@pytest.mark.parametrize("status", [200, 404])
async def test_json_that_no_record_can_hold_is_kept_as_text(bench: Bench, body: bytes, status: int) -> None:
    async with Misbehaving().listening() as server:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        server.answers["/odd"] = head.encode() + body
        done = await bench.http(f"{server.url}/odd", max_retries=2)
    assert done.status is (TaskStatus.COMPLETED if status == 200 else TaskStatus.FAILED)
    assert done.output["body"] == body.decode()


async def test_redirects_are_counted(bench: Bench) -> None:
    async with Misbehaving().listening() as server:
        done = await bench.http(f"{server.url}/redirect/3")
        assert (done.output["redirects"], server.asked[-1].path) == (3, "/landed")
        done = await bench.http({"url": f"{server.url}/redirect/3", "max_redirects": 2}, max_retries=5)
    assert (done.status, str(done.error)) == (TaskStatus.FAILED, "TooManyRedirects: more than 2 redirects")


@pytest.mark.parametrize(
    ("status", "method", "body"),
    [(301, "GET", b""), (303, "GET", b""), (307, "POST", b"[1]"), (308, "POST", b"[1]")],
)
async def test_what_a_redirect_makes_of_a_post(bench: Bench, status: int, method: str, body: bytes) -> None:
    async with Misbehaving().listening() as server:
        await bench.http({"method": "POST", "url": f"{server.url}/to/{status}//landed", "body": [1]})
    asked = server.asked[-1]
    assert (asked.method, asked.body, asked.path) == (method, body, "/landed")


async def test_secrets_are_sent_and_never_stored(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SECRET_TOKEN", "s3cr3t")
    monkeypatch.setenv("OTHER", "not for templates")
    async with Misbehaving().listening() as server:
        server.answers["/echo"] = (
            b"HTTP/1.1 400 No\r\nContent-Length: 12\r\nX-Token: s3cr3t\r\n\r\nyour s3cr3t!"
        )
        request = {"url": f"{server.url}/echo", "headers": {"Authorization": "Bearer secret:TOKEN"}}
        done = await bench.http(request, {"x": "secret:TOKEN"})
    assert server.asked[0].headers["authorization"] == "Bearer s3cr3t"
    assert done.output["body"] == "your ***!"
    assert "s3cr3t" not in repr(done)
    missing = await bench.http({"url": "http://127.0.0.1:9/", "headers": {"X": "secret:OTHER"}})
    assert str(missing.error) == "NoSecret: ROTA_SECRET_OTHER is not set where the worker runs"


async def test_secrets_are_found_however_the_answer_repeats_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_SECRET_SHORT", "key")
    monkeypatch.setenv("ROTA_SECRET_LONG", 'key/+"x')
    escaped = rb'{"you sent": ["key\/+\"x"], "\u006bey\/+\"x": 1}'
    cut = b"x" * (http.KEPT - 3) + b'key/+"x' + b"x" * http.KEPT
    async with Misbehaving().listening() as server:
        for place, type, body in (("/a", "application/json", escaped), ("/b", "text/plain", cut)):
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {type}\r\nContent-Length: {len(body)}\r\n\r\n"
            server.answers[place] = head.encode() + body
        headers = {"X-A": "secret:SHORT", "X-B": "secret:LONG"}
        told, large = [
            await bench.http({"url": f"{server.url}{place}", "headers": headers}) for place in ("/a", "/b")
        ]
    assert told.output["body"] == {"you sent": ["***"], "***": 1}
    assert large.output["body"] == "x" * (http.KEPT - 3) + "***"


@pytest.mark.parametrize("value", ["from a file\n", "pässword"])
async def test_a_secret_that_no_header_can_hold_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("ROTA_SECRET_TOKEN", value)
    async with Misbehaving().listening() as server:
        done = await bench.http({"url": server.url, "headers": {"Authorization": "Bearer secret:TOKEN"}})
    assert str(done.error).startswith(
        "BadRequest: secret:TOKEN: the header Authorization cannot hold it; give one"
    )
    assert value not in str(done)


async def test_blanks_around_a_header_are_left_out(bench: Bench) -> None:
    async with Misbehaving().listening() as server:
        done = await bench.http({"url": server.url, "headers": {"X-Name": " {{input.x}} "}}, {"x": " Ada "})
    assert done.status is TaskStatus.COMPLETED
    assert server.asked[0].headers["x-name"] == "Ada"


async def test_what_an_input_says_is_no_secret(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SECRET_TOKEN", "s3cr3t")
    async with Misbehaving().listening() as server:
        await bench.http({"url": server.url, "headers": {"X": "{{input.x}}"}}, {"x": "secret:TOKEN"})
    assert server.asked[0].headers["x"] == "secret:TOKEN"


async def test_no_secret_goes_to_another_server(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SECRET_TOKEN", "s3cr3t")
    async with Misbehaving().listening() as first, Misbehaving().listening() as second:
        first.answers["/go"] = (
            f"HTTP/1.1 307 There\r\nLocation: {second.url}/x\r\nContent-Length: 0\r\n\r\n".encode()
        )
        headers = {"X-Key": "secret:TOKEN", "X-Plain": "1"}
        request = {"url": f"{first.url}/go", "headers": headers, "signing_secret": "secret:TOKEN"}
        await bench.http(request)
    assert first.asked[0].headers["x-key"] == "s3cr3t"
    assert "webhook-signature" in first.asked[0].headers
    assert not {"x-key", "webhook-signature"} & second.asked[0].headers.keys()
    assert second.asked[0].headers["x-plain"] == "1"


async def test_a_signature_can_be_verified(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    monkeypatch.setenv("ROTA_SECRET_HOOK", secret)
    async with Misbehaving().listening() as server:
        request = {"method": "POST", "url": server.url, "body": {"a": 1}, "signing_secret": "secret:HOOK"}
        done = await bench.http(request)
    (asked,) = server.asked
    assert asked.headers["webhook-id"] == done.id
    assert rota.verify_signature(secret, asked.headers, asked.body)
    assert not rota.verify_signature(secret, asked.headers, asked.body + b" ")
    assert not rota.verify_signature("other", asked.headers, asked.body)
    assert not rota.verify_signature(secret, {}, asked.body)
    old = {**asked.headers, "webhook-timestamp": "1"}
    assert not rota.verify_signature(secret, old, asked.body)


def test_the_example_of_the_standard() -> None:
    """From standardwebhooks.com: others make and check the same signatures."""
    secret, at = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", datetime.fromtimestamp(1614265330, UTC)
    made = signature_headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', at)
    assert made["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert is_signed(secret, made, b'{"test": 2432232314}', at)


async def test_private_addresses_are_refused(bench: Bench) -> None:
    worker = rota.Worker(bench.queue)
    async with Misbehaving().listening() as server:
        for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
            made = await bench.queue.create_template(
                None, runtime="http", command=f"http://{host}:{server.port}/", max_retries=3
            )
            task = await bench.queue.execute_template(made.id)
            await worker.run_once()
            done = await bench.queue.get(task.id)
            assert done.status is TaskStatus.FAILED
            assert str(done.error).startswith(f"AddressRefused: {host.strip('[]')} is at ")
    await worker.tasks.runtimes.close()
    assert not server.asked


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "::127.0.0.1",
        "::ffff:0:7f00:1",
        "64:ff9b:1::7f00:1",
        "fec0::1",
        "3fff::1",
        "192.0.0.192",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not http.is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_that_are_public(address: str) -> None:
    assert http.is_public(address)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("ftp://example.com/", "command.url: 'ftp://example.com/' is not a URL"),
        ("example.com", "command.url: 'example.com' is not a URL"),
        ("https://{{input.host}}/", "command.url: its host is a placeholder"),
        ("https://a.{{input.host}}.com/", "command.url: its host is a placeholder"),
        ("https://user:pass@example.com/", "command.url: it holds credentials"),
        ("https://example.com/a#b", "command.url: it holds a blank, a # or"),
        ("FETCH https://example.com/", "command.method: "),
        ({"url": "https://e.com", "method": "GET\n"}, "command.method: "),
        (
            "https://e.com/{{input.x",
            "command.url: it holds a { that belongs to no placeholder; accepted are {{input}}",
        ),
        (
            "https://e.com/{input.x}",
            "command.url: it holds a { that belongs to no placeholder; accepted are {{input}}",
        ),
        (
            "https://e.com/?key=secret:A",
            "command.url: 'secret:A' would be sent as it is; secrets stand in headers only",
        ),
        (
            {"url": "https://e.com", "body": {"a": ["secret:A"]}},
            "command.body: 'secret:A' would be sent as it is",
        ),
        ({"url": "https://e.com", "signing_secret": "secret:A\n"}, "command.signing_secret: "),
        (
            "https://example.com/{{ output.x }}",
            "command: '{{ output.x }}' is not a placeholder; accepted are",
        ),
        ({"url": "https://e.com", "body": {"a": ["{{x}}"]}}, "command: '{{x}}' is not a placeholder"),
        ({"url": "https://e.com", "headers": {"Host": "x"}}, "command.headers: 'Host' cannot be set"),
        ({"url": "https://e.com", "headers": {"A B": "x"}}, "command.headers: 'A B' cannot be set"),
        (
            {"url": "https://e.com", "headers": {"Webhook-Id": "x"}, "signing_secret": "secret:A"},
            "command.headers: 'Webhook-Id' cannot be set",
        ),
        ({"url": "https://e.com", "headers": {"A": "x\r\ny"}}, "command.headers: A is not one line"),
        ({"url": "https://e.com", "max_redirects": 99}, "command.max_redirects: "),
        (
            {"url": "https://e.com", "signing_secret": "plain"},
            "command.signing_secret: expected a text such as secret:NAME",
        ),
        (
            {
                "url": "https://e.com",
                "headers": {"content-type": "text/xml"},
                "body": "<a>{{input.x}}</a>",
            },
            "command.body: a body that is plain text has no placeholders",
        ),
        (5, "command: 5 is not accepted; give a URL, or an object"),
        (["https://e.com"], "command: ['https://e.com'] is not accepted; give a URL"),
    ],
)
async def test_a_request_that_cannot_be_is_refused(bench: Bench, command: Any, sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        await bench.queue.create_template("x", runtime="http", command=command)
    assert str(refused.value).startswith(sentence)


async def test_a_body_may_mention_a_secret(bench: Bench) -> None:
    await bench.queue.create_template(
        "x", runtime="http", command={"url": "https://e.com", "body": "ask for secret:A, please"}
    )


def test_a_method_may_stand_before_the_url() -> None:
    request = HttpRequest(url="https://example.com/{{input}}", method="POST")
    assert fill(request, 5, {}).url == "https://example.com/5"
