"""The HTTP API inside an application of your own, under /rota, with the engine beside it.

    pip install 'rota[server]'
    uvicorn mounted:site            # keeps running; http://127.0.0.1:8000/rota/docs
    python mounted.py               # asks itself two things

prints

    the shop says: 2 orders
    rota says: active, Every hour
"""

import asyncio
import json
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

import rota
from rota.surfaces.http import create_app

jobs = rota.App()
jobs.schedule("count-orders", task_type="count", interval=3600)


@jobs.task("count")
def count() -> int:
    return 2


@asynccontextmanager
async def lifespan(site: FastAPI) -> AsyncIterator[None]:
    async with rota.connect("sqlite:///shop.db") as queue:
        await queue.declare_schedules(jobs)
        api = create_app(queue.store, app=jobs)
        site.mount("/rota", api)
        worker = rota.Worker(queue, jobs)
        engine = asyncio.create_task(worker.run(handle_signals=False))  # they are the server's
        async with api.router.lifespan_context(api):  # a mounted application is not started by itself
            yield
        worker.stop()
        await engine


site = FastAPI(lifespan=lifespan)


@site.get("/orders")
async def orders() -> str:
    return "2 orders"


async def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        server = uvicorn.Server(uvicorn.Config(site, log_level="warning"))
        serving = asyncio.create_task(server.serve([here]))
        url = f"http://127.0.0.1:{here.getsockname()[1]}"
        print("the shop says:", await ask(f"{url}/orders"))
        schedule = await ask(f"{url}/rota/api/tenants/default/schedules/count-orders")
        print(f"rota says: {schedule['status']}, {schedule['scheduleType']['description'].partition(',')[0]}")
        server.should_exit = True
        await serving


async def ask(url: str):
    def fetched():
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)

    return await asyncio.to_thread(fetched)


if __name__ == "__main__":
    asyncio.run(main())
