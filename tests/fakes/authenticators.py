"""An authenticator for tests of routes: it knows callers by a name in X-API-Key, without keys or a database."""

from starlette.requests import Request

from penstock.access.domain import Caller, Scope
from penstock.kernel.errors import Unauthenticated, Unavailable


class FixedCallers:
    """Authorizes the callers it was given, for every scope."""

    def __init__(self, **callers: Caller) -> None:
        self.callers = callers
        self.asked = 0
        self.away = False  # whether authentication is unavailable

    async def authorize(self, request: Request, scope: Scope, *, bound: bool) -> Caller:
        """The caller of that name."""
        self.asked += 1
        if self.away:
            raise Unavailable(reason="authentication is unavailable")
        name = request.headers.get("x-api-key", "")
        if name not in self.callers:
            raise Unauthenticated
        return self.callers[name]
