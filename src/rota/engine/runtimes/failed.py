"""How a command fails: with what it left, and whether to try again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

__all__ = ["AttemptFailed"]


class AttemptFailed(Exception):
    """An attempt that ended as a failure and left an `output`, which is stored with it. `type` names the failure to
    people. There is no traceback: nothing of the product went wrong."""

    def __init__(
        self,
        type: str,
        message: str,
        output: Any = None,
        *,
        is_permanent: bool = False,
        delay: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.output = output
        self.is_permanent = is_permanent
        self.delay = delay
