"""What a route requires of its caller, declared where the route is.

    @router.get("/webhooks", **requires(Scope.READ))
    async def list_webhooks(caller: CurrentCaller, db: DbHere) -> …

The declaration is checked before the route runs, and the OpenAPI document shows it as `x-scope` (and `x-bound`), from
which the tests build their matrix of callers and routes. `public()` declares that no credential is needed.
"""

from typing import Annotated, Any

from fastapi import Depends, Request

from penstock.access.domain import Caller, Scope


def requires(scope: Scope, *, bound: bool = False) -> dict[str, Any]:
    """Arguments for a route's decorator: only callers with this scope pass.

    `bound` also admits keys that are bound to a project; the route itself must then keep them inside it.
    """

    async def guard(request: Request) -> None:
        request.state.caller = await request.app.state.access.authorize(request, scope, bound=bound)

    shown: dict[str, Any] = {"x-scope": str(scope)}
    if bound:
        shown["x-bound"] = True
    return {"dependencies": [Depends(guard)], "openapi_extra": shown}


def public() -> dict[str, Any]:
    """Arguments for a route's decorator: anyone may call it."""
    return {"openapi_extra": {"x-scope": "public"}}


async def current_caller(request: Request) -> Caller:
    """The caller whom `requires` admitted."""
    caller: Caller = request.state.caller
    return caller


CurrentCaller = Annotated[Caller, Depends(current_caller)]
