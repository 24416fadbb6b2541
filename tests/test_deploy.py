"""The files of `deploy/` say what they should: their commands exist, what they refer to is there, and they give Rota
longer to stop than it takes. No engine runs them here."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from rota.surfaces.cli.root import cli
from rota.surfaces.settings import load

DEPLOY = Path(__file__).parent.parent / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
PODS = [each["spec"]["template"]["spec"] for each in KUBERNETES if each["kind"] == "Deployment"]
UNIT = dict(
    re.findall(r"^(\w+)=(.*)$", (DEPLOY / "rota.service").read_text(), re.MULTILINE)
)  # of a name that comes twice, the last
SERVICE_KEYS = {
    "build",
    "command",
    "depends_on",
    "environment",
    "healthcheck",
    "image",
    "restart",
    "volumes",
} | {"stop_grace_period"}
"""Those of the compose specification that the file needs; a word that is spelled wrongly is not among them."""


def commands() -> Iterator[list[str]]:
    yield shlex.split(UNIT["ExecStart"])[1:]
    (command,) = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    yield json.loads(command)[1:]
    yield from (each["command"][1:] for each in COMPOSE["services"].values() if "command" in each)
    yield from (container["command"][1:] for pod in PODS for container in pod["containers"])


@pytest.mark.parametrize("arguments", list(commands()), ids=" ".join)
def test_its_commands_exist(arguments: list[str]) -> None:
    """Parsed as the command line would, down to the last option; nothing is run."""
    context: click.Context = cli.make_context("rota", list(arguments))
    command: click.Command = cli
    while isinstance(command, click.Group):
        _, found, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found
        context = command.make_context(command.name, list(arguments), parent=context)


def test_the_compose_file_holds_together() -> None:
    services = COMPOSE["services"]
    assert COMPOSE.keys() <= {"services", "volumes"}
    for name, service in services.items():
        assert service.keys() <= SERVICE_KEYS, name
        assert service.keys() & {"image", "build"}, name
        assert service.get("depends_on", {}).keys() <= services.keys(), name
        for needed, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "test" in services[needed]["healthcheck"]
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
            assert service["environment"]["ROTA_STORE"].split("@")[1] == "database/rota"


def test_there_is_longer_to_stop_than_rota_takes() -> None:
    default = load({}, environ={})["shutdown_timeout"].total_seconds()
    for service in COMPOSE["services"].values():
        if "build" in service:
            assert int(service["stop_grace_period"].removesuffix("s")) > default
    for pod in PODS:
        if pod["containers"][0]["name"] != "api":
            assert pod["terminationGracePeriodSeconds"] > default
    asked = re.search(r"--shutdown-timeout (\d+)s", UNIT["ExecStart"])
    assert asked is not None
    assert int(UNIT["TimeoutStopSec"]) > int(asked[1])


def test_selectors_match_what_they_select() -> None:
    labels = [
        each["spec"]["template"]["metadata"]["labels"] for each in KUBERNETES if each["kind"] == "Deployment"
    ]
    for each in KUBERNETES:
        selector = each["spec"]["selector"]
        wanted = selector if each["kind"] == "Service" else selector["matchLabels"]
        assert wanted in labels, each["metadata"]["name"]


def test_the_hosted_run_checks_and_audits_every_week_and_for_each_tag() -> None:
    hosted = yaml.load((DEPLOY.parent / ".github/workflows/ci.yml").read_text(), Loader=yaml.BaseLoader)
    assert hosted["on"]["push"] == {"branches": ["main"], "tags": ["v*"]}
    assert [each["cron"] for each in hosted["on"]["schedule"]] == ["17 5 * * 1"]
    runs = {step["run"] for job in hosted["jobs"].values() for step in job["steps"] if "run" in step}
    assert runs == {".ci/run", "make audit", "make dist"}
    targets = re.findall(r"^(\w+):", (DEPLOY.parent / "Makefile").read_text(), re.MULTILINE)
    assert {"audit", "dist"} <= set(targets)
