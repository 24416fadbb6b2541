"""The bounds of `protocol`, on h11. It is slower, and bounds an unfinished head by itself."""

from __future__ import annotations

from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .protocol import BoundedProtocol

__all__ = ["BoundedH11"]


class BoundedH11(BoundedProtocol, H11Protocol):  # type: ignore[misc]  # Base is httptools to mypy
    """One connection."""

    def _is_in_head(self) -> bool:
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    def _is_in_body(self) -> bool:
        state = self.conn.their_state
        broke_off = state is h11.ERROR and self.cycle is not None and self.cycle.more_body
        return state is h11.SEND_BODY or broke_off

    def _running(self) -> Any:
        return None if self.cycle is None or self.cycle.response_complete else self.cycle

    def _forget_last(self) -> None:
        """No request waits: h11 reads one only when the one before it is answered."""
