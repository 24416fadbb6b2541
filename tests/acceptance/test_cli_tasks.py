"""Tasks on the command line: submit, status, list, history, cancel, replay, archive, wait, tail, tick."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, documents, in_a_folder, rota, use_store

APP = """
import rota

app = rota.App()


@app.task("double")
def double(n):
    return 2 * n


@app.task("boom", max_retries=0)
async def boom():
    raise ValueError("no luck")
"""


pytest_generate_tests = in_a_folder


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    use_store(monkeypatch, request.param)
    (tmp_path / "doubling.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def submit(line: str) -> str:
    return rota(f"submit {line}").stdout.strip()


def test_a_task_from_submit_to_archive() -> None:
    task = submit("-t double -i '{\"n\": 4}'")
    assert document(f"status {task}")["status"] == "pending"
    assert "1 completed" in rota("tick doubling:app").stdout
    assert document(f"status {task}")["output"] == 8
    assert "output: 8" in rota(f"status {task}").stdout
    assert rota(f"wait {task}").stdout.splitlines()[-1] == "8"
    assert rota(f"history {task}").stdout.splitlines() == [
        "Version 1: pending (created)",
        "Version 2: running (attempt 1)",
        "Version 3: completed",
    ]
    assert "archived" in rota(f"archive {task}").stdout
    assert document("list --status archived")["tasks"][0]["id"] == task


def test_a_task_that_fails_is_shown_with_its_reason_and_can_be_replayed() -> None:
    task = submit("-t boom")
    assert "1 failed" in rota("tick doubling:app").stdout
    assert "ValueError: no luck" in rota("list --status failed").stdout
    assert "error: ValueError: no luck" in rota(f"status {task}").stdout
    assert "failed" in rota(f"wait {task}", code=1).stdout
    assert documents(f"replay {task}")[0]["status"] == "pending"


def test_cancel_names_who_and_why() -> None:
    task = submit("-t double")
    rota(f"cancel {task} --reason 'no longer needed'")
    cancelled = document(f"status {task}")
    assert cancelled["status"] == "cancelled"
    assert cancelled["cancel_reason"] == "no longer needed"
    assert complaint(f"cancel {task}", code=1) == f"task {task} is already cancelled, which is final"


def test_cancel_all_that_match() -> None:
    for queue in ("a", "a", "b"):
        submit(f"-t double --queue {queue}")
    assert document("cancel --all --queue a") == {"cancelled": 2}
    assert document("list --status pending --count") == {"count": 1}


def test_one_task_that_is_not_there_does_not_keep_the_others_from_being_cancelled() -> None:
    task = submit("-t double")
    result = rota(f"cancel nonsense {task}", code=1)
    assert "there is no task 'nonsense'" in result.stderr
    assert f"{task} cancel: cancelled" in result.stdout


@pytest.mark.parametrize("order", ["{good} {bad}", "{bad} {good}", "{good} {cancelled}"])
def test_wait_fails_if_any_of_the_tasks_did_not_complete(order: str) -> None:
    good, bad, cancelled = submit("-t double -i '{\"n\": 1}'"), submit("-t boom"), submit("-t double")
    rota(f"cancel {cancelled}")
    rota("tick doubling:app")
    names = order.format(good=good, bad=bad, cancelled=cancelled)
    said = rota(f"wait {names} --timeout 10s", code=1).stdout
    assert all(name in said for name in names.split())
    rota(f"wait {good} {good} --timeout 10s")


def test_wait_gives_up_after_its_timeout() -> None:
    task = submit("-t double --in 1h")
    assert "has not ended in time" in complaint(f"wait {task} --timeout 50ms", code=1)


@pytest.mark.parametrize("input", ["[1, 2]", '"text"', "7", "null", '{"a": {"b": [null]}}'])
def test_any_json_is_an_input(input: str) -> None:
    assert documents(["submit", "-t", "t", "-i", input])[0]["input"] == json.loads(input)


def test_input_from_a_file_and_from_stdin(folder: Path) -> None:
    (folder / "input.json").write_text('{\n  "n": 1\n}\n')
    assert documents("submit -t double -i @input.json")[0]["input"] == {"n": 1}
    assert documents("submit -t double -i -", stdin='{"n": 2}')[0]["input"] == {"n": 2}


def test_json_lines_are_a_task_each(folder: Path) -> None:
    (folder / "many.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(1200)))
    assert rota("submit -t double -i @many.jsonl").stdout == "submitted 1,200 tasks of type double\n"
    assert document("list --type double --count") == {"count": 1200}
    again = documents("submit -t other -i - --lines", stdin='{"n": 1}\n\n{"n": 2}\n')
    assert [task["input"] for task in again] == [{"n": 1}, {"n": 2}]
    assert len({task["id"] for task in again}) == 2


def test_a_wrong_line_is_named_and_nothing_is_submitted() -> None:
    said = complaint("submit -t double -i -", stdin='{"n": 1}\n{"n": 2}\n{"n": \n')
    assert "line 3 is not JSON" in said
    assert document("list --count") == {"count": 0}


def test_all_options_of_submit_arrive() -> None:
    line = (
        "submit -t double -i {} --at 2100-01-01T00:00:00+01:00 --expires-at 2100-01-02 --queue q --priority 200"
        ' --idempotency-key k --tag red --tag blue --max-retries 7 --timeout 1m --metadata \'{"who": "me"}\''
    )
    (task,) = documents(line)
    assert task["available_at"] == "2099-12-31T23:00:00Z"
    assert task["expires_at"] == "2100-01-02T00:00:00Z"
    assert (task["queue"], task["priority"], task["idempotency_key"]) == ("q", 200, "k")
    assert (task["tags"], task["max_retries"], task["timeout_seconds"]) == (["red", "blue"], 7, 60.0)
    assert task["metadata"] == {"who": "me"}
    assert documents(line)[0]["id"] == task["id"]
    assert "was already used" in complaint("submit -t double -i 3 --idempotency-key k", code=1)


def test_list_filters_and_pages() -> None:
    ids = [submit(f"-t {kind} --tag {kind}x") for kind in ("a", "b", "a")]
    page = document("list --type a --limit 1")
    assert [task["id"] for task in page["tasks"]] == [ids[2]]
    rest = document(["list", "--type", "a", "--limit", "1", "--cursor", page["next_cursor"]])
    assert [task["id"] for task in rest["tasks"]] == [ids[0]]
    assert [task["id"] for task in document("list --tag bx")["tasks"]] == [ids[1]]
    lines = rota("list").stdout.splitlines()
    assert lines[0].split() == ["ID", "TYPE", "STATUS", "QUEUE", "CREATED", "DETAIL"]
    assert [line.split()[0] for line in lines[1:]] == ids[::-1]


def test_tail_begins_with_the_last_lines() -> None:
    submit("-t double -i '{\"n\": 4}'")
    submit("-t boom")
    rota("tick doubling:app")
    lines = documents("tail -n 50 --no-follow")
    assert [line["version"] for line in lines if line["task_type"] == "double"] == [1, 2, 3]
    assert [line["status"] for line in documents("tail --no-follow --status failed")] == ["failed"]
    assert len(rota("tail -n 2 --no-follow").stdout.splitlines()) == 2
    assert documents("tail -n 0 --no-follow") == []


def test_tenants_do_not_see_each_other() -> None:
    task = rota("--tenant acme submit -t double").stdout.strip()
    assert document("list --count") == {"count": 0}
    assert document("list --count --tenant acme") == {"count": 1}
    assert "there is no task" in complaint(f"status {task}", code=1)


def test_global_options_work_on_either_side() -> None:
    rota("--store sqlite:///other.db submit -t double")
    assert json.loads(rota("--json list --count --store sqlite:///other.db").stdout) == {"count": 1}
    assert document("--store sqlite:///nowhere.db list --count --store sqlite:///other.db") == {"count": 1}


def test_tick_fires_what_is_due(folder: Path) -> None:
    rota("schedule create soon -t double -i '{\"n\": 3}' --interval 1s")
    fired: list[str] = []
    while not fired:  # the schedule is due within a second
        events = documents("tick doubling:app")
        told = [event["event"] for event in events if event.get("subject") in ("soon", "double")]
        fired = [event for event in told if event != "skipped"]  # a slow machine finds two times due
    assert fired[:3] == ["fired", "started", "completed"]
    assert rota("schedule runs soon --status completed").stdout.count("took") == fired.count("completed")
