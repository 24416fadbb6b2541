"""What clients can hold of the server: real sockets, and clients that are slow, rude or broken. Whatever one of them
does, others are answered meanwhile, and in the end nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import uvloop

from rota.surfaces.http.server import serving
from rota.surfaces.http.server.protocol import BoundedH11, ConnectionLimits
from rota.surfaces.listening import find, listen

PATIENCE = 60
SOON = timedelta(seconds=0.3)
LARGE = 64 * 1024 * 1024
END = b"0\r\n\r\n"


class Site:
    """A small application, and what it saw."""

    def __init__(self) -> None:
        self.begun = 0
        self.running = 0
        self.go_on = asyncio.Event()
        self.changed = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for word in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{word}.complete"})
            return
        self._count(1)
        try:
            await getattr(self, scope["path"].strip("/") or "hello")(scope, receive, send)
        finally:
            self._count(-1)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    def _count(self, by: int) -> None:
        self.begun += max(by, 0)
        self.running += by
        self.changed.set()

    async def hello(self, scope: Any, receive: Any, send: Any) -> None:
        await answer(send, b"hello")

    async def echo(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        await answer(send, b"%d" % len(body))

    async def wait(self, scope: Any, receive: Any, send: Any) -> None:
        await self.go_on.wait()
        await answer(send, b"waited")

    async def large(self, scope: Any, receive: Any, send: Any) -> None:
        await answer(send, bytes(LARGE))

    async def endless(self, scope: Any, receive: Any, send: Any) -> None:
        """Says the same again and again, as long as someone is there."""
        gone = asyncio.create_task(self._gone(receive))
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while not gone.done():
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
            await asyncio.sleep(0)

    async def quiet(self, scope: Any, receive: Any, send: Any) -> None:
        """A stream in which nothing happens."""
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b": begun\n\n", "more_body": True})
        await self._gone(receive)

    @staticmethod
    async def _gone(receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


async def answer(send: Any, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hear(self, what: bytes) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readuntil(what)

    async def hear_all(self) -> bytes:
        """Until the server closes."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.read()

    async def closed(self) -> None:
        """The server closed, with or without a last word, or reset the connection."""
        with suppress(ConnectionError):
            await self.hear_all()


class Served:
    def __init__(self, site: Site, port: int, stop: asyncio.Event) -> None:
        self.site = site
        self.port = port
        self.stop = stop
        self._clients: list[Client] = []

    async def client(self, **options: Any) -> Client:
        made = Client(*await asyncio.open_connection("127.0.0.1", self.port, **options))
        self._clients.append(made)
        return made

    async def asks(self, request: bytes) -> bytes:
        """All that comes back for these bytes on a new connection, until it is closed."""
        client = await self.client()
        client.say(request)
        said = await client.hear_all()
        client.writer.close()
        return said

    async def still_answers(self) -> None:
        assert (await self.asks(get("/hello", "Connection: close"))).endswith(b"hello")

    async def leave(self) -> None:
        for client in self._clients:
            client.writer.close()
        await asyncio.gather(*(c.writer.wait_closed() for c in self._clients), return_exceptions=True)


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def problem(said: bytes) -> tuple[int, str]:
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert b"connection: close" in head.lower()
    document = json.loads(body)
    assert head.startswith(b"HTTP/1.1 %d " % document["status"])
    return document["status"], document["code"]


