"""The package as others get it: built, checked, installed into an empty environment, and used as the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
THOROUGH = os.environ.get("ROTA_TEST_SIMULATION") == "all"


def ran(*command: str | Path, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_extra_is_in_all() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (every,) = extras["all"]
    assert set(re.findall(r"[a-z0-9]+", every.partition("[")[2])) == extras.keys() - {"all"}


def test_the_source_distribution_has_what_is_named_and_nothing_else_that_lies_around() -> None:
    """An environment in the checkout was packed, too, and the build failed on its links."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    named = build["sdist"]["only-include"]
    assert [each for each in named if not (ROOT / each).exists()] == []
    assert {"src", "tests", "docs", "examples", "Makefile", "README.md", "LICENSE"} <= set(named)


@pytest.mark.skipif(not THOROUGH, reason="it installs from an index: make test-all")
@pytest.mark.long
def test_the_wheel_runs_the_program_of_the_readme(tmp_path: Path) -> None:
    ran(sys.executable, "-m", "build", "--outdir", tmp_path, ROOT, folder=tmp_path)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    ran(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist, folder=tmp_path)
    assert {"rota/py.typed", "rota/contrib/django/management/commands/rota.py"} <= set(
        zipfile.ZipFile(wheel).namelist()
    )
    with tarfile.open(sdist) as files:
        assert not [name for name in files.getnames() if "/.venv/" in name or name.endswith(".db")]

    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    ran(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, folder=tmp_path)
    assert ran(python, "-m", "rota", "--version", folder=tmp_path).startswith("rota ")
    program = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert program is not None
    (tmp_path / "readme.py").write_text(program[1])
    is_run = "asyncio.run(" in program[1]
    ran(python, *(["readme.py"] if is_run else ["-c", "import readme"]), folder=tmp_path)
