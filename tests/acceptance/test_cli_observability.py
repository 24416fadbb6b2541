"""Watching the roles from outside: their metrics over HTTP, their logs on stderr."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from command_line import Process, bare_folder, complaint, rota

APP = """
import logging

import rota

app = rota.App()
log = logging.getLogger("shop")


@app.task("work", max_retries=0)
def work(n):
    log.warning("working on %s", n)
    if n < 0:
        raise ValueError("postgresql://ada:sesame@db is away")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def scraped(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return str(answer.read(), "utf-8")


def served(role: Process) -> str:
    return role.until("metrics: http").partition("metrics: ")[2]


def test_every_role_serves_its_metrics(folder: Path) -> None:
    rota("submit -t work -i '{\"n\": 1}'")
    rota("schedule create often -t work --interval 1s -i '{\"n\": 2}'")
    with (
        Process("worker shop:app --metrics-port 0", folder) as worker,
        Process("scheduler run --metrics-port 0", folder) as scheduler,
        Process("monitor", folder, ROTA_METRICS_PORT="0") as monitor,
    ):
        addresses = [served(role) for role in (worker, scheduler, monitor)]
        assert all(re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", address) for address in addresses)
        scheduler.until(" fired ")
        worker.until(lambda line: " completed " in line and "work" in line)
        of_worker, of_scheduler, of_monitor = [scraped(address) for address in addresses]
        assert 'rota_task_claims_total{queue="default"}' in of_worker
        assert 'rota_task_duration_seconds_count{task_type="work"}' in of_worker
        assert (
            'rota_schedule_runs_total{status="running",target_type="task",tenant="default"}' in of_scheduler
        )
        assert 'rota_schedule_run_latency_seconds_count{tenant="default"}' in of_scheduler
        for text in (of_worker, of_scheduler, of_monitor):
            assert 'rota_schedules_total{state="active",tenant="default"} 1.0' in text
            assert "rota_store_readable 1.0" in text
            assert 'rota_store_seconds_count{operation="transact"}' in text
        for role in (worker, scheduler, monitor):
            assert role.end(signal.SIGTERM) == 0


def test_the_port_answers_only_what_it_is_for(folder: Path) -> None:
    with Process("up --metrics-port 0", folder) as up:
        address = served(up)
        up.until("Ctrl-C stops it.")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            scraped(address.replace("/metrics", "/secrets"))
        with pytest.raises(urllib.error.HTTPError, match="405") as refused:
            urllib.request.urlopen(urllib.request.Request(address, method="DELETE"), timeout=30)
        assert refused.value.headers["Allow"] == "GET, HEAD"
        refused.value.close()
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=30) as head:
            assert (head.status, head.read()) == (200, b"")
            assert int(head.headers["Content-Length"]) > 0
        found = re.search(r"//(.*):(\d+)/", address)
        assert found is not None
        host, port = found.groups()
        with socket.create_connection((host, int(port)), timeout=30) as raw:
            raw.sendall(b"HEAD /secrets HTTP/1.1\r\n\r\n")
            with raw.makefile("rb") as answered:
                assert answered.read().endswith(b"Connection: close\r\n\r\n")
        with socket.create_connection((host, int(port)), timeout=30) as greedy:
            greedy.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000)
            assert hung_up(greedy)
        with socket.create_connection((host, int(port)), timeout=30) as silent:
            assert "rota_store_readable" in scraped(address)  # one that says nothing holds nobody up
            assert up.end(signal.SIGINT) == 0
            assert hung_up(silent)


def hung_up(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_port_that_is_taken_is_refused(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = complaint(f"up --port 0 --metrics-port {port}")
    assert said.startswith(f"--metrics-port: 127.0.0.1:{port} cannot be used: ")


def test_logs_are_json_on_stderr_and_the_feed_stays(folder: Path) -> None:
    rota("submit -t work -i '{\"n\": -7}'")
    with Process("worker shop:app --log-level info", folder) as worker:
        worker.until(lambda line: " failed " in line and not line.startswith("{"))
        assert worker.end(signal.SIGTERM) == 0
    records = [json.loads(line) for line in worker.lines if line.startswith("{")]
    (own,) = [record for record in records if record["logger"] == "shop"]
    (of_engine,) = [record for record in records if "is failed" in record["message"]]
    assert own["message"] == "working on -7"
    for name in ("task", "tenant", "worker", "attempt", "task_type"):
        assert own[name] == of_engine[name]
    assert "sesame" not in json.dumps(records)


def test_a_program_with_its_own_logging_keeps_it(folder: Path) -> None:
    own = "\nlogging.basicConfig(format='OWN %(name)s %(message)s')\n"
    (folder / "shop.py").write_text(APP + own)
    rota("submit -t work -i '{\"n\": 1}'")
    with Process("worker shop:app", folder) as worker:
        assert worker.until("working on") == "OWN shop working on 1"
        assert worker.end(signal.SIGTERM) == 0


def test_the_level_can_come_from_the_environment(folder: Path) -> None:
    rota("submit -t work -i '{\"n\": 1}'")
    with Process("worker shop:app", folder, ROTA_LOG="debug") as worker:
        worker.until('"message": "started work')
        assert worker.end(signal.SIGTERM) == 0
    assert "is not one of" in complaint("up --log-level loud")
