"""Finding a route by its path. The framework asks one route after another, and with a hundred and fifty of them that
takes longer than all the rest of a small request; here only those are asked whose fixed beginning is the path's own.

Which of several fitting routes is taken stays as the framework has it: the one that was declared first.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from urllib.parse import unquote

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

SLASH = "\ufdd0"  # no character: it stands for a slash inside a name while a route is looked for
FOUND = "penstock.route"  # where a request keeps what was found for it


class RouteIndex(BaseRoute):
    """Many routes that look like one to the framework."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self.routes = list(routes)
        self._by_start: defaultdict[str, list[tuple[int, BaseRoute]]] = defaultdict(list)
        for number, route in enumerate(self.routes):
            self._by_start[_fixed_start(getattr(route, "path", "{"))].append((number, route))
        self._deepest = max((start.count("/") for start in self._by_start), default=0)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As any route: whether it takes this request, or would with another method."""
        if b"%2f" not in scope.get("raw_path", b"").lower():
            return self._match(scope)
        match, found = self._match({**scope, "path": _with_marks(scope["raw_path"])})
        if "path_params" in found:
            found["path_params"] = {name: _unmarked(value) for name, value in found["path_params"].items()}
        return match, found

    def _match(self, scope: Scope) -> tuple[Match, Scope]:
        partly: tuple[Match, Scope] = (Match.NONE, {})
        for _, route in self._candidates(scope["path"]):
            match, found = route.matches(scope)
            if match is Match.FULL:
                return match, {"route": route, **found, FOUND: route}
            if match is Match.PARTIAL and partly[0] is Match.NONE:
                partly = match, {"route": route, **found, FOUND: route}
        return partly

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the route that `matches` found."""
        route: BaseRoute = scope[FOUND]
        await route.handle(scope, receive, send)

    def has(self, method: str, path: str) -> bool:
        """Whether a route takes exactly this method at the path."""
        scope = {"type": "http", "path": path, "root_path": "", "method": method}
        return any(route.matches(scope)[0] is Match.FULL for _, route in self._candidates(path))

    def _candidates(self, path: str) -> list[tuple[int, BaseRoute]]:
        """The routes that begin as the path does, in the order in which they were declared."""
        found = [routes] if (routes := self._by_start.get(path)) else []
        end = -1
        for _ in range(self._deepest):  # and no deeper: a path may be sixty thousand slashes
            if (end := path.find("/", end + 1)) < 0:
                break
            if end + 1 < len(path) and (routes := self._by_start.get(path[: end + 1])):
                found.append(routes)
        return found[0] if len(found) == 1 else sorted(chain(*found), key=_number)


def _with_marks(raw_path: bytes) -> str:
    """A path whose names may have slashes of their own, written %2F: those are marked, so that they divide nothing."""
    raw = raw_path.partition(b"?")[0].decode("latin-1")
    return "/".join(unquote(part).replace("/", SLASH) for part in raw.split("/"))


def _unmarked(value: object) -> object:
    return value.replace(SLASH, "/") if isinstance(value, str) else value


def _number(entry: tuple[int, BaseRoute]) -> int:
    return entry[0]


def _fixed_start(path: str) -> str:
    """`/things/{id}/pages` as `/things/`; a path without parts that vary, as it is."""
    fixed, brace, _ = path.partition("{")
    return f"{fixed.rpartition('/')[0]}/" if brace else path
