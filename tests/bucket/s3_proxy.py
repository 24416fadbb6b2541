"""A proxy before the S3 server that does to requests what networks and services do: answers lost, refused, repeated."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Plan = Callable[[str, str, int], str | None]
"""(method, path, how many of this method came before) -> what to do: None (pass it on), "cut" (pass it on, then cut
the connection), "500 after" (pass it on, then say 500), or a status ("503"): say it, without passing it on."""


class Proxy:
    def __init__(self, upstream: str, plan: Plan) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._plan = plan
        self.seen: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words: object) -> None:
                pass

            def _any(self) -> None:
                proxy.handle(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _any  # noqa: N815  the names of http.server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._lock:
            before = sum(1 for method, _ in self.seen if method == request.command)
            self.seen.append((request.command, request.path))
        action = self._plan(request.command, request.path, before)
        if action is not None and action.isdigit():
            return self._answer(request, int(action), {}, b"<Error><Code>Injected</Code></Error>")
        status, headers, answer = self._pass_on(request, body)
        if action == "cut":
            request.close_connection = True
            request.connection.close()
            return None
        if action == "500 after":
            return self._answer(request, 500, {}, b"<Error><Code>InternalError</Code></Error>")
        return self._answer(request, status, headers, answer)

    def _pass_on(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._upstream, timeout=30)
        try:
            connection.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers.items()), answer.read()
        finally:
            connection.close()

    def _answer(
        self, request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes
    ) -> None:
        request.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                request.send_header(name, value)
        length = headers.get("Content-Length", "0") if request.command == "HEAD" else str(len(body))
        request.send_header("Content-Length", length)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        return thread

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def proxied(upstream: str, plan: Plan) -> Iterator[Proxy]:
    proxy = Proxy(upstream, plan)
    thread = proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join()
