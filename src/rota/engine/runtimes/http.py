"""HTTP requests of templates, by one kept client.

Every address that a name resolves to is looked at before a connection is made to one of them: private, link-local and
other addresses that are not of the public internet are refused unless the worker allows them. Redirects are followed
here, so that each is counted, resolved and checked, and no secret goes along to another server.

2xx is a success. 408, 425, 429, 5xx and failures of the network are tried again, after `Retry-After` if that is said.
Everything else fails for good. Secrets are the worker's variables `ROTA_SECRET_<NAME>`; wherever an answer or an error
repeats one, it is taken out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from typing import Any

import httpcore
import httpx
import msgspec

from ...domain.checks import plain
from ...domain.errors import Invalid, PermanentError
from ...domain.runtimes import FilledRequest, HttpRequest, fill, secrets_of, signature_headers
from ..executor import AttemptFailed, Context
from .output import as_text

KEPT = 64 * 1024
HEADERS_KEPT = 50
CONNECT = timedelta(seconds=10)
LONGEST_DELAY = timedelta(days=1)
RETRIED = frozenset((408, 425, 429))
SECRET = "ROTA_SECRET_"
NAT64 = ipaddress.ip_network("64:ff9b::/96")
UNICAST = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is in use on the public internet."""
RESERVED = [ipaddress.ip_network(each) for each in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")]
"""Ranges that older versions of Python take for public."""


class HttpCalls:
    """Sends the requests of tasks. The client is made by the first, and kept."""

    def __init__(self, *, allow_private_addresses: bool = False) -> None:
        self._allow_private = allow_private_addresses
        self._client: httpx.AsyncClient | None = None

    async def run(self, context: Context) -> dict[str, Any]:
        """Send the request of the task; what was answered."""
        task, request = context.task, context.task.command
        if not isinstance(request, HttpRequest):
            raise PermanentError("the task has no request; such tasks are started from templates")
        secrets = _secrets(request)
        now: datetime = context.queue.clock.now()
        try:
            filled = fill(request, task.input, secrets)
            sending = Sending(self._kept_client(), filled, request.max_redirects, secrets.values())
            sending.headers["Idempotency-Key"] = task.id
            sending.headers.setdefault("Accept-Encoding", "identity")
            if request.signing_secret is not None:
                secret = secrets[request.signing_secret.removeprefix("secret:")]
                signed = signature_headers(secret, task.id, filled.content or b"", now)
                sending.headers.update(signed)
                sending.private |= signed.keys()
            return _judged(await sending.answered(), now)
        except Invalid as problem:
            raise AttemptFailed("BadRequest", str(problem), is_permanent=True) from None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _kept_client(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = new_client(allow_private=self._allow_private)
        return self._client


def new_client(*, allow_private: bool) -> httpx.AsyncClient:
    """A client that follows no redirects, and connects only to the public internet unless it may do more."""
    transport = httpx.AsyncHTTPTransport(verify=_certificates(), trust_env=False)
    if not allow_private:
        # httpx has no other way to say how connections are made; a test sees that it still works
        transport._pool._network_backend = PublicAddresses()
    timeout = httpx.Timeout(None, connect=CONNECT.total_seconds())
    return httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False)


class Sending:
    """One request and the redirects that follow it. `private` names the headers that no other server gets."""

    def __init__(
        self, client: httpx.AsyncClient, filled: FilledRequest, redirects: int, secrets: Iterable[str]
    ) -> None:
        self.headers = dict(filled.headers)
        self.private = set(filled.secret_headers) | {
            name for name in filled.headers if name.lower() in ("authorization", "cookie")
        }
        self._client = client
        self._method, self._url, self._content = filled.method, httpx.URL(filled.url), filled.content
        self._most = redirects
        self._followed = 0
        self._secrets = sorted(secrets, key=len, reverse=True)  # one may begin with another

    async def answered(self) -> dict[str, Any]:
        """The answer that is no redirect."""
        while True:
            try:
                answer = await self._sent()
            except AddressRefused as problem:
                raise AttemptFailed("AddressRefused", str(problem), is_permanent=True) from None
            except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL) as problem:
                sentence = f"the request cannot be sent: {type(problem).__name__}"
                raise AttemptFailed("BadRequest", sentence, is_permanent=True) from None
            except httpx.TransportError as problem:
                sentence = self._without_secrets(str(problem)) or "no answer"
                raise AttemptFailed(type(problem).__name__, sentence) from None
            if answer is not None:
                return answer

    async def _sent(self) -> dict[str, Any] | None:
        """None: it was a redirect, and the next request is prepared."""
        stream = self._client.stream(self._method, self._url, headers=self.headers, content=self._content)
        async with stream as response:
            location = response.headers.get("location")
            if response.status_code in (301, 302, 303, 307, 308) and location is not None:
                self._follow(response.status_code, location)
                return None
            content = bytearray()
            async for chunk in response.aiter_raw(KEPT):
                content += chunk
                if len(content) > KEPT:
                    break
            return self._kept(response, bytes(content))

    def _follow(self, status: int, location: str) -> None:
        self._followed += 1
        if self._followed > self._most:
            sentence = f"more than {self._most} redirects"
            raise AttemptFailed("TooManyRedirects", sentence, is_permanent=True)
        before, self._url = self._url, self._url.join(location)
        if _origin(before) != _origin(self._url):
            self.headers = {name: value for name, value in self.headers.items() if name not in self.private}
        if status == 303 or (status in (301, 302) and self._method == "POST"):
            self._method = self._method if self._method in ("GET", "HEAD") else "GET"
            self._content = None
            self.headers = {
                name: value for name, value in self.headers.items() if name.lower() != "content-type"
            }

    def _kept(self, response: httpx.Response, content: bytes) -> dict[str, Any]:
        is_whole = len(content) <= KEPT
        text = as_text(content)
        body = (
            _body(text, response.headers.get("content-type", ""))
            if is_whole
            else self._without_secrets(text)[:KEPT]  # in this order: the cut may go through one
        )
        headers = [
            (name, self._without_secrets(value)[:1000])
            for name, value in response.headers.items()
            if name != "set-cookie"
        ]
        return {
            "status": response.status_code,
            "headers": dict(headers[:HEADERS_KEPT]),
            "body": self._each_without_secrets(body),
            "is_whole": is_whole,
            "redirects": self._followed,
        }

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _each_without_secrets(self, value: Any) -> Any:
        """JSON has more than one way to write a text, so it is looked at again once it is read."""
        if isinstance(value, dict):
            return {
                self._without_secrets(name): self._each_without_secrets(part) for name, part in value.items()
            }
        if isinstance(value, list):
            return [self._each_without_secrets(part) for part in value]
        return self._without_secrets(value) if isinstance(value, str) else value


