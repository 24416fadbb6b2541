"""From an address to the requests of its bucket: `s3://bucket/prefix?endpoint=…&region=…`, `gs://bucket/prefix`,
`az://container/prefix?account=…`, `file:///folder`, `memory-bucket:name`.

All mistakes in an address are found here, before any request. The client library would take some of them for another
place, and fail on others without a clear error. An address holds no credentials; one that does is never repeated.

Credentials come from the environment, from the machine's role, and from the profiles of boto3 or google-auth where
those are installed. The endpoint comes from the environment, too, if the address has none. The client library reads
the same variables, but it fails on a malformed one, and it refuses `http://` unless a setting allows it. Here
`http://` in an address or a variable is that permission.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from obstore import exceptions as obs
from obstore.store import AzureStore, GCSStore, S3Store

from ....domain.errors import Invalid
from .bucket import FolderRequests, MemoryRequests, Requests, ServiceRequests, first_line

_CONNECT_TIMEOUT = timedelta(seconds=5)
_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+", re.ASCII)
_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""By scheme: the variables for an endpoint, if the address has none. The first that is set counts."""


def _s3(options: Mapping[str, str]) -> dict[str, Any]:
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
    return chosen


def _profile() -> Any:
    """The profiles in ~/.aws, which boto3 knows how to read."""
    if "AWS_PROFILE" not in os.environ and not (Path.home() / ".aws" / "credentials").exists():
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return None
    return Boto3CredentialProvider()


def _gs(options: Mapping[str, str]) -> dict[str, Any]:
    has_account = {"GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"} & set(os.environ)
    return {} if has_account else {"credential_provider": _google()}


def _google() -> Any:
    """Google's credentials. obstore itself would ask an address that exists only inside Google, and wait for it."""
    try:
        from obstore.auth.google import GoogleCredentialProvider
    except ImportError:
        raise Invalid(
            "store", "Google's credentials need google-auth", "install it, or set GOOGLE_SERVICE_ACCOUNT"
        ) from None
    return GoogleCredentialProvider()


def _az(options: Mapping[str, str]) -> dict[str, Any]:
    endpoint = _endpoint("az", options)
    chosen: dict[str, Any] = {} if endpoint is None else {"endpoint": endpoint}
    if "account" in options:
        chosen["account_name"] = options["account"]
    return chosen


def _given_endpoint(scheme: str, options: Mapping[str, str]) -> tuple[str, str] | None:
    """Where an endpoint is given, and the endpoint; None: the service is the scheme's own."""
    if "endpoint" in options:
        return "endpoint", options["endpoint"]
    named = ((name, os.environ.get(name)) for name in _VARIABLES.get(scheme, ()))
    return next(((name, value) for name, value in named if value), None)


def _endpoint(scheme: str, options: Mapping[str, str]) -> str | None:
    given = _given_endpoint(scheme, options)
    return None if given is None else _checked(*given)


def _checked(source: str, endpoint: str) -> str:
    """The endpoint, if it is well-formed. It is never repeated in an error: it may contain a password."""
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


_CLIENTS: Mapping[str, tuple[Any, Callable[[Mapping[str, str]], dict[str, Any]]]] = {
    "s3": (S3Store, _s3),
    "gs": (GCSStore, _gs),
    "az": (AzureStore, _az),
}
"""By scheme: the client, and what is chosen for it by the options of an address and by the environment."""


_OPTIONS: dict[str, tuple[str, ...]] = {
    "s3": ("endpoint", "region", "timeout", "views"),
    "gs": ("timeout", "views"),
    "az": ("account", "endpoint", "timeout", "views"),
    "file": ("views",),
    "memory-bucket": ("views",),
}
_VALUES = {
    "account": (re.compile(r"[a-z0-9]{3,24}"), "3 to 24 small letters and digits"),
    "region": (re.compile(r"[\w.-]+", re.ASCII), "a name such as us-east-1"),
    "views": (re.compile(r"on|off|tasks"), "on, off or tasks"),
}
_NAMES = {
    "s3": (
        re.compile(r"(?!\d+\.\d+\.\d+\.\d+$)[A-Za-z0-9._-]{3,255}"),
        "3 to 255 letters, digits, dots, hyphens and underscores, and no address of a machine",
    ),
    "gs": (
        re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
        "3 to 222 small letters, digits, hyphens, underscores and dots, with a letter or digit at both ends",
    ),
    "az": (
        re.compile(r"\$(?:root|web|logs)|[a-z0-9](?:[a-z0-9]|-(?!-)){1,61}[a-z0-9]"),
        "3 to 63 small letters, digits and single hyphens, with a letter or digit at both ends; $root, $web, $logs",
    ),
}
"""The names that each provider allows. Amazon's old buckets have names that its rule of today forbids."""

_NAMES_ELSEWHERE = (
    re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._$-]{1,255}"),
    "1 to 255 letters, digits, dots, hyphens and underscores",
)
"""Other services have their own rules. The client library takes '.' and '..' for another place, and fails on most other
characters."""

