"""Workflows on the command line: start, show, list, signal, cancel, replay."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from command_line import Process, bare_folder, complaint, document, rota, use_store

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
    assert document(f"workflow show {run}")["waits_for"] == ["receive:paid"]
    assert "code version: 1" in shown
    assert '"lamp"' in next(line for line in shown.splitlines() if "reserve" in line)
    assert document("workflow list --status pending")["tasks"][0]["id"] == run
    assert f"{run}  order" in (listed := rota("workflow list").stdout)
    assert "waits for the signal paid" in listed
    assert "available_at" not in rota(f"status {run}").stdout, "there is no time that it waits for"
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


def test_it_is_started_with_the_options_of_a_submission_and_found_by_them() -> None:
    options = "--queue slow --priority 9 --timeout 30d --tag lamps --metadata '{\"by\": 1}' --max-retries 0"
    made = document(f"workflow start order {options} --in 1h --retry-policy initial=5s --ttl 2h")
    assert (made["queue"], made["priority"], made["tags"]) == ("slow", 9, ["lamps"])
    assert (made["metadata"], made["max_retries"]) == ({"by": 1}, 0)
    assert made["timeout_seconds"] == 30 * 86_400
    assert made["retry_policy"]["initial_seconds"] == 5
    assert made["available_at"] > made["created_at"]
    assert made["expires_at"] > made["available_at"]
    start("order --queue quick")
    rota("submit -t mail --queue slow --tag lamps")

    def found(filters: str) -> list[str]:
        return [each["id"] for each in document(f"workflow list {filters}")["tasks"]]

    assert found("--queue slow") == found("--tag lamps") == [made["id"]]
    assert len(found("--type order")) == 2
    assert found("--queue slow --type bad") == []


def test_runs_of_a_schedule_are_found_by_its_name(folder: Path) -> None:
    (folder / "yearly.py").write_text(APP.replace('workflow("bad"', 'workflow("bad", cron="0 0 1 1 *"'))
    rota("tick yearly:app")
    run = document("schedule trigger bad")["id"]
    start("bad")
    assert [each["id"] for each in document("workflow list --schedule bad")["tasks"]] == [run]


def test_refusals() -> None:
    run = start("order")
    both = "--at and --in were both given; give one of them"
    assert complaint("workflow start order --in 1h --at 2100-01-01T00:00Z") == both
    assert "'soon' is not" in complaint("workflow start order --timeout soon")
    assert "there is no schedule 'nothing'" in complaint("workflow list --schedule nothing", code=1)
    assert "the payload is not JSON" in complaint(f"workflow signal {run} paid {{")
    deep = complaint(["workflow", "signal", run, "paid", "[" * 100_000])
    assert deep == "the payload is not JSON: it is nested too deeply"
    assert "there is no task 'nobody'" in complaint("workflow signal nobody paid", code=1)
    assert "only a failed or cancelled task" in complaint(f"workflow replay {run}", code=1)


def test_the_tutorial_goes_on_when_its_worker_is_killed(folder: Path) -> None:
    """As docs/workflows.md has it, only that nobody waits as long."""
    page = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text()
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert "asyncio.sleep(10)" in program
    (folder / "shop.py").write_text(program.replace("asyncio.sleep(10)", "asyncio.sleep(0.5)"))
    run = start('order -i \'{"sku":"lamp"}\'')
    with Process("worker shop:app --lease 3s", folder) as victim:
        victim.until("reserved lamp")
        rota(f"workflow signal {run} paid 40")
        victim.until("charging 40 for lamp")
        victim.end(signal.SIGKILL)
    with Process("worker shop:app --lease 3s", folder) as other:
        other.until("charging 40 for lamp")
        other.until("completed")
        chair = start('order -i \'{"sku":"chair"}\'')
        other.until("reserved chair")
        rota(f"workflow cancel {chair} --reason 'out of stock'")
        other.until("released chair")
        other.until("cancelled")
        assert "reserved lamp" not in other.lines
    done = document(f"workflow show {run}")
    assert (done["status"], done["output"]) == ("completed", {"sku": "lamp", "paid": 40})
    assert {step["key"]: step["attempts"] for step in done["steps"]}["reserve"] == 1
