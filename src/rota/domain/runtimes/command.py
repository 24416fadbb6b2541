"""Commands: what a shell or http template runs. A python template has none: its kind names the function.

A task keeps the command that its template had when it was started. Its kind is that of its runtime (`rota.shell`,
`rota.http`), so that only workers that may run such commands claim it; a submission cannot bring a command of its own.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

__all__ = [
    "COMMAND_KINDS",
    "SHELL_KIND",
    "Command",
    "HttpRequest",
    "ShellCommand",
    "command_text",
    "kind_of",
]

Line = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}$")]
ExitCode = Annotated[int, msgspec.Meta(ge=0, le=255)]


class ShellCommand(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="runtime", tag="shell"
):
    """A line for a shell, or a program with its arguments, which no shell sees. It runs in `directory`, with the
    variables of the worker that `environment` names, beside the usual ones. Codes that are in neither list are tried
    again if there are no `retry_codes`, and else fail for good."""

    run: Line | Annotated[tuple[Line, ...], msgspec.Meta(min_length=1, max_length=1000)]
    directory: Annotated[str, msgspec.Meta(min_length=1, max_length=4096, pattern="^/")] | None = None
    environment: Annotated[tuple[Name, ...], msgspec.Meta(max_length=100)] = ()
    success_codes: Annotated[tuple[ExitCode, ...], msgspec.Meta(min_length=1, max_length=256)] = (0,)
    retry_codes: Annotated[tuple[ExitCode, ...], msgspec.Meta(max_length=256)] | None = None


class HttpRequest(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="runtime", tag="http"
):
    """A request. `{{input.x}}` in the url, in headers and in the body stands for a field of the input; `secret:NAME` in
    a header, and as `signing_secret`, for a secret of the worker."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=8000)]
    method: Annotated[str, msgspec.Meta(pattern="^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)$")] = "GET"
    headers: Annotated[dict[str, str], msgspec.Meta(max_length=100)] = {}
    body: Any = None
    max_redirects: Annotated[int, msgspec.Meta(ge=0, le=20)] = 5
    signing_secret: Annotated[str, msgspec.Meta(pattern="^secret:[A-Za-z_][A-Za-z0-9_]{0,200}$")] | None = (
        None
    )


Command = ShellCommand | HttpRequest
SHELL_KIND = "rota.shell"
COMMAND_KINDS = {SHELL_KIND: "shell", "rota.http": "http"}
"""By the kind of the tasks that commands become: their runtime."""


def kind_of(command: Command) -> str:
    """The kind of the tasks that it becomes."""
    return SHELL_KIND if isinstance(command, ShellCommand) else "rota.http"


def command_text(command: Command | str) -> str:
    """A command in one line, for people."""
    match command:
        case ShellCommand(run=str(line)):
            return line
        case ShellCommand(run=arguments):
            return " ".join(arguments)
        case HttpRequest():
            return f"{command.method} {command.url}"
        case _:
            return command
