"""Templates: stored task definitions, and the submission that one makes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from .checks import (
    changed_fields,
    check_choice,
    check_fields,
    check_input,
    check_key,
    check_kind,
    check_text,
    shown,
)
from .errors import Invalid, Refused
from .model import Limits, Runtime, Target, Template, TemplateTarget, facts_of
from .options import Option, TaskOptions, TemplateOptions, check_option, names_of, options_of
from .runtimes import COMMAND_KINDS, check_against, check_command, check_schema, kind_of
from .task import Submission

_OF_RECORD = ("id", "tenant", "version", "created_at", "updated_at", "applied")
_NEEDED = "a template has an alias, and a kind or a command"


def create(id: str, fields: Mapping[str, Any], *, tenant: str, now: datetime, limits: Limits) -> Template:
    """A checked template. `fields` are those of the record by name; the alias must be there, and what to run."""
    if "alias" not in fields:
        raise Invalid("alias", "it is missing", _NEEDED)
    values = _runnable(_checked(fields, limits), limits)
    return Template(id=id, tenant=tenant, created_at=now, updated_at=now, **values)


def edit(template: Template, changes: Mapping[str, Any], now: datetime, limits: Limits) -> Template:
    """The template with the changes; what is given as it was is no change."""
    changed = changed_fields(template, _runnable(_checked(changes, limits), limits, template))
    return replace(template, **changed, updated_at=now) if changed else template


def replaced(template: Template, fields: Mapping[str, Any], now: datetime, limits: Limits) -> Template:
    """The template with these fields; those that are left out go back to their defaults."""
    whole = create(template.id, fields, tenant=template.tenant, now=now, limits=limits)
    wanted = {name: getattr(whole, name) for name in Template.__struct_fields__ if name not in _OF_RECORD}
    return edit(template, wanted, now, limits)


def alias_key(alias: str) -> str:
    """An alias as it is compared: letter case, `-` and `_` do not tell two apart."""
    return alias.casefold().replace("-", "").replace("_", "")


def check_runs(template: Template) -> None:
    """Refused, if it cannot run."""
    if not template.enabled:
        raise Refused("template_disabled", template=template.alias)


def submission(template: Template, input: object) -> Submission:
    """The submission that running it makes: its parameters overlaid with `input`."""
    options = {name: getattr(template, name) for name in names_of(TaskOptions)}
    options["metadata"] = {**template.metadata, "template_id": template.id}
    command = None if isinstance(template.command, str) else template.command
    return Submission(kind=template.kind, input=overlaid(template, input), command=command, **options)


def overlaid(template: Template, input: object, field: str = "input") -> dict[str, Any]:
    """The parameters with the input laid over them; refused if that is not what the schema of the template asks for."""
    if not isinstance(input, dict | None):
        problem = f"{shown(input)} cannot be laid over a template's parameters"
        raise Invalid(field, problem, "give a dict")
    parameters = template.parameters | (input or {})
    if template.parameters_schema is not None:
        check_against(template.parameters_schema, parameters, field)
    return parameters


def known_target(found: Template | None, target: TemplateTarget, old: Target | None) -> Target:
    """The target with the id of the template that it names. Refused if there is no such template, if it is disabled
    (unless the schedule had it before), or if the parameters do not fit its schema."""
    name = target.template_id
    if found is None:
        raise Invalid("template_id", f"there is no template {name!r}", "create it first")
    if found.parameters_schema is not None:
        overlaid(found, target.input)
    had_it = isinstance(old, TemplateTarget) and old.template_id == found.id
    if not found.enabled and not had_it:
        raise Invalid("template_id", f"template {found.alias!r} is disabled", "enable it first")
    return replace(target, template_id=found.id)


def as_facts(template: Template) -> dict[str, Any]:
    """A template as the audit shows it."""
    return facts_of(template, "applied")


def _checked(fields: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    check_fields("a template", fields, _FIELDS)
    return {name: _FIELDS[name](name, value, limits) for name, value in fields.items()}


def _runnable(values: dict[str, Any], limits: Limits, old: Template | None = None) -> dict[str, Any]:
    """The values with the kind and the command that fit the runtime."""
    if old is not None and not {"runtime", "kind", "command"} & values.keys():
        return values
    runtime = values.get("runtime", Runtime.PYTHON if old is None else old.runtime)
    is_kept = old is not None and old.runtime is runtime
    wanted = ({"kind": old.kind, "command": old.command} if old and is_kept else {}) | values
    return values | (_function(wanted) if runtime is Runtime.PYTHON else _command(runtime, wanted, limits))


def _function(wanted: Mapping[str, Any]) -> dict[str, Any]:
    kind = wanted.get("kind")
    if kind is None and isinstance(wanted.get("command"), str):
        advice = f"give kind={wanted['command']!r:.60}, or runtime='shell' for a command line"
        raise Invalid("kind", "it is missing: a python template runs the function of a kind", advice)
    if kind is None:
        raise Invalid("kind", "it is missing", _NEEDED)
    if kind in COMMAND_KINDS:
        runtime = COMMAND_KINDS[kind]
        raise Invalid(
            "kind", f"{kind!r} is for {runtime} templates", f"give runtime={runtime!r} and a command"
        )
    return {"kind": kind, "command": check_text("command", wanted.get("command", ""))}


def _command(runtime: Runtime, wanted: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    given = wanted.get("command")
    if given is None:
        raise Invalid("command", "it is missing", f"a {runtime} template says what to run")
    if isinstance(given, msgspec.Struct):
        given = msgspec.to_builtins(given)
    command = check_command(runtime, check_input(given, limits, "command"))
    kind = kind_of(command)
    if wanted.get("kind", kind) != kind:
        raise Invalid("kind", f"a {runtime} template runs a command", "leave the kind out")
    return {"kind": kind, "command": command}


def _parameters(field: str, value: object, limits: Limits) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid(field, f"{shown(value)} is not a dict", "give a dict with texts as keys")
    checked: dict[str, Any] = check_input(value, limits, field)
    return checked


def _schema(field: str, value: object, limits: Limits) -> dict[str, Any] | None:
    if value is None:
        return None
    schema = _parameters(field, value, limits)
    check_schema(schema, field)
    return schema


def _checking(option: Option) -> Callable[[str, object, Limits], Any]:
    return lambda field, value, limits: check_option(field, option, value)


_FIELDS: dict[str, Callable[[str, object, Limits], Any]] = {
    **{name: _checking(option) for name, option in options_of(TemplateOptions).items()},
    "alias": lambda field, value, limits: check_key(value, field),
    "kind": lambda field, value, limits: check_kind(value, field),
    "command": lambda field, value, limits: value,  # as its runtime says: `_runnable`
    "parameters": _parameters,
    "parameters_schema": _schema,
    "runtime": lambda field, value, limits: check_choice(field, value, Runtime),
}
