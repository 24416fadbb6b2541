"""Functions whose module is slow to import, where `SLOW_IMPORT` names a file: it is made, and waited for until it is
gone."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import rota

app = rota.App()

if "SLOW_IMPORT" in os.environ:
    importing = Path(os.environ["SLOW_IMPORT"])
    importing.touch()
    while importing.exists():
        time.sleep(0.005)


@app.task("slow.pid", run_in="process", max_retries=0, timeout=3)
def pid() -> int:
    return os.getpid()


@app.task("slow.polite", run_in="process", max_retries=0)
def polite(context: rota.Context) -> None:
    while True:
        context.check()
        time.sleep(0.005)


@app.task("slow.polite.async", run_in="process", max_retries=0)
async def polite_async() -> None:
    await asyncio.Event().wait()
