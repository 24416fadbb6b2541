"""Commands about templates: stored definitions of what to run."""

from __future__ import annotations

import re
from typing import Any

import click

from ....domain.model import Template
from ....domain.options import TemplateOptions
from ....domain.runtimes import command_text
from .. import completing
from ..options import JSON, TEMPLATE, clearable, given, page_options, shape_options, together
from ..render import Cell, written
from ..session import Session, command

CLEARABLE = [*clearable(TemplateOptions), "parameters-schema"]
_what = together(
    click.option("--kind", metavar="NAME", help="A kind of task: a function that workers have registered."),
    click.option("--shell", metavar="LINE", help="A command line. Workers run it with --allow-shell."),
    click.option(
        "--http", metavar="URL", help="A request: a URL, or a method and a URL, as in 'POST https://…'."
    ),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="TEXT",
        help="Of a request, as 'Name: value'; may be repeated.",
    ),
    click.option("--body", type=JSON, metavar="JSON", help="Of a request: JSON, @file, or - for stdin."),
    click.option(
        "--command",
        type=JSON,
        metavar="JSON",
        help="All that can be said of a command, as JSON; --runtime says of which.",
    ),
    click.option("--runtime", type=click.Choice(["shell", "http"]), help="What --command is for."),
    click.option(
        "-p", "--parameters", type=JSON, metavar="JSON", help="The input, under what is given to run it."
    ),
    click.option(
        "--schema",
        "parameters_schema",
        type=JSON,
        metavar="JSON",
        help="A JSON Schema that the parameters must fit.",
    ),
)
_options = together(_what, shape_options(TemplateOptions))


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    fields = given(options)
    headers, body = fields.pop("headers", ()), fields.pop("body", None)
    ways = [name for name in ("kind", "shell", "http", "command") if name in fields]
    if len(ways) > 1:
        raise click.UsageError(f"--{ways[1]} was given together with --{ways[0]}; give one of them")
    if ("runtime" in fields) != ("command" in fields):
        raise click.UsageError("--runtime and --command belong together")
    if (headers or body is not None) and "http" not in fields:
        raise click.UsageError("--header and --body belong to --http")
    if "kind" in fields:
        fields["runtime"] = "python"
    if "shell" in fields:
        fields |= {"runtime": "shell", "command": fields.pop("shell")}
    if "http" in fields:
        fields |= {"runtime": "http", "command": _request(fields.pop("http"), headers, body)}
    return fields


def _request(text: str, headers: tuple[str, ...], body: Any) -> dict[str, Any]:
    method, blank, url = text.partition(" ")
    request: dict[str, Any] = {"method": method, "url": url.strip()} if blank else {"url": text}
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon:
            raise click.BadParameter(
                f"{header!r:.60} has no colon; write 'Name: value'", param_hint="--header"
            )
        request.setdefault("headers", {})[name.strip()] = value.strip()
    return request if body is None else {**request, "body": body}


@command(
    examples=[
        "rota template create backup --kind backup_database --parameters '{\"full\":true}' --queue slow",
        "rota template create tidy --shell 'find \"$INPUT_folder\" -mtime +30 -delete' --timeout 10m",
        "rota template create ping --http https://example.com/ping --max-retries 5",
        "rota template create note --http 'POST https://example.com/notes' --header 'X-Key: secret:NOTES'"
        ' --body \'{"text":"{{input.text}}"}\'',
        'rota template create sync --runtime shell --command \'{"run":["rsync","-a","a","b"],'
        '"success_codes":[0,24]}\'',
    ]
)
@click.argument("alias")
@_options
def create(session: Session, alias: str, **options: Any) -> None:
    """Store what to run: a kind of task, a shell command or an HTTP request, under a name."""
    fields = _fields(options)
    if "runtime" not in fields:
        raise click.UsageError("nothing to run was given; give one of --kind, --shell, --http and --command")
    made = session.run(lambda queue: queue.create_template(alias, **fields), creates=True)
    _answer(session, made, "created")


