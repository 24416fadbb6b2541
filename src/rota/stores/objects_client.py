"""The clients of the services, made with obstore.

Credentials come the usual ways: from the environment, from the machine's role, and from the profiles of boto3 or
google-auth where those are installed. So does the endpoint, if the address of the store names none. The client library
reads that variable too, but it falls over what is no address, and it refuses `http://` unless it is told that this is
meant. Whoever writes `http://` means it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..domain.errors import Invalid

__all__ = ["MAKERS", "has_endpoint"]

_CONNECT_TIMEOUT = timedelta(seconds=5)
_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+", re.ASCII)
_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""By scheme: what names an endpoint where the address names none, the first that is set."""


def _client(timeout: timedelta, endpoint: str | None) -> Any:
    return {
        "timeout": timeout,
        "connect_timeout": _CONNECT_TIMEOUT,
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
    }


def _s3(bucket: str, prefix: str | None, options: Mapping[str, str], timeout: timedelta, retry: Any) -> Any:
    from obstore.store import S3Store

    endpoint = _endpoint("s3", options)
    chosen: dict[str, Any] = {"region": options["region"]} if "region" in options else {}
    if endpoint is not None:
        chosen["endpoint"] = chosen["aws_endpoint_url_s3"] = endpoint  # else the variable would win
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        chosen.setdefault("region", region)
    if "endpoint" in options:
        chosen["virtual_hosted_style_request"] = False
    provider = _profile() if "AWS_ACCESS_KEY_ID" not in os.environ else None
    if provider is not None:
        chosen["credential_provider"] = provider
    return S3Store(
        bucket,
        prefix=prefix,
        client_options=_client(timeout, endpoint),
        retry_config=retry,
        **chosen,
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


def _gs(bucket: str, prefix: str | None, options: Mapping[str, str], timeout: timedelta, retry: Any) -> Any:
    from obstore.store import GCSStore

    chosen: dict[str, Any] = {}
    if not {"GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"} & set(os.environ):
        chosen["credential_provider"] = _google()
    return GCSStore(
        bucket,
        prefix=prefix,
        client_options=_client(timeout, None),
        retry_config=retry,
        **chosen,
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


def _az(bucket: str, prefix: str | None, options: Mapping[str, str], timeout: timedelta, retry: Any) -> Any:
    from obstore.store import AzureStore

    endpoint = _endpoint("az", options)
    chosen: dict[str, Any] = {} if endpoint is None else {"endpoint": endpoint}
    if "account" in options:
        chosen["account_name"] = options["account"]
    return AzureStore(
        bucket,
        prefix=prefix,
        client_options=_client(timeout, endpoint),
        retry_config=retry,
        **chosen,
    )


def has_endpoint(scheme: str, options: Mapping[str, str]) -> bool:
    """Whether it is another service than the scheme's own."""
    return "endpoint" in options or any(os.environ.get(name) for name in _VARIABLES.get(scheme, ()))


def _endpoint(scheme: str, options: Mapping[str, str]) -> str | None:
    if "endpoint" in options:
        return _checked("endpoint", options["endpoint"])
    for name in _VARIABLES[scheme]:
        if os.environ.get(name):
            return _checked(name, os.environ[name])
    return None


def _checked(source: str, endpoint: str) -> str:
    """Never repeated: somebody may have written a password into it."""
    if "@" in endpoint:
        raise _wrong(source, "holds a user's name or a password, which have no place there")
    try:
        parts = urlsplit(endpoint)
        is_port = parts.port is None or parts.port > 0
    except ValueError:
        raise _wrong(source, "is no address of a service") from None
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(parts.hostname or "") or not is_port:
        raise _wrong(source, "is no address of a service")
    if parts.query or parts.fragment or re.search(r"[\s\x00-\x1f]", endpoint):
        raise _wrong(source, "has more than the address of a service")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _wrong(source: str, problem: str) -> Invalid:
    return Invalid("store", f"{source} {problem}", "write https://host, or http://host:port")


MAKERS: Mapping[str, Callable[..., Any]] = {"s3": _s3, "gs": _gs, "az": _az}
"""By scheme, each: `(bucket, prefix, options, timeout, retry) -> client`. Nothing is sent yet."""
