"""An order as a durable workflow: steps that are not done twice, a wait for a signal, and a cancel that undoes.

The first worker stops while the order waits to be paid; another one goes on with it. The second order is cancelled.

prints

    reserved lamp
    waits for receive:paid sleep
    charged 40 for lamp
    {'sku': 'lamp', 'paid': 40}
    reserved chair
    released chair
    cancelled
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import rota

app = rota.App()


async def reserve(sku: str) -> str:
    print(f"reserved {sku}")
    return sku


async def release(sku: str) -> None:
    print(f"released {sku}")


async def charge(sku: str, amount: int) -> int:
    print(f"charged {amount} for {sku}")
    return amount


@app.workflow("order", timeout=timedelta(days=30))
async def order(ctx: rota.Workflow, sku: str) -> dict[str, Any]:
    await ctx.step(reserve, sku, undo=release)
    label, amount = await ctx.first(paid=ctx.receive("paid"), late=ctx.sleep(timedelta(days=3)))
    if label == "late":
        await ctx.undo()
        return {"sku": sku, "paid": 0}
    return {"sku": sku, "paid": await ctx.step(charge, sku, amount)}


@asynccontextmanager
async def a_worker(queue: rota.Queue) -> AsyncIterator[None]:
    worker = rota.Worker(queue, app)
    running = asyncio.create_task(worker.run())
    yield
    worker.stop()
    await running


async def parked(queue: rota.Queue, id: str) -> rota.Task:
    """The run, once it waits and holds no worker."""
    while not (task := await queue.get(id)).waits_for:
        await queue.store.wait(None)
    return task


async def main() -> None:
    async with rota.connect("memory:") as queue:
        async with a_worker(queue):
            lamp = await queue.start_workflow("order", {"sku": "lamp"})
            print("waits for", *(await parked(queue, lamp.id)).waits_for)
        await queue.signal(lamp.id, "paid", 40)  # nobody runs it now; nothing is lost
        async with a_worker(queue):
            print((await queue.wait(lamp.id, timeout=30)).output)
            chair = await queue.start_workflow("order", {"sku": "chair"})
            await parked(queue, chair.id)
            await queue.cancel(chair.id, "changed my mind")
            print((await queue.wait(chair.id, timeout=30)).status)


if __name__ == "__main__":
    asyncio.run(main())