@command(
    examples=[
        "rota template update backup --timeout 1h --max-retries 0",
        "rota template update backup --no-enabled      # its schedules are skipped from now on",
        "rota template update backup --clear timeout",
    ]
)
@click.argument("template", type=TEMPLATE, shell_complete=completing.templates)
@_options
@click.option("--clear", multiple=True, type=click.Choice(CLEARABLE), help="Take this away; may be repeated.")
@click.option("--if-version", "version", type=int, help="Only if it is still at this version.")
def update(
    session: Session, template: str, clear: tuple[str, ...], version: int | None, **options: Any
) -> None:
    """Change what is named, nothing else. Tasks that were started keep what they were started with."""
    changes = _fields(options) | {name.replace("-", "_"): None for name in clear}
    if not changes:
        raise click.UsageError("nothing to change was given")
    changed = session.run(lambda queue: queue.update_template(template, version=version, **changes))
    _answer(session, changed, "updated")


@command(examples=["rota template list", "rota template list --json | jq '.templates[].alias'"])
@page_options(100)
def list_templates(session: Session, limit: int, cursor: str | None) -> None:
    """The stored templates, newest first."""
    page = session.run(lambda queue: queue.list_templates(limit=limit, cursor=cursor))
    if session.as_json:
        return session.screen.json({"templates": page, "next_cursor": page.next_cursor})
    if not page:
        return session.say_none("templates", {}, "`rota template create --help` shows how to make one")
    rows: list[list[Cell | str]] = [
        [Cell(each.alias, "bold"), str(each.runtime), _gist(each), each.queue, _state(each)] for each in page
    ]
    session.screen.table(("NAME", "RUNTIME", "RUNS", "QUEUE", "STATUS"), rows, yields=("QUEUE", "RUNS"))
    return session.say_more(page)


@command(examples=["rota template show backup", "rota template show backup --json"])
@click.argument("template", type=TEMPLATE, shell_complete=completing.templates)
def show(session: Session, template: str) -> None:
    """One template."""
    found = session.run(lambda queue: queue.get_template(template))
    if session.as_json:
        return session.screen.json(found)
    session.screen.say(f"{click.style(found.alias, bold=True)} ({found.id})")
    text = _command(found).replace("\n", f"\n{'':12}")
    session.screen.say(f"  runs      {found.runtime}: {text}")
    session.screen.say(f"  queue     {found.queue}, priority {found.priority}")
    session.screen.say(f"  input     {written(found.parameters)}")
    if found.parameters_schema is not None:
        session.screen.say(f"  schema    {written(found.parameters_schema)}")
    session.screen.say(f"  changed   {session.screen.clock(found.updated_at)}, version {found.version}")
    return session.screen.say(f"  status    {_state(found)}")


@command(examples=["rota template execute backup", "rota template execute backup -i '{\"full\":false}'"])
@click.argument("template", type=TEMPLATE, shell_complete=completing.templates)
@click.option("-i", "--input", type=JSON, metavar="JSON", help="Laid over its parameters: JSON, @file, or -.")
def execute(session: Session, template: str, input: Any) -> None:
    """Run it now. The task's id is printed."""
    task = session.run(lambda queue: queue.execute_template(template, input))
    session.tell(task, task.id)


@command(examples=["rota template delete backup"])
@click.argument("template", type=TEMPLATE, shell_complete=completing.templates)
def delete(session: Session, template: str) -> None:
    """Remove it for good, and delete the schedules that run it; those can be restored only with a template of
    their own. Its tasks stay."""
    session.run(lambda queue: queue.delete_template(template))
    session.tell({"id": template, "deleted": True}, f"deleted {template}")


def _answer(session: Session, template: Template, verb: str) -> None:
    if session.as_json:
        return session.screen.json(template)
    name = click.style(template.alias, bold=True)
    return session.screen.say(f"{verb} {name}: {template.runtime}, {_command(template)}")


def _command(template: Template) -> str:
    return template.kind if isinstance(template.command, str) else command_text(template.command)


def _gist(template: Template) -> str:
    """The command in one line, without the shell that is named and the variables that are set before it."""
    lines = re.sub(r"^\S*sh -c ", "", _command(template)).splitlines()
    return "; ".join([line for line in lines if not line.startswith("export ")] or lines)


def _state(template: Template) -> str:
    return "enabled" if template.enabled else "disabled"
