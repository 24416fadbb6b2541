"""Workflows on the command line: start, show, list, signal, cancel, replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, rota, use_store

APP = """
import rota

app = rota.App()


@app.workflow("order")
async def order(ctx, sku):
    await ctx.step(lambda: sku, name="reserve", undo=lambda sku: None)
    return await ctx.receive("paid")


@app.task("mail")
async def mail():
    return "sent"


@app.workflow("bad")
async def bad(ctx):
    ctx.progress(50, "half")
    await ctx.child(mail)
    await ctx.step(lambda: 1 / 0, name="divide", retries=0)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    use_store(monkeypatch, "sqlite")
    (tmp_path / "ordering.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def start(line: str) -> str:
    return rota(f"workflow start {line}").stdout.strip()


def test_a_workflow_from_start_to_end() -> None:
    run = start('order -i \'{"sku": "lamp"}\'')
    rota("tick ordering:app")
    shown = rota(f"workflow show {run}").stdout
    assert "waits for: receive:paid" in shown
    assert "code version: 1" in shown
    assert '"lamp"' in next(line for line in shown.splitlines() if "reserve" in line)
    assert document("workflow list --status pending")["tasks"][0]["id"] == run
    assert run in rota("workflow list").stdout
    assert (
        rota(f"workflow signal {run} paid 40 --idempotency-key one").stdout == f"sent paid to order {run}\n"
    )
    rota(f"workflow signal {run} paid 41 --idempotency-key one")
    assert "unread signal: paid, sent by " in rota(f"workflow show {run}").stdout
    rota("tick ordering:app")
    done = document(f"workflow show {run}")
    assert (done["status"], done["output"]) == ("completed", 40)
    assert [step["key"] for step in done["steps"]] == ["reserve", "receive:paid"]


def test_one_that_is_cancelled_undoes_and_one_that_failed_runs_again() -> None:
    run, bad = start('order -i \'{"sku": "lamp"}\''), start("bad")
    rota("tick ordering:app")
    assert rota(f"workflow cancel {run} --reason sold").stdout == f"order {run} is asked to end\n"
    rota("tick ordering:app")
    steps = document(f"workflow show {run}")["steps"]
    assert {"reserve", "undo:reserve"} <= {step["key"] for step in steps}
    assert ": sold)" in rota(f"workflow show {run}").stdout
    shown = rota(f"workflow show {bad}").stdout
    assert "ZeroDivisionError" in shown
    assert '"half"' in shown
    [child] = [step["child_id"] for step in document(f"workflow show {bad}")["steps"] if step["child_id"]]
    assert f'task {child}: "sent"' in shown
    assert document(f"workflow replay {bad} --from-step divide")["status"] == "pending"


def test_refusals() -> None:
    run = start("order")
    assert "the payload is not JSON" in complaint(f"workflow signal {run} paid {{")
    assert "there is no task 'nobody'" in complaint("workflow signal nobody paid", code=1)
    assert "only a failed or cancelled task" in complaint(f"workflow replay {run}", code=1)
