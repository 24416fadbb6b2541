"""`rota completion`, and what completes the names of schedules."""

from __future__ import annotations

import click

from .command import command

__all__ = ["completion", "schedule_ids"]

_INSTALL = {
    "bash": 'eval "$(rota completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(rota completion zsh)"       # in ~/.zshrc',
    "fish": "rota completion fish | source       # in ~/.config/fish/config.fish",
}


@command(examples=list(_INSTALL.values()))
@click.argument("shell", type=click.Choice(list(_INSTALL)))
def completion(shell: str) -> None:
    """Print the completion script of a shell: commands, options, and the names of schedules."""
    from click.shell_completion import get_completion_class

    from .root import cli

    found = get_completion_class(shell)
    assert found is not None
    maker = found(cli, {}, "rota", "_ROTA_COMPLETE")
    click.echo(maker.source_template % maker.source_vars())


def schedule_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of the schedules that begin so. Completion never fails: at worst it knows nothing."""
    from .session import Session

    flags = {name: value for name, value in ctx.params.items() if name in ("store", "tenant", "profile")}
    try:
        found = Session({**(ctx.find_object(dict) or {}), **flags}).run(
            lambda queue: queue.list_schedules(limit=1000)
        )
    except Exception:
        return []
    return [schedule.key for schedule in found if schedule.key.startswith(incomplete)]
