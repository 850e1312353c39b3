"""Pulling over HTTP. A pull changes things although it is a GET, so its answers are never stored on the way.

Answers are put together by hand: they carry up to a thousand tasks, and the framework would look at each field again.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from starlette.datastructures import QueryParams

from penstock.access.domain import Caller, Scope
from penstock.access.door import CallerHere, open_to
from penstock.kernel.errors import PenstockError, TooMany
from penstock.kernel.http.envelope import in_millis
from penstock.kernel.http.language import speaks_chinese, words
from penstock.tasks import pull as verb
from penstock.tasks import pull_by_id
from penstock.tasks.api.filters import BatchFilters, Filters
from penstock.tasks.api.params import (
    LONGEST_ID,
    NO_CONTROLS,
    HolderHere,
    ProjectHere,
    QueueId,
    TaskId,
    ToolsHere,
    new_router,
    read_client_name,
    refuse_other_project,
)
from penstock.tasks.api.quick import QuickRoute
from penstock.tasks.api.views import moment, shown_task
from penstock.tasks.deps import Deps
from penstock.tasks.domain import SHOWN, Holder, PullState
from penstock.tasks.claims import Ask, Handed
from penstock.tasks.pull_limits import Allowance
from penstock.tasks.pull_by_id import Named, Names

router = new_router()
quick = new_router(QuickRoute)

DEFAULT_LIMIT = 10
MOST_REMEMBERED = 500  # requests: one may be as long as an address may be
LISTS = ("status", "tags")
HELD = SHOWN[PullState.HELD]
NO_STORE = {"Cache-Control": "no-store"}
NOTHING: Mapping[str, Any] = {}
NO_FAILURES: Mapping[str, Any] = {
    "failed_tasks": (),
    "failed_count": 0,
}  # who asks by filters names no task that could fail
PULLED: dict[int | str, dict[str, Any]] = {
    200: {"description": "The tasks that are now this client's, each with its `lease_token`, in `data.tasks`."},
    429: {"description": "This key pulls too often, or has pulled enough for today."},
}
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=LONGEST_ID)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_ID)]
PathId = Annotated[Id, StringConstraints(pattern=NO_CONTROLS)]


class PullQuery(Filters):
    """What a pull asks for in its address."""

    limit: Annotated[int, Field(ge=1)] = DEFAULT_LIMIT
    wait: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0

    @model_validator(mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        """In an address `tags=a,b` and `tags=a&tags=b` are the same; in a body a tag may have a comma."""
        lists = {name: ",".join(given[name]) for name in LISTS if isinstance(given.get(name), list)}
        return {**given, **lists}


class Pulling(PullQuery):
    """All of a pull: its path, its query and its headers, looked at in one go."""

    project_id: PathId
    queue_id: PathId | None = None
    idempotency_key: Id | None = None


class Batch(BaseModel):
    """What a batch asks for: tasks by their ids, or by filters."""

    model_config = ConfigDict(populate_by_name=True)

    task_ids: Annotated[list[Id], Field(max_length=1000)] | None = Field(default=None, alias="taskIds")
    queue_id: Id | None = Field(default=None, alias="queueId")
    filters: BatchFilters | None = None
    limit: Annotated[int, Field(ge=1)] | None = None

    @property
    def most(self) -> int | None:
        """How many at the most; it may stand among the filters, too."""
        return self.limit or (self.filters.limit if self.filters else None)


class Call:
    """One request, and how it is answered."""

    def __init__(self, request: Request, tools: Deps, caller: Caller, holder: Holder, key: str | None) -> None:
        self.request = request
        self.tools = tools
        self.caller = caller
        self.holder = holder
        self.key = key
        self.allowance: Allowance | None = None

    async def enter(self) -> None:
        """Pass the gate, or be told when to come again."""
        try:
            self.allowance = await self.tools.gate.admit(self.caller.actor)
        except TooMany:
            self.tools.meters.count_limited()
            raise

    def ask(self, limit: int) -> Ask:
        """What the verb is asked for; nobody gets more than a batch may hold."""
        return Ask(caller=self.caller, holder=self.holder, limit=min(limit, self.tools.rules.batch_size))

    async def still_there(self) -> bool:
        """Whether the client still waits."""
        return not await self.request.is_disconnected()

    async def answer(self, project_id: str, queue_id: str | None, handed: Handed, more: Mapping[str, Any]) -> Response:
        """The envelope around what was handed out."""
        shown = [_shown(row, handed, project_id) for row in handed.rows]
        self.tools.meters.count_pull(project_id, queue_id or "", len(shown))
        number = len(shown)
        message = f"已拉取 {number} 个任务。" if speaks_chinese(self.request) else f"{number} tasks pulled."
        body = {
            "success": True,
            "data": {"tasks": shown, "pulled_count": number, "pull_id": handed.pull_id or None, **more},
            "message": message,
            "timestamp": in_millis(self.tools.db.clock.now()),
        }
        headers = NO_STORE | (self.allowance.headers if self.allowance else {})
        headers |= await self.tools.gate.quota_headers(self.caller.actor)
        return Response(msgspec.json.encode(body), media_type="application/json", headers=headers)


async def _call(request: Request, tools: ToolsHere, caller: CallerHere, holder: HolderHere, key: Key = None) -> Call:
    return Call(request, tools, caller, holder, key)


CallHere = Annotated[Call, Depends(_call)]


def _described(*places: str) -> dict[str, Any]:
    """What a route's decorator is given: who may call, and what may be asked, which the framework cannot see."""
    given = open_to(Scope.READ, bound=True)
    given["openapi_extra"]["parameters"] = [
        *({"name": place, "in": "path", "required": True, "schema": {"type": "string"}} for place in places),
        *(
            {"name": name, "in": "query", "schema": kind}
            for name, kind in PullQuery.model_json_schema()["properties"].items()
        ),
        *({"name": name, "in": "header", "schema": {"type": "string"}} for name in ("X-Client-Id", "Idempotency-Key")),
    ]
    return given | {"responses": PULLED}


