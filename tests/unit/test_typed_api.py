"""The API as a type checker sees it: `sync.pyi` is current, and programs that use it are accepted or refused."""

from __future__ import annotations

import inspect
import os
import runpy
from pathlib import Path

import pytest
from mypy import api

import rota

ROOT = Path(__file__).parent.parent.parent
STUB = ROOT / "src" / "rota" / "sync.pyi"

ACCEPTED = """
import asyncio
from datetime import UTC, datetime, timedelta

import rota
import rota.sync

app = rota.App()
app.schedule("daily", task_type="greet", cron="0 9 * * *", timezone="Europe/London")


@app.task("greet", max_retries=5, timeout=timedelta(minutes=1), retry_policy=rota.RetryPolicy())
async def greet(name: str, context: rota.Context) -> str:
    context.log(f"attempt {context.attempt}")
    await context.progress(0.5, "half way")
    return name


@app.task("plain")
def plain(input: dict[str, int]) -> int:
    raise rota.RetryableError("busy", delay_seconds=5)


def report(task: rota.Task) -> None:
    print(task.kind)


async def main() -> None:
    queue: rota.Queue = await rota.connect("memory:")
    async with rota.connect("memory:") as other:
        tasks: list[rota.Task] = await other.submit_many([("greet", {"name": "Ada"})], tags=["x"])
        page: rota.Page[rota.Task] = await other.list(status=rota.TaskStatus.PENDING)
        print(page.next_cursor, len(tasks), tasks[0].input)
    task: rota.Task = await queue.submit("greet", {"name": "Ada"}, ttl=timedelta(hours=1))
    schedule: rota.Schedule = await queue.create_schedule("s", task_type="greet", interval=60)
    why: rota.Why = await queue.why("s", datetime(2026, 1, 1, tzinfo=UTC))
    times: list[rota.Occurrence] = await queue.preview("s", 3)
    worker = rota.Worker(queue, app, concurrency=5, on_success=report)

    @worker.task("more")
    async def more() -> None: ...

    await worker.run()
    print(task.id, schedule.next_run_at, why.status, times[0].local)


def in_sync() -> None:
    with rota.sync.connect("memory:") as queue:
        task: rota.Task = queue.submit("greet", {"name": "Ada"}, priority=200)
        done: rota.Task = queue.wait(task.id, timeout=timedelta(seconds=5))
        runs: rota.Page[rota.Run] = queue.runs("s", status="completed")
        times: list[rota.Occurrence] = queue.preview("s")
        print(done.output, [run.scheduled_at for run in runs], times[0].dst, queue.tenant)


asyncio.run(main())
in_sync()
"""

REFUSED = {
    'queue.submit("greet", priority="high")': "Argument",
    'queue.submit("greet", ttl="soon")': "Argument",
    'queue.submit("greet", colour="red")': "Unexpected keyword argument",
    'queue.submit_many([], idempotency_key="a")': "Unexpected keyword argument",
    'queue.start_workflow("greet", max_retries="often")': "Argument",
    'queue.list(state="failed")': "Unexpected keyword argument",
    "queue.list_schedules(text=5)": "Argument",
    'queue.create_schedule("s", task_type="greet", cron=5)': "Argument",
    'queue.create_schedule("s", every=60)': "Unexpected keyword argument",
    'queue.update_schedule("s", max_reschedules="few")': "Argument",
    'queue.preview_timing(cron="@daily", queue="q")': "Unexpected keyword argument",
    'queue.create_template("a", "greet", retry_policy="often")': "Argument",
    'queue.set_limits("a", pending=5)': "Unexpected keyword argument",
    'rota.App().schedule("s", task="greet")': "Unexpected keyword argument",
    'queue.sbumit("greet")': "has no attribute",
    'queue.get("id").otput': "has no attribute",
    'rota.Worker(queue, app="x")': "Argument",
}


def checked(text: str, folder: Path) -> str:
    """What mypy says about a program, in strict mode. Its cache is kept from run to run."""
    program = folder / "program.py"
    program.write_text(text)
    cache = ROOT / ".mypy_cache" / f"typed_api_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary"]
    said, trouble, _ = api.run([*options, str(program)])
    assert not trouble, trouble
    return said


def test_the_sync_stub_is_current() -> None:
    """If not: `make generated`."""
    assert STUB.read_text() == runpy.run_path(str(ROOT / "tools" / "make_sync_stub.py"))["stub"]()


def test_the_sync_stub_has_every_call_of_the_queue() -> None:
    text = STUB.read_text()
    calls = [name for name, value in inspect.getmembers(rota.Queue) if inspect.iscoroutinefunction(value)]
    missing = [name for name in calls if not name.startswith("_") and f"    def {name}(" not in text]
    assert not missing
    assert "async " not in text


def test_a_program_that_uses_the_api_passes_strict_checking(tmp_path: Path) -> None:
    assert checked(ACCEPTED, tmp_path) == ""


def test_wrong_uses_are_found(tmp_path: Path) -> None:
    head = "import rota\nimport rota.sync\n\nqueue = rota.sync.connect()\n"
    said = checked(head + "\n".join(REFUSED), tmp_path)
    for number, (line, problem) in enumerate(REFUSED.items(), start=head.count("\n") + 1):
        found = [each for each in said.splitlines() if f"program.py:{number}: error" in each]
        assert found, f"{line} was accepted\n{said}"
        assert problem in found[0]


def test_the_module_behind_the_stub_passes_strict_checking(tmp_path: Path) -> None:
    """A checker that finds the stub does not look at `sync.py` any more."""
    copy = (ROOT / "src" / "rota" / "sync.py").read_text().replace("from .", "from rota.")
    assert checked(copy, tmp_path) == ""


@pytest.mark.parametrize("name", ["py.typed", "sync.pyi"])
def test_the_package_says_that_it_is_typed(name: str) -> None:
    assert Path(rota.__file__).with_name(name).is_file()
