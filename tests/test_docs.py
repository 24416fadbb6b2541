"""What is written for readers is true: code runs, commands exist, links lead somewhere, tables are current."""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import os
import re
import runpy
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

import rota
from fire_times import fire_times
from forked import run
from rota import testing
from rota.scenario import open_scenario, time_of
from rota.surfaces.cli.root import cli

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "ARCHITECTURE", "SECURITY")),
    *(
        DOCS / f"{name}.md"
        for name in ("quickstart", "concepts", "how-to", "schedules-in-a-file", "time-rules", "api", "http")
    ),
    *sorted((DOCS / "guides").glob("*.md")),
    *sorted((DOCS / "decisions").glob("*.md")),
]
EVERY_PAGE = [*PAGES, *(page for page in sorted(DOCS.glob("*.md")) if page not in PAGES)]
COMPLETE = ("asyncio.run(", "testing.run(", "rota.sync.connect(")
BLOCK = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str
    after: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def is_complete(self) -> bool:
        return any(start in self.text for start in COMPLETE)


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        if found["language"] in languages:
            line = text.count("\n", 0, found.start()) + 2
            yield Block(page, line, found["language"], found["text"], text[found.end() :])


PYTHON = [block for page in PAGES for block in blocks(page, "python")]


def command_lines() -> Iterator[tuple[str, str]]:
    """(where, line) of every `rota …` that a page shows."""
    for page in PAGES:
        for block in blocks(page, "bash", "console"):
            for line in block.text.splitlines():
                if line.removeprefix("$ ").startswith("rota "):
                    yield str(block), line.removeprefix("$ ")


COMMANDS = sorted(set(command_lines()))


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("ROTA_")]:
        monkeypatch.delenv(name)
    return tmp_path