@quick.get("/projects/{project_id}/tasks/pull", **_described("project_id"))
async def pull_from_project(request: Request) -> Response:
    """Take tasks that are on offer anywhere in a project, the most urgent first."""
    asked = _read(request)
    return await _pull(_quick_call(request, asked), asked.project_id, asked.queue, asked)


@quick.get("/projects/{project_id}/queues/{queue_id}/tasks/pull", **_described("project_id", "queue_id"))
async def pull_from_queue(request: Request) -> Response:
    """Take tasks that are on offer in one queue, the most urgent first."""
    asked = _read(request)
    return await _pull(_quick_call(request, asked), asked.project_id, asked.queue_id, asked)


@router.head("/projects/{project_id}/tasks/pull", include_in_schema=False, **open_to(Scope.READ, bound=True))
@router.head(
    "/projects/{project_id}/queues/{queue_id}/tasks/pull", include_in_schema=False, **open_to(Scope.READ, bound=True)
)
async def pull_nothing() -> Response:
    """A HEAD has no body, so tasks that it took would be in nobody's hands."""
    return Response(headers=NO_STORE)


def _read(request: Request) -> Pulling:
    """What a request asks for, or what is wrong with it. A client asks the same again and again, so it is remembered,
    but not with a key, which comes only once."""
    key = request.headers.get("idempotency-key")
    read = _remembered if key is None else _understood
    return read(request.scope["query_string"], key, **request.path_params)


def _understood(query_string: bytes, key: str | None, **path: str) -> Pulling:
    query = QueryParams(query_string)
    given: dict[str, Any] = {name: query.getlist(name) if name in LISTS else value for name, value in query.items()}
    try:
        return Pulling.model_validate(given | path | {"idempotency_key": key})
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("query", one["loc"][0])} for one in error.errors()]) from error


_remembered = lru_cache(maxsize=MOST_REMEMBERED)(_understood)


def _quick_call(request: Request, asked: Pulling) -> Call:
    caller: Caller = request.state.caller
    refuse_other_project(caller, asked.project_id)
    name = read_client_name(request.headers.get("x-client-id")) or caller.name
    holder = Holder(name=name, actor=caller.actor, is_admin=caller.is_admin)
    return Call(request, request.app.state.tasks, caller, holder, asked.idempotency_key)


