"""The shape of the code: which way imports point, what is pure, how large things may grow."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "rota"
LAYERS = ["domain", "stores", "engine", "surfaces"]
PURE = {"msgspec", "tzdata", "cron_descriptor"}
FILES = sorted(SOURCE.rglob("*.py"))


def layer_of(path: Path) -> str | None:
    first = path.relative_to(SOURCE).parts[0]
    return first if first in LAYERS else None


def imports_of(path: Path) -> Iterator[str]:
    """Absolute names of everything that a module imports, inside functions too."""
    package = ["rota", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            yield module
            yield from (f"{module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    layer = layer_of(path)
    if layer is None:
        return
    allowed = LAYERS[: LAYERS.index(layer) + 1]
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "rota" and len(parts) > 1 and parts[1] in LAYERS:
            assert parts[1] in allowed, f"{path.name} ({layer}) imports {name}"
        elif parts[0] == "rota" and parts[1:2] == ["testing"]:
            raise AssertionError(f"{path.name} imports what is for tests")


@pytest.mark.parametrize("path", sorted((SOURCE / "domain").rglob("*.py")), ids=lambda path: path.stem)
def test_the_domain_is_pure(path: Path) -> None:
    impure = {"asyncio", "logging", "socket", "threading", "time", "random", "subprocess", "os"}
    for name in imports_of(path):
        top = name.split(".")[0]
        assert top not in impure, f"{path.name} imports {name}"
        assert top in sys.stdlib_module_names or top in PURE | {"rota"}, f"{path.name} imports {name}"
    tree = ast.walk(ast.parse(path.read_text()))
    assert not any(isinstance(node, (ast.AsyncFunctionDef, ast.Await)) for node in tree)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_clock_reads_time(path: Path) -> None:
    if path == SOURCE / "engine" / "clock.py":
        return
    readers = {"now", "utcnow", "today", "time", "time_ns", "monotonic", "perf_counter"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in {"datetime", "date", "time"}:
                assert node.func.attr not in readers, f"{path.name}:{node.lineno} reads the clock"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 600, f"{path.name} has more than 600 lines: which concept is missing?"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= 60, f"{path.name}:{node.lineno} {node.name} has {lines} lines"


def test_importing_rota_imports_no_optional_part() -> None:
    optional = [
        "asyncpg",
        "psycopg",
        "obstore",
        "fastapi",
        "uvicorn",
        "apsw",
        "rich",
        "click",
        "cron_descriptor",
    ]
    code = f"import sys, rota; print([name for name in {optional!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
