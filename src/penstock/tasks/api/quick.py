"""Routes that are called so often that the framework's own work on a request would be most of what they cost.

Such a route reads its request by itself. Its guards and its place in the OpenAPI document are declared as everywhere;
only what stands between them and the endpoint is left out: looking for parameters, stacks of things to close, a second
look at the answer.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from penstock.kernel.http.envelope import EnvelopeRoute


class _BareRoute(APIRoute):
    """A route that calls its guards and its endpoint with the request, and nothing else."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The guards first, in their order; each may refuse."""
        guards = [one.dependency for one in self.dependencies if one.dependency is not None]
        endpoint = self.endpoint

        async def answer(request: Request) -> Response:
            for guard in guards:
                await guard(request)
            response: Response = await endpoint(request)
            return response

        return answer


class QuickRoute(EnvelopeRoute, _BareRoute):
    """A bare route whose errors are in the family's shape. Guards and endpoint take the request alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        answer = self.get_route_handler()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive, send)
            response = await answer(request)
            await response(scope, receive, send)

        self.app = app