@router.post("/projects/{project_id}/tasks/pull/batch", responses=PULLED, **open_to(Scope.READ, bound=True))
async def pull_batch(
    project: ProjectHere,
    body: Batch,
    call: CallHere,
) -> Response:
    """Take tasks by their ids, with the reason for each that cannot be had, or by filters."""
    queue_id = body.queue_id or (body.filters.queue if body.filters else None)
    if body.task_ids:
        return await _pull_named(call, project, queue_id, body, body.task_ids)
    if body.task_ids is not None and body.filters is None:  # a list that came out empty does not mean everything
        await call.enter()
        return await call.answer(project, queue_id, Handed(project_pk=""), NO_FAILURES)
    fields = body.filters.model_dump(exclude_unset=True) if body.filters else {}
    asked = PullQuery.model_construct(**{**fields, "limit": body.most or call.tools.rules.batch_size})
    return await _pull(call, project, queue_id, asked, NO_FAILURES)


@router.post("/projects/{project_id}/tasks/{task_id}/pull", responses=PULLED, **open_to(Scope.READ, bound=True))
async def pull_task(
    project: ProjectHere,
    task_id: TaskId,
    call: CallHere,
) -> Response:
    """Take one task by its id, or hear why it cannot be had."""
    return await _pull_one(call, project, None, task_id)


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull",
    responses=PULLED,
    **open_to(Scope.READ, bound=True),
)
async def pull_queue_task(
    project: ProjectHere,
    queue_id: QueueId,
    task_id: TaskId,
    call: CallHere,
) -> Response:
    """Take one task of a queue by its id, or hear why it cannot be had."""
    return await _pull_one(call, project, queue_id, task_id)


async def _pull(
    call: Call, project_id: str, queue_id: str | None, asked: PullQuery, more: Mapping[str, Any] = NOTHING
) -> Response:
    await call.enter()
    wish = verb.Wish(
        project_id=project_id,
        queue_id=queue_id,
        wanted=asked.wanted,
        wait_seconds=min(asked.wait, call.tools.rules.wait_seconds),
        idempotency_key=call.key,
        still_there=call.still_there,
    )
    handed = await verb.pull(call.tools, wish, call.ask(asked.limit))
    return await call.answer(project_id, queue_id, handed, more)


async def _pull_named(
    call: Call, project_id: str, queue_id: str | None, body: Batch, task_ids: Sequence[str]
) -> Response:
    await call.enter()
    most = min(body.most or call.tools.rules.batch_size, call.tools.rules.batch_size)
    wanted = body.filters.wanted if body.filters else None
    names = Names(
        project_id=project_id,
        queue_id=queue_id,
        task_ids=tuple(dict.fromkeys(task_ids)),
        wanted=wanted,
        idempotency_key=call.key,
    )
    named = await pull_named.pull_named(call.tools, names, call.ask(most))
    return await call.answer(project_id, queue_id, named.handed, _failures(call.request, named))


async def _pull_one(call: Call, project_id: str, queue_id: str | None, task_id: str) -> Response:
    await call.enter()
    names = Names(project_id=project_id, queue_id=queue_id, task_ids=(task_id,), idempotency_key=call.key)
    named = await pull_named.pull_named(call.tools, names, call.ask(1))
    for error in named.failed.values():
        raise error
    return await call.answer(project_id, queue_id, named.handed, {})


def _shown(row: Any, handed: Handed, project_id: str) -> dict[str, Any]:
    """A task as its new holder sees it; the row is from just before."""
    shown = shown_task(row, project_id=project_id)
    at = row.scheduled_at if handed.at is not None and row.scheduled_at > handed.at else handed.at
    shown["pull_state"], shown["pulled_at"], shown["pulled_by"] = HELD, moment(at), handed.holder
    shown["lease_token"], shown["leased_until"] = handed.token, moment(handed.until)
    shown["pull_attempts"] = row.lease_count + 1
    return shown


def _failures(request: Request, named: Named) -> dict[str, Any]:
    failed = [_failure(request, task_id, error) for task_id, error in named.failed.items()]
    return {"failed_tasks": failed, "failed_count": len(failed)}


def _failure(request: Request, task_id: str, error: PenstockError) -> dict[str, Any]:
    reason, _ = words(error, request)
    return {"task_id": task_id, "reason": reason, "code": error.code, "status": error.status}
