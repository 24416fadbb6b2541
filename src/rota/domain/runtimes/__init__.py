"""What a template's command may be, for each runtime. Pure: `engine/runtimes` runs them. Begin with `command`."""

from .command import (
    COMMAND_KINDS,
    Command,
    HttpRequest,
    ShellCommand,
    check_command,
    command_text,
    kind_of,
)

__all__ = [
    "COMMAND_KINDS",
    "Command",
    "HttpRequest",
    "ShellCommand",
    "check_command",
    "command_text",
    "kind_of",
]
