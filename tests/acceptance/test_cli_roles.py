"""The roles as real processes: they print what happens, and end with exit code 0 when asked to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from contextlib import ExitStack
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from command_line import STORES, Process, bare_folder, document, in_a_folder, rota, use_store
from records import node
from rota import TemplateTarget, connect
from rota.surfaces.cli.process.greeting import KINDS, PAGE, SHOWN, ScheduleSummary
from stores import put

APP = """
import asyncio
import sys
import threading
from pathlib import Path

import rota

app = rota.App()


@app.task("double")
def double(n):
    return 2 * n


@app.task("hang")
def hang():
    threading.Event().wait()


@app.task("follows")
async def follows():
    while not Path("go-on").exists():
        await asyncio.sleep(0.01)


@app.task("exits-later")
async def exits_later():
    def interrupt():
        raise KeyboardInterrupt

    loop = asyncio.get_running_loop()
    loop.call_soon(sys.exit, 3)
    loop.call_soon(interrupt)
    await asyncio.sleep(0.01)


@app.task("flaky", max_retries=1, retry_policy=rota.RetryPolicy(initial=__import__("datetime").timedelta(0)))
async def flaky(context):
    if context.attempt == 1:
        raise ValueError("not yet")
"""


A_THREAD_GOES_ON = """
import atexit
import os
import sys
import threading


class Last:
    def __del__(self, write=os.write):
        write(1, b"taken apart\\n")


sys.last = Last()
atexit.register(print, "registered by the app", flush=True)
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""

pytest_generate_tests = in_a_folder


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    use_store(monkeypatch, request.param)
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


SQLITE_ONLY = pytest.mark.parametrize("folder", ["sqlite"], indirect=True)
"""Where no store has a say: the roles of the other tests run on each."""


@SQLITE_ONLY
def test_the_demo_fires_within_ten_seconds_and_ctrl_c_stops_it_cleanly(folder: Path) -> None:
    with Process("up --demo", folder, PATH=os.defpath) as demo:
        demo.until("Try, in another terminal:")
        path, shown = demo.until("export PATH="), demo.until("export ROTA_STORE=")
        store = shown.partition("ROTA_STORE=")[2]
        hint = demo.until("rota schedule show").partition("   ")[0]
        lines = ["bash", "-euc", "\n".join([path, shown, hint])]
        typed = subprocess.run(lines, capture_output=True, text=True, env={"PATH": os.defpath}, check=True)
        assert "backup" in typed.stdout
        demo.until(" fired ")
        demo.until(" completed ")
        assert len(document(f"schedule list --store {store}")["schedules"]) == 4
        assert demo.end(signal.SIGINT) == 0
        assert "stopped: " in demo.until("stopped: ")
    assert not Path(store.removeprefix("sqlite:///")).exists()


@SQLITE_ONLY
def test_the_demo_can_have_a_named_store_which_is_kept(folder: Path) -> None:
    with Process("up --demo --store sqlite:///kept.db --json", folder) as demo:
        event = json.loads(demo.until('"fired"'))
        assert event["schedule"] in ("pulse", "weather", "sync", "backup")
        assert event["task_id"]
        assert demo.end(signal.SIGTERM) == 0
    assert document("schedule list --store sqlite:///kept.db")["schedules"]


def test_up_runs_tasks_and_schedules_and_says_so(folder: Path) -> None:
    rota("schedule create often -t double -i '{\"n\": 2}' --interval 1s")
    rota("submit -t flaky")
    with Process("up shop:app", folder) as up:
        up.until("scheduler + worker + janitor")
        up.until("retry 1 of 1")
        assert "often" in up.until(" fired ")
        up.until(lambda line: "completed" in line and "double" in line)
        assert up.end(signal.SIGTERM) == 0
    assert document("list --type flaky --status completed --count") == {"count": 1}


def test_a_worker_with_a_handler_that_never_ends_still_ends(folder: Path) -> None:
    task = rota("submit -t hang").stdout.strip()
    with Process("worker shop:app --shutdown-timeout 3s --queues default --concurrency 2", folder) as worker:
        worker.until("started   hang")
        assert worker.end(signal.SIGINT) == 0
    back = document(f"status {task}")
    assert (back["status"], back["attempt"], back["retries"]) == ("pending", 0, 0)


@SQLITE_ONLY
def test_no_thread_goes_on_while_python_is_taken_apart(folder: Path) -> None:
    """It would crash the process, now and then."""
    (folder / "shop.py").write_text(APP + A_THREAD_GOES_ON)
    with Process("worker shop:app", folder) as worker:
        worker.until("Ctrl-C stops it")
        assert worker.end(signal.SIGTERM) == 0
    worker.until("stopped")
    worker.until("registered by the app")
    assert worker.rest() == []


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_a_pass_that_is_stopped_hands_back_what_runs(folder: Path, asked: signal.Signals) -> None:
    task = rota("submit -t hang --max-retries 0").stdout.strip()
    with Process("tick shop:app --shutdown-timeout 3s", folder) as tick:
        tick.until("started   hang")
        assert tick.end(asked) == 130
    back = document(f"status {task}")
    assert (back["status"], back["attempt"], back["retries"]) == ("pending", 0, 0)