_BARE_PERCENT = re.compile(r"%(?![0-9a-fA-F]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_PREFIX = 512
"""In bytes. Keys have at most 1,024, and names of schedules stand in the longest of ours."""

_TIMEOUT = timedelta(seconds=30)
_SHORTEST, _LONGEST = timedelta(seconds=0.1), timedelta(hours=1)


class BucketAddress(NamedTuple):
    """An address that was checked."""

    scheme: str
    bucket: str
    path: str
    """The prefix, the folder, or the name of a bucket in memory; decoded."""
    options: dict[str, str]

    @classmethod
    def parse(cls, address: str) -> BucketAddress:
        parts = _split(address)
        path = _decoded(parts.path)
        options = _options(parts)
        if parts.scheme == "memory-bucket":
            if parts.netloc:
                raise Invalid("store", "a bucket in memory has no //", "write memory-bucket:name")
            return cls(parts.scheme, "", path, options)
        if parts.scheme == "file":
            return cls(parts.scheme, "", _folder(parts.netloc, path), options)
        return cls(parts.scheme, _bucket(parts, options), _prefix(parts.scheme, path), options)

    @property
    def views(self) -> str:
        return self.options.get("views", "on")

    @property
    def name(self) -> str:
        """The address without options, always written in the same way."""
        prefix = re.sub(r"[%#? ]", lambda odd: f"%{ord(odd[0]):02X}", self.path)
        return f"{self.scheme}://{self.bucket}" + (f"/{prefix}" if prefix else "")

    def requests(self) -> Requests:
        """The requests of this bucket. None is made yet."""
        if self.scheme == "memory-bucket":
            return MemoryRequests(self.path)
        if self.scheme == "file":
            return _folder_requests(Path(self.path))
        try:
            return ServiceRequests(self.name, self._client)
        except Invalid:
            raise
        except (obs.BaseError, ValueError, TypeError) as error:
            raise Invalid(
                "store",
                f"{self.name} cannot be used: {first_line(error)}",
                "check the options, and the credentials in the environment",
            ) from error

    def _client(self, retry: Any) -> Any:
        """A client of the service. It has made no request yet."""
        client, choose = _CLIENTS[self.scheme]
        chosen = choose(self.options)
        http = {
            "timeout": _timeout(self.options),
            "connect_timeout": _CONNECT_TIMEOUT,
            "allow_http": chosen.get("endpoint", "").startswith("http://"),
        }
        return client(
            self.bucket, prefix=self.path or None, client_options=http, retry_config=retry, **chosen
        )


def _split(address: str) -> SplitResult:
    if _CONTROL.search(address):
        raise Invalid("store", "the address has a control character", "leave it out")
    if "#" in address:  # everything behind it would be lost, options too
        raise Invalid("store", "the address has a '#'", "write %23 where it belongs to a name")
    try:
        return urlsplit(address)
    except ValueError:
        raise Invalid("store", "the address cannot be read", "write it as s3://bucket/prefix") from None


def _decoded(path: str) -> str:
    if _BARE_PERCENT.search(path):
        raise Invalid(
            "store", "the address has a '%' that two hexadecimal digits do not follow", "write it as %25"
        )
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise Invalid("store", "what is written with % in the address is no UTF-8", "write it so") from None
    if _CONTROL.search(decoded):
        raise Invalid("store", "the address has a control character", "leave it out")
    return decoded


def _options(parts: SplitResult) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS[parts.scheme]:
            known = ", ".join(_OPTIONS[parts.scheme])
            raise Invalid("store", f"the address has an unknown option {name!r:.40}", f"accepted are {known}")
        if name in options:
            raise Invalid("store", f"the address has the option {name!r} twice", "give it once")
        if name in _VALUES and not _VALUES[name][0].fullmatch(value):
            raise Invalid("store", f"{name} is {value!r:.40}", f"accepted is {_VALUES[name][1]}")
        options[name] = value
    _timeout(options)
    return options


def _timeout(options: Mapping[str, str]) -> timedelta:
    text = options.get("timeout")
    if text is None:
        return _TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST.total_seconds() <= seconds <= _LONGEST.total_seconds():  # 0 if it is no number
        raise Invalid("store", f"timeout is {text!r:.40}", "accepted is a number of seconds from 0.1 to 3600")
    return timedelta(seconds=seconds)


def _bucket(parts: SplitResult, options: Mapping[str, str]) -> str:
    what = "container" if parts.scheme == "az" else "bucket"
    if "@" in parts.netloc or ":" in parts.netloc:
        raise Invalid(
            "store",
            f"the address has more than a name where the {what} is (it is not repeated here: it may be a secret)",
            f"write {parts.scheme}://{what}/prefix; credentials come from the environment",
        )
    if not parts.netloc:
        raise Invalid("store", f"the address names no {what}", f"write {parts.scheme}://{what}/prefix")
    is_own = _given_endpoint(parts.scheme, options) is None
    allowed, in_words = _NAMES[parts.scheme] if is_own else _NAMES_ELSEWHERE
    if not allowed.fullmatch(parts.netloc):
        raise Invalid("store", f"{parts.netloc!r:.80} is no name of a {what}", f"accepted are {in_words}")
    return parts.netloc


def _prefix(scheme: str, path: str) -> str:
    """The prefix without a slash at its end, which many people write."""
    prefix = path.removeprefix("/").removesuffix("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise Invalid(
            "store", f"the prefix {prefix!r:.80} has a part that is empty, '.' or '..'", "leave it out"
        )
    if "\\" in prefix:  # written, and never listed
        raise Invalid("store", f"the prefix {prefix!r:.80} has a backslash", f"write {scheme}://bucket/a/b")
    if (size := len(prefix.encode())) > _LONGEST_PREFIX:
        raise Invalid("store", f"the prefix has {size:,} bytes", f"accepted are {_LONGEST_PREFIX}")
    return prefix


def _folder(host: str, path: str) -> str:
    if host or not path.startswith("/") or not path.strip("/"):
        raise Invalid("store", "the address names no folder", "write file:///absolute/folder")
    return os.path.realpath("/" + path.lstrip("/"))


def _folder_requests(folder: Path) -> Requests:
    try:
        return FolderRequests(folder)
    except OSError as error:
        raise Invalid(
            "store",
            f"the folder {folder} cannot be used: {first_line(error)}",
            "name one that can be written",
        ) from error
