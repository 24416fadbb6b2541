"""What a template's command and parameters may be. Pure: `engine/runtimes` runs commands. Begin with `command`.
`json_schema` checks parameters, `signing` signs the requests of http templates."""

from .command import (
    COMMAND_KINDS,
    SHELL_KIND,
    Command,
    FilledRequest,
    HttpRequest,
    ShellCommand,
    check_command,
    check_url,
    command_text,
    fill,
    kind_of,
    secrets_of,
)
from .json_schema import check_against, check_schema
from .signing import TOLERANCE, is_signed, signature_headers

__all__ = [
    "COMMAND_KINDS",
    "SHELL_KIND",
    "TOLERANCE",
    "Command",
    "FilledRequest",
    "HttpRequest",
    "ShellCommand",
    "check_against",
    "check_command",
    "check_schema",
    "check_url",
    "command_text",
    "fill",
    "is_signed",
    "kind_of",
    "secrets_of",
    "signature_headers",
]
