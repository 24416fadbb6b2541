"""Idle: what a node costs while nothing is due, with few schedules and with very many.

Each number of schedules is measured in a process of its own: statements (counted by SQLite's own trace of every
connection), processor time and resident memory of a node with scheduler, worker and janitor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw

import measure
import rota
import seed
from rota.domain.recurrence import Cron

SETTLING = 2


class Statements:
    """Counts what every connection of this process executes."""

    def __init__(self) -> None:
        self.number = 0
        apsw.connection_hooks.append(self._watch)

    def _watch(self, db: apsw.Connection) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_STMT, self._count)

    def _count(self, event: dict[str, Any]) -> None:
        self.number += 1


def yearly(number: int) -> list[Cron]:
    """One for each minute of a day half a year away, and so on round."""
    month = (time.gmtime().tm_mon + 5) % 12 + 1
    return [Cron(f"{n % 60} {n // 60 % 24} 15 {month} *", "UTC") for n in range(number)]


async def make(place: Path, number: int) -> None:
    async with rota.connect(f"sqlite:///{place / 'rota.db'}") as queue:
        await seed.make_schedules(queue, yearly(number))


async def watch(place: Path, seconds: int) -> dict[str, float]:
    """What a node that runs on this file costs, once it has settled."""
    counted = Statements()
    async with rota.connect(f"sqlite:///{place / 'rota.db'}") as queue:
        worker = rota.Worker(queue)

        @worker.task(seed.KIND)
        async def noop() -> None:
            pass

        running = asyncio.create_task(worker.run(handle_signals=False))
        await asyncio.sleep(SETTLING)
        statements, cpu, began = counted.number, time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        took = time.perf_counter() - began
        costs = {
            "statements_per_second": round((counted.number - statements) / took, 3),
            "cpu_percent": round(100 * (time.process_time() - cpu) / took, 3),
            "memory_mb": round(resident() / 1e6, 1),
        }
        worker.stop()
        await running
        return costs


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def in_a_process(step: str, place: Path, number: int, seconds: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--step", step, "--folder", str(place)]
    return subprocess.Popen(
        [*command, f"--few={number}", f"--seconds={seconds}"], stdout=subprocess.PIPE, text=True
    )


def answer(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate()
    assert process.returncode == 0
    return said


def watched(parent: Path | None, numbers: Sequence[int], seconds: int) -> list[dict[str, float]]:
    """Both nodes are watched at the same time: what else the machine does is the same for them."""
    with ExitStack() as stack:
        places = [stack.enter_context(measure.folder(parent)) for _ in numbers]
        for place, number in zip(places, numbers, strict=True):
            answer(in_a_process("make", place, number, seconds))
        watching = [in_a_process("watch", place, 0, seconds) for place in places]
        return [json.loads(answer(process)) for process in watching]


def step(asked: argparse.Namespace) -> None:
    if asked.step == "make":
        asyncio.run(make(asked.folder, asked.few))
    else:
        print(json.dumps(asyncio.run(watch(asked.folder, asked.seconds))))


def main() -> None:
    asked = measure.arguments(__doc__, few=100, many=100_000, seconds=20, step="")
    if asked.step:
        return step(asked)
    few, many = watched(asked.folder, (asked.few, asked.many), asked.seconds)
    more = round(many["memory_mb"] - few["memory_mb"], 1)
    results = {
        "few": few,
        "many": many,
        "memory_more_mb": more,
        "sizes": {"few": asked.few, "many": asked.many, "seconds": asked.seconds},
    }
    aims = {
        "under 1 statement/s": many["statements_per_second"] < 1,
        "under 1 % of a core": many["cpu_percent"] < 1,
        "within 30 MB": more <= 30,
    }
    measure.report("idle", results, aims, asked.folder)
    return None


if __name__ == "__main__":
    main()
