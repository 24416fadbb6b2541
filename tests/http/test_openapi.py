"""The OpenAPI document is true: schemathesis makes requests from it, and a live server answers each of them as it says.

`positive_data_acceptance` is left out, since no schema can say which texts are cron lines, zones or cursors;
`ignored_auth`, since wrong keys are soon answered with 429: `test_access.py` has both."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from http_world import ADDRESSES, Tenant, described, example_app
from rota.surfaces.http import create_app
from served import serving
from worlds import THOROUGH

LEFT_OUT = "positive_data_acceptance,ignored_auth"
STREAMS = r"/events$|\$stream$"
RUNS = {"postgres": "examples,fuzzing"} | ({"sqlite": "examples,coverage"} if THOROUGH else {})
"""Coverage makes thousands of requests, for every bound of every field; other tests of this folder have the bounds that
a field is likely to get wrong."""
SETTINGS = """
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "409", "413", "415", "422", "429", "5xx"]
"""
"""What it expects by itself, and 413: a body that breaks a rule can be too large before."""
EXAMPLES = "4" if THOROUGH else "1"
"""Made at random for each operation, beside those that the document itself gives."""


@pytest.mark.parametrize(("store", "phases"), RUNS.items())
@pytest.mark.timeout(1800 if THOROUGH else 600)
@pytest.mark.long
def test_a_live_server_answers_as_documented(store: str, phases: str, tmp_path: Path) -> None:
    with serving(ADDRESSES[store](tmp_path), example_app(), rate=1_000_000) as served:
        key = served.key("*", "admin", "fuzz")
        (tmp_path / "schemathesis.toml").write_text(SETTINGS)
        (tmp_path / "openapi.json").write_bytes(httpx.get(f"{served.url}/openapi.json", timeout=120).content)
        command: list[str | Path] = [
            Path(sys.executable).with_name("st"), "run", "openapi.json", "--url", served.url,
            "--header", f"Authorization: Bearer {key}", "--exclude-path-regex", STREAMS,
            "--exclude-checks", LEFT_OUT, "--phases", phases, "--max-examples", EXAMPLES,
            "--generation-deterministic", "--no-color", "--request-timeout", "60",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, re.sub("(.{400}).+", r"\1 …", done.stdout[-100_000:] + done.stderr[-2_000:])
    assert "No issues found" in done.stdout or "passed" in done.stdout, done.stdout[-2_000:]


def operations(document: Any) -> Any:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_body_has_an_example() -> None:
    document = described()
    shapes = document["components"]["schemas"]
    for name, operation in operations(document):
        if "requestBody" not in operation:
            continue
        content = operation["requestBody"]["content"]["application/json"]
        if content.get("examples"):
            continue
        schema = content["schema"]
        options = [schema, *schema.get("anyOf", []), *schema.get("oneOf", [])]
        found = [shapes[each["$ref"].rpartition("/")[2]] if "$ref" in each else each for each in options]
        assert any("examples" in each or "example" in each for each in found), f"{name} has no example"


def test_every_operation_says_what_it_does_and_how_it_fails() -> None:
    for name, operation in operations(described()):
        assert operation.get("description"), name
        assert operation.get("tags"), name
        problems = {code for code, answer in operation["responses"].items() if code >= "400"}
        assert {"400", "401", "403", "404", "409", "422", "429", "503"} <= problems, name
        for code in problems:
            assert "application/problem+json" in operation["responses"][code]["content"], (name, code)


def test_the_document_can_be_looked_at(quiet: Tenant) -> None:
    page = quiet.http.get("/docs")
    assert page.status_code == 200
    assert "/openapi.json" in page.text
    assert not re.findall(r"(?:https?:)?//[a-z]", page.text), "nothing comes from elsewhere"
    fetched = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(fetched) == 3
    for path in fetched:
        answer = quiet.http.get(path)
        assert (answer.status_code, len(answer.content) > 500) == (200, True), path
    script = next(path for path in fetched if path.endswith(".js"))
    assert "3.1" in described()["openapi"]
    assert "oas31" in quiet.http.get(script).text, "the page can show this version of OpenAPI"
    assert quiet.http.get("/docs/secrets").status_code == 404
    assert quiet.http.get("/redoc").status_code == 404


async def test_the_page_is_found_where_the_api_is_mounted(tmp_path: Path) -> None:
    api = create_app(f"sqlite:///{tmp_path}/rota.db")
    outer = Starlette(routes=[Mount("/jobs", api)])
    transport = httpx.ASGITransport(outer, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        page = await client.get("/jobs/docs")
        for path in [*re.findall(r'(?:src|href)="([^"]+)"', page.text), "/jobs/openapi.json"]:
            assert path.startswith("/jobs/")
            assert (await client.get(path)).status_code == 200, path
    await api.state.rota.close()


def test_operations_have_names_that_read_well_in_clients() -> None:
    document = described()
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z]+([A-Z][a-z0-9]*)+", name)] == []
    assert {"createSchedule", "listScheduleRuns", "triggerSchedule", "signalWorkflowExecution"} <= set(names)
    tags = {tag["name"] for tag in document["tags"] if tag["description"]}
    assert {tag for operation in operations for tag in operation["tags"]} == tags
