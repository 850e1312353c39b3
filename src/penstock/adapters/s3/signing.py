"""Signature Version 4 for requests that have a short body or none: pure, checked by the store on every request."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote, urlsplit

from penstock.adapters.s3.place import Keys

ALGORITHM = "AWS4-HMAC-SHA256"
UNRESERVED = "-_.~"  # everything else in a path or a query is escaped, as the signature wants it


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request before it is signed. Keys and values are as people write them; escaping is done here."""

    method: str
    origin: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def url(self) -> str:
        """The address, escaped exactly as it is signed."""
        return f"{self.origin}{self._path}" + (f"?{self._query}" if self.query else "")

    @property
    def canonical(self) -> tuple[str, str, str]:
        """What the signature says about the request's line."""
        return self.method, self._path, self._query

    @property
    def _path(self) -> str:
        return quote(self.path, safe=f"/{UNRESERVED}")

    @property
    def _query(self) -> str:
        pairs = sorted((_escaped(name), _escaped(value)) for name, value in self.query.items())
        return "&".join(f"{name}={value}" for name, value in pairs)


def signed_headers(request: Request, *, keys: Keys, region: str, at: datetime) -> dict[str, str]:
    """The headers that make the store believe that the request is ours."""
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


def _signature(statement: list[str], keys: Keys, scope: str) -> str:
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, "\n".join(statement).encode(), "sha256").hex()


def _escaped(text: str) -> str:
    return quote(text, safe=UNRESERVED)
