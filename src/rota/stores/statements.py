"""The SQL files: every statement has a name (`-- name: put_task`), and is loaded once."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["load"]

_NAME = re.compile(r"^-- name: (?P<part>part )?(?P<name>\w+)$", re.MULTILINE)


@cache
def load(dialect: str) -> dict[str, str]:
    """All statements of `sql/<dialect>.sql`, by name. A `part` is text that others include as `{name}`."""
    text = files(__package__).joinpath("sql", f"{dialect}.sql").read_text("utf-8")
    headings = list(_NAME.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    statements: dict[str, str] = {}
    parts: dict[str, str] = {}
    for heading, end in zip(headings, ends, strict=True):
        body = _without_comments(text[heading.end() : end])
        (parts if heading["part"] else statements)[heading["name"]] = body
    return {name: _include(body, parts) for name, body in statements.items()}


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()


def _include(body: str, parts: dict[str, str]) -> str:
    for name, part in reversed(parts.items()):  # a part may include those before it
        body = body.replace(f"{{{name}}}", part)
    return body
