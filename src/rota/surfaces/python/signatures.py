"""Verifying the signature of a request, for programs that receive those of http templates."""

from __future__ import annotations

from collections.abc import Mapping

from ...domain.checks import check_duration
from ...domain.options import Duration
from ...domain.runtimes import TOLERANCE, is_signed
from ...engine.clock import SystemClock


def verify_signature(
    secret: str, headers: Mapping[str, str], content: bytes, *, tolerance: Duration = TOLERANCE
) -> bool:
    """Whether a request was signed with this secret, is as it was sent, and was sent not longer ago than `tolerance`.
    `content` is its body as it came, before anything reads it."""
    return is_signed(secret, headers, content, SystemClock().now(), check_duration("tolerance", tolerance))
