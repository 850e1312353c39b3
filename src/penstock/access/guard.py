"""What a route requires of its caller, declared where the route is.

    @router.get("/webhooks", **requires(Scope.READ))
    async def list_webhooks(caller: CurrentCaller, db: DbHere) -> …

The declaration is checked before the route runs, and the OpenAPI document shows it as `x-scope`, `x-bound` and
`x-pull`, from which the tests build their matrix of callers and routes. `public()` declares that no credential is
needed.
"""

from typing import Annotated, Any

from fastapi import Depends, Request

from penstock.access.allowed_hosts import AllowedHosts
from penstock.access.domain import Caller, Scope
from penstock.access.errors import ForeignHost, ForeignOrigin, PullNotInScope
from penstock.kernel.http.query_string import check_query


def requires(scope: Scope, *, bound: bool = False, pull: bool = False) -> dict[str, Any]:
    """Arguments for a route's decorator: only callers with this scope pass.

    `bound` also admits keys that are bound to a project; the route itself must then keep them inside it. `pull` is for
    routes that claim tasks or work on a claim: tokens need a scope that says so.
    """

    async def guard(request: Request) -> None:
        caller = await request.app.state.access.authorize(request, scope, bound=bound)
        if pull and not caller.may_pull:
            raise PullNotInScope
        request.state.caller = caller
        check_query(request.scope)

    shown: dict[str, Any] = {"x-scope": str(scope)}
    if bound:
        shown["x-bound"] = True
    if pull:
        shown["x-pull"] = True
    return {"dependencies": [Depends(guard)], "openapi_extra": shown}


def public(*, any_host: bool = False) -> dict[str, Any]:
    """Arguments for a route's decorator: anyone may call it.

    Without a valid credential, the request must name a host of ours and come from no other site's page
    (`allowed_hosts.py`). `any_host` is for probes: load balancers send any `Host`, and the response is one word.
    """

    async def guard(request: Request) -> None:
        hosts: AllowedHosts = request.app.state.hosts
        try:
            hosts.check(request.headers)
        except (ForeignHost, ForeignOrigin):
            if await request.app.state.access.identify(request.headers) is None:
                raise

    return {"dependencies": [] if any_host else [Depends(guard)], "openapi_extra": {"x-scope": "public"}}


async def current_caller(request: Request) -> Caller:
    """The caller whom `requires` admitted."""
    caller: Caller = request.state.caller
    return caller


CurrentCaller = Annotated[Caller, Depends(current_caller)]
