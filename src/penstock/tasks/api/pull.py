"""Pull routes: by filters, by ids, and in a batch. A pull is a GET that changes state, so its responses are `no-store`.

Responses are encoded directly: they have up to a thousand tasks, and FastAPI would validate each field again. The GET
routes are the hot path and bypass FastAPI's request handling (`FastRoute`).
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from starlette.datastructures import QueryParams
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from penstock.access.domain import Caller, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.clock import iso_millis
from penstock.kernel.errors import PenstockError, TooMany
from penstock.kernel.http.envelope import EnvelopeRoute
from penstock.kernel.http.language import localized, prefers_chinese
from penstock.kernel.http.query_string import UnknownQuery
from penstock.tasks.api import coalesced_pulls
from penstock.tasks.api.filters import BatchFilters, Filters
from penstock.tasks.api.params import (
    MAX_ID_LENGTH,
    NO_CONTROLS,
    DepsHere,
    HolderHere,
    ProjectHere,
    QueueId,
    TaskId,
    new_router,
    read_client_name,
    refuse_other_project,
)
from penstock.tasks.api.views import format_time, task_view
from penstock.tasks.claims import ClaimRequest, ClaimResult
from penstock.tasks.deps import Deps
from penstock.tasks.domain import PULL_STATE_LABELS, Holder, PullState
from penstock.tasks.pull import PullRequest
from penstock.tasks.pull_by_id import PullByIdRequest, PullByIdResult
from penstock.tasks.pull_limits import Allowance


class _DirectRoute(APIRoute):
    """Calls the guards and the endpoint with only the request: no parameter lookup, exit stacks or response model."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Run the guards in order, then the endpoint."""
        guards = [one.dependency for one in self.dependencies if one.dependency is not None]
        endpoint = self.endpoint

        async def answer(request: Request) -> Response:
            for guard in guards:
                await guard(request)
            response: Response = await endpoint(request)
            return response

        return answer


class FastRoute(EnvelopeRoute, _DirectRoute):
    """A direct route with enveloped errors. FastAPI's own work per request would be most of the cost of a pull.

    An unknown parameter that resembles a declared one is refused: a mistyped filter would claim other tasks than the
    client asked for.
    """

    unknown_query = UnknownQuery.REFUSE_SIMILAR  # a mistyped filter would claim other tasks than the client asked for

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        answer = self.get_route_handler()

        async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive, send)
            response = await answer(request)
            await response(scope, receive, send)

        self.app = app


router = new_router()
fast_router = new_router(FastRoute)

DEFAULT_LIMIT = 100  # tasks that a pull returns by default
CACHE_SIZE = 500  # parsed requests; a URL may be long
LISTS = ("status", "tags")
HELD = PULL_STATE_LABELS[PullState.HELD]
PULL = requires(Scope.READ, bound=True, pull=True)
NO_STORE = {"Cache-Control": "no-store"}
NOTHING: Mapping[str, Any] = {}
NO_FAILURES: Mapping[str, Any] = {"failed": (), "failed_tasks": (), "failed_count": 0}  # by filters: no task is named
PULLED: dict[int | str, dict[str, Any]] = {
    200: {"description": "The claimed tasks in `data.tasks`, each with its `lease_token`."},
    429: {"description": "The pull rate or the daily quota of this API key is exceeded."},
}
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=MAX_ID_LENGTH)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID_LENGTH)]
PathId = Annotated[Id, StringConstraints(pattern=NO_CONTROLS)]


class PullQuery(Filters):
    """The query parameters of a pull."""

    limit: Annotated[int, Field(ge=1)] = DEFAULT_LIMIT
    wait: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0

    @model_validator(mode="before")
    @classmethod
    def _join_lists(cls, given: Any) -> Any:
        """In a query `tags=a,b` and `tags=a&tags=b` are the same; in a body a tag may contain a comma."""
        lists = {name: ",".join(given[name]) for name in LISTS if isinstance(given.get(name), list)}
        return {**given, **lists}


class PullParameters(PullQuery):
    """Path, query and headers of a pull, validated together."""

    project_id: PathId
    queue_id: PathId | None = None
    idempotency_key: Id | None = None


class Batch(BaseModel):
    """A batch pull: tasks by id, or by filters."""

    model_config = ConfigDict(populate_by_name=True)

    task_ids: Annotated[list[Id], Field(max_length=1000)] | None = Field(default=None, alias="taskIds")
    queue_id: Id | None = Field(default=None, alias="queueId")
    filters: BatchFilters | None = None
    limit: Annotated[int, Field(ge=1)] | None = None

    @property
    def max_tasks(self) -> int | None:
        """The limit, which may also be given in the filters."""
        return self.limit or (self.filters.limit if self.filters else None)


