"""What tests of `/api/v1` share: the functions of document 004, and a client that sends what `curl -d` sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec

from http_world import eventually, problem
from rota import App, Workflow
from served import Served

PYTHON_TASK = {"command": "backup_database", "task_type": "python"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
"""What curl says of a body that it is given with -d."""


def document_app() -> App:
    app = App()

    @app.task("backup_database", max_retries=0)
    async def backup_database(compress: bool = False, keep: int = 7) -> dict[str, Any]:
        return {"compressed": compress, "kept": keep}

    @app.task("health_check", max_retries=0)
    async def health_check() -> dict[str, Any]:
        """Check system health."""
        return {"cpu_percent": 1.5, "memory_percent": 40.0, "disk_percent": 60.0}

    @app.task("report", max_retries=0)
    def report(context: Any) -> dict[str, Any]:
        context.artifact("report.csv", "day,sum\n1,2\n")
        return {"rows": 1}

    @app.task("broken", max_retries=0)
    async def broken() -> None:
        raise RuntimeError("the disk is full")

    @app.workflow("monthly_report")
    async def monthly_report(ctx: Workflow) -> None:
        """No task can name it."""

    @app.task("endless", max_retries=0)
    async def endless() -> None:
        await asyncio.Event().wait()

    return app


class Api:
    """`/api/v1` of one server. What was made is deleted at the end, so that nothing fires on."""

    def __init__(self, served: Served, key: str | None = None) -> None:
        self.served = served
        self.http = served.client(key)
        self._made: list[str] = []

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        if body is None:
            return self.http.request(method, f"/api/v1/{path}", headers=headers)
        content = body if isinstance(body, str) else json.dumps(body)
        return self.http.request(method, f"/api/v1/{path}", content=content, headers={**FORM, **headers})

    def ask(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        answer = self.send(method, path, body, **headers)
        assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
        return answer.json() if answer.content else None

    def refused(
        self, method: str, path: str, body: Any = None, status: int = 422, code: str = "invalid"
    ) -> Any:
        return problem(self.send(method, path, body), status, code)

    def task(self, command: str = "backup_database", **fields: Any) -> Task:
        made = self.ask("POST", "tasks", {"command": command, "task_type": "python", **fields}, 201)
        self._made.append(made["id"])
        return Task(self, made["id"])

    def job(self, id: str) -> Any:
        return self.ask("GET", f"jobs/{id}")

    def ended(self, id: str) -> Any:
        return eventually(lambda: (job := self.job(id))["finished_at"] and job)

    def jobs(self) -> Iterator[Any]:
        number = 1
        while True:
            page = self.ask("GET", f"jobs?page={number}&size=100")
            yield from page["items"]
            if number >= page["pages"]:
                return
            number += 1

    def now(self) -> datetime:
        found: datetime = self.served.call(lambda queue: queue.now())
        return found

    def close(self) -> None:
        for id in self._made:
            self.send("DELETE", f"tasks/{id}")


class Task:
    """One stored task."""

    def __init__(self, api: Api, id: str) -> None:
        self.api = api
        self.id = id
        self.path = f"tasks/{id}"

    def schedule(self, **body: Any) -> Any:
        return self.api.ask("POST", f"{self.path}/$schedule", body, 201)

    def schedules(self) -> Any:
        return self.api.ask("GET", f"{self.path}/$schedules")

    def look(self, schedule: Any) -> Any:
        return self.api.ask("GET", f"{self.path}/$schedules/{schedule['id']}")

    def change(self, schedule: Any, **body: Any) -> Any:
        return self.api.ask("PATCH", f"{self.path}/$schedules/{schedule['id']}", body)

    def execute(self, body: Any = None) -> str:
        return str(self.api.ask("POST", f"{self.path}/$execute", body, 202)["job_id"])

    def jobs(self, schedule: Any) -> list[Any]:
        """Of this schedule, newest first."""
        return [job for job in self.api.jobs() if job["schedule_id"] == schedule["id"]]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def shaped(shape: type[msgspec.Struct], body: Any) -> None:
    """The answer has the fields that the OpenAPI document promises, and no others."""
    msgspec.convert(body, shape)
    fields = {field.encode_name: field for field in msgspec.structs.fields(shape)}
    needed = {name for name, field in fields.items() if field.required}
    assert needed <= body.keys() <= fields.keys()


class Clock:
    """Stands where it is put; a stopwatch that runs."""

    def __init__(self, text: str) -> None:
        self.set(text)

    def set(self, text: str) -> None:
        self._now = at(text)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        import time

        return time.monotonic()