# Code


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_in_the_documentation_runs(block: Block) -> None:
    """A complete program as it is; a snippet with an open `queue` and an `app` at hand."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(block.text, str(block), "exec", flags=flags, dont_inherit=True)
    said = io.StringIO()
    with redirect_stdout(said):
        if block.is_complete:
            exec(code, {"__name__": "__main__"})
        else:
            asyncio.run(run_snippet(code))
    promised = re.match(r"\n\nprints\n\n```text\n(.*?)```", block.after, re.DOTALL)
    if promised:
        assert said.getvalue() == promised[1]


async def run_snippet(code: Any) -> None:
    async with rota.connect("memory:") as queue:
        names = {
            "queue": queue,
            "app": rota.App(),
            "rota": rota,
            "datetime": datetime,
            "timedelta": timedelta,
        }
        waiting = eval(code, names)
        if inspect.iscoroutine(waiting):
            await waiting


def test_most_of_the_documentation_has_code() -> None:
    assert len(PYTHON) > 20
    assert len(COMMANDS) > 20


# README


def readme_program() -> str:
    return next(blocks(ROOT / "README.md", "python")).text


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 600
    assert readme_program().count("\n") <= 20


def test_the_program_of_the_readme_prints_what_the_readme_says(empty_folder: Path) -> None:
    (empty_folder / "hello.py").write_text(readme_program())
    promised = next(blocks(ROOT / "README.md", "console")).text
    line, _, output = promised.partition("\n")
    assert line == "$ python hello.py"
    for _ in range(2):  # and again, on the file that is there now
        assert run_program("hello.py") == output


def test_the_program_of_the_readme_is_the_first_example() -> None:
    example = (ROOT / "examples" / "hello.py").read_text()
    assert ast.dump(ast.parse(readme_program())) == ast.dump(ast.parse(example))


def test_the_readme_names_the_two_commands() -> None:
    shown = "".join(block.text for block in blocks(ROOT / "README.md", "bash"))
    assert "make run" in shown
    assert "make test" in shown


def test_the_picture_is_there() -> None:
    picture = (DOCS / "demo.svg").read_text()
    assert picture.startswith("<svg")
    shown = re.sub(r"<[^>]+>", "", picture).replace("&#160;", " ")
    for words in ("rota up --demo", "skipped", "rota schedule why backup"):
        assert words in shown
    assert "http" not in picture.replace("http://www.w3.org/", "")


# Commands and links


@pytest.mark.parametrize(("where", "line"), COMMANDS, ids=lambda value: str(value)[:60])
def test_commands_in_the_documentation_exist(where: str, line: str) -> None:
    """Parsed as the command line would, down to the last option; nothing is run."""
    arguments = shlex.split(line, comments=True)[1:]
    context: click.Context = cli.make_context("rota", arguments)
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found
        context = command.make_context(name, arguments, parent=context)
    assert context.params is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_prose_exist(page: Path) -> None:
    for found in re.finditer(r"`rota((?: [a-z]+)+)", BLOCK.sub("", page.read_text())):
        command: click.Command = cli
        for word in found[1].split():
            if not isinstance(command, click.Group):
                break
            below = command.get_command(click.Context(command), word)
            assert below is not None, f"{page.name}: `rota{found[1]}`"
            command = below


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_in_the_documentation_exist(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for found in re.finditer(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE):
        assert found[1] in targets


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        path, _, fragment = target.partition("#")
        there = (page.parent / path) if path else page
        assert there.exists(), f"{page.name} links to {target}"
        if fragment and there.suffix == ".md":
            assert fragment in headings(there), f"{page.name} links to {target}"


def headings(page: Path) -> set[str]:
    """The anchors of a page, made as the usual hosts make them."""
    lines = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


# Reference


def test_every_public_name_is_in_the_reference() -> None:
    page = (DOCS / "api.md").read_text()
    missing = [name for name in rota.__all__ if not re.search(rf"\b{name}\b", page)]
    assert not missing


def test_every_call_of_the_queue_is_in_the_reference() -> None:
    page = (DOCS / "api.md").read_text()
    calls = [name for name, value in inspect.getmembers(rota.Queue) if inspect.iscoroutinefunction(value)]
    missing = [name for name in calls if not name.startswith("_") and f"| `{name}(" not in page]
    assert not missing


def test_the_tables_of_the_reference_are_current() -> None:
    """If not: `make generated`."""
    page = (DOCS / "api.md").read_text()
    tool = runpy.run_path(str(ROOT / "tools" / "make_api_tables.py"))
    assert tool["page"](page) == page
    assert set(re.findall(r"<!-- made: ([\w ]+) -->", page)) == set(tool["tables"]())


def test_the_table_of_routes_is_current() -> None:
    """If not: `make generated`."""
    text = (DOCS / "http.md").read_text()
    assert runpy.run_path(str(ROOT / "tools" / "make_route_table.py"))["page"](text) == text


# Time rules


def rows(page: Path, head: str) -> list[list[str]]:
    """The cells of the table that begins with this line."""
    table = page.read_text().split(head + "\n", 1)[1].split("\n\n", 1)[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]


def expressions(cell: str) -> list[str]:
    found = [text.strip() for text in re.findall(r"`([^`]+)`", cell)]
    return [text for text in found if text.startswith("@") or len(text.split()) >= 5]


def accepted(expression: str, zone: str = "UTC") -> list[str]:
    return fire_times("cron", expression, zone, "2026-01-01T00:00:00Z", None, 1)


def test_what_the_time_rules_refuse_is_refused_and_what_they_offer_is_accepted() -> None:
    table = rows(DOCS / "time-rules.md", "| refused | write |")
    refused = [each for row in table for each in expressions(row[0])]
    assert len(refused) >= 9
    for each in refused:
        with pytest.raises(ValueError, match=r"^cron: .*; "):
            accepted(each)
    for each in [each for row in table for each in expressions(row[1])]:
        assert accepted(each)


def test_the_cron_lines_of_the_time_rules_are_accepted() -> None:
    table = rows(DOCS / "time-rules.md", "| form | meaning | example |")
    for row in table:
        for example in expressions(row[2]):
            assert accepted(example)
    for macro in next(row for row in table if row[0] == "macros")[1].strip("`").split():
        assert accepted(macro)


NEW_YORK = "America/New_York"
TIMES = [
    ("0 2 * * *", NEW_YORK, "2026-03-08T05:00", ["2026-03-08T07:00", "2026-03-09T06:00"]),
    ("30 2 * * *", NEW_YORK, "2026-03-08T05:00", ["2026-03-08T07:00", "2026-03-09T06:30"]),
    ("0,30 2 * * *", NEW_YORK, "2026-03-08T05:00", ["2026-03-08T07:00", "2026-03-09T06:00"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00", ["2026-10-03T15:30"]),
    ("0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00", ["2011-12-30T10:00"]),
    ("30 1 * * *", NEW_YORK, "2026-11-01T00:00", ["2026-11-01T05:30", "2026-11-02T06:30"]),
    (
        "*/15 * * * *",
        NEW_YORK,
        "2026-03-08T06:30",
        ["2026-03-08T06:45", "2026-03-08T07:00", "2026-03-08T07:15"],
    ),
    (
        "0 */2 * * *",
        NEW_YORK,
        "2026-03-08T04:00",
        ["2026-03-08T05:00", "2026-03-08T08:00", "2026-03-08T10:00"],
    ),
    (
        "*/30 * * * *",
        NEW_YORK,
        "2026-11-01T04:59",
        ["2026-11-01T05:00", "2026-11-01T05:30", "2026-11-01T06:00", "2026-11-01T06:30", "2026-11-01T07:00"],
    ),
    ("0 0 */2 * MON", "UTC", "2026-06-01T00:00", ["2026-06-15T00:00", "2026-06-29T00:00"]),
    ("0 0 30 2 1", "UTC", "2026-01-01T00:00", ["2026-02-02T00:00", "2026-02-09T00:00"]),
    ("0 0 13 * FRI", "UTC", "2026-02-01T00:00", ["2026-02-06T00:00", "2026-02-13T00:00"]),
]


@pytest.mark.parametrize(("line", "zone", "after", "times"), TIMES, ids=lambda value: str(value)[:20])
def test_the_dates_of_the_time_rules_are_right(line: str, zone: str, after: str, times: list[str]) -> None:
    assert f"`{line}`" in (DOCS / "time-rules.md").read_text()
    found = fire_times("cron", line, zone, f"{after}:00Z", None, len(times))
    assert found == [f"{time}:00Z" for time in times]


# Examples


@pytest.mark.parametrize(
    "path",
    [path for path in EXAMPLES if not path.name.startswith(("hello", "test_"))],
    ids=lambda path: path.stem,
)
def test_examples_print_what_they_promise(path: Path) -> None:
    about = ast.get_docstring(ast.parse(path.read_text())) or ""
    promised = about.partition("prints\n\n")[2]
    assert promised, f"{path.name} does not say what it prints"
    assert run_program(str(path)) == inspect.cleandoc(promised) + "\n"


def test_the_example_in_virtual_time_passes() -> None:
    """As the plugin for pytest runs it."""
    example = runpy.run_path(str(ROOT / "examples" / "test_in_virtual_time.py"))
    tests = [value for name, value in example.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        (mark,) = test.pytestmark

        async def main(clock: testing.LoopClock, test: Any = test, app: Any = mark.args[0]) -> None:
            async with open_scenario(app) as scenario:
                await test(scenario)

        testing.run(main, start=time_of(mark.kwargs["start"]))


def run_program(path: str) -> str:
    environment = {**os.environ, "TZ": "Asia/Tokyo"}  # the local zone of the reader does not matter
    answer = run(Path(path), env=environment)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_the_dates_that_the_readme_assumes_are_still_to_come() -> None:
    """The program of the README declares times in 2030; from then on it needs a later year."""
    assert datetime.now(UTC) < datetime(2030, 3, 30, tzinfo=UTC)
