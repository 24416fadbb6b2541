"""A bare FastAPI application, for comparison: one route inserts the row of a task in the same database, committed when
it answers; one reads the row of a schedule by its name. No keys, no rules, no events: what any program would write."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import apsw
import asyncpg
from fastapi import FastAPI, Response
from pydantic import BaseModel

from rota.engine.clock import new_id
from rota.stores.codec import micros


class Body(BaseModel):
    kind: str
    input: Any = None


_SQLITE = """insert into task (id, version, tenant, created_at, kind, queue, priority, status, available_at,
  cancel_requested, is_workflow, body) values (?, 1, 'default', ?, ?, 'default', 128, 'pending', ?, 0, 0, ?)"""
_POSTGRES = """insert into rota.task (id, tenant, status, kind, queue, priority, attempt, created_at, available_at,
  updated_at, cancel_requested, changes, version, body)
values ($1, 'default', 'pending', $2, 'default', 128, 0, $3, $3, $3, false, 1, 1, $4)"""


def application(address: str) -> FastAPI:
    return _on_postgres(address) if address.startswith("postgres") else _on_sqlite(address)


def _body(id: str, kind: str, at: datetime, input: Any) -> str:
    when = at.isoformat()
    record = {"record": "task.1", "id": id, "version": 1, "kind": kind, "created_at": when}
    return json.dumps({**record, "available_at": when, "updated_at": when, **_rest(at, input)})


def _rest(at: datetime, input: Any) -> dict[str, Any]:
    """What PostgreSQL has no columns for."""
    line = {"number": 1, "at": at.isoformat(), "status": "pending", "actor": "bare", "type": "created"}
    return {"input": input, "history": [line]}


def _on_sqlite(address: str) -> FastAPI:
    api = FastAPI()
    db = apsw.Connection(address.removeprefix("sqlite:///"))
    db.execute("pragma journal_mode = wal; pragma synchronous = full")

    @api.post("/tasks", status_code=201)
    async def create(body: Body) -> dict[str, Any]:
        at, id = datetime.now(UTC), new_id()
        db.execute(_SQLITE, (id, micros(at), body.kind, micros(at), _body(id, body.kind, at, body.input)))
        return {"id": id, "kind": body.kind, "status": "pending", "createdAt": at.isoformat()}

    @api.get("/schedules/{name}")
    async def get(name: str) -> Response:
        row = db.execute("select body from schedule where tenant = 'default' and key = ?", (name,)).get
        return Response(row, media_type="application/json")

    return api


def _on_postgres(address: str) -> FastAPI:
    pools: list[asyncpg.Pool] = []

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        pools.append(await asyncpg.create_pool(address, min_size=10, max_size=10))
        yield
        await pools[0].close()

    api = FastAPI(lifespan=lifespan)

    @api.post("/tasks", status_code=201)
    async def create(body: Body) -> dict[str, Any]:
        at, id = datetime.now(UTC), new_id()
        await pools[0].execute(_POSTGRES, id, body.kind, at, json.dumps(_rest(at, body.input)))
        return {"id": id, "kind": body.kind, "status": "pending", "createdAt": at.isoformat()}

    @api.get("/schedules/{name}")
    async def get(name: str) -> Response:
        sql = "select body::text from rota.schedule where tenant = 'default' and key = $1 and deleted_at is null"
        return Response(await pools[0].fetchval(sql, name), media_type="application/json")

    return api


__all__ = ["application"]
