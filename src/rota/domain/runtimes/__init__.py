"""What a template's command and parameters may be. Pure: `engine/runtimes` runs commands. Begin with `command`."""

from .checks import check_command
from .command import (
    COMMAND_KINDS,
    SHELL_KIND,
    Command,
    HttpRequest,
    ShellCommand,
    command_text,
    kind_of,
)
from .json_schema import check_against, check_schema
from .request import FilledRequest, check_url, fill, secrets_of
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
