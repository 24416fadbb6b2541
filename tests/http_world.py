"""What tests of the HTTP API share: servers, one for each store, and a tenant of its own for each test."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import httpx

import stores
from rota import App
from rota.surfaces.http import create_app
from served import Served, serving

_numbers = count(1)
ADDRESSES = {name: stores.ADDRESSES[name] for name in ("sqlite", "postgres")}


def example_app() -> App:
    """What the documents run."""
    app = App()

    @app.workflow("generate-report")
    async def report(ctx: Any, input: Any) -> Any:
        return {"made": input}

    @app.workflow("generate-sales-report")
    async def sales(ctx: Any, input: Any) -> Any:
        return {"made": input}

    @app.workflow("my-workflow")
    async def mine(ctx: Any, input: Any) -> Any:
        return input

    @app.workflow("broken-workflow", max_retries=0)
    async def broken(context: Any) -> None:
        context.log("about to fail")
        raise RuntimeError("as asked")

    @app.workflow("approval")
    async def approval(ctx: Any) -> Any:
        return [await ctx.step(lambda: "asked", name="ask"), await ctx.receive("approved")]

    @app.task("send-reminder")
    async def remind(input: Any) -> Any:
        return {"reminded": input["userId"]}

    @app.task("echo")
    async def echo(input: Any) -> Any:
        return input

    @app.task("leave")
    async def leave(context: Any, input: Any) -> Any:
        await context.artifact(input["name"], input["text"] * input["times"], media_type=input.get("type"))
        return "left"

    @app.task("fail", max_retries=0)
    async def fail() -> None:
        raise RuntimeError("as asked")

    return app


class Shop:
    """The servers of this process for one app, started when first asked for."""

    def __init__(self, folder: Callable[[str], Path], make_app: Callable[[], App], **options: Any) -> None:
        self._folder = folder
        self._make_app = make_app
        self._options = options
        self._servers: dict[tuple[str, bool], Served] = {}
        self._stack = ExitStack()

    def server(self, store: str, *, engine: bool) -> Served:
        known = self._servers.get((store, engine))
        if known is None:
            address = ADDRESSES[store](self._folder(store))
            known = self._stack.enter_context(
                serving(address, self._make_app(), engine=engine, **self._options)
            )
            self._servers[store, engine] = known
        return known

    def close(self) -> None:
        self._stack.close()


@cache
def described() -> Any:
    """The OpenAPI document, the same in every app. To make it takes as long as a hundred requests."""
    return json.loads(json.dumps(create_app("memory:").openapi()))


def new_tenant() -> str:
    return f"tenant-{next(_numbers)}"


class Tenant:
    """The API of one tenant, with a key of its admin."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.name = new_tenant()
        self.key = server.key(self.name, "admin", "tests")
        self.http = server.client(self.key)

    def path(self, path: str) -> str:
        return f"/api/tenants/{self.name}/{path}"

    def get(self, path: str, status: int = 200, **options: Any) -> Any:
        return self.send("GET", path, status, **options)

    def post(self, path: str, body: Any = None, status: int = 201, **options: Any) -> Any:
        return self.send("POST", path, status, **({} if body is None else {"json": body}), **options)

    def send(self, method: str, path: str, status: int, **options: Any) -> Any:
        answer = self.http.request(method, self.path(path), **options)
        assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
        return answer.json() if answer.content else None

    def call(self, ask: Callable[[Any], Any]) -> Any:
        return self.server.call(ask, self.name)


def eventually(look: Callable[[], Any], within: float = 60) -> Any:
    """What `look` gives once it is true. It is asked less and less often, since each look is a request, and waited for
    no longer than a test may take."""
    give_up_at = time.monotonic() + within
    pause = 0.01
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < give_up_at, f"it did not come about; the last look gave {found!r}"
        time.sleep(pause)
        pause = min(1.5 * pause, 0.2)


def problem(answer: httpx.Response, status: int, code: str) -> Any:
    """The problem document that was expected."""
    assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["code"] == code
    assert body["status"] == status
    assert body["type"] == f"urn:rota:problem:{code}"
    assert body["detail"]
    return body
