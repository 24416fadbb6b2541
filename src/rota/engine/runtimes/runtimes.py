"""What a worker can run: the handlers of its app, and the commands of templates as far as it is allowed to."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...domain.errors import Invalid
from ...domain.runtimes import SHELL_KIND
from ...domain.task import Defaults
from ..app import App
from ..executor import Context
from ..handlers.functions import Handler
from .processes import Processes
from .shell import run_shell

if TYPE_CHECKING:
    from .http import HttpCalls

HTTP_TIMEOUT = timedelta(seconds=60)


class Runtimes:
    """How tasks are run, by kind. Handlers may be registered with the app later on."""

    def __init__(self, app: App, *, allow_shell: bool = False, allow_private_addresses: bool = False) -> None:
        self._app = app
        self._http: HttpCalls | None = None
        self._processes = Processes()
        self._remote: dict[Handler, Handler] = {}
        commands = App()
        if allow_shell:
            _check_shell_runs_on(sys.platform)
            commands.task(SHELL_KIND)(run_shell)
        if find_spec("httpx") is not None:
            commands.task("rota.http", timeout=HTTP_TIMEOUT)(self._run_http)
        self._commands = commands.handlers
        self._allow_private = allow_private_addresses

    def defaults(self) -> Mapping[str, Defaults]:
        """Every kind, with what its handler was registered with."""
        commands = {kind: handler.defaults for kind, handler in self._commands.items()}
        return {**self._app.defaults(), **commands}

    def handler(self, kind: str) -> Handler:
        found = self._commands.get(kind) or self._app.handlers[kind]
        return found if found.run_in is None else self._in_process(found)

    async def close(self) -> None:
        """When the last task has ended."""
        await self._processes.close()
        if self._http is not None:
            await self._http.close()

    def _in_process(self, handler: Handler) -> Handler:
        """The same handler as one that waits for a process."""
        if handler not in self._remote:

            async def remote(*args: Any, **kwargs: Any) -> Any:
                return await self._processes.call(handler.function, handler.memory_limit, args, kwargs)

            self._remote[handler] = replace(handler, function=remote, is_async=True)
        return self._remote[handler]

    async def _run_http(self, context: Context) -> Any:
        if self._http is None:
            from .http import HttpCalls  # httpx takes a while to import, and few workers need it

            self._http = HttpCalls(allow_private_addresses=self._allow_private)
        return await self._http.run(context)


def _check_shell_runs_on(platform: str) -> None:
    if platform == "win32":
        problem = "shell commands need process groups, which Windows has not"
        raise Invalid("allow_shell", problem, "run this worker on Linux or macOS")
