"""Signatures of requests, as https://www.standardwebhooks.com has them: the receiver can tell that the request is ours,
that it was not changed, and that it is not an old one sent again. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime, timedelta

TOLERANCE = timedelta(minutes=5)
_PREFIX = "whsec_"


def signature_headers(secret: str, id: str, content: bytes, now: datetime) -> dict[str, str]:
    """The headers that go along with a request."""
    timestamp = str(int(now.timestamp()))
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{_signature(secret, id, timestamp, content)}",
    }


def is_signed(
    secret: str, headers: Mapping[str, str], content: bytes, now: datetime, tolerance: timedelta = TOLERANCE
) -> bool:
    """Whether the request was signed with this secret, not longer ago than `tolerance`."""
    given = {name.lower(): value for name, value in headers.items()}
    id, timestamp = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 12):
        return False
    if abs(now.timestamp() - int(timestamp)) > tolerance.total_seconds():
        return False
    wanted = f"v1,{_signature(secret, id, timestamp, content)}".encode()
    signatures = given.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(wanted, each.encode()) for each in signatures)


def _signature(secret: str, id: str, timestamp: str, content: bytes) -> str:
    signed = f"{id}.{timestamp}.".encode() + content
    return base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def _key(secret: str) -> bytes:
    """`whsec_` and base64, as the standard has it; any other text is the key itself."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        return secret.encode()
