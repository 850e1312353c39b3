"""Doors for tests of routes: they let callers in by a name in X-API-Key, without keys or a database."""

from starlette.requests import Request

from penstock.access.domain import Caller, Scope
from penstock.kernel.errors import Unauthenticated, Unavailable


class OpenDoor:
    """Lets in whomever it knows, whatever they ask for."""

    def __init__(self, **callers: Caller) -> None:
        self.callers = callers
        self.asked = 0
        self.away = False  # whether what knows callers is out of reach

    async def admit(self, request: Request, scope: Scope, *, bound: bool) -> Caller:
        """The caller of that name."""
        self.asked += 1
        if self.away:
            raise Unavailable(reason="nobody knows who calls")
        name = request.headers.get("x-api-key", "")
        if name not in self.callers:
            raise Unauthenticated
        return self.callers[name]
