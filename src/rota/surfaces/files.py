"""Files that declare schedules, templates and calendars, in YAML, TOML or JSON:
`{schedules: {key: options}, templates: …}`. An `.ics` file that a calendar names is looked for beside them.

YAML is read as its version 1.2 has it: `on` and `12:30` are texts, and a key may be there only once."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from textwrap import indent
from typing import Any

from ..domain.errors import Invalid
from . import redaction, settings

DEEPEST = 100
LARGEST = 2_000_000
SECTIONS = ("schedules", "templates", "calendars")
_VIEW_TARGETS = {"workflow": ("workflow", "task_type"), "template": ("template", "template_id")}
_NOT_DECLARED = frozenset(("id", "target_type", "enabled", "next_run_at", "run_count")) | {
    f"{done}_{how}" for done in ("created", "updated") for how in ("at", "by")
}
SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json"}
_MERGE = "tag:yaml.org,2002:merge"
_PLAIN: list[tuple[str, re.Pattern[str], Iterable[str]]] = [
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF"),
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), "-+0123456789"),
    ("float", re.compile(r"^[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?$"), "-+0123456789"),
    ("merge", re.compile(r"^<<$"), "<"),
]
"""Plain values that are no texts in YAML 1.2: the tag, how it is written, and how it begins."""
Document = dict[str, dict[str, dict[str, Any]]]
Report = Callable[[int], None]


def format_of(path: Path) -> str:
    if path.name == settings.FILE:
        raise Invalid("file", f"{path.name} is where settings are", "give a file of another name")
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise Invalid("file", f"{path.name!r} is of no known format", "give a .yaml, .toml or .json file")
    return found


def read(path: Path, *, report: Report | None = None) -> Document:
    """The declarations of a file. An error names it. `report` is called with how many bytes of YAML have been read;
    each counts half when it was parsed, and half when it has become a value."""
    format = format_of(path)
    text = _text("file", path)
    return _with_events(read_text(text, format, str(path), report), path.parent)


def _text(field: str, path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as problem:
        raise Invalid(field, f"{path} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise Invalid(field, f"{path} is not UTF-8 text") from None
    except ValueError:  # a NUL, or what no file system can carry
        raise Invalid(field, f"{str(path)!r:.60} cannot be the name of a file") from None


def _with_events(document: Document, folder: Path) -> Document:
    named = document.get("calendars", {})
    for name, options in named.items():
        given = options.get("ics")
        if isinstance(given, str) and "\n" not in given:
            named[name] = {**options, "ics": _text("ics", folder / given)}
    return document


def read_text(text: str, format: str, name: str = "it", report: Report | None = None) -> Document:
    try:
        match format:
            case "yaml":
                document = _read_yaml(text, report or _to_nobody)
            case "toml":
                document = tomllib.loads(text)
            case _:
                document = json.loads(text, object_pairs_hook=_without_repeats)
    except ValueError as problem:
        said = " ".join(str(problem).split())
        raise Invalid("file", f"{name} is not {format.upper()}: {said}") from None
    except RecursionError:
        raise Invalid("file", f"{name} is nested too deeply", f"the most is {DEEPEST} levels") from None
    if _extent(document, name, {}) > LARGEST:
        raise Invalid("file", f"{name} has too many values", f"the most is {LARGEST:,}, aliases included")
    return check_document(_of_view(document) if _is_view(document) else document)


def _is_view(document: object) -> bool:
    return isinstance(document, Mapping) and all(
        isinstance(document.get(each), str) for each in ("id", "target_type")
    )


def _of_view(view: Mapping[str, Any]) -> dict[str, Any]:
    """The view of a schedule that a bucket has, `schedules/{key}.json`, as a document of one schedule. Its state is
    left out."""
    options = {name: value for name, value in view.items() if value is not None and name not in _NOT_DECLARED}
    if options.get("status") == "completed":
        del options["status"]
    written_as, named = _VIEW_TARGETS.get(view["target_type"], ("task_type", "task_type"))
    options[written_as] = options.pop(named, None)
    return {"schedules": {view["id"]: options}}


def _extent(value: object, name: str, known: dict[int, int], depth: int = 0) -> int:
    """How many values are in it. Aliases of YAML may repeat a few a billion times, or contain themselves."""
    if depth > DEEPEST:
        raise Invalid("file", f"{name} is nested too deeply", f"the most is {DEEPEST} levels")
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_extent(each, name, known, depth + 1) for each in inner)
    return known[id(value)]


def check_document(document: object) -> Document:
    """Sections, in them names, under each its options; else refused."""
    accepted = f"accepted are {', '.join(SECTIONS)}"
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise Invalid("file", "it is no mapping", accepted)
    for section, named in document.items():
        if section not in SECTIONS:
            raise Invalid(str(section), "there is no such section", accepted)
        if not isinstance(named, Mapping | None):
            raise Invalid(section, "it is no mapping", "write a name, and under it the options")
        for name, options in (named or {}).items():
            if not isinstance(name, str):
                raise Invalid(section, f"the name {name!r} is no text", "put it in quotes")
            if not isinstance(options, Mapping):
                raise Invalid(section, f"{name!r} has no options", "write its options under it")
    return {section: dict(named or {}) for section, named in document.items()}


def write(
    document: Mapping[str, Mapping[str, Mapping[str, Any]]], format: str, *, report: Report | None = None
) -> str:
    """The document as a text that `read` gives back. `report` is called with 1 for each name that has been written."""
    document = redaction.document(document)
    said = report or _to_nobody
    match format:
        case "yaml":
            return "".join(_yaml_section(section, named, said) for section, named in document.items())
        case "toml":
            return "\n".join(_toml_table(section, named, said) for section, named in document.items())
        case _:
            return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _to_nobody(steps: int) -> None:
    """Nobody is watching."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is there twice")
    return found


