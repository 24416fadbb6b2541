"""Clients that others generate from the OpenAPI document call a live server, by the words of the guide."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from http_world import described
from served import serving
from worlds import THOROUGH

GUIDE = (Path(__file__).parents[2] / "docs/guides/http-clients.md").read_text()
SERVER = "http://127.0.0.1:8000"


def part(title: str) -> list[tuple[str, str]]:
    """The blocks of a chapter of the guide: (language, text)."""
    chapter = GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```(\w+)\n(.*?)```", chapter, re.DOTALL)


def run(script: str, folder: Path, url: str) -> str:
    lines = f"set -eu\nexport ROTA_URL={url}\n{script.replace(SERVER, url)}"
    done = subprocess.run(
        ["bash", "-c", lines], cwd=folder, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, f"{lines}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


@pytest.mark.skipif(not THOROUGH, reason="it installs from registries: make test-all")
@pytest.mark.long
def test_a_typescript_client_is_strictly_typed_and_triggers_a_run(tmp_path: Path) -> None:
    assert shutil.which("npm") is not None, "Node.js with npm is needed for this test"
    (_, make), (_, program), (_, use) = part("TypeScript")
    (tmp_path / "trigger.ts").write_text(program)
    with serving("memory:") as served:
        run(make, tmp_path, served.url)
        assert run(use, tmp_path, served.url).splitlines()[-1] == "[ 'manual' ]"


@pytest.mark.skipif(not THOROUGH, reason="it installs from an index: make test-all")
@pytest.mark.long
def test_a_python_client_triggers_a_run(tmp_path: Path) -> None:
    (_, make), (_, program) = part("Python, without Rota")
    (tmp_path / "trigger.py").write_text(program)
    own = f"{sys.executable} -m venv own && . own/bin/activate\n"
    with serving("memory:") as served:
        run(own + make, tmp_path, served.url)
        assert run(". own/bin/activate && python trigger.py", tmp_path, served.url) == "['manual']\n"


def test_no_schema_is_a_form_that_generators_of_clients_refuse() -> None:
    def refused(schema: Any) -> bool:
        if isinstance(schema, list):
            return any(map(refused, schema))
        if not isinstance(schema, dict):
            return False
        return "prefixItems" in schema or schema.get("items") is False or any(map(refused, schema.values()))

    assert not refused(described())
