"""`rota up --demo`: an example app in a store of its own, and what to try beside it.

Four schedules show within seconds what Rota does:

pulse        every 3 s              simply runs
weather      a cron line, every 10 s  reports its progress and returns something
sync         every 8 s              its first attempt fails, and is retried
backup       every 6 s              takes 9 s: the times that come meanwhile are skipped, and recorded
"""

from __future__ import annotations

import shlex
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random

import click

from ....domain.model import RetryPolicy
from ....engine.app import App
from ....engine.clock import sleep
from ....engine.executor import Context
from .running import ProcessOptions

app = App()
_random = Random()

_SKIES = ("clear", "a few clouds", "drizzle", "fog in the valleys", "snow above 1,200 m")


@app.task("greet")
def greet(name: str = "world") -> str:
    return f"Hello, {name}!"


@app.task("pulse")
async def pulse() -> None:
    await sleep(timedelta(seconds=_random.uniform(0.02, 0.2)))


@app.task("weather")
async def weather(context: Context) -> str:
    for step in range(1, 5):
        context.progress(step / 4)
        await sleep(timedelta(seconds=0.2))
    return f"{_random.randint(-4, 24)} °C, {_random.choice(_SKIES)}"


@app.task("sync", retry_policy=RetryPolicy(initial=timedelta(seconds=1)))
async def sync(context: Context) -> str:
    await sleep(timedelta(seconds=0.3))
    if context.attempt == 1:
        raise ConnectionError("the other side hung up")
    return f"{_random.randint(3, 400)} rows"


@app.task("backup")
async def backup(context: Context) -> str:
    for step in range(1, 10):
        context.progress(step / 9)
        await sleep(timedelta(seconds=1))
    return "4.2 GB"


app.schedule("pulse", task_type="pulse", interval=timedelta(seconds=3), description="Simply runs.")
app.schedule("weather", task_type="weather", cron="*/10 * * * * *", description="A cron line with seconds.")
app.schedule(
    "sync", task_type="sync", interval=timedelta(seconds=8), description="Fails at first, and is retried."
)
app.schedule(
    "backup",
    task_type="backup",
    interval=timedelta(seconds=6),
    description="Takes longer than its interval: what comes meanwhile is skipped, and recorded.",
)

_TRY = (
    ("rota schedule list", "every schedule, and when it is due"),
    ("rota schedule show backup", "one of them, in words"),
    ("rota schedule runs backup", "what became of each expected time"),
    ('rota submit -t greet -i \'{"name":"Ada"}\'', "a task of your own"),
    ("rota tail", "every change of every task, live"),
)


@contextmanager
def in_demo_store(options: ProcessOptions) -> Iterator[ProcessOptions]:
    """The store that was named, or else one that is gone afterwards."""
    if not options.settings.is_default("store"):
        yield replace(options.with_app(app), hints=_hints(options.address))
        return
    folder = tempfile.mkdtemp(prefix="rota-demo-")
    try:
        address = f"sqlite:///{folder}/rota.db"
        yield replace(options.with_app(app), store=address, hints=_hints(address))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hints(address: str) -> tuple[str, ...]:
    width = max(len(line) for line, _ in _TRY)
    lines = [
        f"  {click.style(line.ljust(width), fg='green')}  {click.style(what, dim=True)}"
        for line, what in _TRY
    ]
    return (
        "",
        "Try, in another terminal:",
        *(f"  {click.style(line, fg='green')}" for line in _exports(address)),
        *lines,
        "",
    )


def _exports(address: str) -> Iterator[str]:
    """Lines that another terminal needs first, so that those below work as printed."""
    if shutil.which("rota") is None:
        yield f"export PATH={shlex.quote(sysconfig.get_path('scripts'))}:$PATH"
    yield f"export ROTA_STORE={shlex.quote(address)}"
