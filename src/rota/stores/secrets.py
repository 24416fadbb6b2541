"""An address as people may see it: in messages, logs, and whatever else names a store."""

from __future__ import annotations

import re
from urllib.parse import unquote

_USER = re.compile(r"[a-z][a-z0-9+.-]*://+[^/@:]*:(?=.*@)", re.DOTALL | re.IGNORECASE)
_MALFORMED = re.compile(r"[a-z0-9+.-]*[:/]*(?=.*@)", re.DOTALL | re.IGNORECASE)
"""Where an address has no `://` behind its scheme, a user and a password cannot be told apart."""
_WELL_FORMED = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_OPTION = re.compile(r"([?&])([^=&]*)=([^&]*)")
_SECRET = re.compile("password|secret|token|key", re.IGNORECASE)
_ADDRESS = re.compile(r"([?&][^=&]*=)[^&]*(?:@|%40)", re.IGNORECASE)


def without_secrets(address: str) -> str:
    """An address without what may be a secret in it: passwords, and options so named."""
    return _ADDRESS.sub(r"\1***@", _OPTION.sub(_hidden, _without_password(address)))


def _is_secret(option: re.Match[str]) -> bool:
    return _SECRET.search(unquote(option[2])) is not None


def _hidden(option: re.Match[str]) -> str:
    return f"{option[1]}{option[2]}=***" if _is_secret(option) else option[0]


def _without_password(address: str) -> str:
    """Without all up to the last `@`: a password may hold slashes (Amazon's do), a `?`, and an `@`. One `@` may be part
    of an option that is a secret; then that ends where the option does."""
    user = (_USER if _WELL_FORMED.match(address) else _MALFORMED).match(address)
    if user is None:
        return address
    end = address.rindex("@")
    for option in _OPTION.finditer(address):
        if _is_secret(option) and option.start(3) <= end < option.end():
            end = option.end()
    return f"{address[: user.end()]}***{address[end:]}"
