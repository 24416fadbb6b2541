"""A node in a process of its own: `node.py STORE LOG ROLE [OPTION=VALUE …]`.

ROLE is `worker` (tasks and upkeep) or `scheduler`. Handlers append lines to LOG: a line is one write with
O_APPEND, so lines of many processes never mix. With `die=before` or `die=after` the process kills itself with
SIGKILL around its first commit that fires something. With `window=SECONDS`, a bucket's log is cut every few moments."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import rota
from rota.engine.commands import Tick

STORE, LOG, ROLE = sys.argv[1:4]
OPTIONS = dict(option.split("=", 1) for option in sys.argv[4:])


def say(*words: object) -> None:
    line = " ".join(map(str, words)) + "\n"
    with open(LOG, "ab", buffering=0) as file:
        file.write(line.encode())


app = rota.App()


@app.task("work", max_retries=10)
async def work(input: Any, context: rota.Context) -> str:
    say("start", context.task.id, os.getpid())
    await asyncio.sleep(float((input or {}).get("seconds", 0)))
    say("end", context.task.id, os.getpid())
    return "done"


@app.task("limited", max_retries=10, limit=rota.Limit(concurrency=2, rate="12/2s", key="customer"))
async def limited(customer: str, context: rota.Context) -> None:
    say("begins", customer, context.task.id, os.getpid(), time.monotonic())
    await asyncio.sleep(0.1)
    say("ends", customer, context.task.id, os.getpid(), time.monotonic())


@app.task("hang")
async def hang(context: rota.Context) -> str:
    say("start", context.task.id, os.getpid())
    if context.attempt == 1:
        await asyncio.Event().wait()
    say("end", context.task.id, os.getpid())
    return "done"


@app.task("checks")
def checks(context: rota.Context) -> str:
    say("start", context.task.id, os.getpid())
    while context.attempt == 1:
        context.check()
        time.sleep(0.01)
    return "done"


@app.task("await-file")
async def await_file(input: dict[str, str], context: rota.Context) -> str:
    say("start", context.task.id, os.getpid())
    while not os.path.exists(input["path"]):
        await asyncio.sleep(0.01)
    return "done"


@app.task("block")
async def block(input: dict[str, str], context: rota.Context) -> None:
    while not os.path.exists(input["path"]):
        time.sleep(0.01)  # noqa: ASYNC251  this is the fault that the test is about


@app.workflow("races", max_retries=100)
async def races(ctx: rota.Workflow, n: int) -> list[Any]:
    async def note() -> int:
        say("step", ctx.idempotency_key, os.getpid())
        return n

    one, two = await asyncio.gather(ctx.receive("a"), ctx.child("work", key=n))
    return [one, two, await ctx.step(note), await ctx.receive("b")]


class Dying:
    """A store whose process dies around the first commit that fires."""

    def __init__(self, inner: Any, when: str) -> None:
        self._inner = inner
        self._when = when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def transact(self, work: Any, *options: Any) -> Any:
        async def watched(tx: Any) -> Any:
            answer = await work(tx)
            if self._when == "before" and isinstance(answer, Tick) and answer.runs:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        answer = await self._inner.transact(watched, *options)
        if isinstance(answer, Tick) and answer.runs:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


def connect() -> Any:
    if "window" not in OPTIONS:
        return rota.connect(STORE)
    from hasty import hasty_queue  # type: ignore[import-not-found]  # beside this script: on the path when it runs

    return hasty_queue(STORE, float(OPTIONS["window"]))


async def main() -> None:
    async with connect() as queue:
        if "die" in OPTIONS:
            queue.store = Dying(queue.store, OPTIONS["die"])
        node: rota.Node
        if ROLE == "scheduler":
            node = rota.Node(queue, janitor=False)
        else:
            node = rota.Worker(
                queue,
                app,
                scheduler=False,
                concurrency=int(OPTIONS.get("concurrency", 10)),
                lease=float(OPTIONS.get("lease", 30)),
                shutdown_timeout=float(OPTIONS.get("patience", 10)),
            )
        say("ready", ROLE, os.getpid())
        await node.run()
    say("exit", ROLE, os.getpid())


asyncio.run(main())
