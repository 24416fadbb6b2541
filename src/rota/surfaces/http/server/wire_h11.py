"""The bounds of `wire`, on h11, which is slower and bounds by itself what an unfinished head may hold."""

from __future__ import annotations

from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .wire import Bounds

__all__ = ["BoundedH11"]


class BoundedH11(Bounds, H11Protocol):  # type: ignore[misc]  # to the type checker, Bounds is on httptools
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
        """There is none that waits: h11 reads no request before the one before it is answered."""
