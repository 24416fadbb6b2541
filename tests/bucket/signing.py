"""One S3 request, signed by hand: obstore would sign it with the time that it is."""

from __future__ import annotations

import hashlib
import hmac
import urllib.error
import urllib.request
from datetime import datetime


def create(url: str, body: bytes, access: str, secret: str, at: datetime) -> tuple[int, str]:
    """`PUT` if absent, as it was signed at some time; the status and what the service said."""
    host, path = url.removeprefix("http://").split("/", 1)
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "if-none-match": "*", "x-amz-content-sha256": digest, "x-amz-date": stamp}
    names = ";".join(headers)
    canonical = "\n".join(["PUT", f"/{path}", "", *map(":".join, headers.items()), "", names, digest])
    scope = f"{stamp[:8]}/us-east-1/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    credential = f"Credential={access}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 {credential}"
    request = urllib.request.Request(url, data=body, method="PUT", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
