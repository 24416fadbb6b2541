"""The recipes of the documentation, run with the real libraries: errors in Sentry, traces of OpenTelemetry."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk

from command_line import ROTA
from rota import testing
from rota.scenario import open_scenario

PAGE = (Path(__file__).parent.parent.parent / "docs" / "observability.md").read_text()


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """What would be sent to Sentry."""
    kept: list[Any] = []

    def keep(event: Any, hint: Any) -> None:
        kept.append(event)

    address = "https://key@sentry.example.com/1"
    nothing_else: Any = {
        "default_integrations": False,
        "auto_enabling_integrations": False,
    }  # they outlast the test
    sentry_sdk.init(address, before_send=keep, **nothing_else)
    yield kept
    sentry_sdk.init(**nothing_else)


def test_a_task_that_failed_is_one_event_in_sentry(events: list[Any]) -> None:
    recipe = re.search(r"```python\n(import sentry_sdk\n.*?)```", PAGE, re.S)
    assert recipe is not None
    names: dict[str, Any] = {}
    exec(recipe[1], names)
    app = names["app"]

    @app.task("charge", max_retries=2)  # type: ignore[untyped-decorator]  # the app of the page
    async def charge(amount: int) -> None:
        raise ValueError(f"cannot charge {amount}")

    async def main() -> str:
        async with open_scenario(app) as scenario:
            task = await scenario.queue.submit("charge", {"amount": 5})
            await scenario.run_until("2026-01-02T00:00:00Z")
            await scenario.assert_failed(task, because="cannot charge 5")
            return task.id

    task_id = testing.run(main())
    (event,) = events
    assert event["exception"]["values"][0]["value"] == "cannot charge 5"
    assert event["tags"]["rota.kind"] == "charge"
    assert event["contexts"]["rota"]["task"] == task_id
    assert event["contexts"]["rota"]["attempt"] == 3


def test_an_app_that_sets_a_provider_is_traced(tmp_path: Path) -> None:
    """In a process of its own: a provider is set once, for good."""
    recipe = re.search(r"```python\n(from opentelemetry import trace\n.*?)```", PAGE, re.S)
    assert recipe is not None
    (tmp_path / "shop.py").write_text(recipe[1])
    for line in (["submit", "-t", "report"], ["tick", "shop:app"]):
        done = subprocess.run(
            [*ROTA, "--store", "sqlite:///rota.db", *line],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
    assert '"name": "claim report"' in done.stdout
    assert '"name": "run report"' in done.stdout
