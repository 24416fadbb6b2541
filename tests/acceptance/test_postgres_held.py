"""Someone else's open transaction holds a row, on a real server."""

from __future__ import annotations

import asyncio
from collections import Counter

from test_postgres_fleet import connected, until, working

import rota
from postgres_server import new_database
from rota.engine.telemetry import LeaseLost, Signal


async def test_a_row_that_someone_holds_costs_no_lease_and_holds_up_no_other() -> None:
    url = new_database(lock_timeout="0.2")
    starts: Counter[str] = Counter()
    signals: list[Signal] = []
    release, stop = asyncio.Event(), asyncio.Event()
    async with rota.connect(url) as queue, rota.connect(url) as other, connected(url) as holder:
        app = rota.App()

        @app.task("work")
        async def work(context: rota.Context) -> None:
            starts[context.task.id] += 1
            await (release if context.task.input == "short" else stop).wait()

        first, second = (
            rota.Worker(each, app, lease=2, scheduler=False, observers=[signals.append])
            for each in (queue, other)
        )
        async with working(first), working(second):
            short = await queue.submit_many([("work", "short")] * 4)
            long = await queue.submit_many([("work", "long")] * 4)

            async def all_started() -> bool:
                return len(starts) == 8

            await until(all_started, "all have started")
            async with holder.transaction():
                await holder.execute("select 1 from rota.task where id = $1 for update", short[0].id)
                release.set()
                for each in short[1:]:
                    assert (await queue.wait(each.id, 5)).status == "completed"
                await asyncio.sleep(5)  # more than two leases
                assert (await queue.get(short[0].id)).status == "running"
            assert (await queue.wait(short[0].id, 5)).status == "completed"
            stop.set()
            for each in long:
                assert (await queue.wait(each.id, 5)).status == "completed"
    assert set(starts.values()) == {1}
    assert not [signal for signal in signals if isinstance(signal, LeaseLost)]
