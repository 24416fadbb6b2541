"""Fields of inputs, outputs and metadata that are shown to nobody, by their name (`[redact] fields` of rota.toml).

The dashboard, the HTTP API and the command line hide them where a value becomes text, so that no page and no command
has to think of it. Programs in Python read what is stored. What comes back as `[hidden]` means what is stored: an edit
of something that was shown loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from ..domain.artifact import RESULT
from ..domain.errors import Invalid
from ..domain.model import Artifact

P = ParamSpec("P")
T = TypeVar("T")
HIDDEN = "[hidden]"
_VALUES = frozenset(
    [
        "input",
        "output",
        "result",
        "progress",
        "metadata",
        "targetmetadata",
        "parameters",
        "command",
        "before",
        "after",
    ]
)
"""Fields of records whose values people and programs gave. The names of all other fields are Rota's own."""

_names: ContextVar[frozenset[str]] = ContextVar("rota_redact", default=frozenset())


def hide(fields: Iterable[str]) -> None:
    """Hide these fields from here on, in this context: the command that runs, the request that is answered."""
    _names.set(frozenset(map(_plain, fields)))


def carried(function: Callable[P, T]) -> Callable[P, T]:
    """The function, for a work: a store may run it in a thread of its own, which knows nothing of this context."""
    names = _names.get()

    def inside(*args: P.args, **given: P.kwargs) -> T:
        before = _names.set(names)
        try:
            return function(*args, **given)
        finally:
            _names.reset(before)

    return inside


def redacted(value: Any, names: frozenset[str]) -> Any:
    """A value without what its fields of these names hold, at any depth."""
    if isinstance(value, dict):
        return {
            name: HIDDEN if _plain(name) in names and each is not None else redacted(each, names)
            for name, each in value.items()
        }
    return [redacted(each, names) for each in value] if isinstance(value, (list, tuple)) else value


def shown(value: Any) -> Any:
    """A value that was given, as it may be shown."""
    names = _names.get()
    return redacted(value, names) if names else value


def document(body: Any) -> Any:
    """An answer as it may be shown: what Rota says stays, what was given is redacted."""
    names = _names.get()
    return _redacted_answer(body, names) if names else body


def _redacted_answer(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        return {
            name: redacted(each, names) if _plain(name) in _VALUES else _redacted_answer(each, names)
            for name, each in value.items()
        }
    return [_redacted_answer(each, names) for each in value] if isinstance(value, (list, tuple)) else value


def restored(field: str, given: Any, stored: Any = None) -> Any:
    """A given value, with the stored one in place of each `[hidden]`. Refused, if nothing is stored there."""
    return _restored(field, given, stored, _names.get()) if _names.get() else given


def _restored(field: str, given: Any, stored: Any, names: frozenset[str]) -> Any:
    if isinstance(given, (list, tuple)):
        known = stored if isinstance(stored, (list, tuple)) else ()
        return [
            _restored(f"{field}.{place}", each, known[place] if place < len(known) else None, names)
            for place, each in enumerate(given)
        ]
    if not isinstance(given, dict):
        return given
    had = stored if isinstance(stored, dict) else {}
    found = {}
    for name, each in given.items():
        if each != HIDDEN or _plain(name) not in names:
            found[name] = _restored(f"{field}.{name}", each, had.get(name), names)
        elif name in had:
            found[name] = had[name]
        else:
            raise Invalid(f"{field}.{name}", f"{HIDDEN} stands for nothing that is stored", "give the value")
    return found


def artifact(record: Artifact) -> Artifact:
    """An artifact as it may be shown: the result of a handler is an output, also when it is read as a file."""
    if not _names.get() or record.name != RESULT or record.inline is None:
        return record
    body = msgspec.json.encode(shown(msgspec.json.decode(record.inline)))
    return replace(record, inline=body, size=len(body), digest=sha256(body).hexdigest())


def _plain(name: object) -> str:
    """`apiKey`, `api_key` and `API-KEY` are one name."""
    return str(name).replace("_", "").replace("-", "").lower()
