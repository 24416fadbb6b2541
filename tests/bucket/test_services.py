"""Services as they are: a gateway that ignores conditions, wrong credentials, nobody there, names with odd
characters."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest
from obstore import exceptions as obs

import s3_server
from bucket.faulty import FaultyRequests
from bucket.signing import create
from command_line import bare_folder, document, rota
from records import schedule, task
from rota.domain.errors import Invalid, Unavailable
from rota.domain.model import Schedule, Task
from rota.engine.clock import SystemClock
from rota.stores.bucket.service.address import BucketAddress
from rota.stores.bucket.service.bucket import Bucket, MemoryRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning
from stores import get, put


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket of rclone's S3 gateway: a real one, which takes conditional writes for plain ones."""
    s3_server.url()  # its credentials do here as well
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "careless").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(Path(sys.executable).parent / "rclone"),
        *("serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}", "--config", ""),
        *("--auth-key", ",".join(os.environ[name] for name in s3_server.CREDENTIALS)),
    ]
    with (folder / "log").open("wb") as log:
        gateway = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _until_it_listens(gateway, port, folder / "log")
            endpoint = quote(f"http://127.0.0.1:{port}", safe="")
            yield f"s3://careless/queue?endpoint={endpoint}&region=us-east-1"
        finally:
            gateway.kill()
            gateway.wait()


def _until_it_listens(gateway: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + s3_server.PATIENCE
    while time.monotonic() < deadline and gateway.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"rclone does not start: {log.read_text()[-2000:]}")


async def refused(address: str) -> None:
    with pytest.raises(Invalid, match="s3://careless/queue ignores If-None-Match"):
        await BucketStore.from_url(address, SystemClock()).open()


async def test_a_real_gateway_that_ignores_conditions_is_not_opened(careless: str) -> None:
    await refused(careless)


def test_the_doctor_refuses_a_real_gateway_by_name_of_what_is_missing(
    careless: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare_folder(monkeypatch, tmp_path)
    asyncio.run(refused(careless))  # else there is no store to look at
    findings = {finding["check"]: finding for finding in document(["doctor", "--store", careless], code=1)}
    assert "ignores If-None-Match" in findings["store"]["found"]
    for race in ("create race", "compare-and-set race"):
        assert not findings[race]["ok"], findings[race]
        assert findings[race]["found"]  # two winners, or that it fell over: it does either
        assert "conditional writes" in findings[race]["advice"]


def test_wrong_credentials_are_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address = s3_server.url()
    bare_folder(monkeypatch, tmp_path)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not the secret")
    result = rota(["submit", "-t", "work", "--store", address], code=1)
    assert "access denied (403 Forbidden SignatureDoesNotMatch to GET " in result.stderr
    assert address.partition("?")[0] in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "prefix", ["with space", "ünïcode", "a/b/c", "100%", "plus+and=", "a..b", "~tilde", "#1"]
)
async def test_prefixes_and_names_with_odd_characters(prefix: str) -> None:
    """Written, found again by another node, and each view under its own key."""
    address = s3_server.url(quote(f"{uuid.uuid4().hex}-{prefix}"))
    keys = ["daily/report", "daily~2Freport", "täglich", "a b", "..", "A", "a", "#", "?x=1", "x" * 255]
    store = BucketStore.from_url(address, SystemClock())
    await store.open()
    await put(store, task("t"), *(schedule(f"s{number}", key=key) for number, key in enumerate(keys)))
    await store.close()
    second = BucketStore.from_url(address, SystemClock())
    await second.open()
    assert await get(second, Task, "t") is not None
    kept = [await get(second, Schedule, f"s{number}") for number in range(len(keys))]
    assert [each and each.key for each in kept] == keys
    await second.tidy()
    await second.close()
    assert len(list(BucketAddress.parse(address).requests().list("schedules/", None))) == len(keys)


def test_missing_credentials_are_called_so() -> None:
    """obstore then asks an address that only machines of Amazon have, and tells of that."""

    class Stranger(FaultyRequests):
        def list(self, prefix: str, after: str | None) -> Iterator[str]:
            raise obs.GenericError("Error performing PUT http://169.254.169.254/latest/api/token: timed out")

    with pytest.raises(Unavailable, match="cannot list memory-bucket:mine/log/: no credentials were found"):
        Bucket(Stranger(MemoryRequests("mine"))).list("log/")


def test_a_request_of_a_machine_that_stood_still_with_its_clocks_is_refused_by_the_service() -> None:
    """Nobody on such a machine can know. But its request says when it was signed, long before the log is removed."""
    place = f"{s3_server.endpoint()}/{s3_server.BUCKET}/{uuid.uuid4().hex}"
    keys = list(s3_server.CREDENTIALS.values())
    now = datetime.now(UTC)
    status, said = create(place, b"late", keys[0], keys[1], now - Tuning().retention / 6)
    assert status == 403
    assert "RequestTimeTooSkewed" in said
    assert create(place, b"in time", keys[0], keys[1], now) == (200, "")


async def test_a_service_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match="s3://nowhere/x"):
        await BucketStore.from_url(
            "s3://nowhere/x?endpoint=http://127.0.0.1:9&timeout=1", SystemClock()
        ).open()
