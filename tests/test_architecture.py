"""The shape of the code: which way imports point, what is pure, how large things may grow, and that the map in
ARCHITECTURE.md is true of it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import rota
import rota.testing

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "rota"
MAP = (ROOT / "ARCHITECTURE.md").read_text()
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
LAYERS = ["domain", "stores", "engine", "surfaces", "contrib"]
PURE = {"msgspec", "tzdata", "cron_descriptor"}
OPEN_OF_DOMAIN = {
    f"domain.{name}" for name in ("model", "plan", "recurrence", "runtimes", "schedule", "task")
}
OPEN_OF_STORES = {"stores", "stores.base", "stores.queries", "stores.threads"}
MODULES_IN_A_PACKAGE = 20
MODULE_LIMIT = 600
FUNCTION_LIMIT = 60
FILES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted(package_file.parent for package_file in SOURCE.rglob("__init__.py"))
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PLAIN_WORDS = """
__version__ advance api arguments check cli clock conflict connect contrib corrupt cron dashboard day deadlock
django domain dst due engine error failed failure found frequency http invalid io line loop memory missed model
month not of open page permanent policy postgres python real reason remote reschedule retry retryable rota rule
server shell sleep sqlite start state status surfaces trigger type until use v1 verify virtual week year
""".split()  # noqa: SIM905  a list of words reads better as words
"""Words of public names that mean here what they mean everywhere."""

SHARED_CLASS_NAMES = {
    "Command": "one of the command line, and the name that Django looks for",
    "Queue": "the same interface twice: asynchronous, and synchronous in rota.sync",
    "TaskFunction": "the same interface twice: asynchronous, and synchronous in rota.sync",
    "Handle": "the same interface twice: asynchronous, and synchronous in rota.sync",
    "App": "the engine's, and the same with connect(), which only a surface can offer",
    "OpenArtifact": "the same interface twice, as Queue",
    "Once": "a timing, and its body: clients see the name of the body in the OpenAPI document",
    "Rule": "a parsed rule, and its body: clients see the name of the body in the OpenAPI document",
}
"""Class names that mean two things, and why they stay."""


def layer_of(path: Path) -> str | None:
    first = path.relative_to(SOURCE).parts[0]
    return first if first in LAYERS else None


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


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


class Place:
    """A line of the map: a package, and the packages beside it that it may import."""

    def __init__(self, name: str, aside: list[str]) -> None:
        self.name = name
        self.aside = aside

    def may_import(self, module: str) -> bool:
        package = module if is_package(module) else module.rpartition(".")[0]
        if within(package, self.name) or within(self.name, package) or package in self.aside:
            return True
        here, there = self.name.split(".")[0], module.split(".")[0]
        if LAYERS.index(there) >= LAYERS.index(here):
            return False
        match there:
            case "domain":
                return package in ("domain", "domain.schedule") or module in OPEN_OF_DOMAIN
            case "stores":
                return module in OPEN_OF_STORES
        return True


def within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}.")


def is_package(name: str) -> bool:
    return SOURCE.joinpath(*name.split("."), "__init__.py").is_file()


def module_of(name: str) -> str:
    """`domain.model` for `rota.domain.model.Task`."""
    parts = name.split(".")[1:]
    while parts and not (is_package(".".join(parts)) or SOURCE.joinpath(*parts).with_suffix(".py").is_file()):
        parts.pop()
    return ".".join(parts)


def places_on_the_map() -> Iterator[Place]:
    """From the first picture: names indented by what contains them, and after an arrow what each may import."""
    around: list[str] = []
    for line in MAP.split("```")[1].strip("\n").splitlines():
        left, _, arrows = line.partition("→ ")
        depth = (len(left) - len(left.lstrip())) // 2
        around = [*around[:depth], left.split()[0]]
        yield Place(".".join(around), [in_full(name, around) for name in arrows.split()])


def in_full(name: str, around: list[str]) -> str:
    """`stores.memory` for the `memory` that is named beside `stores.bucket`."""
    for depth in range(len(around) - 1, -1, -1):
        full = ".".join([*around[:depth], name])
        if is_package(full):
            return full
    return name


def test_the_map_has_every_package() -> None:
    drawn = [place.name for place in places_on_the_map()]
    there = [".".join(package.relative_to(SOURCE).parts) for package in PACKAGES if package != SOURCE]
    assert sorted(drawn) == there


def test_packages_import_what_the_map_says() -> None:
    wrong = []
    for place in places_on_the_map():
        used = set()
        for path in SOURCE.joinpath(*place.name.split(".")).glob("*.py"):
            if path == SOURCE / "surfaces" / "stores.py":
                continue  # it opens the stores, and nobody else does
            modules = {module_of(name) for name in imports_of(path) if name.startswith("rota.")} - {""}
            used |= {module if is_package(module) else module.rpartition(".")[0] for module in modules}
            wrong += [
                f"{path.relative_to(SOURCE)} imports {module}"
                for module in sorted(modules)
                if "." in module and not place.may_import(module)
            ]
        wrong += [
            f"{place.name} does not import {name}: no arrow" for name in place.aside if name not in used
        ]
    assert not wrong


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(SOURCE.parent)))
def test_a_package_has_a_sign_and_few_modules(package: Path) -> None:
    sign = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = [path.stem for path in package.iterdir() if path.suffix == ".py" and path.stem != "__init__"]
    modules += [path.name for path in package.iterdir() if (path / "__init__.py").is_file()]
    assert len(sign.split()) >= 8, "what lives here?"
    assert len(modules) <= MODULES_IN_A_PACKAGE
    if package != SOURCE:
        named = set(re.findall(r"`(\w+)", sign)) | set(re.findall(r"^ +(\w+)", sign, re.MULTILINE))
        assert "egin with `" in sign, "where does a reader begin?"
        assert not set(modules) - named, "the sign names every module"


def test_public_names_are_words_of_the_glossary() -> None:
    known = {word.lower() for word in re.findall(r"\*\*(\w+)\*\*", GLOSSARY)} | set(PLAIN_WORDS)
    names = {
        *rota.__all__,
        *rota.testing.__all__,
        *(place.name.rpartition(".")[2] for place in places_on_the_map()),
    }
    unknown = {
        f"{word} of {name}"
        for name in names
        for word in words_in(name)
        if not known & {word, word.removesuffix("s"), f"{word}s", re.sub("ies$", "y", word)}
    }
    assert not unknown, "say what they mean in docs/glossary.md"


def words_in(name: str) -> list[str]:
    if name in PLAIN_WORDS or name == "RRule":
        return [name.lower()]
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_are_named_are_there(document: str) -> None:
    named = set(re.findall(r"`([\w./]+/[\w.]+\.(?:py|sql|md))`", (ROOT / document).read_text()))
    assert named
    assert not [name for name in sorted(named) if not ((ROOT / name).exists() or (SOURCE / name).exists())]


def test_the_map_is_two_pages() -> None:
    assert len(MAP.splitlines()) <= 130
    assert max(map(len, MAP.splitlines())) <= 120


def test_what_the_map_finds_is_in_the_file_that_it_names() -> None:
    """`domain/task/life.py` `settle`, `backoff`: both are defined there."""
    named = re.findall(r"`([\w/]+\.py)` ((?:`\w+`(?:, )?)+)", MAP.partition("## Where is it?")[2])
    assert named
    for path, names in named:
        defined = re.findall(
            r"(?:def |class |^)(\w+)(?:[(:\[]| =)", (SOURCE / path).read_text(), re.MULTILINE
        )
        assert set(re.findall(r"\w+", names)) <= set(defined), path


def test_modules_that_docstrings_name_are_there() -> None:
    places = [f"/{path.relative_to(SOURCE)}" for path in (*FILES, *PACKAGES)]
    rooms = {package.name for package in PACKAGES}
    wrong = []
    for path in FILES:
        texts = (ast.get_docstring(node) or "" for node in nodes_of(path) if isinstance(node, DOCUMENTED))
        for name in re.findall(r"`([\w/]+(?:\.py)?)`", " ".join(texts)):
            if not (name.endswith(".py") or ("/" in name and name.split("/")[0] in rooms)):
                continue
            is_there = any(
                place.removesuffix(".py").endswith(f"/{name.removesuffix('.py')}") for place in places
            )
            if not (is_there or (ROOT / name).exists()):
                wrong.append(f"{path.relative_to(SOURCE)} names {name}")
    assert not wrong


def test_a_decision_has_a_number_of_its_own() -> None:
    """Others refer to decisions by number: the file and its heading agree, and no number is used twice."""
    numbers = []
    for path in sorted((ROOT / "docs" / "decisions").iterdir()):
        number, text = int(path.name.partition("-")[0]), path.read_text()
        assert text.startswith(f"# {number}. "), path.name
        assert text.count("\n") <= 25, f"{path.name}: a decision is about ten lines"
        numbers.append(number)
    assert len(numbers) == len(set(numbers))


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


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    shared = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert not {name: paths for name, paths in shared.items() if name not in SHARED_CLASS_NAMES}
    assert set(SHARED_CLASS_NAMES) <= set(shared), "a name that means one thing now needs no exception"
