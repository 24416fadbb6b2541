"""What a worker can run: the handlers of its app, and the commands of templates as far as it is allowed to."""

from __future__ import annotations

from collections.abc import Mapping

from ...domain.task import Defaults
from ..app import App, Handler
from .shell import run_shell

__all__ = ["Runtimes"]


class Runtimes:
    """By kind, how tasks are run. Handlers may be registered with the app later on."""

    def __init__(self, app: App, *, allow_shell: bool = False) -> None:
        self._app = app
        commands = App()
        if allow_shell:
            commands.task("rota.shell")(run_shell)
        self._commands = commands.handlers

    def defaults(self) -> Mapping[str, Defaults]:
        """Every kind, with what its handler was registered with."""
        commands = {kind: handler.defaults for kind, handler in self._commands.items()}
        return {**self._app.defaults(), **commands}

    def handler(self, kind: str) -> Handler:
        return self._commands.get(kind) or self._app.handlers[kind]
