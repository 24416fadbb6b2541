"""A real server on a real socket, with its own event loop in a thread, and an engine in it if one is asked for."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from rota import App, Queue
from rota.engine.clock import SystemClock
from rota.engine.node import Worker
from rota.stores.base import Store
from rota.surfaces.http import create_app
from rota.surfaces.http.events.live import broadcasts_of
from rota.surfaces.http.server.serving import prepared
from rota.surfaces.stores import make_store

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of servers without TLS: to read the certificates of the machine takes longer than most tests."""


class Served:
    """`url`, clients for it, and `call` to reach the queue behind it."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop, queue: Queue, api: FastAPI) -> None:
        self.url = url
        self.api = api
        self.queue = queue
        self._loop = loop
        self._clients: list[httpx.Client] = []

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        client = httpx.Client(
            base_url=self.url, headers=headers, timeout=60, verify=NO_CERTIFICATES, **options
        )
        self._clients.append(client)
        return client

    def call(self, ask: Callable[[Queue], Any], tenant: str = "default") -> Any:
        """What the queue of a tenant answers, asked behind the server's back."""
        queue = self.queue if tenant == self.queue.tenant else self.queue.for_tenant(tenant)
        return asyncio.run_coroutine_threadsafe(ask(queue), self._loop).result(60)

    def key(self, tenant: str = "default", role: str = "admin", name: str = "tests") -> str:
        made = self.call(lambda q: q.create_key(name, role, every_tenant=tenant == "*"), _or_default(tenant))
        return str(made[1])

    def end_streams(self) -> None:
        """As if the server stopped: whoever listens to events is let go."""
        self._loop.call_soon_threadsafe(broadcasts_of(self.api).end)

    def close(self) -> None:
        for client in self._clients:
            client.close()


def shown(client: httpx.Client, place: str, status: int = 200, **query: str) -> str:
    """A page as a browser has it in the end: one that is being made is asked for again, as it says itself."""
    while True:
        answer = client.get(place, params=query or None)
        assert answer.status_code == status, answer.text[:2000]
        assert answer.headers["content-type"].startswith("text/html")
        if 'http-equiv="refresh" content="1"' not in answer.text:
            return answer.text


def _or_default(tenant: str) -> str:
    return "default" if tenant == "*" else tenant


@contextmanager
def serving(
    address: str, app: App | None = None, *, engine: bool = False, actor: str = "tests", **options: Any
) -> Iterator[Served]:
    """Serve a store until the block ends. `actor` is who does what `call` asks for."""
    ready: threading.Event = threading.Event()
    found: dict[str, Any] = {}

    async def main() -> None:
        store = make_store(address, SystemClock())
        await store.open()
        queue = Queue(store, actor=actor)
        stop = asyncio.Event()
        found.update(loop=asyncio.get_running_loop(), stop=stop, queue=queue)
        try:
            await _serve(store, queue, app, engine, options, found, ready, stop)
        finally:
            await store.close()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            found["error"] = error
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="served", daemon=True)
    thread.start()
    assert ready.wait(120), "the server did not start"
    if "error" in found:
        raise found["error"]
    served = Served(found["url"], found["loop"], found["queue"], found["api"])
    try:
        yield served
    finally:
        served.close()
        found["loop"].call_soon_threadsafe(found["stop"].set)
        thread.join(120)
        assert not thread.is_alive(), "the server did not stop"
        if "error" in found:
            raise found["error"]


async def _serve(
    store: Store,
    queue: Queue,
    app: App | None,
    engine: bool,
    options: dict[str, Any],
    found: dict[str, Any],
    ready: threading.Event,
    stop: asyncio.Event,
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # asyncio does so only where it knows the protocol
    api = found["api"] = create_app(store, app=app, **options)
    server = prepared(api, until=stop)
    serving = asyncio.create_task(server.serve([listening]))
    allow_shell = bool(options.get("allow_shell"))
    worker = Worker(queue, app, all_tenants=True, allow_shell=allow_shell) if engine else None
    working = asyncio.create_task(worker.run(handle_signals=False)) if worker is not None else None
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    found["url"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
    ready.set()
    await stop.wait()
    if worker is not None and working is not None:
        worker.stop()
        await working
    await serving