class PullCall:
    """One pull request: its caller, its rate limit and its response."""

    def __init__(self, request: Request, deps: Deps, caller: Caller, holder: Holder, key: str | None) -> None:
        self.request = request
        self.deps = deps
        self.caller = caller
        self.holder = holder
        self.key = key
        self.allowance: Allowance | None = None

    async def admit(self) -> None:
        """Apply the rate limits of the API key."""
        try:
            self.allowance = await self.deps.limiter.admit(self.caller.actor)
        except TooMany:
            self.deps.metrics.count_limited()
            raise

    def claim(self, limit: int) -> ClaimRequest:
        """The claim of this request. A batch is bounded by its limit and by the setting PULL_BATCH_SIZE."""
        return ClaimRequest(caller=self.caller, holder=self.holder, limit=min(limit, self.deps.config.batch_size))

    async def is_connected(self) -> bool:
        """Whether the client is still connected."""
        return not await self.request.is_disconnected()

    async def answer(
        self, project_id: str, queue_id: str | None, result: ClaimResult, more: Mapping[str, Any]
    ) -> Response:
        """The response with the claimed tasks."""
        shown = [_task_view(row, result, project_id) for row in result.rows]
        self.deps.metrics.count_pull(project_id, queue_id or "", len(shown))
        count, now = len(shown), self.deps.db.clock.now()
        message = f"已拉取 {count} 个任务。" if prefers_chinese(self.request) else f"{count} tasks pulled."
        body = {
            "success": True,
            "data": {
                "tasks": shown,
                "count": count,
                "pulled_count": count,
                "pulled_at": format_time(result.at or now),
                "pull_id": result.pull_id or None,
                **more,
            },
            "message": message,
            "timestamp": iso_millis(now),
        }
        headers = NO_STORE | (self.allowance.headers if self.allowance else {})
        headers |= await self.deps.limiter.quota_headers(self.caller.actor)
        return Response(msgspec.json.encode(body), media_type="application/json", headers=headers)


async def _call(
    request: Request, deps: DepsHere, caller: CurrentCaller, holder: HolderHere, key: Key = None
) -> PullCall:
    return PullCall(request, deps, caller, holder, key)


PullCallHere = Annotated[PullCall, Depends(_call)]


def _described(*path_names: str) -> dict[str, Any]:
    """Decorator arguments of a fast route: required scope and the parameters that FastAPI cannot see."""
    given = requires(Scope.READ, bound=True, pull=True)
    given["openapi_extra"]["parameters"] = [
        *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in path_names),
        *({"name": name, "in": "query", "schema": kind} for name, kind in _query_schemas().items()),
        *({"name": name, "in": "header", "schema": {"type": "string"}} for name in ("X-Client-Id", "Idempotency-Key")),
    ]
    return given | {"responses": PULLED}


def _query_schemas() -> dict[str, Any]:
    """The schemas of the query parameters, with the definitions that they refer to in place: a parameter has none."""
    schema = PullQuery.model_json_schema()
    for declared in schema["properties"].values():
        if "$ref" in declared.get("items", ()):
            declared["items"] = schema["$defs"][declared["items"]["$ref"].rpartition("/")[2]]
    found: dict[str, Any] = schema["properties"]
    return found


@fast_router.get("/projects/{project_id}/tasks/pull", **_described("project_id"))
async def pull_from_project(request: Request) -> Response:
    """Claim offered tasks of a project, highest priority first."""
    parameters = _parse(request)
    return await _pull(await _fast_call(request, parameters), parameters.project_id, parameters.queue, parameters)


@fast_router.get("/projects/{project_id}/queues/{queue_id}/tasks/pull", **_described("project_id", "queue_id"))
async def pull_from_queue(request: Request) -> Response:
    """Claim offered tasks of a queue, highest priority first."""
    parameters = _parse(request)
    return await _pull(await _fast_call(request, parameters), parameters.project_id, parameters.queue_id, parameters)


@router.head("/projects/{project_id}/tasks/pull", include_in_schema=False, **PULL)
@router.head("/projects/{project_id}/queues/{queue_id}/tasks/pull", include_in_schema=False, **PULL)
async def pull_nothing(_project: ProjectHere) -> Response:
    """HEAD claims nothing: it has no body, so claimed tasks would be lost until their lease expires."""
    return Response(headers=NO_STORE)


def _parse(request: Request) -> PullParameters:
    """Parse and validate a request. Clients repeat the same request, so the result is cached, except with an
    Idempotency-Key, which is used once."""
    key = request.headers.get("idempotency-key")
    parse = _parse_cached if key is None else _parse_parameters
    return parse(request.scope["query_string"], key, **request.path_params)


def _parse_parameters(query_string: bytes, key: str | None, **path: str) -> PullParameters:
    query = QueryParams(query_string)
    given: dict[str, Any] = {name: query.getlist(name) if name in LISTS else value for name, value in query.items()}
    try:
        return PullParameters.model_validate(given | path | {"idempotency_key": key})
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("query", one["loc"][0])} for one in error.errors()]) from error


_parse_cached = lru_cache(maxsize=CACHE_SIZE)(_parse_parameters)