@asynccontextmanager
async def served(**limits: Any) -> AsyncIterator[Served]:
    site, stop = Site(), asyncio.Event()
    before = sockets()
    listening = listen(find("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = serving.prepared(site, until=stop, limits=ConnectionLimits(**limits))
    serve = asyncio.create_task(server.serve([listening]))
    made = Served(site, port, stop)
    try:
        yield made
    finally:
        await made.leave()
        stop.set()
        async with asyncio.timeout(PATIENCE):
            await serve
    assert site.running == 0
    assert len(asyncio.all_tasks()) == 1
    async with asyncio.timeout(PATIENCE):
        while sockets() > before:  # uvloop closes them in its own time
            await asyncio.sleep(0.01)


def sockets() -> int:
    """How many this process has open."""
    found = 0
    for entry in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{entry}").startswith("socket:")
    return found


_loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
_chosen = "asyncio"


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=_loops[_chosen]) as runner:
        runner.run(work)


@pytest.fixture(params=_loops, autouse=True)
def loop(request: pytest.FixtureRequest) -> Iterator[str]:
    """`rota serve` runs on uvloop, `rota up` does not."""
    global _chosen
    _chosen = request.param
    yield _chosen
    _chosen = "asyncio"


@pytest.fixture(params=["httptools", "h11"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "h11":
        monkeypatch.setattr(serving, "protocol", lambda limits: partial(BoundedH11, limits=limits))
    return str(request.param)


@pytest.mark.usefixtures("parser")
class TestEitherParser:
    def test_proper_requests(self) -> None:
        async def main() -> None:
            async with served() as server:
                client = await server.client()
                client.say(get("/hello"))
                assert (await client.hear(b"hello")).startswith(b"HTTP/1.1 200 OK")
                client.say(get("/hello", "Connection: close"))
                assert b"connection: close" in (await client.hear_all()).lower()
                head = await server.asks(get("/hello", "Connection: close", method="HEAD"))
                assert b"content-length: 5" in head
                assert head.endswith(b"\r\n\r\n")
                assert (await server.asks(b"GET /hello HTTP/1.0\r\n\r\n")).endswith(b"hello")

        run(main())

    def test_pipelined_requests_are_answered_in_their_order(self) -> None:
        async def main() -> None:
            async with served() as server:
                client = await server.client()
                ask = get("/echo", "Content-Length: 3", method="POST") + b"abc"
                client.say(ask + get("/hello") + ask + get("/hello", "Connection: close"))
                said = await client.hear_all()
                bodies = [part.split(b"HTTP/1.1")[0] for part in said.split(b"\r\n\r\n")[1:]]
                assert bodies == [b"3", b"hello", b"3", b"hello"]

        run(main())

    def test_headers_that_never_end(self) -> None:
        async def main() -> None:
            async with served(head=SOON) as server:
                slow = await server.client()
                sending = asyncio.create_task(drip(slow, get("/hello", "X-Long: " + "a" * 100_000)))
                await server.still_answers()
                assert problem(await slow.hear_all()) == (408, "too_slow")
                sending.cancel()
                await server.still_answers()

        run(main())

    def test_a_connection_on_which_nothing_comes(self) -> None:
        async def main() -> None:
            async with served(head=SOON) as server:
                silent = [await server.client() for _ in range(50)]
                blank = await server.client()
                blank.say(b"\r\n")
                await server.still_answers()
                assert [await each.hear_all() for each in silent] == [b""] * 50
                await blank.closed()

        run(main())

    @pytest.mark.parametrize("length", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
    def test_a_body_that_never_comes(self, length: str) -> None:
        async def main() -> None:
            async with served(body=SOON) as server:
                slow = await server.client()
                slow.say(get("/echo", length, method="POST"))
                await server.site.until(lambda: server.site.running == 1)
                await server.still_answers()
                assert problem(await slow.hear_all()) == (408, "too_slow")
                await server.site.until(lambda: server.site.running == 0)

        run(main())

    def test_a_body_that_comes_byte_by_byte(self) -> None:
        async def main() -> None:
            async with served(body=SOON) as server:
                slow = await server.client()
                slow.say(get("/echo", "Content-Length: 100000", method="POST"))
                sending = asyncio.create_task(drip(slow, b"a" * 100_000))
                assert problem(await slow.hear_all()) == (408, "too_slow")
                sending.cancel()

        run(main())

    def test_a_large_body_is_read_however_long_it_takes_us(self) -> None:
        async def main() -> None:
            async with served() as server:
                size = 5_000_000
                ask = get("/echo", f"Content-Length: {size}", "Connection: close", method="POST")
                assert (await server.asks(ask + bytes(size))).endswith(b"\r\n\r\n5000000")

        run(main())

    @pytest.mark.parametrize("path", ["/large", "/endless"])
    def test_a_client_that_does_not_read_its_answer(self, path: str) -> None:
        async def main() -> None:
            async with served(unread=SOON) as server:
                deaf = deaf_client(server.port)
                deaf.sendall(get(path))
                await server.site.until(lambda: server.site.begun == 1)
                await server.still_answers()
                await until_reset(deaf)
                await server.site.until(lambda: server.site.running == 0)

        run(main())

    def test_an_answer_that_is_not_read_holds_no_connection_that_ends(self) -> None:
        """The application is done with it, the connection closes; what the client does not take is dropped."""

        async def main() -> None:
            async with served(unread=SOON) as server:
                deaf = deaf_client(server.port)
                deaf.sendall(get("/large", "Connection: close"))
                await server.site.until(lambda: server.site.begun == 1)
                await until_reset(deaf)

        run(main())

    def test_an_idle_connection_is_closed(self) -> None:
        async def main() -> None:
            async with served(idle=SOON) as server:
                idle = await server.client()
                idle.say(get("/hello"))
                await idle.hear(b"hello")
                blank = await server.client()
                blank.say(get("/hello"))
                await blank.hear(b"hello")
                sending = asyncio.create_task(drip(blank, b"\r\n" * 50_000))
                assert await idle.hear_all() == b""
                await blank.closed()
                sending.cancel()

        run(main())

    def test_more_connections_than_are_accepted(self) -> None:
        async def main() -> None:
            async with served(connections=10) as server:
                held = [await server.client() for _ in range(10)]
                for client in held:
                    client.say(get("/hello"))
                    await client.hear(b"hello")
                said = await server.asks(get("/hello"))
                assert problem(said) == (503, "too_many_connections")
                assert b"retry-after: 1" in said.lower()
                held[0].writer.close()
                await held[0].writer.wait_closed()
                await self.answered_in_the_end(server)
                held[1].say(get("/hello"))
                await held[1].hear(b"hello")

        run(main())

    async def answered_in_the_end(self, server: Served) -> None:
        async with asyncio.timeout(PATIENCE):
            while not (await server.asks(get("/hello", "Connection: close"))).endswith(b"hello"):
                await asyncio.sleep(0)

    @pytest.mark.parametrize(
        "garbage",
        [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a handshake of TLS",
            b"HELO example.com\r\n\r\n",
            b"GET /hello HTTP/1.1\r\nHost: a\r\nContent-Length: abc\r\n\r\n",
            b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
            b"GET /hel\x00lo HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /hello HTTP/1.1\r\nHost: a\r\nBad Header\r\n\r\n",
        ],
    )
    def test_garbage(self, garbage: bytes) -> None:
        async def main() -> None:
            async with served() as server:
                assert problem(await server.asks(garbage)) == (400, "malformed")
                await server.still_answers()

        run(main())

    def test_garbage_after_a_proper_request_is_refused_after_its_answer(self) -> None:
        async def main() -> None:
            async with served() as server:
                client = await server.client()
                client.say(get("/wait") + b"rubbish\r\n\r\n")
                await server.site.until(lambda: server.site.running == 1)
                server.site.go_on.set()
                first = await client.hear(b"waited")
                assert first.startswith(b"HTTP/1.1 200")
                assert problem(await client.hear_all()) == (400, "malformed")

        run(main())

    def test_clients_that_leave_in_the_middle(self) -> None:
        async def main() -> None:
            async with served() as server:
                for begun in (b"GET /hel", get("/echo", "Content-Length: 10", method="POST") + b"abc"):
                    client = await server.client()
                    client.say(begun)
                    await client.writer.drain()
                    client.writer.close()
                for path in ("/endless", "/quiet"):
                    client = await server.client()
                    client.say(get(path))
                    await client.hear(b"\r\n\r\n")
                    client.writer.transport.abort()
                await server.site.until(lambda: server.site.running == 0)
                await server.still_answers()

        run(main())

    def test_stopping_ends_streams_and_lets_answers_finish(self) -> None:
        async def main() -> None:
            async with served() as server:
                stream, asked, idle, half = [await server.client() for _ in range(4)]
                stream.say(get("/quiet"))
                await stream.hear(b": begun\n\n")
                asked.say(get("/wait"))
                idle.say(get("/hello"))
                await idle.hear(b"hello")
                half.say(b"GET /hel")
                await server.site.until(lambda: server.site.running == 2)
                server.stop.set()
                assert (await stream.hear_all()).endswith(END)
                assert await idle.hear_all() == b""
                await half.closed()
                with pytest.raises(ConnectionError):
                    await server.client()
                server.site.go_on.set()
                assert (await asked.hear_all()).endswith(b"waited")

        run(main())


async def drip(client: Client, data: bytes) -> None:
    """Byte by byte, for as long as it is let."""
    for byte in data:
        client.say(bytes([byte]))
        await asyncio.sleep(0.002)


def deaf_client(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    made.setblocking(False)
    return made


async def until_reset(client: socket.socket) -> None:
    """Without reading: sooner or later there is nobody to write to."""
    async with asyncio.timeout(PATIENCE):
        with client, suppress(ConnectionError):
            while True:
                client.send(b"\r\n")
                await asyncio.sleep(0.02)


# What only httptools leaves to us


def test_heads_that_are_too_large() -> None:
    async def main() -> None:
        async with served() as server:
            for head in (
                b"GET /hello HTTP/1.1\r\nX-Long: " + b"a" * 100_000,
                b"GET /" + b"a" * 100_000,
                b"GET /hello HTTP/1.1\r\n" + b"X-Many: a\r\n" * 10_000,
            ):
                assert problem(await server.asks(head)) == (431, "headers_too_large")
            long = get("/" + "a" * 70_000)
            assert problem(await server.asks(long)) in ((414, "address_too_long"), (431, "headers_too_large"))
            await server.still_answers()

    run(main())


def test_trailers_and_framing_without_end() -> None:
    async def main() -> None:
        async with served() as server:
            begin = get("/echo", "Transfer-Encoding: chunked", method="POST")
            for endless in (b"0\r\n" + b"X-Trailer: a\r\n" * 50_000, b"1;" + b"x" * 500_000):
                client = await server.client()
                client.say(begin)
                await server.site.until(lambda: server.site.running == 1)
                client.say(endless)
                assert problem(await client.hear_all()) == (400, "malformed")
                await server.site.until(lambda: server.site.running == 0)

    run(main())


def test_more_pipelined_requests_than_are_accepted() -> None:
    async def main() -> None:
        async with served(pipelined=5) as server:
            client = await server.client()
            client.say(get("/hello") * 1_000)
            said = await client.hear_all()
            assert said.count(b"HTTP/1.1 200") == 6
            assert problem(said[said.rindex(b"HTTP/1.1") :]) == (400, "too_many_at_once")

    run(main())


def test_a_stream_with_a_request_behind_it_ends_when_the_client_leaves() -> None:
    async def main() -> None:
        async with served() as server:
            client = await server.client()
            client.say(get("/quiet") + get("/hello"))
            await client.hear(b": begun\n\n")
            client.writer.transport.abort()
            await server.site.until(lambda: server.site.running == 0)

    run(main())


def test_a_body_that_nobody_reads_is_swallowed_and_the_connection_goes_on() -> None:
    async def main() -> None:
        async with served() as server:
            client = await server.client()
            client.say(get("/hello", "Content-Length: 10", method="POST"))
            await client.hear(b"hello")
            client.say(b"0123456789" + get("/hello"))
            await client.hear(b"hello")
        async with served(linger=SOON) as server:
            client = await server.client()
            client.say(get("/hello", "Content-Length: 10", method="POST"))
            await client.hear(b"hello")
            assert await client.hear_all() == b""

    run(main())
