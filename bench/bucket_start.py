"""100,000 schedules: how long a start takes, and how much memory the node needs then.

python bench/bucket_start.py [schedules]
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rota.domain.model import Schedule, TaskTarget
from rota.domain.recurrence import Cron
from rota.engine.clock import SystemClock
from rota.stores.base import Tx
from rota.stores.bucket.service.bucket import FolderRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning
from rota.stores.queries import ScheduleList

SCHEDULES = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
BATCH = 250


def schedules(start: int) -> list[Schedule]:
    now = datetime.now(UTC)
    due = now + timedelta(days=1)
    return [
        Schedule(
            id=f"schedule-{number:08}",
            key=f"report-{number:08}",
            timing=Cron("0 9 * * *"),
            target=TaskTarget(kind="generate_report", input={"customer": number}),
            next_run_at=due,
            due_at=due,
            created_at=now,
            updated_at=now,
        )
        for number in range(start, start + BATCH)
    ]


async def fill(folder: Path) -> None:
    store = BucketStore(FolderRequests(folder), SystemClock(), Tuning(views="off", views_every=timedelta(0)))
    await store.open()
    for start in range(0, SCHEDULES, BATCH):

        async def work(tx: Tx, start: int = start) -> None:
            for schedule in schedules(start):
                tx.put(schedule)

        await store.transact(work)
    await asyncio.sleep(3)
    await store.close()


def most_memory() -> int:
    """In kB, of this program alone: what getrusage says includes the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


async def start(folder: Path) -> None:
    began = time.perf_counter()
    store = BucketStore(FolderRequests(folder), SystemClock(), Tuning(views="off"))
    await store.open()
    took = time.perf_counter() - began
    held = most_memory()

    async def count(tx: Any) -> int:
        return int(await tx.count(ScheduleList(tenant="default")))

    found = await store.read(count)
    print(f"{found:,} schedules: start {took:.1f} s, memory {held // 1024} MB at most")
    await store.close()


if len(sys.argv) > 2:
    asyncio.run(start(Path(sys.argv[2])))
else:
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(fill(Path(name)))
        subprocess.run([sys.executable, __file__, str(SCHEDULES), name], check=True)