async def _fast_call(request: Request, parameters: PullParameters) -> PullCall:
    caller: Caller = request.state.caller
    deps: Deps = request.app.state.tasks
    if caller.project_access is not None:
        await refuse_other_project(deps, caller, parameters.project_id)
    name = read_client_name(request.headers.get("x-client-id")) or caller.name
    holder = Holder(name=name, actor=caller.actor, is_admin=caller.is_admin)
    return PullCall(request, deps, caller, holder, parameters.idempotency_key)


@router.post("/projects/{project_id}/tasks/pull/batch", responses=PULLED, **PULL)
async def pull_batch(
    project: ProjectHere,
    body: Batch,
    call: PullCallHere,
) -> Response:
    """Claim tasks by id, with the reason for each one that cannot be claimed, or by filters."""
    queue_id = body.queue_id or (body.filters.queue if body.filters else None)
    if body.task_ids:
        return await _pull_by_id(call, project, queue_id, body, body.task_ids)
    if body.task_ids is not None and body.filters is None:  # an empty list must not claim every task
        await call.admit()
        return await call.answer(project, queue_id, ClaimResult(project_pk=""), NO_FAILURES)
    fields = body.filters.model_dump(exclude_unset=True) if body.filters else {}
    query = PullQuery.model_construct(**{**fields, "limit": body.max_tasks or call.deps.config.batch_size})
    return await _pull(call, project, queue_id, query, NO_FAILURES)


@router.post("/projects/{project_id}/tasks/{task_id}/pull", responses=PULLED, **PULL)
async def pull_task(
    project: ProjectHere,
    task_id: TaskId,
    call: PullCallHere,
) -> Response:
    """Claim one task by id, or return the reason why not."""
    return await _pull_one(call, project, None, task_id)


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull",
    responses=PULLED,
    **PULL,
)
async def pull_queue_task(
    project: ProjectHere,
    queue_id: QueueId,
    task_id: TaskId,
    call: PullCallHere,
) -> Response:
    """Claim one task of a queue by id, or return the reason why not."""
    return await _pull_one(call, project, queue_id, task_id)


async def _pull(
    call: PullCall, project_id: str, queue_id: str | None, query: PullQuery, more: Mapping[str, Any] = NOTHING
) -> Response:
    await call.admit()
    request = PullRequest(project_id=project_id, queue_id=queue_id, filter=query.pull_filter, idempotency_key=call.key)
    result = await coalesced_pulls.pull(
        call.deps,
        request,
        call.claim(query.limit),
        wait_seconds=min(query.wait, call.deps.config.wait_seconds),
        is_connected=call.is_connected,
    )
    return await call.answer(project_id, queue_id, result, more)


async def _pull_by_id(
    call: PullCall, project_id: str, queue_id: str | None, body: Batch, task_ids: Sequence[str]
) -> Response:
    await call.admit()
    limit = min(body.max_tasks or call.deps.config.batch_size, call.deps.config.batch_size)
    request = PullByIdRequest(
        project_id=project_id,
        queue_id=queue_id,
        task_ids=tuple(dict.fromkeys(task_ids)),
        filter=body.filters.pull_filter if body.filters else None,
        idempotency_key=call.key,
    )
    result = await coalesced_pulls.pull_by_id(call.deps, request, call.claim(limit))
    return await call.answer(project_id, queue_id, result.claimed, _failures(call.request, result))


async def _pull_one(call: PullCall, project_id: str, queue_id: str | None, task_id: str) -> Response:
    await call.admit()
    request = PullByIdRequest(project_id=project_id, queue_id=queue_id, task_ids=(task_id,), idempotency_key=call.key)
    result = await coalesced_pulls.pull_by_id(call.deps, request, call.claim(1))
    for error in result.failed.values():
        raise error
    return await call.answer(project_id, queue_id, result.claimed, {})


def _task_view(row: Any, result: ClaimResult, project_id: str) -> dict[str, Any]:
    """A claimed task with its new lease; the row is as it was before the claim."""
    shown = task_view(row, project_id=project_id)
    at = row.scheduled_at if result.at is not None and row.scheduled_at > result.at else result.at
    shown["pull_state"] = shown["pulled_status"] = HELD
    shown["pulled_at"], shown["pulled_by"] = format_time(at), result.holder
    shown["lease_token"], shown["leased_until"] = result.token, format_time(result.until)
    shown["pull_attempts"] = row.lease_count + 1
    return shown


def _failures(request: Request, result: PullByIdResult) -> dict[str, Any]:
    failed = [_failure(request, task_id, error) for task_id, error in result.failed.items()]
    return {"failed": failed, "failed_tasks": failed, "failed_count": len(failed)}


def _failure(request: Request, task_id: str, error: PenstockError) -> dict[str, Any]:
    reason, _ = localized(error, request)
    return {"task_id": task_id, "reason": reason, "code": error.code, "status": error.status}
