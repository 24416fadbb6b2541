"""The shape of the code: which way imports point, what is pure, how large things may grow."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "rota"
LAYERS = ["domain", "stores", "engine", "surfaces"]
PURE = {"msgspec", "tzdata", "cron_descriptor"}
MODULE_LIMIT = 600
FUNCTION_LIMIT = 60
FILES = sorted(SOURCE.rglob("*.py"))


def layer_of(path: Path) -> str | None:
    first = path.relative_to(SOURCE).parts[0]
    return first if first in LAYERS else None


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports_of(path: Path) -> Iterator[str]:
    """Absolute names of everything that a module imports, inside functions too."""
    package = ["rota", *path.relative_to(SOURCE).parts[:-1]]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            yield module
            yield from (f"{module}.{name.name}" for name in node.names)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        layer = layer_of(path)
        if layer is None:
            continue
        allowed = LAYERS[: LAYERS.index(layer) + 1]
        for name in imports_of(path):
            parts = name.split(".")
            upwards = len(parts) > 1 and parts[1] in LAYERS and parts[1] not in allowed
            if parts[0] == "rota" and (upwards or parts[1:2] == ["testing"]):
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert not wrong


def test_the_domain_is_pure() -> None:
    impure = {"asyncio", "logging", "socket", "threading", "time", "random", "subprocess", "os"}
    wrong = []
    for path in (path for path in FILES if layer_of(path) == "domain"):
        for name in imports_of(path):
            top = name.split(".")[0]
            known = top in sys.stdlib_module_names or top in PURE | {"rota"}
            if top in impure or not known:
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
        for node in nodes_of(path):
            if isinstance(node, (ast.AsyncFunctionDef, ast.Await)):
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} is async")
    assert not wrong


def test_only_the_clock_reads_time() -> None:
    readers = {"now", "utcnow", "today", "time", "time_ns", "monotonic", "perf_counter"}
    wrong = []
    for path in (path for path in FILES if path != SOURCE / "engine" / "clock.py"):
        for node in nodes_of(path):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            of_time = isinstance(owner, ast.Name) and owner.id in {"datetime", "date", "time"}
            if of_time and node.func.attr in readers:
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} reads the clock")
    assert not wrong


def test_modules_and_functions_stay_small() -> None:
    wrong = []
    for path in FILES:
        if path.read_text().count("\n") > MODULE_LIMIT:
            wrong.append(
                f"{path.relative_to(SOURCE)} has more than {MODULE_LIMIT} lines: which concept is missing?"
            )
        for node in nodes_of(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LIMIT:
                    wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} {node.name} has {lines} lines")
    assert not wrong


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
