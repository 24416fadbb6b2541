"""What a process logs, as people or programs read it: lines in a terminal, JSON where nobody looks.

Every record carries the ids that it is about: tenant, schedule, run, task, worker. The engine names them; a record that
a handler logs, with whichever logger, has those of the task that is running. Passwords in addresses and keys are
blotted out wherever they stand."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from ....domain.errors import Invalid
from ....engine.observe.log import FIELDS, ids_of_task
from ....engine.observe.telemetry import running_task

__all__ = ["LEVELS", "configure_logs", "logging_to"]

LEVELS = ("debug", "info", "warning", "error")
QUIET = "warning"

_USUAL = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"})
_SECRETS = (
    (re.compile(r"\b(rota_[0-9a-f]{32})_[\w-]+"), r"\1_…"),
    (re.compile(r"(\w://[^\s:/@]*):[^\s/@]+@"), r"\1:…@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 …"),
    (
        re.compile(r"(?i)((?:api[-_]?key|password|passwd|secret|token)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+"),
        r"\1…",
    ),
)
_SECRET_NAMES = re.compile(r"(?i)password|passwd|secret|token|authorization|api_?key")
_COLOURS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}


def configure_logs(
    level: str | None = None, stream: TextIO | None = None, *, muted: Collection[str] = ()
) -> logging.Handler:
    """Log everything of this process from `level` on (`warning`, unless given) to `stream` (stderr, unless given):
    readable lines if it is a terminal, else a JSON document a line. `muted` names loggers that are left out."""
    if level is not None and level.lower() not in LEVELS:
        raise Invalid("log_level", f"{level!r:.60} is not a level", f"accepted are {', '.join(LEVELS)}")
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines(coloured=True) if stream.isatty() else JsonLines())
    handler.addFilter(lambda record: record.name not in muted)
    handler.addFilter(with_ids)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel((level or QUIET).upper())
    return handler


@contextmanager
def logging_to(
    level: str | None = None, stream: TextIO | None = None, *, muted: Collection[str] = ()
) -> Iterator[None]:
    """`configure_logs`, undone at the end."""
    root = logging.getLogger()
    before = root.level
    handler = configure_logs(level, stream, muted=muted)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def with_ids(record: logging.LogRecord) -> bool:
    """A filter that lets everything pass, and gives it the ids of the task that is running here."""
    task = running_task.get()
    if task is not None and not hasattr(record, "task"):
        for name, value in ids_of_task(task).items():
            if not hasattr(record, name):
                setattr(record, name, value)
    return True


class JsonLines(logging.Formatter):
    """One JSON document a line: at, level, logger, message, the ids, whatever else was given as `extra`, exception."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "at": _at(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        given = vars(record)
        document |= {name: given[name] for name in FIELDS if given.get(name) is not None}
        for name, value in given.items():
            if name not in _USUAL and name not in document and not name.startswith("_"):
                document[name] = "…" if _SECRET_NAMES.search(name) else _plain(value)
        if record.exc_info:
            document["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(document, ensure_ascii=False, default=str)


class Lines(logging.Formatter):
    """For people: time, level, logger, message, and the ids behind it."""

    def __init__(self, *, coloured: bool = False) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        at = _at(record).astimezone().strftime("%H:%M:%S")
        level = f"{record.levelname.lower():<7}"
        if self._coloured and record.levelname in _COLOURS:
            level = f"\x1b[{_COLOURS[record.levelname]}m{level}\x1b[0m"
        given = vars(record)
        ids = " ".join(f"{name}={given[name]}" for name in FIELDS if given.get(name) is not None)
        line = f"{at} {level} {record.name}: {record.getMessage()}" + (f"  [{ids}]" if ids else "")
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return without_secrets(line)


def without_secrets(text: str) -> str:
    """Passwords in addresses, keys in headers: what must not be in a log even if someone logs it."""
    for pattern, blotted in _SECRETS:
        text = pattern.sub(blotted, text)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return without_secrets(value)
    return value if isinstance(value, (int, float, bool, type(None))) else without_secrets(str(value))


def _at(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)
