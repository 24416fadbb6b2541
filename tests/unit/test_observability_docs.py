"""docs/observability.md tells of every metric, and of none that does not exist; its names in alerts are real."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric

import rota
from rota.engine.observe.log import FIELDS
from rota.engine.observe.metrics import Metrics

PAGE = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
ROW = re.compile(r"^\| `(rota_\w+)` \| (\w+) \| ([^|]*)\|", re.MULTILINE)


def shown_name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def labels_of(metrics: Metrics) -> dict[str, set[str]]:
    """By name; a metric that has no series yet does not tell its labels to a scraper."""
    found: dict[str, set[str]] = {}
    for collector in metrics.registry._collector_to_names:
        for metric in collector.collect():
            of_samples = {label for sample in metric.samples for label in sample.labels} - {"le"}
            known = getattr(collector, "_labels", None) or getattr(metric, "_labelnames", None) or of_samples
            found[shown_name(metric)] = set(known)
    return found


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    real = {shown_name(metric): metric.type for metric in Metrics().registry.collect()}
    documented = {name: kind for name, kind, _ in ROW.findall(PAGE)}
    assert documented == real


def test_the_labels_are_documented() -> None:
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels in ROW.findall(PAGE)}
    assert documented == labels_of(Metrics())


def test_alerts_use_metrics_that_exist() -> None:
    real = {shown_name(metric) for metric in Metrics().registry.collect()}
    alerts = PAGE.partition("### Alerts")[2].partition("## Logs")[0]
    used = {name.removesuffix("_bucket") for name in re.findall(r"\brota_\w+", alerts)}
    assert len(re.findall("- alert:", alerts)) == 3
    assert used
    assert used <= real


def test_every_field_of_a_log_record_is_documented() -> None:
    table = PAGE.partition("## Logs")[2].partition("## Traces")[0]
    assert all(f"`{name}`" in table for name in FIELDS)


def test_the_names_of_the_issue_are_kept() -> None:
    real = labels_of(Metrics())
    assert real["rota_schedules_total"] == {"tenant", "state"}
    assert real["rota_schedule_runs_total"] == {"tenant", "status", "target_type"}
    assert real["rota_schedule_run_latency_seconds"] == {"tenant"}
    for name in ("rota_tasks_expired_total", "rota_task_ttl_seconds", "rota_tasks_near_expiration"):
        assert real[name] == {"task_type"}


async def test_the_program_of_the_page_runs() -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (text,) = [each for each in programs if "sentry_sdk" not in each and "opentelemetry" not in each]
    # those are run by test_recipes.py
    code = compile(text, "observability.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with rota.connect("memory:") as queue:
        names: dict[str, Any] = {"queue": queue, "app": rota.App(), "rota": rota}
        await eval(code, names)
        assert b"rota_store_readable 1.0" in names["text"]
        names["worker"].tasks.close()
