"""The bounds of `protocol`, on httptools. Its parser knows where in a request the client is, and how large that is."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..problems import Problem
from .protocol import FRAMING, BoundedProtocol


class _Refusing(Exception):
    """Raised to the parser, which stops; `send_400_response` follows."""


class BoundedHttptools(BoundedProtocol, HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        self._in_body = False
        self._begun = 0
        self._head_size = 0
        self._framing = 0
        self._now: Any = None
        self._refusal: Problem | None = None

    def _is_in_head(self) -> bool:
        return self._in_head

    def _is_in_body(self) -> bool:
        return self._in_body

    def _running(self) -> Any:
        return None if self._now is None or self._now.response_complete else self._now

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._begun += 1
        self._head_size = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # what comes after a body in pieces is read by nobody
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        most = self._limits.head_bytes
        if len(self.url) > most:
            self._stop(Problem(414, "address_too_long", f"the address is longer than {most:,} bytes"))
        if len(self.pipeline) >= self._limits.pipelined:
            sentence = f"more than {self._limits.pipelined} requests came without waiting for an answer"
            self._stop(Problem(400, "too_many_at_once", sentence))
        super().on_headers_complete()
        self._in_head, self._in_body, self._framing = False, True, 0
        if not self.pipeline:
            self._now = self.cycle

    def on_body(self, body: bytes) -> None:
        self._framing -= (FRAMING + 1) * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def _stop(self, problem: Problem) -> None:
        self._refusal = problem
        raise _Refusing(problem.code)

    # Uvicorn's protocol

    def data_received(self, data: bytes) -> None:
        self._begun = 0
        self._is_fresh = not (self._in_head or self._in_body)
        super().data_received(data)

    def _received(self, size: int) -> None:
        if self._in_head:
            self._head_size += size if self._begun == 0 or (self._is_fresh and self._begun == 1) else 0
            most = self._limits.head_bytes
            if self._head_size > most:
                sentence = f"the address and the headers are larger than {most:,} bytes"
                return self._give_up(Problem(431, "headers_too_large", sentence))
        elif self._in_body:
            self._framing += size if self._begun == 0 else 0
            if self._framing > self._limits.head_bytes:
                sentence = "the body has more around its pieces than in them"
                return self._give_up(Problem(400, "malformed", sentence))
        return super()._received(size)

    def on_response_complete(self) -> None:
        self._now = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.pipeline.clear()

    def send_400_response(self, msg: str) -> None:
        if self._refusal is None:
            return super().send_400_response(msg)
        return self._give_up(self._refusal)

    def _forget_last(self) -> None:
        if self.pipeline:
            self.pipeline.popleft()
