"""Templates: stored task definitions, and the submission that one makes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from .errors import Invalid, Refused
from .limits import check_choice, check_input, check_key, check_kind, shown
from .model import Limits, Runtime, Template
from .options import Option, TaskOptions, TemplateOptions, check_option, names_of, options_of
from .task import Submission

__all__ = ["alias_key", "as_facts", "check_runs", "create", "edit", "overlaid", "submission"]


def create(id: str, fields: Mapping[str, Any], *, tenant: str, now: datetime, limits: Limits) -> Template:
    """A checked template. `fields` are those of the record by name; alias and kind must be there."""
    for name in ("alias", "kind"):
        if name not in fields:
            raise Invalid(name, "it is missing", "a template has an alias and a kind")
    return Template(id=id, tenant=tenant, created_at=now, updated_at=now, **_checked(fields, limits))


def edit(template: Template, changes: Mapping[str, Any], now: datetime, limits: Limits) -> Template:
    """With the changes; what is given as it was is no change."""
    values = _checked(changes, limits)
    changed = {
        name: value for name, value in values.items() if _stored(value) != _stored(getattr(template, name))
    }
    return replace(template, **changed, updated_at=now) if changed else template


def alias_key(alias: str) -> str:
    """An alias as it is compared: letter case, `-` and `_` do not tell two apart."""
    return alias.casefold().replace("-", "").replace("_", "")


def check_runs(template: Template) -> None:
    """Refused, if it cannot run."""
    if not template.enabled:
        raise Refused("template_disabled", template=template.alias)


def submission(template: Template, input: object) -> Submission:
    """What running it submits: its parameters overlaid with `input`."""
    options = {name: getattr(template, name) for name in names_of(TaskOptions)}
    options["metadata"] = {**template.metadata, "template_id": template.id}
    return Submission(kind=template.kind, input=overlaid(template, input), **options)


def overlaid(template: Template, input: object, field: str = "input") -> dict[str, Any]:
    if not isinstance(input, dict | None):
        problem = f"{shown(input)} cannot be laid over a template's parameters"
        raise Invalid(field, problem, "give a dict")
    return template.parameters | (input or {})


def as_facts(template: Template) -> dict[str, Any]:
    """A template as the audit shows it."""
    facts: dict[str, Any] = msgspec.to_builtins(template)
    facts.pop("record", None)
    return facts


def _checked(fields: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    values = {}
    for name, value in fields.items():
        if name not in _FIELDS:
            raise Invalid(name, "a template has no such field", f"accepted are {', '.join(sorted(_FIELDS))}")
        values[name] = _FIELDS[name](name, value, limits)
    return values


def _stored(value: object) -> bytes:
    """For comparing: to Python, True and 1 are equal."""
    return msgspec.json.encode(value)


def _runtime(field: str, value: object, limits: Limits) -> Runtime:
    return check_choice(field, value, Runtime)


def _parameters(field: str, value: object, limits: Limits) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid(field, f"{shown(value)} is not a dict", "give a dict with texts as keys")
    checked: dict[str, Any] = check_input(value, limits, field)
    return checked


def _checking(option: Option) -> Callable[[str, object, Limits], Any]:
    return lambda field, value, limits: check_option(field, option, value)


_FIELDS: dict[str, Callable[[str, object, Limits], Any]] = {
    **{name: _checking(option) for name, option in options_of(TemplateOptions).items()},
    "alias": lambda field, value, limits: check_key(value, field),
    "kind": lambda field, value, limits: check_kind(value, field),
    "parameters": _parameters,
    "runtime": _runtime,
}
