"""A real S3 server for tests: SeaweedFS, started once for all test processes, stopped with the last of them.

`url(name)` is a fresh place in it. `ROTA_TEST_S3=s3://bucket/prefix?endpoint=…` uses another service (with the
credentials of the environment); then nothing is started.

The first test process that wants the server starts it, and writes its address into a file for the others. The server
ends with the last process that uses it: `keeper.py` says how.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import keeper

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "admin", "AWS_SECRET_ACCESS_KEY": "secretsecret"}
if "ROTA_TEST_S3" in os.environ:  # a server of our own, which a few tests need beside it, goes by the same
    CREDENTIALS = {name: os.environ.get(name, value) for name, value in CREDENTIALS.items()}
BUCKET = "rota-test"
PATIENCE = 90.0

_joined: dict[str, str] = {}


def url(name: str = "", **options: str) -> str:
    """An address that nobody else uses."""
    return under(os.environ.get("ROTA_TEST_S3") or _server(), name, **options)


def under(address: str, name: str = "", **options: str) -> str:
    """A place under an address."""
    base = urlsplit(address)
    path = "/".join(part for part in (base.path.strip("/"), name or uuid.uuid4().hex) if part)
    query = "&".join(
        [part for part in [base.query] if part] + [f"{key}={quote(value)}" for key, value in options.items()]
    )
    return f"{base.scheme}://{base.netloc}/{path}" + (f"?{query}" if query else "")


def endpoint() -> str:
    """Where the server of our own listens."""
    _server()
    return _joined["endpoint"]


def _server() -> str:
    if not _joined:
        place = Path(tempfile.gettempdir()) / f"rota-test-s3-{os.getuid()}"
        place.mkdir(exist_ok=True)
        with keeper.locked(place / "joining"):
            keeper.use(place / "users")
            if not _answers(place / "endpoint"):
                _begin(place)
            _joined["endpoint"] = (place / "endpoint").read_text()
        os.environ.update(CREDENTIALS)
    return f"s3://{BUCKET}?endpoint={quote(_joined['endpoint'], safe='')}&region=us-east-1"


def _answers(endpoint: Path) -> bool:
    try:
        port = urlsplit(endpoint.read_text()).port
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except OSError:
        return False
    return True


def _begin(place: Path) -> None:
    pid, folder, endpoint = _start()
    (place / "endpoint").write_text(endpoint)
    keeper.end_with_users(place / "users", pid, signal.SIGKILL, place / "endpoint", folder)


def _start() -> tuple[int, Path, str]:
    """Its pid, its folder and its address."""
    folder = tempfile.mkdtemp(prefix="rota-s3-")
    for attempt in range(5):
        ports = _free_ports(attempt)
        process = _spawn(folder, ports)
        if _is_ready(process, ports["s3.port"]):
            process.returncode = 0  # the keeper ends it, maybe after this process: nobody here waits for it
            return process.pid, Path(folder), f"http://127.0.0.1:{ports['s3.port']}"
        process.kill()
        process.wait()
    raise RuntimeError(f"SeaweedFS does not start: {(Path(folder) / 'log').read_text()[-2000:]}")


def _spawn(folder: str, ports: dict[str, int]) -> subprocess.Popen[bytes]:
    command = [
        str(Path(sys.executable).parent / "weed"),
        "mini",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-webdav=false",
        "-admin.ui=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    with (Path(folder) / "log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | CREDENTIALS, start_new_session=True
        )


def _free_ports(attempt: int) -> dict[str, int]:
    """SeaweedFS uses port + 10000 too, for each of its servers. All are below those that clients are given."""
    names = ["s3.port", "master.port", "volume.port", "filer.port", "admin.port"]
    ports: dict[str, int] = {}
    candidate = 10_000 + ((os.getpid() + 101 * attempt) * 37) % 12_000
    while len(ports) < len(names):
        candidate += 1
        if all(_is_free(port) for port in (candidate, candidate + 10_000)):
            ports[names[len(ports)]] = candidate
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _is_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    """Up, and our bucket is there."""
    from obstore.store import S3Store

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/")
            urllib.request.urlopen(request, timeout=2).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            time.sleep(0.05)
            continue
        with_key: Any = {name.removeprefix("AWS_").lower(): value for name, value in CREDENTIALS.items()}
        store = S3Store(
            BUCKET,
            endpoint=f"http://127.0.0.1:{port}",
            region="us-east-1",
            client_options={"allow_http": True},
            **with_key,
        )
        try:
            _make_bucket(store, port)
            store.put("ready", b"ready")
            return True
        except Exception:
            time.sleep(0.1)
    return False


def _make_bucket(store: Any, port: int) -> None:
    import obstore

    signed = obstore.sign(store, "PUT", "", timedelta(minutes=1))
    try:
        urllib.request.urlopen(urllib.request.Request(signed, method="PUT"), timeout=30).close()
    except urllib.error.HTTPError as error:
        error.close()
