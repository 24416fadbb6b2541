"""The example app of `rota up --demo`: four schedules that show what Rota does, within seconds.

pulse        every 3 s              simply runs
weather      a cron line, every 10 s  reports its progress and returns something
sync         every 8 s              its first attempt fails, and is retried
backup       every 6 s              takes 9 s: the times that come meanwhile are skipped, and recorded
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from ....domain.model import RetryPolicy
from ....engine.app import App
from ....engine.clock import sleep
from ....engine.executor import Context

__all__ = ["app"]

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
