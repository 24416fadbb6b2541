"""Commands: what a shell or http template runs. A python template has none: its kind names the function.

A task keeps the command that its template had when it was started. Its kind is that of its runtime (`rota.shell`,
`rota.http`), so that only workers that may run such commands claim it; a submission cannot bring a command of its own.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..errors import Invalid

__all__ = [
    "COMMAND_KINDS",
    "Command",
    "HttpRequest",
    "ShellCommand",
    "check_command",
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
    """A request. `{{input.x}}` in the url, in headers and in the body stands for a field of the input."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=8000)]
    method: Annotated[str, msgspec.Meta(pattern="^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)$")] = "GET"
    headers: Annotated[dict[str, str], msgspec.Meta(max_length=100)] = {}
    body: Any = None
    max_redirects: Annotated[int, msgspec.Meta(ge=0, le=20)] = 5


Command = ShellCommand | HttpRequest
_TYPES: dict[str, type[ShellCommand] | type[HttpRequest]] = {"shell": ShellCommand, "http": HttpRequest}
COMMAND_KINDS = {"rota.shell": "shell", "rota.http": "http"}
"""By the kind of the tasks that commands become: their runtime."""


def kind_of(command: Command) -> str:
    """The kind of the tasks that it becomes."""
    return "rota.shell" if isinstance(command, ShellCommand) else "rota.http"


def check_command(runtime: str, value: object, field: str = "command") -> Command:
    """A command from its plain form: a text, a list of texts (an argument list), or its fields by name."""
    wanted = _TYPES[runtime]
    given = _fields(runtime, value)
    if given.get("runtime", runtime) != runtime:
        raise Invalid(f"{field}.runtime", f"the template's runtime is {runtime}", "leave it out")
    names = {each.name for each in msgspec.structs.fields(wanted)}
    for name in given.keys() - names - {"runtime"}:
        accepted = f"accepted are {', '.join(sorted(names))}"
        raise Invalid(f"{field}.{name}", f"a {runtime} command has no such field", accepted)
    try:
        made = msgspec.convert({name: given[name] for name in names & given.keys()}, wanted)
    except msgspec.ValidationError as problem:
        what, _, place = str(problem).partition(" - at `$")
        raise Invalid(f"{field}{place.rstrip('`')}", what[:1].lower() + what[1:]) from None
    if isinstance(made, ShellCommand):
        _check_shell(made, field)
    return made


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


def _fields(runtime: str, value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if runtime == "shell":
        return {"run": value}
    if not isinstance(value, str):
        return {"url": value}
    method, blank, url = value.partition(" ")
    return {"method": method, "url": url.strip()} if blank else {"url": value}


def _check_shell(command: ShellCommand, field: str) -> None:
    texts = (command.run,) if isinstance(command.run, str) else command.run
    if any("\0" in text for text in (*texts, command.directory or "")):
        raise Invalid(field, "it holds a NUL character", "no program can be given one")
    if not texts[0].strip():
        raise Invalid(field, "it is empty", "give a command line, or a list: the program and its arguments")
    both = set(command.success_codes) & set(command.retry_codes or ())
    if both:
        raise Invalid(f"{field}.retry_codes", f"{min(both)} is a success code, too", "give each code once")
