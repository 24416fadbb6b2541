"""Functions in processes: what they can say, how they end, how they are stopped."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rota
from rota import TaskStatus
from rota.domain.errors import Invalid
from rota.domain.model import Task
from rota.engine import executor
from rota.engine.executor import STOP_GRACE
from rota.engine.runtimes import processes, shell
from rota.engine.runtimes.child import Child
from rota.engine.runtimes.processes import Stop
from runtimes import process_app, slow_app
from runtimes.test_shell import gone, started
from runtimes.world import Bench


class Runs:
    """A worker with the functions of `process_app`."""

    def __init__(self, bench: Bench) -> None:
        self.queue = bench.queue
        bench.worker.app.handlers.update(process_app.app.handlers | slow_app.app.handlers)
        self._bench = bench

    async def __call__(self, kind: str, input: Any = None, **options: Any) -> Task:
        return await self._bench.done(await self.queue.submit(kind, input, **options))


async def test_what_it_returns_and_reports_arrives_from_one_warm_process(bench: Bench) -> None:
    runs = Runs(bench)
    first, second = await runs("pid"), await runs("pid")
    assert first.output == second.output
    done = await runs("told", {"name": "Ada"})
    assert done.output == {"attempt": 1, "kind": "told"}
    assert [line.message for line in done.logs] == ["hello Ada"]
    assert done.progress == {"value": 0.5, "message": "half"}
    done = await runs("told.async")
    assert (done.output, [line.message for line in done.logs]) == ("done", ["from a loop"])
    assert (await runs("pid")).output == first.output


async def test_what_it_leaves_is_stored_by_its_worker(bench: Bench, tmp_path: Path) -> None:
    runs = Runs(bench)
    done = await runs("leave", {"folder": str(tmp_path)})
    assert str(done.output).startswith("name: ")
    found = {each.name: each.media_type for each in await bench.queue.artifacts(done.id)}
    assert found.keys() == {"result", "page.txt", "raw"}
    assert found["raw"] == "application/x-raw"
    opened = await bench.queue.open_artifact(done.id, "page.txt")
    assert await opened.read() == b"from a file"
    done = await runs("leave.async")
    assert done.output == 3
    assert {each.name for each in await bench.queue.artifacts(done.id)} == {
        "result",
        "not awaited",
        "awaited",
    }


async def test_a_thread_that_outlives_its_call_does_not_speak_for_the_next(
    bench: Bench, tmp_path: Path
) -> None:
    runs = Runs(bench)
    await runs("leave.late", {"file": str(tmp_path / "go")})
    done = await runs("after", {"file": str(tmp_path / "go")})
    assert str(done.output).startswith("only the function itself leaves artifacts")
    assert {each.name for each in await bench.queue.artifacts(done.id)} == {"result"}
    assert done.logs == ()


def _next_look(found: list[Any], child: Child) -> Any:
    return found.pop()


def test_a_stop_that_comes_as_the_call_ends_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread forgets the call while the other one looks at it, so each look may be the last."""
    call, told = SimpleNamespace(stopping=None), list[bool]()
    looks: dict[str, list[Any]] = {"_execution": [None, call], "_cancel": [None, lambda: told.append(True)]}
    for name, found in looks.items():
        monkeypatch.setattr(Child, name, property(partial(_next_look, found)), raising=False)
    Child.__new__(Child)._stop(executor.StopReason.CANCEL)
    assert call.stopping is executor.StopReason.CANCEL
    assert told == [True]


async def test_what_it_raises_decides_as_anywhere(bench: Bench) -> None:
    runs = Runs(bench)
    retried = await runs("raise", {"how": "retry"})
    assert retried.available_at - retried.updated_at == timedelta(seconds=77)
    assert (await runs("raise", {"how": "permanent"})).status is TaskStatus.FAILED
    assert (await runs("raise", {"how": "reschedule"})).reschedules == 1
    failed = await runs("raise", {"how": "unknown"})
    assert failed.error is not None
    assert str(failed.error) == "KeyError: 'unknown'"
    assert "in raising" in str(failed.error.traceback)
    assert str((await runs("raise", {"how": "odd"})).error) == "RuntimeError: Odd: 1 and 2"
    assert str((await runs("raise", {"how": "exit"})).error) == "SystemExit: 3"
    unfit = await runs("raise", {"how": "unfit"})
    assert "cannot be stored" in str(unfit.error)
    unfit = await runs("raise", {"how": "lambda"})
    assert unfit.status is TaskStatus.FAILED
    sentence = "PermanentError: the result of raising cannot be sent from its process: "
    assert str(unfit.error).startswith(sentence)
    invalid = await runs("raise", {"how": "invalid"})
    assert str(invalid.error) == "Invalid: day: there is no such day; give another"


async def test_a_queue_cannot_be_asked_for(bench: Bench) -> None:
    refused = await Runs(bench)("asks.queue")
    assert str(refused.error) == (
        "PermanentError: the arguments of asks_queue cannot be sent to a process: "
        "a queue belongs to its process; open one there with rota.connect()"
    )


async def test_a_process_that_dies_is_a_failed_attempt(bench: Bench) -> None:
    runs = Runs(bench)
    died = await runs("die", {"how": "segfault"})
    assert (died.status, str(died.error)) == (
        TaskStatus.FAILED,
        "ProcessEnded: the process was killed by SIGSEGV before the handler ended",
    )
    died = await runs("die", {"how": "exit"})
    assert str(died.error) == "ProcessEnded: the process exited with code 7 before the handler ended"
    hungry = await runs("hog")
    assert hungry.error is not None
    assert (hungry.status, hungry.error.type) == (TaskStatus.FAILED, "MemoryError")
    assert (await runs("pid")).status is TaskStatus.COMPLETED


