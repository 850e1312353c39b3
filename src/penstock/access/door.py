"""The door: what a route asks of its caller, said where the route is declared.

    @router.get("/webhooks", **open_to(Scope.READ))
    async def list_webhooks(caller: CallerHere, db: DbHere) -> …

What is said here is checked before the route runs and shown in the OpenAPI document as `x-scope` (and `x-bound`), from
which the tests make their matrix of callers and routes. `open_to_all()` says that anybody may call.
"""

from typing import Annotated, Any

from fastapi import Depends, Request

from penstock.access.domain import Caller, Scope


def open_to(scope: Scope, *, bound: bool = False) -> dict[str, Any]:
    """What a route's decorator is given so that only callers with this scope pass.

    `bound` lets keys in that are bound to a project; the route itself then has to keep them inside it.
    """

    async def guard(request: Request) -> None:
        request.state.caller = await request.app.state.access.admit(request, scope, bound=bound)

    shown: dict[str, Any] = {"x-scope": str(scope)}
    if bound:
        shown["x-bound"] = True
    return {"dependencies": [Depends(guard)], "openapi_extra": shown}


def open_to_all() -> dict[str, Any]:
    """What a route's decorator is given so that anybody may call it."""
    return {"openapi_extra": {"x-scope": "public"}}


async def caller_of(request: Request) -> Caller:
    """The caller whom the door let in."""
    caller: Caller = request.state.caller
    return caller


CallerHere = Annotated[Caller, Depends(caller_of)]
