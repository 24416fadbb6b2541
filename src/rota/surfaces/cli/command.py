"""The base of all commands: help with examples, global options before or after the subcommand, lazy loading, errors.

An error is one sentence on stderr and an exit code (0 fine, 1 refused, 2 wrong usage). It is never a traceback, unless
ROTA_DEBUG is set.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from ...domain.errors import Invalid

REFUSED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141  # the last two as a shell counts SIGINT and SIGPIPE


def explained(problem: BaseException) -> int:
    """Say what happened, and return the exit code."""
    from ...domain.errors import Invalid, Refused, StoreError

    match problem:
        case click.exceptions.Exit():
            return problem.exit_code
        case click.UsageError():
            return _say(_sentence(problem), USAGE)
        case click.ClickException():
            return _say(problem.format_message(), problem.exit_code)
        case click.Abort() | KeyboardInterrupt():
            return INTERRUPTED
        case Invalid():
            return _say(str(problem), USAGE)
        case Refused():
            return _say(str(problem), REFUSED)
        case StoreError() if "missing" in problem.details:
            return _say(f"{problem}: make one with `rota migrate`, or name another with --store", REFUSED)
        case StoreError() if "server" in problem.details:
            return _say(str(problem), REFUSED)
        case StoreError():
            return _say(f"{problem}; try `rota doctor`, or name another store with --store", REFUSED)
        case OSError() if problem.errno in (errno.ENOSPC, errno.EIO):
            return _unwritten(problem)
        case TimeoutError():
            return _say(str(problem) or "it took too long", REFUSED)
    return _unexpected(problem)


def flushed(code: int) -> int:
    """Write out what is left of the output. Returns the exit code, which is another one if that fails."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as problem:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())  # what is left would fail again at exit
            code = BROKEN_PIPE if isinstance(problem, BrokenPipeError) else code or _unwritten(problem)
    return code


def _unwritten(problem: OSError) -> int:
    return _say(f"the output could not be written: {problem.strerror}", REFUSED)


def _say(sentence: str, code: int) -> int:
    from .render import prose_for

    text = re.sub(r"\s+", " ", sentence).strip()
    said = prose_for(sys.stderr, f"error: {text}").removeprefix("error:")
    colour = False if os.environ.get("NO_COLOR") else None
    try:
        click.echo(f"{click.style('error:', fg='red', bold=True)}{said}", err=True, color=colour)
    except BrokenPipeError:
        return BROKEN_PIPE
    return code


def _sentence(problem: click.UsageError) -> str:
    """Click's message in our style. If it only says that something is wrong, where to look is added."""
    text = problem.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    if isinstance(problem, click.BadParameter) and not isinstance(problem, click.MissingParameter):
        return text + _meant(problem)
    path = problem.ctx.command_path if problem.ctx else "rota"
    text = re.sub(r"\. \(?Did you mean ([^?]*\?)\)?", r"; did you mean \1", text)
    return text if ";" in text or ": " in text else f"{text}; see `{path} --help`"


def _meant(problem: click.BadParameter) -> str:
    """The choice that is close to what was given."""
    choices = getattr(problem.param and problem.param.type, "choices", ())
    given = re.match(r"'([^']*)' is not one of", problem.message)
    if given is None:
        return ""
    from difflib import get_close_matches

    near = get_close_matches(given[1], [str(each) for each in choices], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _unexpected(problem: BaseException) -> int:
    if os.environ.get("ROTA_DEBUG"):
        import traceback

        traceback.print_exception(problem, file=sys.stderr)
    what = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
    advice = "this is a bug in rota, and ROTA_DEBUG=1 shows the traceback"
    return _say(f"something unexpected happened: {what}; {advice}", REFUSED)


class Entry(NamedTuple):
    """Where a command lives (`module:name`), and its line in the list of commands."""

    place: str
    about: str


class Formatter(click.HelpFormatter):
    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{click.style(f'{heading}:', bold=True)}\n")

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, click.style("Usage: ", bold=True) if prefix is None else prefix)


class CliContext(click.Context):
    formatter_class = Formatter


