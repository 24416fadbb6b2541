"""The HTTP API: POST of a task and GET of a schedule per second, one server process with a key, beside a bare FastAPI
endpoint that inserts the same row in the same database (`http_bare.py`), each driven by the same clients in turn.

Aim: at least 70 % of the bare endpoint. The time that the slowest hundredth of requests took under that load is stated.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import measure
import postgres_rig
import rota

BODY = b'{"kind": "noop", "input": {"number": 1}}'
CRON = {"cron": "0 9 * * *", "timezone": "America/New_York"}


def serve(which: str, address: str, listening: socket.socket) -> None:
    """In a process of its own."""
    import uvicorn

    if which == "bare":
        import http_bare

        api = http_bare.application(address)
    else:
        from rota.surfaces.http import create_app

        api = create_app(address, rate=1_000_000)
    uvicorn.Server(uvicorn.Config(api, log_level="error", loop="uvloop", http="httptools")).run(
        sockets=[listening]
    )


async def _drive(port: int, request: bytes, number: int, clients: int) -> tuple[float, list[float]]:
    """(requests per second, seconds that each took). Keep-alive connections, one request at a time on each."""
    took: list[float] = []

    async def client(share: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(share):
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            status = head.split(b" ", 2)[1]
            assert status in (b"200", b"201"), head
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            took.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client(number // clients) for _ in range(clients)))
    return len(took) / (time.perf_counter() - began), took


def _request(method: str, path: str, key: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {key}"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _seed(address: str) -> str:
    async with rota.connect(address) as queue:
        await queue.create_schedule(
            "daily-report", task_type="report", cron=CRON["cron"], timezone=CRON["timezone"]
        )
        _, key = await queue.create_key("bench", "admin")
    return key


async def _until_up(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return


async def _measured(which: str, address: str, key: str, number: int, clients: int) -> dict[str, Any]:
    """Both routes of one server."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    port = listening.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(which, address, listening))
    process.start()
    listening.close()
    prefix = "" if which == "bare" else "/api/tenants/default"
    post = _request("POST", f"{prefix}/{'tasks' if which == 'bare' else 'task-executions'}", key, BODY)
    get = _request("GET", f"{prefix}/schedules/daily-report", key)
    try:
        await _until_up(port)
        found: dict[str, Any] = {}
        for name, request in (("post", post), ("get", get)):
            await _drive(port, request, 20 * clients, clients)
            rate, took = await _drive(port, request, number, clients)
            found[name] = rate
            found[f"{name}_p99_ms"] = round(measure.percentile(took, 0.99) * 1000, 2)
        return found
    finally:
        process.terminate()
        process.join()


Fresh = Callable[[int], Awaitable[str]]


async def compare(fresh: Fresh, rounds: int, number: int, clients: int) -> dict[str, Any]:
    seen: dict[str, list[dict[str, Any]]] = {"rota": [], "bare": []}
    for turn in range(rounds):
        for which, results in seen.items():
            address = await fresh(turn)
            results.append(await _measured(which, address, await _seed(address), number, clients))
    medians = {
        which: {
            name: round(sorted(each[name] for each in results)[len(results) // 2], 2) for name in results[0]
        }
        for which, results in seen.items()
    }
    shares = {name: measure.ratio(medians["rota"][name], medians["bare"][name]) for name in ("post", "get")}
    return {**medians, "share_of_bare": shares}


def main() -> None:
    given = measure.arguments(__doc__, number=8_000, clients=32, rounds=3)
    results: dict[str, Any] = {"requests": given.number, "clients": given.clients}
    with measure.folder(given.folder) as place:
        numbers = count(1)

        async def sqlite(turn: int) -> str:
            return f"sqlite:///{place}/rota{next(numbers)}.db"

        results["sqlite"] = asyncio.run(compare(sqlite, given.rounds, given.number, given.clients))
    with postgres_rig.server(given.folder) as own:

        async def postgres(turn: int) -> str:
            return await postgres_rig.database(own, "http")

        results["postgres"] = asyncio.run(compare(postgres, given.rounds, given.number, given.clients))
    aims = {
        f"{store}_{name}_at_least_0.7": results[store]["share_of_bare"][name] >= 0.7
        for store in ("sqlite", "postgres")
        for name in ("post", "get")
    }
    measure.report("http", results, aims, given.folder)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
