"""While live workers are known and none of them runs shell commands, such templates are refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import rota
from command_line import bare_folder, complaint
from command_line import rota as type_in
from records import node
from rota.domain.errors import Invalid, Refused
from rota.domain.serving import runs_no_shell
from rota.engine.commands import remove_node, write_node
from rota.engine.runtimes.runtimes import Runtimes
from runtimes.world import Bench
from served import serving

SENTENCE = "the workers of tenant default run no shell commands; start one with --allow-shell"
WITHOUT = node("without", tenant="*", kinds=("report", "rota.http"))
WITH = node("with", tenant="*", kinds=("report", "rota.shell"))
OF_ANOTHER = node("other", tenant="acme", kinds=("rota.shell",))
SCHEDULER = node("scheduler", tenant="*", roles=("scheduler",), kinds=())


@pytest.mark.parametrize(
    ("nodes", "is_refused"),
    [
        ([], False),
        ([SCHEDULER], False),
        ([OF_ANOTHER], False),
        ([WITHOUT], True),
        ([WITHOUT, OF_ANOTHER], True),
        ([WITHOUT, WITH], False),
        ([WITH], False),
    ],
)
def test_it_takes_workers_that_are_known(nodes: list[rota.NodeState], is_refused: bool) -> None:
    assert runs_no_shell(nodes, "default") is is_refused


async def test_storing_changing_and_executing(bench: Bench) -> None:
    queue = bench.queue
    made = await queue.create_template("hello", runtime="shell", command="echo hello")
    await queue.create_template("report", "report")
    await queue.create_schedule("early", target=rota.TemplateTarget(template_id="hello"), interval="1h")
    await queue.create_schedule("daily", target=rota.TemplateTarget(template_id="report"), interval="1d")
    await queue.store.transact(write_node(WITHOUT))
    with pytest.raises(Refused, match=f"^{SENTENCE}$"):
        await queue.create_template("other", runtime="shell", command="ls")
    with pytest.raises(Refused, match=f"^{SENTENCE}$"):
        await queue.execute_template("hello")
    with pytest.raises(Refused, match=f"^{SENTENCE}$"):
        await queue.update_template("hello", command="echo there")
    with pytest.raises(Refused, match=f"^{SENTENCE}$"):
        await queue.update_template("report", runtime="shell", command="ls")
    with pytest.raises(Refused, match=f"^{SENTENCE}$"):
        await queue.create_schedule("hourly", target=rota.TemplateTarget(template_id="hello"), interval="1h")
    with pytest.raises(Refused, match=f"^{SENTENCE}$"):
        await queue.update_schedule("daily", target=rota.TemplateTarget(template_id="hello"))
    with pytest.raises(Refused, match=f"^{SENTENCE}$"):
        await queue.apply({"templates": {"new": {"runtime": "shell", "command": "ls"}}})
    assert (await queue.update_schedule("early", jitter="1m")).version == 2  # it had the command before
    assert (await queue.get_template("hello")).version == made.version
    assert (await queue.update_template("hello", enabled=False)).enabled is False
    await queue.update_template("hello", enabled=True)
    assert (await queue.execute_template("report")).kind == "report"
    await queue.store.transact(write_node(WITH))
    assert (await queue.execute_template("hello")).kind == "rota.shell"
    await queue.store.transact(remove_node("with"))
    await queue.store.transact(remove_node("without"))
    assert (await queue.execute_template("hello")).kind == "rota.shell"


async def test_a_worker_that_died_does_not_count(bench: Bench) -> None:
    store = bench.queue.store
    await store.transact(write_node(node("without", tenant="*", kinds=(), heartbeat=timedelta(0))))
    assert await bench.queue.create_template("hello", runtime="shell", command="echo hello")


def test_over_http_and_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare_folder(monkeypatch, tmp_path)
    type_in("template create hello --shell 'echo hello'")
    address = f"sqlite:///{tmp_path}/rota.db"

    async def be_seen() -> None:
        async with rota.connect(address) as queue:
            await queue.store.transact(write_node(WITHOUT))

    asyncio.run(be_seen())
    assert complaint("template create other --shell ls", code=1) == SENTENCE
    assert complaint("template execute hello", code=1) == SENTENCE
    assert complaint("schedule create s --template hello --interval 1h", code=1) == SENTENCE
    with serving(address, allow_shell=True) as served:
        client = served.client(served.key())
        path = "/api/tenants/default/templates"
        made = client.post(path, json={"alias": "other", "runtime": "shell", "command": "ls"})
        run = client.post(f"{path}/hello/execute")
        v1 = client.post("/api/v1/tasks", json={"task_type": "shell", "command": "ls"})
        timing = {"schedule_type": "interval", "interval_seconds": 60}
        timed = client.post("/api/v1/tasks/hello/$schedule", json=timing)
        for sent in (made, run, v1, timed):
            assert (sent.status_code, sent.json()["code"], sent.json()["detail"]) == (
                409,
                "no_shell",
                SENTENCE,
            )


def test_a_worker_on_windows_runs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    Runtimes(rota.App())
    with pytest.raises(Invalid, match="need process groups, which Windows has not"):
        Runtimes(rota.App(), allow_shell=True)