class AddressRefused(Exception):
    """A server is where no request may go."""


class PublicAddresses(httpcore.AsyncNetworkBackend):
    """Connects only to addresses of the public internet, and to those that it has looked at itself."""

    def __init__(self) -> None:
        self._connecting = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's own signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        problem: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in await _public_addresses(host, port):
            try:
                return await self._connecting.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                problem = error
        raise problem

    async def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        raise AddressRefused("sockets of this machine are out of reach")

    async def sleep(self, seconds: float) -> None:
        await self._connecting.sleep(seconds)


@cache
def _certificates() -> ssl.SSLContext:
    """To read them takes a tenth of a second."""
    return httpx.create_ssl_context(trust_env=False)


async def _public_addresses(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise httpcore.ConnectError(f"{host}: {problem.strerror or problem}") from None
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    for address in addresses:
        if not is_public(address):
            advice = "start the worker with --allow-private-addresses if that is meant"
            raise AddressRefused(f"{host} is at {address}, which is not of the public internet; {advice}")
    return addresses


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet; one that stands for an IPv4 address counts as that."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if inner is None and found in NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if found not in UNICAST:
            return False
    return found.is_global and not found.is_multicast and not any(found in each for each in RESERVED)


def _secrets(request: HttpRequest) -> Mapping[str, str]:
    found = {name: os.environ.get(f"{SECRET}{name}") for name in secrets_of(request)}
    for name, value in found.items():
        if not value:
            raise AttemptFailed("NoSecret", f"{SECRET}{name} is not set where the worker runs")
    return {name: value for name, value in found.items() if value}


def _judged(answer: dict[str, Any], now: datetime) -> dict[str, Any]:
    status = answer["status"]
    if 200 <= status < 300:
        return answer
    phrase = HTTPStatus(status).phrase if status in {known.value for known in HTTPStatus} else ""
    is_permanent = not (status in RETRIED or status >= 500)
    delay = None if is_permanent else _asked_delay(answer["headers"].get("retry-after", ""), now)
    sentence = f"the server answered {status} {phrase}".strip()
    raise AttemptFailed("HttpStatus", sentence, answer, is_permanent=is_permanent, delay=delay)


def _asked_delay(text: str, now: datetime) -> timedelta | None:
    """`Retry-After`: seconds, or a time; at most a day. None: it says nothing that can be understood."""
    if text.isascii() and text.isdigit():
        return min(timedelta(seconds=int(text[:9])), LONGEST_DELAY)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return min(max(at - now, timedelta(0)), LONGEST_DELAY)


def _body(text: str, content_type: str) -> Any:
    """JSON as what it says, anything else as text; also JSON that no record can hold, which is too deep or has numbers
    of more than 64 bits: a server that answered so has answered."""
    if not content_type.partition(";")[0].strip().lower().endswith("json"):
        return text
    try:
        answer: dict[str, Any] = plain("body", {"body": msgspec.json.decode(text)}, most=2 * KEPT)
    except (msgspec.DecodeError, RecursionError, Invalid):
        return text
    return answer["body"]


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
