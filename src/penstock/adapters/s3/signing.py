"""AWS Signature Version 4 for requests with a short body or none. Pure functions."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote, urlsplit

from penstock.adapters.s3.config import S3Credentials

ALGORITHM = "AWS4-HMAC-SHA256"
UNRESERVED = "-_.~"  # everything else in a path or a query is percent-encoded, as the signature requires


@dataclass(frozen=True, kw_only=True)
class S3Request:
    """A request before it is signed. Path and query are unescaped; escaping is done here."""

    method: str
    origin: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def url(self) -> str:
        """The URL, escaped exactly as it is signed."""
        return f"{self.origin}{self._path}" + (f"?{self._query}" if self.query else "")

    @property
    def canonical(self) -> tuple[str, str, str]:
        """Method, path and query of the canonical request."""
        return self.method, self._path, self._query

    @property
    def _path(self) -> str:
        return quote(self.path, safe=f"/{UNRESERVED}")

    @property
    def _query(self) -> str:
        pairs = sorted((_escaped(name), _escaped(value)) for name, value in self.query.items())
        return "&".join(f"{name}={value}" for name, value in pairs)


def signed_headers(request: S3Request, *, keys: S3Credentials, region: str, at: datetime) -> dict[str, str]:
    """The headers of the request with its signature."""
    moment, digest = at.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(request.body).hexdigest()
    headers = {name.lower(): value for name, value in request.headers.items()}
    headers |= {"host": urlsplit(request.origin).netloc, "x-amz-date": moment, "x-amz-content-sha256": digest}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in sorted(headers))
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    statement = "\n".join([*request.canonical, lines, names, digest])
    signature = _signature([ALGORITHM, moment, scope, hashlib.sha256(statement.encode()).hexdigest()], keys, scope)
    credential = f"Credential={keys.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return headers | {"authorization": f"{ALGORITHM} {credential}"}


def _signature(statement: list[str], keys: S3Credentials, scope: str) -> str:
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, "\n".join(statement).encode(), "sha256").hex()


def _escaped(text: str) -> str:
    return quote(text, safe=UNRESERVED)
