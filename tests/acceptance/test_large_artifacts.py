"""A file of 100 MB goes into a store and out of it in pieces: the process never holds all of it."""

from __future__ import annotations

import asyncio
import re
from hashlib import sha256
from pathlib import Path

import pytest

import rota
import stores
from rota.surfaces.http import create_app
from worlds import THOROUGH

MEGABYTE = 1024 * 1024
SIZE = 100 * MEGABYTE
MOST = 60 * MEGABYTE
"""What a process may need on top of what it has: parts of the file on their way, several of them at once on S3."""


def memory(which: str) -> int:
    found = re.search(rf"{which}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


class Peak:
    """By how much the process grew, at most, since this was made."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        self._before = memory("VmRSS")

    @property
    def growth(self) -> int:
        return memory("VmHWM") - self._before


async def served(queue: rota.Queue, path: str) -> tuple[int, str]:
    """The size and the digest of what the HTTP API sends, taken piece by piece."""
    api = create_app(queue.store, metrics=False)
    _, key = await queue.create_key("tests", "viewer")
    size, digest = 0, sha256()

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError("nobody disconnects")

    async def send(message: dict[str, object]) -> None:
        nonlocal size
        body = message.get("body", b"")
        assert isinstance(body, bytes)
        size += len(body)
        digest.update(body)
        assert message.get("status", 200) == 200

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"authorization", f"Bearer {key}".encode()), (b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await api(scope, receive, send)  # type: ignore[arg-type]  # ASGI's own types are looser than Starlette's
    return size, digest.hexdigest()


@pytest.mark.long
@pytest.mark.parametrize("store", stores.ADDRESSES if THOROUGH else ["sqlite"])
def test_a_hundred_megabytes_pass_through_in_pieces(store: str, tmp_path: Path) -> None:
    source, copy = tmp_path / "source.bin", tmp_path / "copy.bin"
    with source.open("wb") as file:
        file.write(b"begin")
        file.truncate(SIZE)  # the rest is zeros, and takes no room
    app = rota.App()

    @app.task("leave", max_retries=0)
    async def leave(context: rota.Context) -> None:
        await context.artifact("large.bin", source)

    async def pass_through() -> None:
        async with rota.connect(stores.ADDRESSES[store](tmp_path)) as queue:
            task = await queue.submit("leave")
            worker = rota.Worker(queue, app)
            create_app(queue.store, metrics=False)  # what is imported is not what is measured
            peak = Peak()
            await worker.run_once()
            ended = await queue.get(task.id)
            assert ended.error is None, ended.error
            opened = await queue.open_artifact(task.id, "large.bin")
            assert opened.artifact.size == SIZE
            await opened.save(copy)
            path = f"/api/tenants/default/task-executions/{task.id}/artifacts/large.bin"
            assert await served(queue, path) == (SIZE, opened.artifact.digest)
            assert peak.growth < MOST, f"{peak.growth / MEGABYTE:.0f} MB"
            await queue.store.contents.delete([str(opened.artifact.content)])

    asyncio.run(pass_through())
    assert copy.stat().st_size == SIZE
