"""Route lookup by an index of path prefixes. The framework tries one route after another, which with 150 routes takes
longer than the rest of a small request; here only routes whose fixed prefix matches the path are tried.

Of several matching routes the one declared first wins, as in the framework.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from urllib.parse import unquote

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from penstock.kernel.http.query_string import DECLARED, declared_query

ENCODED_SLASH = "\ufdd0"  # a noncharacter that stands for %2F inside a path parameter during the lookup
MATCHED = "penstock.route"  # key of the matched route in the scope


class RouteIndex(BaseRoute):
    """Many routes that appear as one to the framework."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self.routes = list(routes)
        self._by_prefix: defaultdict[str, list[tuple[int, BaseRoute]]] = defaultdict(list)
        for number, route in enumerate(self.routes):
            self._by_prefix[_fixed_prefix(getattr(route, "path", "{"))].append((number, route))
        self._declared_queries = {id(route): declared_query(route) for route in self.routes}
        self._max_depth = max((prefix.count("/") for prefix in self._by_prefix), default=0)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a route matches this request, or would with another method."""
        if b"%2f" not in scope.get("raw_path", b"").lower():
            return self._match(scope)
        match, found = self._match({**scope, "path": _mark_encoded_slashes(scope["raw_path"])})
        if "path_params" in found:
            found["path_params"] = {name: _restore_slashes(value) for name, value in found["path_params"].items()}
        return match, found

    def _match(self, scope: Scope) -> tuple[Match, Scope]:
        partial_match: tuple[Match, Scope] = (Match.NONE, {})
        for _, route in self._candidates(scope["path"]):
            match, found = route.matches(scope)
            if match is Match.FULL:
                return match, self._found(route, found)
            if match is Match.PARTIAL and partial_match[0] is Match.NONE:
                partial_match = match, self._found(route, found)
        return partial_match

    def _found(self, route: BaseRoute, found: Scope) -> Scope:
        return {"route": route, **found, MATCHED: route, DECLARED: self._declared_queries[id(route)]}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request by the route that `matches` found."""
        route: BaseRoute = scope[MATCHED]
        await route.handle(scope, receive, send)

    def has(self, method: str, path: str) -> bool:
        """Whether a route accepts exactly this method at the path."""
        scope = {"type": "http", "path": path, "root_path": "", "method": method}
        return any(route.matches(scope)[0] is Match.FULL for _, route in self._candidates(path))

    def _candidates(self, path: str) -> list[tuple[int, BaseRoute]]:
        """The routes that share a prefix with the path, in the order of declaration."""
        found = [routes] if (routes := self._by_prefix.get(path)) else []
        end = -1
        for _ in range(self._max_depth):  # no deeper: a path may be sixty thousand slashes
            if (end := path.find("/", end + 1)) < 0:
                break
            if end + 1 < len(path) and (routes := self._by_prefix.get(path[: end + 1])):
                found.append(routes)
        return found[0] if len(found) == 1 else sorted(chain(*found), key=_position)


def _mark_encoded_slashes(raw_path: bytes) -> str:
    """The decoded path, with each %2F replaced by a marker, so that it does not separate segments."""
    raw = raw_path.partition(b"?")[0].decode(errors="replace")
    return "/".join(unquote(part).replace("/", ENCODED_SLASH) for part in raw.split("/"))


def _restore_slashes(value: object) -> object:
    return value.replace(ENCODED_SLASH, "/") if isinstance(value, str) else value


def _position(entry: tuple[int, BaseRoute]) -> int:
    return entry[0]


def _fixed_prefix(path: str) -> str:
    """`/things/{id}/pages` as `/things/`; a path without parameters as it is."""
    fixed, brace, _ = path.partition("{")
    return f"{fixed.rpartition('/')[0]}/" if brace else path
