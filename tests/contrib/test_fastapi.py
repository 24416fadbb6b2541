"""Rota in a FastAPI application: one line for the lifespan, one type for the queue."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

import rota
from rota.contrib.fastapi import RotaQueue, rota_lifespan

shop = rota.App()


@shop.task("receipt")
async def receipt(order: int) -> str:
    return f"receipt of {order}"


async def order(queue: RotaQueue, number: int) -> str:
    task = await queue.submit("receipt", {"order": number})
    ended = await queue.wait(task.id, 60)
    return str(ended.output)


def client_of(api: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop")


async def test_an_application_submits_and_runs_tasks(tmp_path: Path) -> None:
    api = FastAPI(lifespan=rota_lifespan(shop, f"sqlite:///{tmp_path}/shop.db"))
    api.post("/orders/{number}")(order)
    async with api.router.lifespan_context(api), client_of(api) as client:
        assert (await client.post("/orders/17")).json() == "receipt of 17"
    assert shop.queue is None


async def test_without_the_lifespan_the_queue_is_missed() -> None:
    api = FastAPI()
    api.post("/orders/{number}")(order)
    async with client_of(api) as client:
        with pytest.raises(rota.Invalid, match="lifespan=rota_lifespan"):
            await client.post("/orders/17")


async def failing(worker: rota.Worker) -> None:
    raise RuntimeError("no connection to the mail server")


async def test_a_worker_that_cannot_start_stops_the_application() -> None:
    api = FastAPI(lifespan=rota_lifespan(shop, "memory:", on_startup=failing))
    with pytest.raises(RuntimeError, match="mail server"):
        async with api.router.lifespan_context(api):
            raise AssertionError("it started")
