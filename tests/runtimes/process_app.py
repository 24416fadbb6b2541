"""Functions for processes. They stand at the top of a module, where a process finds them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import rota

app = rota.App()


class Odd(Exception):
    """Cannot be carried: to make it again needs more than its text."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


@app.task("pid", run_in="process")
def pid() -> int:
    return os.getpid()


@app.task("told", run_in="process")
def told(name: str, context: rota.Context) -> dict[str, Any]:
    context.log(f"hello {name}")
    context.progress(0.5, "half")
    context.check()
    return {"attempt": context.attempt, "kind": context.task.kind}


@app.task("told.async", run_in="process")
async def told_async(context: rota.Context) -> str:
    await context.log("from a loop")
    await asyncio.sleep(0)
    return "done"


@app.task("leave", run_in="process", max_retries=0)
def leave(folder: str, context: rota.Context) -> str:
    os.chdir(folder)
    Path("page.txt").write_text("from a file")
    context.artifact("page.txt", Path("page.txt"))
    context.artifact("raw", memoryview(b"bytes"), media_type="application/x-raw")
    Path("page.txt").unlink()  # it was stored when the call returned
    try:
        context.artifact("", b"")
    except rota.RotaError as problem:
        return str(problem)
    return "accepted"


@app.task("leave.async", run_in="process", max_retries=0)
async def leave_async(context: rota.Context) -> int:
    context.artifact("not awaited", "x" * 10_000)
    return (await context.artifact("awaited", "abc")).size


@app.task("asks.queue", run_in="process")
def asks_queue(queue: rota.Queue) -> None: ...


@app.task("raise", run_in="process", max_retries=3)
def raising(how: str) -> Any:
    match how:
        case "retry":
            raise rota.RetryableError("later", delay_seconds=77)
        case "permanent":
            raise rota.PermanentError("never")
        case "reschedule":
            raise rota.RescheduleError(delay_seconds=50)
        case "invalid":
            raise rota.Invalid("day", "there is no such day", "give another")
        case "odd":
            raise Odd(1, 2)
        case "exit":
            raise SystemExit(3)
        case "unfit":
            return object
        case "lambda":
            return lambda: None
    raise KeyError(how)


@app.task("die", run_in="process", max_retries=0)
def die(how: str) -> None:
    if how == "segfault":
        ctypes.string_at(0)
    os._exit(7)


@app.task("fork", run_in="process")
def fork(context: rota.Context) -> int:
    parent = os.getpid()
    os.fork()  # the copies return, too
    os.fork()
    context.log("it" if os.getpid() == parent else "a copy")
    return parent


@app.task("abandon", run_in="process", max_retries=0)
def abandon() -> None:
    if os.fork() == 0:
        time.sleep(1000)
    subprocess.Popen(["sleep", "1000"], close_fds=False)
    os._exit(7)


@app.task("hog", run_in="process", max_retries=0, memory_limit=256 * 1024 * 1024)
def hog() -> int:
    return len(bytearray(1024 * 1024 * 1024))


@app.task("hang", run_in="process", max_retries=0, timeout=4)
def hang(file: str) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    Path(file).write_text(f"{os.getpid()} {child.pid}")
    child.wait()


@app.task("polite", run_in="process")
def polite(file: str, context: rota.Context) -> None:
    Path(file).touch()
    while True:
        context.check()
        time.sleep(0.005)


@app.task("polite.async", run_in="process")
async def polite_async(file: str) -> None:
    Path(file).touch()
    await asyncio.Event().wait()


@app.task("leave.late", run_in="process")
def leave_late(file: str, context: rota.Context) -> None:
    """Leaves a thread, which speaks of its task once `file` is there, and says there what came of it."""

    def speak() -> None:
        while not Path(file).exists():
            time.sleep(0.005)
        context.log("too late")
        try:
            context.artifact("late", b"late")
        except RuntimeError as problem:
            Path(f"{file}.said").write_text(str(problem))

    threading.Thread(target=speak, daemon=True).start()


@app.task("after", run_in="process")
def after(file: str) -> str:
    Path(file).touch()
    said = Path(f"{file}.said")
    while not said.exists() or not said.read_text():
        time.sleep(0.005)
    return said.read_text()
