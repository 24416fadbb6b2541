"""The others, as their documentation sets them up, each with one no-op job: PgQueuer, Procrastinate, graphile-worker
(through node, if `make peers` installed it or GRAPHILE names its folder); and the raw limit, plain asyncpg with
batches.

Each has `prepare`, `submit_many`, `submit_one` and `drain`. What is measured: jobs a second, and microseconds of the
processors for each job, those of the client and those of the server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import uuid_utils

BATCH = 1000


class Raw:
    """The same rows: inserted, claimed and completed in batches, nothing else. One index, as every queue needs."""

    name = "raw"

    async def prepare(self, url: str) -> None:
        self.pool = await asyncpg.create_pool(url, min_size=1, max_size=16)
        await self.pool.execute(
            "create table job (id text primary key, status text not null, at timestamptz not null, body json not null);"
            "create index on job (at, id) where status = 'pending'"
        )
        self.body = json.dumps({"kind": "noop", "input": {"n": 1}, "history": ["x" * 300]})

    async def submit_many(self, number: int) -> None:
        for _ in range(0, number, BATCH):
            ids = [str(uuid_utils.uuid7()) for _ in range(BATCH)]
            await self.pool.execute(
                "insert into job select id, 'pending', now(), body from unnest($1::text[], $2::json[]) as t(id, body)",
                ids,
                [self.body] * BATCH,
            )

    async def submit_one(self) -> None:
        await self.pool.execute(
            "insert into job values ($1, 'pending', now(), $2)", str(uuid_utils.uuid7()), self.body
        )

    async def drain(self, number: int, concurrency: int) -> None:
        left = number
        while left:
            rows = await self.pool.fetch(
                "update job set status = 'running', body = body from (select id from job where status = 'pending'"
                " order by at, id limit $1 for update skip locked) as ready where job.id = ready.id"
                " returning job.id, job.body",
                concurrency,
            )
            await self.pool.execute(
                "update job set status = 'completed', body = done.body from unnest($1::text[], $2::json[])"
                " as done(id, body) where job.id = done.id",
                [row["id"] for row in rows],
                [row["body"] for row in rows],
            )
            left -= len(rows)

    async def close(self) -> None:
        await self.pool.close()


class PgQueuer:
    name = "pgqueuer"

    async def prepare(self, url: str) -> None:
        from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
        from pgqueuer.qm import QueueManager
        from pgqueuer.queries import Queries

        logging.getLogger("pgqueuer").setLevel(logging.ERROR)
        self.pool = await asyncpg.create_pool(url, min_size=1, max_size=16)
        self.queries = Queries(AsyncpgPoolDriver(self.pool))
        await self.queries.install()
        self.connection = await asyncpg.connect(url)
        self.manager = QueueManager(Queries(AsyncpgDriver(self.connection)))

    async def submit_many(self, number: int) -> None:
        for _ in range(0, number, BATCH):
            await self.queries.enqueue(["noop"] * BATCH, [b"1"] * BATCH, [0] * BATCH)

    async def submit_one(self) -> None:
        await self.queries.enqueue("noop", b"1")

    async def drain(self, number: int, concurrency: int) -> None:
        from pgqueuer.types import QueueExecutionMode

        left = number

        async def noop(job: Any) -> None:
            nonlocal left
            left -= 1

        self.manager.entrypoint("noop")(noop)

        await self.manager.run(batch_size=min(concurrency, 500), mode=QueueExecutionMode.drain)
        assert left <= 0, left

    async def close(self) -> None:
        await self.connection.close()
        await self.pool.close()


class Procrastinate:
    name = "procrastinate"

    async def prepare(self, url: str) -> None:
        import procrastinate

        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, max_size=16))
        self.left = 0

        async def noop(n: int) -> None:
            self.left -= 1

        self.noop = self.app.task(name="noop")(noop)
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()

    async def submit_many(self, number: int) -> None:
        for _ in range(0, number, BATCH):
            await self.noop.configure().batch_defer_async(*({"n": 1} for _ in range(BATCH)))

    async def submit_one(self) -> None:
        await self.noop.defer_async(n=1)

    async def drain(self, number: int, concurrency: int) -> None:
        await self.app.run_worker_async(
            wait=False, concurrency=min(concurrency, 100), install_signal_handlers=False
        )

    async def close(self) -> None:
        await self.app.close_async()


class Graphile:
    """graphile-worker, with the local queue and batching that its documentation recommends for throughput."""

    name = "graphile-worker"
    folder = Path(os.environ.get("GRAPHILE", Path(__file__).parent.parent / "build" / "peers"))
    program = """
