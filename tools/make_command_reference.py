"""The command reference, `docs/cli.md`, from the code.

    python tools/make_command_reference.py

A test fails if the page is not what this would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from rota.surfaces.cli.command import Command, Group, is_global
from rota.surfaces.cli.root import cli

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"

_INTRO = """\
# Command line

*Made from the code by `make generated`.*

Exit codes: 0 fine, 1 refused (or the store is away), 2 wrong usage. `--json` gives one JSON document, or a
line for each thing in a stream and for each task that is named; a refusal is one sentence on stderr, and nothing on
stdout. Durations: `30s 5m 1h 7d 2w`, also `1h30m`. Times are ISO 8601; one
without a zone is the local time of the process. In a terminal there are colours, tables and relative
times; in a pipe, or with `NO_COLOR`, plain text.

What takes longer than a second shows that it lives, on stderr: a bar, where what is done can be counted, on a store and
over a server, and else words. The bar of `apply` has a step for each schedule that has been compared, one for each that
is ready to be written, and one for each that is written: these are one commit, all or nothing, and come at once. A file
of TOML or JSON is read in one go, and so is what `export` is about to write; both take a fraction of the time of YAML,
whose bytes are counted. Of a bucket, `doctor --deep` counts the objects of its archive, not records. Where stderr is
no terminal, and with `--json`, nothing is shown.

`--server https://rota.example.com --key KEY` asks a server instead of a store: see
[the HTTP API](http.md#the-command-line-through-a-server).

Settings come from flags, then `ROTA_…` variables, then `rota.toml` (with `[profile.NAME]`), then defaults:
`rota config` shows which.
"""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with its path, in the order of the help."""
    yield from _walk("rota", cli)


def _walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, Group):
        ctx = click.Context(command, info_name=path)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from _walk(f"{path} {name}", found)


def reference() -> str:
    return "\n".join([_INTRO, *(_section(path, command) for path, command in commands())])


def _section(path: str, command: click.Command) -> str:
    ctx = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(ctx)])
    level = "##" if path.count(" ") < 2 else "###"
    parts = [f"{level} `{path}`\n", f"{_prose(command)}\n", f"```\n{usage}\n```\n"]
    rows = [
        record
        for param in command.get_params(ctx)
        if _is_own(param) and (record := param.get_help_record(ctx))
    ]
    if rows:
        lines = [f"| `{_cell(names)}` | {_cell(about)} |" for names, about in rows]
        parts.append("\n".join(["| option | |", "| --- | --- |", *lines]) + "\n")
    if isinstance(command, Group):
        lines = [
            f"| [`{path} {name}`](#{_anchor(path, name)}) | {entry.about} |"
            for name, entry in command.entries.items()
        ]
        parts.append("\n".join(["| command | |", "| --- | --- |", *lines]) + "\n")
    if isinstance(command, (Command, Group)) and command.examples:
        parts.append("```bash\n" + "\n".join(command.examples) + "\n```\n")
    return "\n".join(parts)


def _prose(command: click.Command) -> str:
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _is_own(param: click.Parameter) -> bool:
    """The global options are told once, under `rota`; arguments are told in the prose."""
    if not isinstance(param, click.Option):
        return False
    return "--help" not in param.opts and (not is_global(param) or param in cli.params)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(path: str, name: str) -> str:
    return f"{path} {name}".replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
