"""The address on which the HTTP API listens. This module is light: it tells that a port is taken without the server."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address
from typing import NamedTuple

from ..domain.errors import Invalid

BACKLOG = 2048


class PortTaken(Invalid):
    """Another program listens there."""


class Place(NamedTuple):
    """An address of this machine, as the sockets know it."""

    host: str
    port: int
    family: socket.AddressFamily

    @property
    def is_local(self) -> bool:
        """Whether nobody but this machine can reach it."""
        return ip_address(self.host.partition("%")[0]).is_loopback

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def is_installed() -> bool:
    """Whether the extra `rota[server]` is installed, which serves HTTP."""
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in ("fastapi", "uvicorn", "prometheus_client"))


def find(host: str, port: int) -> Place:
    """The address behind a name."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        advice = "give an address of this machine, such as 127.0.0.1 or 0.0.0.0"
        raise Invalid("host", f"{host!r:.80} is not known here ({reason})", advice) from None
    family, _, _, _, address = found[0]
    return Place(str(address[0]), port, family)


def listen(place: Place) -> socket.socket:
    """A socket that accepts connections from now on, for the server. Port 0: any that is free."""
    try:
        listening = socket.create_server((place.host, place.port), family=place.family, backlog=BACKLOG)
    except OSError as problem:
        raise _explained(problem, place) from None
    # asyncio does this only where it knows the protocol; without it an answer may wait 40 ms for the last one's receipt
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _explained(problem: OSError, place: Place) -> Invalid:
    if problem.errno == errno.EADDRINUSE:
        return PortTaken(
            "port",
            f"{place} is taken by another program",
            "end that one, or choose another with --port (0: any)",
        )
    if problem.errno == errno.EACCES:
        return Invalid("port", f"{place} is not allowed for this user", "choose one above 1023 with --port")
    if problem.errno == errno.EADDRNOTAVAIL:
        return Invalid("host", f"{place.host} is not an address of this machine", "choose one that is")
    return Invalid("host", f"{place} cannot be listened on: {problem.strerror}", "choose another address")


def url_of(listening: socket.socket) -> str:
    """The address to type into a browser on this machine."""
    host, port = listening.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
