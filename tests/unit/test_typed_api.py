"""The API as a type checker sees it: `sync.pyi` is current, and programs that use it are accepted or refused."""

from __future__ import annotations

import inspect
import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rota
import rota.sync
from worlds import THOROUGH

ROOT = Path(__file__).parent.parent.parent
STUB = ROOT / "src" / "rota" / "sync.pyi"

ACCEPTED = """
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import rota
import rota.sync

app = rota.App()
app.schedule("daily", task_type="greet", cron="0 9 * * *", timezone="Europe/London")


@dataclass
class Report:
    day: date


class Database: ...


@asynccontextmanager
async def database() -> AsyncIterator[Database]:
    yield Database()


async def other_database(first: Database) -> Database:
    return first


app.provide(Database, database)


@app.task
async def write(
    day: date, to: list[str], *, ctx: rota.Context = rota.injected, db: Database = rota.injected
) -> Report:
    return Report(day)


@app.task(interval="5m", input={"n": 1}, unique_for=timedelta(hours=1), unique_by=("kind",))
def double(n: int, times: int = 2) -> int:
    return n * times


@app.workflow("month", version=2, timeout="30d", queue="slow", cron="@monthly", input={"day": "2026-01-01"})
async def month(ctx: rota.Workflow, day: date, *, db: Database = rota.injected) -> Report:
    report: Report = await ctx.child(write, day=day, to=["ada"], queue="slow")
    reports: list[int] = await ctx.map(double, [1, 2], key=str)
    inline: int = await one(ctx, len(reports))
    return report


@app.workflow
async def one(c: rota.Workflow, n: int) -> int:
    label, value = await c.first(paid=c.receive("paid"), late=c.sleep(timedelta(days=3)))
    return n


async def typed_workflow() -> Report:
    started: rota.WorkflowHandle[Report] = await month.options(priority=1).submit(date.today())
    await started.signal("paid", 40)
    print([step.key for step in await started.steps()], await one.map([1, 2]))
    return await started.result(timeout=60)


async def typed() -> None:
    async with app.connect("memory:") as queue:
        sent: rota.Handle[Report] = await write.submit(date.today(), to=["ada"])
        report: Report = await sent.result(timeout=60)
        await write.options(priority=200, ttl="1h", schedule_at=datetime.now(UTC)).submit(report.day, [])
        doubled: list[rota.Handle[int]] = await double.map([1, 2, 3])
        more: list[rota.Handle[Report]] = await write.map([write.args(report.day, to=[])])
        called: Report = await write(date.today(), to=[])
        plain: int = double(5) + double(5, times=3)
        bound: rota.TaskFunction[[int, int], int] = queue.bind(double)
        print(called, plain, len(doubled), len(more), bound, (await sent.get()).status)


def typed_in_sync() -> None:
    with rota.sync.connect("memory:", app=app) as queue:
        sent: rota.sync.Handle[int] = queue.bind(double).options(priority=1).submit(5)
        result: int = sent.result(timeout="1m")
        run: Report = queue.bind(month).submit(date.today()).result()
        print(result, queue.bind(double).map([1, 2]), run)


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


class Mistake(NamedTuple):
    """What a type checker says, and the sentence that a program gets that was not checked (None: Python's own)."""

    checked: str
    run: str | None


HEAD = """
import asyncio
from datetime import date

import rota
import rota.sync

app = rota.App()
queue = rota.sync.connect("memory:", app=app)


@app.task
async def write(day: date, to: list[str], *, ctx: rota.Context = rota.injected) -> int:
    return 1


@app.task("double")
def double(n: int) -> int:
    return 2 * n


@app.workflow("month", version=2)
async def month(ctx: rota.Workflow, day: date) -> int:
    return 1


bound = queue.bind(write)
"""
ARGUMENT, UNEXPECTED, NO_OVERLOAD = "Argument", "Unexpected keyword argument", "No overload variant"
REFUSED = {
    'queue.submit("x", priority="high")': Mistake(ARGUMENT, "priority: 'high' is not accepted; give a whole"),
    'queue.submit("x", ttl=["1h"])': Mistake(ARGUMENT, "ttl: ['1h'] is not a duration; give a timedelta"),
    'queue.submit("x", colour="red")': Mistake(UNEXPECTED, "colour: there is no such option; accepted are"),
    'queue.submit("x", timeout_seconds=5)': Mistake(UNEXPECTED, "timeout_seconds: there is no such option"),
    'queue.submit("x", unique_by=5)': Mistake(ARGUMENT, "unique_by: 5 is not a list; give a list of texts"),
    'queue.submit_many([], idempotency_key="a")': Mistake(UNEXPECTED, "idempotency_key: one key cannot"),
    'queue.start_workflow("x", max_retries="often")': Mistake(
        ARGUMENT, "max_retries: 'often' is not accepted"
    ),
    'queue.list(state="failed")': Mistake(UNEXPECTED, "state: there is no such filter; accepted are"),
    "queue.list_schedules(text=5)": Mistake(ARGUMENT, "text: 5 is not a text; accepted are"),
    'queue.create_schedule("s", task_type="x", cron=5)': Mistake(ARGUMENT, "cron: 5 is not a text; accepted"),
    'queue.create_schedule("s", task_type="x", crn="@daily")': Mistake(UNEXPECTED, "crn: there is no such"),
    'queue.create_schedule("s", task_type="x", cron="@daily", timezone=5)': Mistake(
        ARGUMENT, "timezone: 5 is not a text; accepted"
    ),
    'queue.update_schedule("s", max_reschedules="few")': Mistake(ARGUMENT, None),
    'queue.preview_timing(cron="@daily", queue="q")': Mistake(UNEXPECTED, "queue: there is no such option"),
    'queue.create_template("a", "x", retry_policy="often")': Mistake(
        ARGUMENT, "retry_policy: 'often' is not"
    ),
    'queue.create_tenant("b", pending=5)': Mistake(UNEXPECTED, "pending: "),
    'app.schedule("s", task="x")': Mistake(
        UNEXPECTED, "schedule 's': task: there is no such option; accepted are"
    ),
    'app.task("x", crn="@daily")': Mistake(UNEXPECTED, "crn: there is no such option; did you mean cron?"),
    'app.task("x", timezone=5)': Mistake(NO_OVERLOAD, None),
    'app.task("x", timeout=[5])': Mistake(NO_OVERLOAD, "timeout: [5] is not a duration; give a timedelta"),
    'app.task("x", task_type="y")': Mistake(UNEXPECTED, "task_type: there is no such option"),
    "app.provide(5)": Mistake(ARGUMENT, "provide: 5 is not a class; give the class that handlers ask for"),
    'app.provide(dict, per="day")': Mistake(
        ARGUMENT, "per: 'day' is not known; accepted are worker and task"
    ),
    'app.workflow("x", acepts=1)': Mistake(
        UNEXPECTED, "acepts: there is no such option; did you mean accepts?"
    ),
    'app.workflow("x", run_in="process")': Mistake(UNEXPECTED, "run_in: there is no such option; accepted"),
    'app.workflow("x", version="2")': Mistake(NO_OVERLOAD, "version: '2' is not accepted; give a whole"),
    'app.workflow("x")(double)': Mistake(ARGUMENT, "function: the workflow 'x' is not an async function"),
    'queue.bind(month).submit("x")': Mistake(ARGUMENT, "input.day: expected a date such as 2026-01-31"),
    "queue.bind(month).submit()": Mistake("Missing", "input: month: missing a required argument: 'day'"),
    "queue.bind(month).options(timout=5)": Mistake(
        UNEXPECTED, "timout: there is no such option; did you mean timeout?"
    ),
    "queue.bind(month).submit(date.today()).result().upper()": Mistake("has no attribute", None),
    'asyncio.run(month.submit(date.today())).signl("paid")': Mistake("has no attribute", None),
    'asyncio.run(write.submit("x", to=[]))': Mistake(ARGUMENT, None),
    'bound.submit("x", to=[])': Mistake(ARGUMENT, "input.day: expected a date such as 2026-01-31, got 'x'"),
    "bound.submit(date.today())": Mistake("Missing", "input: write: missing a required argument: 'to'"),
    "bound.submit(date.today(), to=[5])": Mistake("List item", "input.to[0]: expected a text, got 5"),
    "bound.submit(date.today(), [], cc=1)": Mistake(UNEXPECTED, "input: write: got an unexpected keyword"),
    "bound.options(crn=5)": Mistake(UNEXPECTED, "crn: there is no such option; accepted are"),
    'queue.bind(double).map(["x"])': Mistake(
        "List item", "items[0].input.n: expected a whole number, got 'x'"
    ),
    "bound.map([date.today()])": Mistake(
        "List item", "items[0].input: write: missing a required argument: 'to'"
    ),
    "queue.bind(double).submit(5).result(timeout=[5])": Mistake(ARGUMENT, "timeout: [5] is not a duration"),
    "queue.bind(double).submit(5).result().upper()": Mistake("has no attribute", None),
    "double(5).upper()": Mistake("has no attribute", None),
    'queue.sbumit("x")': Mistake("has no attribute", None),
    'queue.get("id").otput': Mistake("has no attribute", None),
    "rota.Worker(queue, app)": Mistake(ARGUMENT, None),
}


def programs(folder: Path) -> Iterator[Path]:
    """Right ones, wrong ones, and the module behind the stub, which a checker that finds the stub does not look at."""
    copy = (ROOT / "src" / "rota" / "sync.py").read_text().replace("from .", "from rota.")
    for name, text in {"right": ACCEPTED, "wrong": HEAD + "\n".join(REFUSED), "behind": copy}.items():
        program = folder / f"{name}.py"
        program.write_text(text)
        yield program


@pytest.mark.long
@pytest.mark.timeout(1200)  # mypy without its cache
def test_programs_are_accepted_or_refused_by_a_type_checker(tmp_path: Path) -> None:
    """All in one run of mypy, in strict mode, whose cache is kept, whichever process runs this: it is the slowest thing
    here."""
    cache = ROOT / ".mypy_cache" / "typed_api"
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary"]
    files = map(str, programs(tmp_path))
    command = [sys.executable, "-m", "mypy", *options, *files]  # in a process, whose limits it changes
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    lines = done.stdout.splitlines()
    assert not [line for line in lines if "/right.py" in line or "/behind.py" in line]
    for number, (line, mistake) in enumerate(REFUSED.items(), start=HEAD.count("\n") + 1):
        found = [each for each in lines if f"/wrong.py:{number}: error" in each]
        assert found, f"{line} was accepted\n{done.stdout}"
        assert mistake.checked in found[0]


@pytest.mark.skipif(not THOROUGH, reason="it installs pyright from a registry: make test-all")
@pytest.mark.long
@pytest.mark.timeout(1200)  # mypy without its cache
def test_programs_are_accepted_or_refused_by_another_type_checker(tmp_path: Path) -> None:
    """What is wrong must be so because of its types, not of its looks: pyright counts a bare expression, too."""
    assert shutil.which("npm") is not None, "Node.js with npm is needed for this test"
    subprocess.run(["npm", "install", "--silent", "--prefix", tmp_path, "pyright"], check=True, timeout=200)
    looks = {"reportUnusedVariable": False, "reportDeprecated": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", **looks}))
    right, wrong, _ = programs(tmp_path)
    options = ["--outputjson", "--pythonpath", sys.executable]
    ran = ["node_modules/.bin/pyright", *options, right.name, wrong.name]
    said = subprocess.run(ran, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False).stdout
    found = json.loads(said)["generalDiagnostics"]
    assert not [each for each in found if each["file"] == str(right)]
    types = {"reportArgumentType", "reportCallIssue", "reportAttributeAccessIssue"}
    refused = {each["range"]["start"]["line"] for each in found if each.get("rule") in types}
    lines = dict(enumerate(REFUSED, start=HEAD.count("\n")))
    assert refused == set(lines), [lines[number] for number in set(lines) - refused]


@pytest.fixture(scope="module")
def names() -> Iterator[dict[str, Any]]:
    made: dict[str, Any] = {"__name__": "mistaken"}
    exec(compile(HEAD, "mistaken.py", "exec", dont_inherit=True), made)
    with made["queue"]:
        yield made


@pytest.mark.parametrize("line", [line for line, mistake in REFUSED.items() if mistake.run is not None])
def test_a_program_that_was_not_checked_gets_one_sentence(line: str, names: dict[str, Any]) -> None:
    expected = REFUSED[line].run
    assert expected is not None
    with pytest.raises(rota.Invalid, match=f"^{re.escape(expected)}") as refused:
        eval(line, names)
    assert "\n" not in str(refused.value)


def test_the_sync_stub_is_current() -> None:
    """If not: `make generated`."""
    assert STUB.read_text() == runpy.run_path(str(ROOT / "tools" / "make_sync_stub.py"))["stub"]()


def test_the_sync_stub_has_every_call_of_the_queue() -> None:
    text = STUB.read_text()
    calls = [name for name, value in inspect.getmembers(rota.Queue) if inspect.iscoroutinefunction(value)]
    missing = [name for name in calls if not name.startswith("_") and f"    def {name}(" not in text]
    assert not missing
    assert "async " not in text


@pytest.mark.parametrize("name", ["py.typed", "sync.pyi"])
def test_the_package_says_that_it_is_typed(name: str) -> None:
    assert Path(rota.__file__).with_name(name).is_file()
