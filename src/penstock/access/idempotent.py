"""The Idempotency-Key of a request, for the routes that create something.

    @router.post("/things", **requires(Scope.WRITE))
    async def create_thing(body: NewThing, request: IdempotentHere, …) -> …

`IdempotentHere` fingerprints a JSON body. A route that reads its body as a stream builds the request with `idempotent`.
"""

from typing import Annotated

import msgspec
from fastapi import Depends, Header, Request

from penstock.access.domain import Caller
from penstock.access.guard import CurrentCaller
from penstock.kernel.idempotency import IdempotentRequest, fingerprint

MAX_KEY_LENGTH = 255
DESCRIPTION = (
    "Repeat a request with the same key, and it takes effect once and gets the same answer. Kept for a day; another "
    "request with the key is refused."
)
KeyHeader = Annotated[
    str | None, Header(alias="Idempotency-Key", min_length=1, max_length=MAX_KEY_LENGTH, description=DESCRIPTION)
]


def idempotent(request: Request, caller: Caller, key: str | None, *content: object) -> IdempotentRequest | None:
    """The request with its key, and the fingerprint of its method, path and content; None without a key."""
    if key is None:
        return None
    asked = fingerprint(request.method, request.url.path, *content)
    return IdempotentRequest(actor=caller.actor, key=key, fingerprint=asked)


async def _of_json(request: Request, caller: CurrentCaller, key: KeyHeader = None) -> IdempotentRequest | None:
    """The body was read and checked already; decoded, so that a repetition may be spelled differently."""
    if key is None:
        return None
    return idempotent(request, caller, key, msgspec.json.decode(await request.body() or b"null"))


IdempotentHere = Annotated[IdempotentRequest | None, Depends(_of_json)]