@SQLITE_ONLY
def test_a_pass_that_is_stopped_twice_hands_back_at_once(folder: Path) -> None:
    task = rota("submit -t hang").stdout.strip()
    with Process("tick shop:app --shutdown-timeout 10m", folder) as tick:
        tick.until("started   hang")
        tick.send(signal.SIGINT)
        tick.until("Ctrl-C again hands it back at once")
        assert tick.end(signal.SIGTERM) == 130
    assert document(f"status {task}")["status"] == "pending"


@SQLITE_ONLY
def test_a_pass_that_is_stopped_lets_handlers_finish_and_begins_no_more(folder: Path) -> None:
    first, second = (rota("submit -t follows").stdout.strip() for _ in range(2))
    with Process("tick shop:app --concurrency 1", folder) as tick:
        tick.until("started   follows")
        tick.send(signal.SIGTERM)
        tick.until("stopping: waiting for follows")
        (folder / "go-on").touch()
        assert tick.wait() == 130
    assert [document(f"status {task}")["status"] for task in (first, second)] == ["completed", "pending"]


def test_a_callback_of_a_handler_that_exits_does_not_end_the_worker(folder: Path) -> None:
    rota("submit -t exits-later")
    with Process("worker shop:app", folder) as worker:
        worker.until("a callback on the event loop raised SystemExit")
        worker.until("a callback on the event loop raised KeyboardInterrupt")
        worker.until(lambda line: "completed" in line and "exits-later" in line)
        assert worker.end(signal.SIGINT) == 0


@SQLITE_ONLY
def test_roles_end_with_exit_code_0(folder: Path) -> None:
    lines = [
        "scheduler run",
        "schedule run",
        "monitor",
        "monitor --enable-scheduler",
        "worker shop:app",
        "up",
    ]
    rota("migrate")
    with ExitStack() as stack:
        roles = [stack.enter_context(Process(line, folder)) for line in lines]
        for number, role in enumerate(roles):
            role.until("Ctrl-C stops it.")
            assert role.end(signal.SIGTERM if number % 2 else signal.SIGINT) == 0


def test_the_scheduler_fires_and_the_monitor_marks_expiries(folder: Path) -> None:
    rota("schedule create often -t double --interval 1s --overlap-policy allow")
    task = rota("submit -t single --ttl 300ms").stdout.strip()
    with Process("monitor --enable-scheduler", folder) as monitor:
        monitor.until(lambda line: "expired" in line and task in line)
        monitor.until(" fired ")
        assert monitor.end(signal.SIGINT) == 0


def test_tail_follows_each_line_once(folder: Path) -> None:
    rota("submit -t double -i '{\"n\": 1}'")
    with Process("tail --json", folder) as tail:
        tail.until('"created"')
        second = rota("submit -t double -i '{\"n\": 2}'").stdout.strip()
        tail.until(second)
        rota("cancel " + second)
        tail.until("cancelled")
        assert tail.end(signal.SIGINT) == 0
    seen = [(line["task_id"], line["version"]) for line in map(json.loads, tail.lines)]
    assert len(seen) == len(set(seen)) == 3


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        *((store, "up shop:app") for store in STORES),
        ("sqlite", "worker shop:app"),
        ("sqlite", "serve shop:app --engine --port 0"),
    ],
    indirect=["folder"],
)
def test_every_tenant_is_served_unless_one_is_named(folder: Path, line: str) -> None:
    acme = rota("submit -t double -i '{\"n\": 2}' --tenant acme").stdout.strip()
    other = rota("submit -t double -i '{\"n\": 2}' --tenant other").stdout.strip()
    with Process(f"{line} --tenant other", folder) as named:
        named.until("tenants: other")
        rota(f"wait {other} --tenant other --timeout 30s")
        assert named.end(signal.SIGTERM) == 0
    assert document(f"status {acme} --tenant acme")["status"] == "pending"
    with Process(line, folder) as every:
        every.until("tenants: all")
        rota(f"wait {acme} --tenant acme --timeout 30s")
        assert every.end(signal.SIGTERM) == 0


def test_a_pass_serves_every_tenant_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    acme = rota("submit -t double -i '{\"n\": 2}' --tenant acme").stdout.strip()
    rota("tick shop:app --tenant other")
    assert document(f"status {acme} --tenant acme")["status"] == "pending"
    rota("tick shop:app")
    assert document(f"status {acme} --tenant acme")["status"] == "completed"