class WithExamples(click.Command):
    """A command or a group with the global options, which its help lists apart from its own, and examples."""

    context_class = CliContext

    def __init__(self, *args: Any, examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.params.extend(global_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        general: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                row = (click.style(record[0], fg="cyan"), record[1])
                (general if is_global(param) else own).append(row)
        for title, rows in (("Options", own), ("Global options", general)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{click.style('$', dim=True)} {example}\n")


class Command(WithExamples):
    """A command. A refusal of what was given names the option as it is typed."""

    def invoke(self, ctx: click.Context) -> Any:
        from ...domain.errors import Invalid

        try:
            return super().invoke(ctx)
        except Invalid as problem:
            raise click.UsageError(_naming_the_option(problem, self), ctx) from None


class Group(WithExamples, click.Group):
    """A group whose commands are imported when they are used. `sections` is its table of contents."""

    command_class = Command

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, Entry]],
        hidden_names: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs = {"invoke_without_command": True, "callback": help_if_alone, **kwargs}
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.aliases = dict(hidden_names or {})

    @property
    def entries(self) -> dict[str, Entry]:
        return {name: entry for section in self.sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        place = self.aliases.get(cmd_name) if entry is None else entry.place
        if place is None:
            return None
        module, _, name = place.partition(":")
        found = getattr(import_module(f".{module}", __package__), name)
        assert isinstance(found, click.Command)
        if entry is not None:
            found.short_help = entry.about
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, [*self.entries, *self.aliases], 1)
            advice = f"did you mean {near[0]!r}?" if near else f"see {ctx.command_path} --help"
            raise click.UsageError(f"there is no command {name!r}; {advice}", ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.entries))
        for title, section in self.sections.items():
            with formatter.section(title):
                rows = [
                    (click.style(name.ljust(width), fg="cyan"), entry.about)
                    for name, entry in section.items()
                ]
                formatter.write_dl(rows)


class Root(Group):
    """The whole program. An error of any command becomes one sentence and an exit code here."""

    def main(  # type: ignore[override]  # click's is overloaded, to say that it may never return
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Ends with the exit code: raised as `SystemExit`, or returned if `standalone_mode` is off."""
        raising = extra.pop("standalone_mode", True)
        if os.environ.get("NO_COLOR"):
            extra.setdefault("color", False)
        code = self._guarded(args, prog_name or "rota", extra)
        if raising:
            sys.exit(code)
        return code

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _as_exit_code():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _as_exit_code():
            return super().invoke(ctx)

    def _guarded(self, args: Sequence[str] | None, prog_name: str, extra: dict[str, Any]) -> int:
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
            return code if isinstance(code, int) else 0
        except (Exception, KeyboardInterrupt) as problem:
            return explained(problem)


@contextmanager
def _as_exit_code() -> Iterator[None]:
    """The reader of our output has gone (`| head`). Click would end with 1, as if something had failed."""
    try:
        yield
    except BrokenPipeError:
        raise click.exceptions.Exit(BROKEN_PIPE) from None


def help_if_alone() -> None:
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), color=ctx.color)


def global_options() -> list[click.Option]:
    """They work before and after the subcommand; given twice, the later wins."""

    def keep(ctx: click.Context, option: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            ctx.ensure_object(dict)[option.name] = value

    shared: dict[str, Any] = {"expose_value": False, "callback": keep}
    where = (
        "The store: sqlite:///file.db, postgresql://user@host/database, s3://bucket or memory:."
        " [default: ROTA_STORE, rota.toml, else sqlite:///rota.db]"
    )
    return [
        click.Option(["--store"], metavar="ADDRESS", help=where, **shared),
        click.Option(
            ["--server"],
            metavar="URL",
            help="A rota server to ask instead of a store. [default: ROTA_SERVER, rota.toml]",
            **shared,
        ),
        click.Option(
            ["--key"], metavar="KEY", help="The API key for the server. [default: ROTA_KEY]", **shared
        ),
        click.Option(
            ["--tenant"], metavar="NAME", help="Whose tasks and schedules. [default: default]", **shared
        ),
        click.Option(["--profile"], metavar="NAME", help="The [profile.NAME] of rota.toml to use.", **shared),
        click.Option(["--json", "as_json"], is_flag=True, help="Machine-readable output.", **shared),
        click.Option(["--wide"], is_flag=True, help="Whole ids and every column, however long.", **shared),
        click.Option(["--utc"], is_flag=True, help="Times of UTC instead of local ones.", **shared),
    ]


_GLOBAL = frozenset({"version", *(option.name for option in global_options())})


def is_global(param: click.Parameter) -> bool:
    return param.name in _GLOBAL or "--help" in param.opts


def _naming_the_option(problem: Invalid, command: click.Command) -> str:
    """The sentence of the domain, its field called as the user typed it: `cron: …` is `--cron: …` here."""
    field, bracket, part = problem.field.partition("[")  # which one, if the option is given several times
    for param in command.params:
        known = (param.name, _FIELDS.get(param.name or ""))
        if isinstance(param, click.Option) and field in known:
            return f"{max(param.opts, key=len)}{bracket}{part}: {problem.problem}"
    return str(problem)


_FIELDS = {"task_type": "kind"}
