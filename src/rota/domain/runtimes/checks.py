"""What is accepted as a command. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import Invalid
from .command import Command, HttpRequest, ShellCommand
from .request import check_request

__all__ = ["check_command"]

_ACCEPTED = {
    "shell": "give a command line, a list of texts, or an object with its fields",
    "http": "give a URL, or an object with the fields of the request",
}
_TYPES: dict[str, type[ShellCommand] | type[HttpRequest]] = {"shell": ShellCommand, "http": HttpRequest}


def check_command(runtime: str, value: object) -> Command:
    """A command from its plain form: a text, a list of texts (an argument list), or its fields by name. Refused, if it
    could never run."""
    wanted = _TYPES[runtime]
    given = _fields(runtime, value)
    if given.get("runtime", runtime) != runtime:
        raise Invalid("command.runtime", f"the template's runtime is {runtime}", "leave it out")
    names = {each.name for each in msgspec.structs.fields(wanted)}
    for name in given.keys() - names - {"runtime"}:
        accepted = f"accepted are {', '.join(sorted(names))}"
        raise Invalid(f"command.{name}", f"a {runtime} command has no such field", accepted)
    try:
        made = msgspec.convert({name: given[name] for name in names & given.keys()}, wanted)
    except msgspec.ValidationError as problem:
        what, _, place = str(problem).partition(" - at `$")
        raise Invalid(f"command{place.rstrip('`')}", what[:1].lower() + what[1:]) from None
    if isinstance(made, ShellCommand):
        _check_shell(made)
    else:
        check_request(made)
    return made


def _fields(runtime: str, value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if not isinstance(value, str | list | tuple) or (runtime == "http" and not isinstance(value, str)):
        raise Invalid("command", f"{value!r:.60} is not accepted", _ACCEPTED[runtime])
    if runtime == "shell":
        return {"run": value}
    assert isinstance(value, str), "as was checked above"
    method, blank, url = value.partition(" ")
    return {"method": method, "url": url.strip()} if blank and method.isalpha() else {"url": value}


def _check_shell(command: ShellCommand) -> None:
    texts = (command.run,) if isinstance(command.run, str) else command.run
    if any("\0" in text for text in (*texts, command.directory or "")):
        raise Invalid("command", "it holds a NUL character", "no program can be given one")
    if not texts[0].strip():
        raise Invalid(
            "command", "it is empty", "give a command line, or a list: the program and its arguments"
        )
    both = set(command.success_codes) & set(command.retry_codes or ())
    if both:
        raise Invalid("command.retry_codes", f"{min(both)} is a success code, too", "give each code once")
