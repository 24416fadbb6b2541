"""Handler: a registered function, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from ...domain.task import Defaults
from .signature import Signature

__all__ = ["Handler"]

_NOTHING: dict[str, Any] = {}


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A registered function."""

    kind: str
    function: Callable[..., Any]
    defaults: Defaults
    is_async: bool
    signature: Signature
    is_workflow: bool = False
    version: int = 1
    accepts: int = 1
    run_in: Literal["process"] | None = None
    memory_limit: int | None = None

    def arguments(
        self, input: Any, context: Any, provided: Mapping[str, Any] = _NOTHING
    ) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with."""
        return self.signature.arguments(input, context, provided)
