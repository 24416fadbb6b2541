"""The OpenAPI document is true: schemathesis makes requests from it, and a live server answers each of them as it says.

`positive_data_acceptance` is left out, since no schema can say which texts are cron lines, zones or cursors;
`ignored_auth`, since wrong keys are soon answered with 429: `test_access.py` has both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from http_world import ADDRESSES, Tenant, example_app
from served import serving
from worlds import THOROUGH

LEFT_OUT = "positive_data_acceptance,ignored_auth"
STREAMS = r"/events$|\$stream$"
RUNS = {"postgres": "examples,fuzzing"} | ({"sqlite": "examples,coverage"} if THOROUGH else {})
"""Coverage makes thousands of requests, for every bound of every field; other tests of this folder have the bounds that
a field is likely to get wrong."""


@pytest.mark.parametrize(("store", "phases"), RUNS.items())
@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_live_server_answers_as_documented(store: str, phases: str, tmp_path: Path) -> None:
    with serving(ADDRESSES[store](tmp_path), example_app(), rate=1_000_000) as served:
        key = served.key("*", "admin", "fuzz")
        command = [
            Path(sys.executable).with_name("st"), "run", f"{served.url}/openapi.json",
            "--header", f"Authorization: Bearer {key}", "--exclude-path-regex", STREAMS,
            "--exclude-checks", LEFT_OUT, "--phases", phases, "--max-examples", "2",
            "--generation-deterministic", "--no-color", "--request-timeout", "60",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert "No issues found" in done.stdout or "passed" in done.stdout, done.stdout[-2_000:]


def described(quiet: Tenant) -> Any:
    return quiet.http.get("/openapi.json").json()


def operations(document: Any) -> Any:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_body_has_an_example(quiet: Tenant) -> None:
    document = described(quiet)
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


def test_every_operation_says_what_it_does_and_how_it_fails(quiet: Tenant) -> None:
    for name, operation in operations(described(quiet)):
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
