"""How the site is made from the pages under docs/: the README is its first page, the decisions are its last section,
and each version of the documentation has a folder of its own beside a list of them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_LINK = re.compile(r"(?<!!)\[(?P<label>[^\]]*)\]\((?P<path>[^)#:]+)(?P<anchor>#[^)]*)?\)")


def on_config(config: Any) -> Any:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    config.site_dir = str(Path(config.site_dir) / version)
    decisions = sorted((DOCS / "decisions").glob("*.md"))
    config.nav.append({"Decisions": [f"decisions/{page.name}" for page in decisions]})
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    readme = (ROOT / "README.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=readme))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A link to a file of the repository that is no page of the site becomes the name of that file."""
    folder = (DOCS / page.file.src_path).parent

    def replaced(found: re.Match[str]) -> str:
        is_page = (folder / found["path"]).resolve().is_relative_to(DOCS) and (
            folder / found["path"]
        ).exists()
        return found[0] if is_page else found["label"]

    return _LINK.sub(replaced, markdown)


def on_post_build(config: Any) -> None:
    """The list of versions that the site's menu reads, and a first page that leads to the latest one."""
    here = Path(config.site_dir)
    versions = sorted((each.name for each in here.parent.iterdir() if each.is_dir()), reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in versions]
    here.with_name("versions.json").write_text(json.dumps(listed))
    here.with_name("index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={here.name}/index.html"><title>Rota</title>'
    )