def test_up_warns_of_schedules_whose_kind_its_app_lacks(folder: Path) -> None:
    rota("schedule create lonely -t nobody --interval 1h --tenant acme")
    rota("schedule create idle -t unknown --interval 1h --paused")
    rota("schedule create elsewhere -t slow --interval 1h --queue slow")
    rota("schedule create fine -t double --interval 100d")
    with Process("up shop:app --queues default", folder) as up:
        said = up.until("warning: ")
        assert said == (
            "warning: this app has no handler for nobody, which is what lonely (tenant acme) starts:"
            " it waits for a worker that has one"
        )
        up.until("schedules: 3 active")
        coming = [up.until(" Every ") for _ in range(3)]
        assert up.end(signal.SIGINT) == 0
    assert len({line.index("Every") for line in coming}) == 1
    assert len([line for line in up.lines if "warning" in line]) == 1


@pytest.mark.parametrize("line", ["worker shop:app", "up shop:app --no-http"])
def test_no_process_warns_of_a_kind_that_another_live_node_handles(folder: Path, line: str) -> None:
    for kind in ("known", "gone", "nobody"):
        rota(f"schedule create of-{kind} -t {kind} --interval 1h")
    rota("schedule create in-slow -t known --queue slow --interval 1h")
    asyncio.run(_nodes_elsewhere())
    with Process(line, folder) as process:
        for kind, name in (("gone", "of-gone"), ("known", "in-slow"), ("nobody", "of-nobody")):
            assert process.until("warning: ") == (
                f"warning: this app has no handler for {kind}, which is what {name} starts:"
                " it waits for a worker that has one"
            )
        process.until("Ctrl-C stops it.")
        assert process.end(signal.SIGINT) == 0
    assert len([line for line in process.lines if "warning" in line]) == 3


async def _nodes_elsewhere() -> None:
    """One that handles `known` in its queue, and one that handled `gone` and has died."""
    async with connect() as queue:
        now = await queue.now()
        living = {"seen_at": now, "heartbeat": timedelta(hours=1), "queues": ("default",)}
        died = {"seen_at": now - timedelta(hours=1), "heartbeat": timedelta(seconds=30)}
        await put(queue.store, node("living", roles=("worker",), kinds=("known",), started_at=now, **living))
        await put(queue.store, node("dead", roles=("worker",), kinds=("gone",), started_at=now, **died))


def test_the_warning_looks_at_every_schedule_and_into_templates(folder: Path) -> None:
    """Those that come last in the list are on another page."""
    asyncio.run(_many_schedules())
    with Process("up shop:app", folder) as up:
        assert up.until("warning: ").startswith(
            "warning: this app has no handler for gone, which is what by-template starts:"
        )
        assert up.until("warning: ").startswith(
            "warning: this app has no handler for nobody, which is what second, first starts:"
        )
        up.until(f"schedules: {PAGE + 5:,} active")
        assert up.end(signal.SIGINT) == 0
    assert len([line for line in up.lines if "warning" in line]) == 2


async def _many_schedules() -> None:
    async with connect() as queue:
        for name in ("first", "second"):
            await queue.create_schedule(name, task_type="nobody", interval=3600)
        await queue.create_template("known", "double")
        await queue.create_template("unknown", "gone")
        for name, template in (("by-template", "unknown"), ("fine", "known")):
            target = TemplateTarget(template_id=template)
            await queue.create_schedule(name, target=target, interval=3600)
        creating = (
            queue.create_schedule(f"s-{number}", task_type="double", interval=3600)
            for number in range(PAGE + 1)
        )
        await asyncio.gather(*creating)


async def test_what_is_kept_of_many_schedules_is_bounded() -> None:
    summary = ScheduleSummary()
    async with connect("memory:") as queue:
        one = await queue.create_schedule("one", task_type="work", interval=3600)
    for number in range(1000):
        summary.note([replace(one, key=f"s-{number}")] * 10)
        summary.note_lacking(f"kind-{number}", one)
        summary.note_lacking("kind-0", one)
    assert summary.active == 10_000
    assert len(summary.soonest) == SHOWN
    assert len(summary.lacking) == KINDS
    assert summary.more_lacking == 1000 - KINDS
    assert summary.lacking["kind-0"].count == 1001
    assert len(summary.lacking["kind-0"].names) == SHOWN


def test_a_pass_tells_monitors_outside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    asked: list[str] = []

    class Monitor(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path.partition("?")[0])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Monitor) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("ROTA_HEARTBEAT_URL", f"{url}/fleet")
        rota(f"schedule create s -t double -i '{{\"n\": 2}}' --interval 1h --heartbeat-url {url}/s")
        rota("schedule trigger s")
        rota("tick shop:app --allow-private-addresses")
        server.shutdown()
    assert sorted(asked) == ["/fleet", "/s", "/s/start"]