def _yaml() -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        problem = "YAML needs PyYAML, which is not installed"
        raise Invalid(
            "file", problem, "install rota[yaml], or use TOML or JSON (the ending of the file, or --format)"
        ) from None
    return yaml


def _read_yaml(text: str, report: Report) -> Any:
    yaml = _yaml()
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    source = _Source(text, report)

    def construct_mapping(loader: Any, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key.value, str):
                raise ValueError(f"the key in line {key.start_mark.line + 1} is no text")
            if key.value in seen and key.tag != _MERGE:
                raise ValueError(f"{key.value!r} is there twice, again in line {key.start_mark.line + 1}")
            seen.add(key.value)
        source.became_value(node.start_mark.index)
        return base.construct_mapping(loader, node, deep=deep)

    plain: dict[str, list[Any]] = {}
    for tag, pattern, begins in _PLAIN:
        for first in begins:
            plain.setdefault(first, []).append((f"tag:yaml.org,2002:{tag}", pattern))
    own = {"construct_mapping": construct_mapping, "yaml_implicit_resolvers": plain}
    try:
        return yaml.load(source, Loader=type("Loader", (base,), own))
    except yaml.YAMLError as problem:
        raise ValueError(str(problem)) from None
    except (
        AttributeError,
        LookupError,
        TypeError,
    ):  # as PyYAML reads `!!timestamp x`, `!!bool x` and `!!int ''`
        raise ValueError("a value is not what its tag says") from None


class _Source(BytesIO):
    """A text that is parsed, and then made into values from its beginning to its end."""

    name = "<text>"

    def __init__(self, text: str, report: Report) -> None:
        super().__init__(text.encode())
        self._bytes, self._characters = self.getbuffer().nbytes, len(text)
        self._report, self._reported = report, 0

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        self._reached(self.tell() // 2)
        return piece

    def became_value(self, characters: int) -> None:
        self._reached((self._bytes + self._bytes * characters // self._characters) // 2)

    def _reached(self, place: int) -> None:
        if place > self._reported:
            self._report(place - self._reported)
            self._reported = place


def _yaml_section(section: str, named: Mapping[str, Mapping[str, Any]], report: Report) -> str:
    """Written one by one, each two columns in."""
    if not named:
        return f"{section}: {{}}\n"
    yaml = _yaml()
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    parts = [f"{section}:\n"]
    for name, options in named.items():
        one = yaml.dump({name: options}, Dumper=dumper, sort_keys=False, allow_unicode=True, width=98)
        parts.append(indent(one, "  "))
        report(1)
    return "".join(parts)


def _toml_table(section: str, named: Mapping[str, Mapping[str, Any]], report: Report) -> str:
    lines = []
    for name, options in named.items():
        lines.append(f"[{section}.{_toml(name)}]")
        lines += [f"{each} = {_toml(value)}" for each, value in options.items()]
        lines.append("")
        report(1)
    return "\n".join(lines)


def _toml(value: Any) -> str:
    match value:
        case None:
            raise Invalid("format", "TOML has no null, and something here is null", "write YAML or JSON")
        case Mapping():
            return f"{{ {', '.join(f'{_toml(str(k))} = {_toml(v)}' for k, v in value.items())} }}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case _:
            return json.dumps(value)
