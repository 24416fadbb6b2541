"""The table of routes in `docs/http.md`, from the OpenAPI document.

    python tools/make_route_table.py

It stands between `<!-- made: routes -->` and `<!-- end -->`. A test fails if it is not what this would write.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rota.surfaces.http import create_app

PAGE = Path(__file__).parent.parent / "docs" / "http.md"
MADE = re.compile(r"(<!-- made: routes -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """The page with the table that it should have."""
    return MADE.sub(lambda found: f"{found[1]}\n{table()}\n\n{found[2]}", text)


def table() -> str:
    described: dict[str, Any] = create_app("memory:", metrics=False).openapi()
    rows = [
        f"| `{method.upper()}` | `{path}` | {_about(operation)} |"
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    return "\n".join(["| | | |", "| --- | --- | --- |", *rows])


def _about(operation: dict[str, Any]) -> str:
    """The first paragraph."""
    paragraph = operation["description"].partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
