"""`manage.py rota …`: the command line of Rota, with the project's settings."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand

from ...calls import setting

_NAMES = ("store", "app", "tenant", "queues", "concurrency")


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    help = "The command line of Rota, with the settings of the project: manage.py rota up"

    def run_from_argv(self, argv: list[str]) -> None:
        """All arguments are Rota's, so that they are not read here."""
        from rota.surfaces.cli.root import cli

        for name in _NAMES:
            if setting(name) is not None:
                os.environ.setdefault(f"ROTA_{name.upper()}", str(setting(name)))
        cli.main(argv[2:], prog_name=f"{os.path.basename(argv[0])} rota")

    def handle(self, *args: Any, **options: Any) -> None:
        """For `call_command("rota", "migrate")`."""
        self.run_from_argv(["manage.py", "rota", *args])