const { run, makeWorkerUtils } = require("graphile-worker");
const [,, folder, database, what, number, concurrency] = process.argv;
const n = Number(number);
async function main() {
  const { Pool } = require("pg");
  const pgPool = new Pool({ host: folder, database, user: "postgres", max: 16 });
  const utils = await makeWorkerUtils({ pgPool });
  await utils.migrate();
  let began = process.hrtime.bigint();
  if (what === "submit_many") {
    for (let i = 0; i < n; i += 1000)
      await utils.addJobs(Array.from({ length: 1000 }, () => ({ identifier: "noop", payload: { n: 1 } })));
  } else if (what === "submit_one") {
    const each = async () => { for (let i = 0; i < n / 16; i++) await utils.addJob("noop", { n: 1 }); };
    await Promise.all(Array.from({ length: 16 }, each));
  } else {
    let left = n, done; const all = new Promise((resolve) => { done = resolve; });
    began = process.hrtime.bigint();
    const runner = await run({
      pgPool, noHandleSignals: true, logger: new (require("graphile-worker").Logger)(() => () => {}),
      taskList: { noop: async () => { if (--left === 0) done(); } },
      preset: { worker: { concurrentJobs: Number(concurrency), completeJobBatchDelay: 0, failJobBatchDelay: 0,
        localQueue: { size: 500 } } },
    });
    await all;
    await runner.stop();
  }
  console.log(Number(process.hrtime.bigint() - began) / 1e9);
  await utils.release(); await pgPool.end();
}
main().catch((error) => { console.error(error); process.exit(1); });
"""

    async def prepare(self, url: str) -> None:
        from urllib.parse import parse_qs, urlsplit

        parts = urlsplit(url)
        self.place, self.database = parse_qs(parts.query)["host"][0], parts.path.removeprefix("/")

    async def timed(self, what: str, number: int, concurrency: int = 0) -> float:
        process = await asyncio.create_subprocess_exec(
            "node", "-e", self.program, "bench", self.place, self.database, what, str(number), str(concurrency),
            cwd=self.folder, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate()
        return float(output)

    async def close(self) -> None:
        pass


class Meter:
    """What is used of the processors: by this process and its children, and by the server."""

    def __init__(self, server_seconds: Callable[[], float]) -> None:
        self._server_seconds = server_seconds
        self.found: dict[str, float] = {}

    def _used(self) -> tuple[float, float]:
        mine, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        client = mine.ru_utime + mine.ru_stime + children.ru_utime + children.ru_stime
        return client, self._server_seconds()

    async def timed(self, name: str, jobs: int, run: Callable[[], Any]) -> None:
        """`run` may say itself how many seconds it took."""
        before = self._used()
        began = time.perf_counter()
        seconds = await run() or time.perf_counter() - began
        client, server = (after - then for after, then in zip(self._used(), before, strict=True))
        self.found |= {
            name: round(jobs / seconds, 1),
            f"{name}_client_us": round(1e6 * client / jobs, 1),
            f"{name}_server_us": round(1e6 * server / jobs, 1),
        }


async def times(
    contestant: Any,
    url: str,
    number: int,
    singles: int,
    concurrency: int,
    server_seconds: Callable[[], float],
) -> dict[str, float]:
    """For each of the three: jobs per second, and microseconds for a job."""
    meter = Meter(server_seconds)
    await contestant.prepare(url)
    try:
        if isinstance(contestant, Graphile):
            timed = contestant.timed
            await meter.timed("submit_many", number, lambda: timed("submit_many", number))
            await meter.timed("submit_16_clients", singles, lambda: timed("submit_one", singles))
            await meter.timed(
                "drain", number + singles, lambda: timed("drain", number + singles, concurrency)
            )
        else:
            await meter.timed("submit_many", number, lambda: contestant.submit_many(number))
            await meter.timed("submit_16_clients", singles, lambda: _by_16(contestant, singles))
            await meter.timed(
                "drain", number + singles, lambda: contestant.drain(number + singles, concurrency)
            )
    finally:
        await contestant.close()
    return meter.found


async def _by_16(contestant: Any, singles: int) -> None:
    async def client(number: int) -> None:
        for _ in range(number, singles, 16):
            await contestant.submit_one()

    await asyncio.gather(*(client(number) for number in range(16)))
