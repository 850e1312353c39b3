"""Dependencies and parameters shared by the routes: caller, holder, project access, path and header types."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import AfterValidator, Field, StringConstraints

from penstock.access.domain import Caller, Scope
from penstock.access.guard import CurrentCaller
from penstock.kernel.http.envelope import ERRORS, EnvelopeRoute
from penstock.kernel.http.query_string import UnknownQuery
from penstock.tasks.deps import Deps
from penstock.tasks.domain import Holder
from penstock.tasks.errors import BadTask, OtherProject, OtherProjectPush, ProjectNotFound
from penstock.tasks.store import projects

MAX_ID_LENGTH = 255
MAX_TOKEN_LENGTH = 64
MAX_SEARCH_LENGTH = 1000
MAX_IDS = 1000  # per batch
NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"


class ClientRoute(EnvelopeRoute):
    """A route that clients of the older API call: unknown query parameters are ignored there, so they get a warning."""

    unknown_query = UnknownQuery.WARN


def new_router(route_class: type[EnvelopeRoute] = ClientRoute) -> APIRouter:
    """A router for the tasks API."""
    return APIRouter(prefix="/api/v1", route_class=route_class, responses=ERRORS, tags=["tasks"])


async def _deps(request: Request) -> Deps:
    deps: Deps = request.app.state.tasks
    return deps


DepsHere = Annotated[Deps, Depends(_deps)]
Search = Annotated[str, Query(max_length=MAX_SEARCH_LENGTH), AfterValidator(str.strip)]
PathProjectId = Annotated[str, Path(min_length=1, max_length=MAX_ID_LENGTH, pattern=NO_CONTROLS)]
QueueId = Annotated[str, Path(min_length=1, max_length=MAX_ID_LENGTH, pattern=NO_CONTROLS)]
TaskId = Annotated[str, Path(min_length=1, max_length=MAX_ID_LENGTH, pattern=NO_CONTROLS)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID_LENGTH, pattern=NO_CONTROLS)]
TaskIds = Annotated[list[Name], Field(min_length=1, max_length=MAX_IDS)]


async def _open_project(project_id: PathProjectId, caller: CurrentCaller, deps: DepsHere) -> str:
    """The project id of the path, if the caller may use the project."""
    await refuse_other_project(deps, caller, project_id)
    return project_id


async def refuse_other_project(deps: Deps, caller: Caller, project_id: str) -> None:
    """Refuse a project that the caller may not use, whether it exists or not.

    A key bound to another project gets 403. For anyone else who is kept to projects, others do not exist.
    """
    if caller.project is not None and caller.project != project_id:
        raise OtherProject
    access = caller.project_access
    if access is None or project_id in access.ids:
        return
    if access.merchant_id is not None:
        async with deps.db.read() as tx:
            if await projects.find_merchant(tx, project_id) == access.merchant_id:
                return
    raise ProjectNotFound(project_id=project_id)


async def refuse_other_project_push(deps: Deps, caller: Caller, project_id: str) -> None:
    """Refuse a bound API key to push to any other project: 401, as existing clients expect."""
    try:
        await refuse_other_project(deps, caller, project_id)
    except OtherProject as error:
        raise OtherProjectPush(project_id=project_id) from error


def _in_utc(time: datetime) -> datetime:
    """A time without a zone is read as UTC."""
    try:
        return time.astimezone(UTC) if time.tzinfo is not None else time.replace(tzinfo=UTC)
    except OverflowError as error:
        raise ValueError("time out of range") from error


# ISO 8601, or Unix seconds or milliseconds.
When = Annotated[datetime, AfterValidator(_in_utc)]


def read_client_name(raw: str | None) -> str | None:
    """The client name from a header, which carries UTF-8 bytes; None if blank."""
    if raw is None or not raw.strip():
        return None
    try:
        name = raw.encode("latin-1").decode().strip()
    except UnicodeError:
        name = raw.strip()
    if len(name) > MAX_ID_LENGTH or not name.isprintable():
        reason = f"must be at most {MAX_ID_LENGTH} printable characters"
        raise BadTask(field="X-Client-Id", reason=reason, reason_zh=f"最多 {MAX_ID_LENGTH} 个可打印字符")
    return name


ProjectHere = Annotated[str, Depends(_open_project)]
ClientId = Annotated[str | None, Header(alias="X-Client-Id")]
LeaseToken = Annotated[str | None, Header(alias="X-Lease-Token", max_length=MAX_TOKEN_LENGTH)]


async def _holder(caller: CurrentCaller, client_id: ClientId = None, lease_token: LeaseToken = None) -> Holder:
    """The client that pulls or pushes, identified by its own name (X-Client-Id), else by that of its API key."""
    is_admin = caller.scope is Scope.ADMIN  # also an admin of this project alone: access was checked above
    name = read_client_name(client_id) or caller.name
    return Holder(name=name, actor=caller.actor, token=lease_token or None, is_admin=is_admin)


HolderHere = Annotated[Holder, Depends(_holder)]
