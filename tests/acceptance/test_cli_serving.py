"""Workers and queues on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, in_a_folder, rota, use_store

pytest_generate_tests = in_a_folder


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    use_store(monkeypatch, request.param)
    return tmp_path


def test_a_queue_is_paused_listed_and_resumed() -> None:
    task = rota("submit -t send --queue mail").stdout.strip()
    assert "mail is paused" in rota("queue pause mail --note 'the server is moving'").stdout
    [use] = document("queue list")
    assert (use["name"], use["pending"], use["running"], use["workers"]) == ("mail", 1, 0, 0)
    assert use["oldest_seconds"] >= 0
    assert use["paused"]["note"] == "the server is moving"
    assert "the server is moving" in rota("queue list").stdout
    assert document(f"status {task}")["waiting"]["reason"] == "queue_paused"
    assert "waiting: queue mail was paused by" in rota(f"status {task}").stdout
    assert document("queue resume mail") == {"queue": "mail", "was_paused": True}
    assert "not paused" in rota("queue resume mail").stdout
    assert document(f"status {task}")["waiting"]["reason"] == "no_worker"


def test_draining_what_does_not_run_pauses_it() -> None:
    rota("submit -t send --queue mail")
    assert document("queue drain mail --note deploying --timeout 1m")["note"] == "deploying"
    assert document("queue list")[0]["paused"]["note"] == "deploying"


def test_without_nodes_workers_says_how_to_start_one() -> None:
    rota("submit -t send")
    assert "rota up" in rota("workers").stderr
    assert document("workers") == []


def test_replay_in_bulk_counts_first() -> None:
    ids = [rota("submit -t send").stdout.strip() for _ in range(3)]
    rota(["cancel", *ids])
    line = "replay --status cancelled --kind send --since 1h"
    assert document(f"{line} --dry-run") == {"replayed": 0, "matching": 3}
    assert "3 tasks would be replayed" in rota(f"{line} --dry-run").stdout
    assert document(line) == {"replayed": 3, "matching": 3}
    rota(["cancel", ids[0]])
    assert "1 task would be replayed" in rota(f"{line} --dry-run").stdout
    assert "replayed 1 task\n" in rota(line).stdout
    assert "replayed 0 tasks" in rota(line).stdout
    assert "name tasks, or give --status" in complaint("replay")
    assert "name tasks, or give --status" in complaint(f"replay {ids[0]} --status failed")
    assert "--dry-run is for filters" in complaint(f"replay {ids[0]} --dry-run")


def test_a_bad_name_is_refused() -> None:
    assert "is not a valid name" in complaint("queue pause 'a b'")