async def test_copies_that_it_forks_have_no_link_to_the_worker(bench: Bench) -> None:
    runs = Runs(bench)
    forked = await runs("fork")
    assert [line.message for line in forked.logs] == ["it"]
    answered = await runs("told", {"name": "Ada"})
    assert answered.output == {"attempt": 1, "kind": "told"}  # not what a copy returned
    assert (await runs("pid")).output == forked.output
    abandoned = await runs("abandon", timeout=60)
    assert str(abandoned.error) == "ProcessEnded: the process exited with code 7 before the handler ended"


async def test_a_timeout_kills_it_with_its_children(bench: Bench, tmp_path: Path) -> None:
    runs, file = Runs(bench), tmp_path / "pids"
    done = await runs("hang", {"file": str(file)})
    assert str(done.error) == "TimeoutError: ran longer than its timeout of 4 s"
    for pid in map(int, file.read_text().split()):
        assert await gone(pid)
    assert (await runs("pid")).status is TaskStatus.COMPLETED


@pytest.mark.parametrize("kind", ["polite", "polite.async"])
async def test_a_cancel_is_seen_and_the_process_stays(bench: Bench, kind: str, tmp_path: Path) -> None:
    runs, ready = Runs(bench), tmp_path / "ready"
    running = asyncio.create_task(bench.worker.run(handle_signals=False))
    task = await bench.queue.submit(kind, {"file": str(ready)})
    await started(ready)
    await bench.queue.cancel(task.id)
    assert (await runs.queue.wait(task.id, timeout=60)).status is TaskStatus.CANCELLED
    after = await bench.queue.wait((await bench.queue.submit("pid")).id, timeout=60)
    assert after.status is TaskStatus.COMPLETED
    bench.worker.stop()
    await running


async def test_the_timeout_counts_from_the_call_not_from_the_start_of_its_process(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, importing = Runs(bench), tmp_path / "importing"
    monkeypatch.setenv("SLOW_IMPORT", str(importing))
    running = asyncio.create_task(runs("slow.pid"))
    await started(importing)
    await asyncio.sleep(3.2)  # longer than its timeout
    importing.unlink()
    done = await running
    assert (done.status, done.error) == (TaskStatus.COMPLETED, None)


async def test_a_process_that_does_not_start_is_given_up(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW_IMPORT", str(tmp_path / "importing"))
    monkeypatch.setattr(executor, "START_GRACE", timedelta(seconds=0.1))
    done = await Runs(bench)("slow.pid", timeout=0.1)
    assert str(done.error) == "TimeoutError: ran longer than its timeout of 0.1 s"


@pytest.mark.parametrize("kind", ["slow.polite", "slow.polite.async"])
async def test_a_cancel_reaches_a_process_that_starts(
    bench: Bench, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, importing, told = Runs(bench), tmp_path / "importing", asyncio.Event()
    monkeypatch.setenv("SLOW_IMPORT", str(importing))
    first = await runs("pid")
    say = processes.Process._say

    def listened(process: processes.Process, message: Any) -> None:
        say(process, message)
        if isinstance(message, Stop):
            told.set()

    monkeypatch.setattr(processes.Process, "_say", listened)
    running = asyncio.create_task(bench.worker.run(handle_signals=False))
    task = await bench.queue.submit(kind)
    await started(importing)
    await bench.queue.cancel(task.id)
    await told.wait()
    importing.unlink()
    assert (await bench.queue.wait(task.id, timeout=60)).status is TaskStatus.CANCELLED
    after = await bench.queue.wait((await bench.queue.submit("pid")).id, timeout=60)
    assert after.output == first.output, "the process ended the call by itself, and was not killed"
    bench.worker.stop()
    await running


SCRIPT = """
import asyncio, rota

app = rota.App()

@app.task("where", run_in="process")
def where():
    return __name__

async def main():
    async with rota.connect("memory:") as queue:
        task = await queue.submit("where", max_retries=0)
        worker = rota.Worker(queue, app)
        await worker.run_once()
        done = await queue.get(task.id)
        print(done.output, done.error)
        await worker.tasks.runtimes.close()

"""


@pytest.mark.parametrize(
    ("last", "printed"),
    [
        ('if __name__ == "__main__":\n    asyncio.run(main())', "__mp_main__ None"),
        ("asyncio.run(main())", "None PermanentError: the program starts a worker when it is imported; put"),
    ],
)
def test_a_program_may_hold_the_function_itself(tmp_path: Path, last: str, printed: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(SCRIPT + last)
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert ran.stdout.startswith(printed), ran.stderr
    assert ran.stdout.count("\n") == 1


def test_what_cannot_run_there_is_refused() -> None:
    app = rota.App()
    with pytest.raises(Invalid, match=r"^run_in: a process cannot find .*; define the function with def"):
        app.task("x", run_in="process")(lambda: None)
    with pytest.raises(Invalid, match=r"^run_in: 'rocket' is not known"):
        app.task("x", run_in="rocket")  # type: ignore[call-overload]  # refused at run time, too
    with pytest.raises(Invalid, match=r"^memory_limit: it holds for processes only"):
        app.task("x", memory_limit=10**9)
    with pytest.raises(Invalid, match=r"^memory_limit: 5 is not accepted"):
        app.task("x", run_in="process", memory_limit=5)
    assert not app.handlers


def test_what_does_not_stop_is_killed_before_the_executor_gives_it_up() -> None:
    assert processes.KILL_AFTER < STOP_GRACE
    assert shell.KILL_AFTER + shell.REAPED < STOP_GRACE
