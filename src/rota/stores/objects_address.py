"""From an address to the requests of its bucket: `s3://bucket/prefix?endpoint=…&region=…`, `gs://bucket/prefix`,
`az://container/prefix?account=…`, `file:///folder`, `memory-bucket:name`.

Credentials never stand in an address. They come the usual ways: from the environment, from the machine's role,
and from the profiles of boto3 or google-auth where those are installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ..domain.errors import Invalid
from .objects_bucket import Requests
from .objects_requests import FolderRequests, MemoryRequests, ServiceRequests

__all__ = ["SCHEMES", "address_options", "requests_for"]

SCHEMES = ("s3", "gs", "az", "file", "memory-bucket")

_OPTIONS: dict[str, tuple[str, ...]] = {
    "s3": ("endpoint", "region", "timeout", "views"),
    "gs": ("timeout", "views"),
    "az": ("account", "endpoint", "timeout", "views"),
    "file": ("views",),
    "memory-bucket": ("views",),
}
_TIMEOUT = timedelta(seconds=30)


def address_options(address: str) -> dict[str, str]:
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS[parts.scheme]:
            known = ", ".join(_OPTIONS[parts.scheme])
            raise Invalid("store", f"the address has an unknown option {name!r}", f"accepted are {known}")
    return options


def requests_for(address: str) -> Requests:
    parts = urlsplit(address)
    options = address_options(address)
    if parts.scheme == "memory-bucket":
        return MemoryRequests(parts.path)
    if parts.scheme == "file":
        return _folder(parts)
    if not parts.netloc or parts.username is not None:
        raise Invalid("store", f"{address!r:.60} names no bucket", f"write {parts.scheme}://bucket/prefix")
    name = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    make = {"s3": _s3, "gs": _gs, "az": _az}[parts.scheme]
    return ServiceRequests(name, lambda retry: make(parts, options, retry))


def _folder(parts: SplitResult) -> Requests:
    path = unquote(parts.path)
    if parts.netloc or not path.strip("/"):
        raise Invalid("store", f"{parts.geturl()!r:.60} names no folder", "write file:///absolute/folder")
    return FolderRequests(Path(path))


def _client(options: Mapping[str, str]) -> Any:
    try:
        timeout = timedelta(seconds=float(options.get("timeout", _TIMEOUT.total_seconds())))
    except ValueError:
        raise Invalid("store", f"timeout is {options['timeout']!r}", "it is a number of seconds") from None
    is_plain = options.get("endpoint", "").startswith("http://")
    return {"timeout": timeout, "connect_timeout": timedelta(seconds=5), "allow_http": is_plain}


def _s3(parts: SplitResult, options: Mapping[str, str], retry: Any) -> Any:
    from obstore.store import S3Store

    chosen: dict[str, Any] = {name: options[name] for name in ("endpoint", "region") if name in options}
    if "endpoint" in options:
        chosen.setdefault("region", os.environ.get("AWS_REGION", "us-east-1"))
        chosen["virtual_hosted_style_request"] = False
    provider = _profile() if "AWS_ACCESS_KEY_ID" not in os.environ else None
    if provider is not None:
        chosen["credential_provider"] = provider
    return S3Store(
        parts.netloc, prefix=_prefix(parts), client_options=_client(options), retry_config=retry, **chosen
    )


def _profile() -> Any:
    """The profiles in ~/.aws, which boto3 knows how to read."""
    if "AWS_PROFILE" not in os.environ and not (Path.home() / ".aws" / "credentials").exists():
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return None
    return Boto3CredentialProvider()


def _gs(parts: SplitResult, options: Mapping[str, str], retry: Any) -> Any:
    from obstore.store import GCSStore

    chosen: dict[str, Any] = {}
    if not {"GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"} & set(os.environ):
        chosen["credential_provider"] = _google()
    return GCSStore(
        parts.netloc, prefix=_prefix(parts), client_options=_client(options), retry_config=retry, **chosen
    )


def _google() -> Any:
    """Never obstore's own way, which asks an address that exists only inside Google and waits for it."""
    try:
        from obstore.auth.google import GoogleCredentialProvider
    except ImportError:
        raise Invalid(
            "store", "Google's credentials need google-auth", "install it, or set GOOGLE_SERVICE_ACCOUNT"
        ) from None
    return GoogleCredentialProvider()


def _az(parts: SplitResult, options: Mapping[str, str], retry: Any) -> Any:
    from obstore.store import AzureStore

    names = {"account": "account_name", "endpoint": "endpoint"}
    chosen: dict[str, Any] = {names[name]: value for name, value in options.items() if name in names}
    return AzureStore(
        parts.netloc, prefix=_prefix(parts), client_options=_client(options), retry_config=retry, **chosen
    )


def _prefix(parts: SplitResult) -> str | None:
    return unquote(parts.path).strip("/") or None
