"""`rota serve` and the HTTP side of `rota up`, as real processes: where they listen, whom they answer, how they end."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

import rota as library
from command_line import PATIENCE, Process, bare_folder, complaint, document, rota
from rota.surfaces import listening
from rota.surfaces.cli.process import http as process_http
from rota.surfaces.cli.session import Session
from rota.surfaces.http.server import serving
from rota.surfaces.settings import load

APP = """
import rota

app = rota.App()


@app.task("double")
def double(n):
    return 2 * n


@app.task("slow")
async def slow(context):
    import asyncio
    await asyncio.sleep(0.5)
    return "done"
"""
DOCS = Path(__file__).parents[2] / "docs"
SCHEDULE = {
    "name": "often",
    "scheduleType": {"type": "interval", "everySeconds": 1},
    "target": {"type": "task", "taskKind": "double", "input": {"n": 4}},
}
COUNT = {"type": "task", "taskKind": "count"}
DEFAULT = "/api/tenants/default"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def address(process: Process) -> str:
    found = re.search(r"http://\S+", process.until("http: "))
    assert found is not None
    return found[0]


@contextmanager
def client(url: str, key: str | None = None) -> Iterator[httpx.Client]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=2 * PATIENCE, trust_env=False) as made:
        yield made


@contextmanager
def taken_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        yield other.getsockname()[1]


def a_key(role: str = "admin") -> str:
    made = document(f"keys create --role {role} --name test")
    return str(made["key"])


# rota serve


def test_serve_says_where_it_is_and_answers_until_it_is_stopped_and_runs_nothing(folder: Path) -> None:
    task = rota("submit -t double -i '{\"n\": 21}'").stdout.strip()
    with Process("serve shop:app --port 0", folder) as serve:
        url = address(serve)
        assert "rota keys create" in serve.until("keys: ")
        with client(url) as http:
            assert http.get("/health").json()["status"] == "ready"
            assert http.post(f"{DEFAULT}/schedules", json=SCHEDULE).status_code == 201
            assert http.get(f"{DEFAULT}/schedules", headers={"Host": "evil.example"}).status_code == 403
            assert 'route="/health"' in http.get("/metrics").text
            assert http.get(f"{DEFAULT}/task-executions/{task}").json()["status"] == "pending"
            unknown = {"name": "x", "task_type": "python", "command": "no_such_handler"}
            assert http.post("/api/v1/tasks", json=unknown).status_code == 422
        assert len(document("schedule list")["schedules"]) == 1
        assert serve.end(signal.SIGTERM) == 0
        serve.until("stopped")
    # With --engine it does: `test_every_tenant_is_served_unless_one_is_named`.


def test_beyond_this_machine_only_with_keys_and_within_limits_and_with_a_log_in_json(folder: Path) -> None:
    for host in ("0.0.0.0", "::"):
        said = complaint(f"serve --host {host} --port 0")
        assert said.startswith(
            f"--host: {host} can be reached from other machines, and there are no API keys"
        )
        assert "rota keys create" in said
        assert "127.0.0.1" in said
    key = a_key()
    line = "serve --host 0.0.0.0 --port 0 --max-body 4KB --rate-limit 2 --json --log-level info"
    with Process(line, folder) as serve:
        url = address(serve)
        with client(url) as stranger, client(url, key) as known:
            assert stranger.get("/health", params={"key": "not-logged"}).status_code == 200
            logged = json.loads(serve.until("/health"))
            assert logged["logger"] == "rota.http"
            assert (logged["method"], logged["path"], logged["status"]) == ("GET", "/health", 200)
            assert stranger.get(f"{DEFAULT}/schedules").status_code == 401
            assert known.get(f"{DEFAULT}/schedules").status_code == 200
            large = {**SCHEDULE, "description": "a" * 3_000_000}
            refused = known.post(f"{DEFAULT}/schedules", json=large)
            assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")
            answers = [known.get(f"{DEFAULT}/schedules") for _ in range(30)]
            limited = [answer for answer in answers if answer.status_code == 429]
            assert limited
            assert limited[0].headers["Retry-After"] == "1"
        assert serve.end(signal.SIGINT) == 0


def test_up_does_not_go_beyond_this_machine_without_keys_either() -> None:
    assert "there are no API keys" in complaint("up --host 0.0.0.0 --port 0")


def test_ports_and_hosts_that_cannot_be_used() -> None:
    with taken_port() as port:
        for line in (f"serve --port {port}", f"up --port {port}"):
            said = complaint(line)
            assert said.startswith(f"--port: 127.0.0.1:{port} is taken by another program; ")
    assert "'nowhere.invalid' is not known here" in complaint("serve --host nowhere.invalid")
    assert "192.0.2.1 " in complaint("serve --host 192.0.2.1 --port 0")
    with taken_port() as port:
        said = complaint(f"up --port 0 --metrics-port {port}")
        assert said.startswith(f"--metrics-port: 127.0.0.1:{port} cannot be used")
    assert "is not a port" in complaint("serve --port 70000")
    assert "give a size from 1KB" in complaint("serve --max-body 10")


def test_a_host_of_another_machine_with_keys_is_not_ours() -> None:
    a_key()
    assert complaint("serve --host 192.0.2.1 --port 0").startswith("--host: 192.0.2.1 is not an address of")


# rota up


def test_up_serves_beside_the_roles_and_ends_streams_properly(folder: Path) -> None:
    with Process("up shop:app --port 0", folder, ROTA_HTTP="yes") as up:
        url = address(up)
        with client(url) as http:
            for body in re.findall(r"task-executions -d '(.*)'", (DOCS / "http.md").read_text()):
                assert http.post(f"{DEFAULT}/task-executions", content=body).status_code == 201
            assert http.post(f"{DEFAULT}/schedules", json=SCHEDULE).status_code == 201
            up.until(" fired ")
            up.until(lambda line: "completed" in line and "double" in line)
            counted = http.get("/metrics").text
            assert re.search(r"rota_schedule_runs_total\{.*\} [1-9]", counted)
            assert "rota_loop_lag_seconds" in counted
            [node] = http.get(f"{DEFAULT}/nodes").json()["items"]
            assert node["roles"] == ["scheduler", "worker", "janitor", "http"]
            with http.stream("GET", f"{DEFAULT}/events") as stream:
                said = stream.iter_text()
                next(said)
                assert up.end(signal.SIGTERM) == 0
                for _ in said:  # to its end, which is a proper one
                    pass
        up.until("stopped: ")


def test_up_fires_before_what_serves_is_imported(folder: Path) -> None:
    """The last module that is imported waits for a file, which is there only once something fired."""
    rota("schedule create often -t double --interval 1s")
    late = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    (folder / "late").mkdir()
    (folder / "late" / "httptools.py").write_text(late + "raise ModuleNotFoundError(name='httptools')\n")
    with Process("up --port 0", folder, ROTA_HTTP="yes", PYTHONPATH=str(folder / "late")) as up:
        url = address(up)
        up.until(" fired ")
        (folder / "go").write_text("")
        with client(url) as http:
            assert http.get("/health/live").status_code == 200  # on h11, as it happens
        assert up.end(signal.SIGTERM) == 0


def test_up_can_be_stopped_while_what_serves_is_imported(folder: Path) -> None:
    (folder / "late").mkdir()
    (folder / "late" / "httptools.py").write_text("import threading\nthreading.Event().wait()\n")
    with Process("up --port 0", folder, ROTA_HTTP="yes", PYTHONPATH=str(folder / "late")) as up:
        up.until("Ctrl-C stops it.")
        assert up.end(signal.SIGTERM) == 0


def test_up_without_http(folder: Path) -> None:
    with Process("up --no-http", folder, ROTA_HTTP="yes") as up:
        up.until("Ctrl-C stops it.")
        assert not any("http:" in line for line in up.lines)
        assert up.end(signal.SIGTERM) == 0


# Whether the API is served


def is_opened(session: Session, **flags: object) -> bool:
    async def main() -> bool:
        async with (
            library.connect("memory:") as queue,
            process_http.api_server_of(session, process_http.HttpOptions(load(flags)), queue) as found,
        ):
            return found is not None

    return asyncio.run(main())


def test_without_the_extra_up_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process_http, "is_installed", lambda: False)
    assert not is_opened(Session({}))
    assert capsys.readouterr().err == (
        "http: not served, since it is not installed; install it with: pip install 'rota[server]'\n"
    )
    assert "pip install 'rota[server]'" in complaint("serve")


def test_a_default_port_that_is_taken_is_said_and_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def taken(place: listening.Place) -> socket.socket:
        raise listening.PortTaken("port", f"{place} is taken", "")

    monkeypatch.setattr(process_http, "listen", taken)
    assert not is_opened(Session({}))
    said = capsys.readouterr().err
    assert said == "http: not served, since 127.0.0.1:8000 is taken; choose another with --port\n"
    with pytest.raises(listening.PortTaken):
        is_opened(Session({}), port=8000)


def test_what_is_reachable_from_elsewhere() -> None:
    local = ["127.0.0.1", "127.1.2.3", "localhost", "::1"]
    assert all(listening.find(host, 0).is_local for host in local)
    assert not any(listening.find(host, 0).is_local for host in ("0.0.0.0", "::", "192.0.2.1"))


# Mounted in another application


def test_mounted_under_a_path_everything_knows_where_it_is() -> None:
    example = runpy.run_path(str(DOCS.parent / "examples" / "mounted.py"))

    async def main() -> None:
        stop = asyncio.Event()
        here = listening.listen(listening.find("127.0.0.1", 0))
        served = asyncio.create_task(serving.prepared(example["site"], until=stop).serve([here]))
        base = listening.url_of(here)
        async with httpx.AsyncClient(base_url=base, timeout=PATIENCE, trust_env=False) as http:
            assert (await http.get("/orders")).json() == "2 orders"
            await ask_the_mounted_one(http)
            async with http.stream("GET", f"/rota{DEFAULT}/events") as stream:
                said = stream.aiter_text()
                await anext(said)
                stop.set()
                async for _ in said:
                    pass
        await served

    asyncio.run(main())


async def ask_the_mounted_one(http: httpx.AsyncClient) -> None:
    assert (await http.get("/rota/health")).status_code == 200
    assert (await http.get("/health")).status_code == 404
    described = (await http.get("/rota/openapi.json")).json()
    assert described["servers"] == [{"url": "/rota"}]
    assert f"{DEFAULT.replace('default', '{tenant}')}/schedules" in described["paths"]
    assert "/rota/openapi.json" in (await http.get("/rota/docs")).text
    made = await http.post(f"/rota{DEFAULT}/schedules", json=SCHEDULE | {"target": COUNT})
    assert made.status_code == 201
    assert made.headers.get("Location", "/rota/").startswith("/rota/")
    missing = await http.get(f"/rota{DEFAULT}/schedules/none")
    assert missing.json()["instance"] == f"/rota{DEFAULT}/schedules/none"
    wrong = await http.put("/rota/health")
    assert (wrong.status_code, wrong.headers["Allow"]) == (405, "GET, HEAD")
    ran = await http.post(f"/rota{DEFAULT}/schedules/often/trigger")
    execution = ran.json()
    async with asyncio.timeout(PATIENCE):
        while execution["status"] != "completed":
            path = f"/rota{DEFAULT}/task-executions/{execution['id']}"
            execution = (await http.get(path)).json()
    assert execution["output"] == 2
    assert 'route="/health"' in (await http.get("/rota/metrics")).text
