"""What the routes share: who calls, which project they may open, and the names in paths."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import AfterValidator, Field, StringConstraints

from penstock.access.domain import Caller, Scope
from penstock.access.door import CallerHere
from penstock.kernel.http.envelope import ERRORS, EnvelopeRoute
from penstock.tasks.deps import Deps
from penstock.tasks.domain import Holder
from penstock.tasks.errors import BadTask, OtherProject

LONGEST_ID = 255
LONGEST_TOKEN = 64
LONGEST_SEARCH = 1000
MOST_IDS = 1000  # of one batch
NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"


def new_router(route_class: type[EnvelopeRoute] = EnvelopeRoute) -> APIRouter:
    """A router of this family."""
    return APIRouter(prefix="/api/v1", route_class=route_class, responses=ERRORS, tags=["tasks"])


async def _tools(request: Request) -> Deps:
    tools: Deps = request.app.state.tasks
    return tools


ToolsHere = Annotated[Deps, Depends(_tools)]
Search = Annotated[str, Query(max_length=LONGEST_SEARCH), AfterValidator(str.strip)]
QueueId = Annotated[str, Path(min_length=1, max_length=LONGEST_ID, pattern=NO_CONTROLS)]
TaskId = Annotated[str, Path(min_length=1, max_length=LONGEST_ID, pattern=NO_CONTROLS)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_ID, pattern=NO_CONTROLS)]
TaskIds = Annotated[list[Name], Field(min_length=1, max_length=MOST_IDS)]


async def _open_project(
    project_id: Annotated[str, Path(min_length=1, max_length=LONGEST_ID, pattern=NO_CONTROLS)], caller: CallerHere
) -> str:
    """The project of the path, if the caller's key opens it. A bound key hears the same of one that does not exist."""
    refuse_other_project(caller, project_id)
    return project_id


def refuse_other_project(caller: Caller, project_id: str) -> None:
    """Keep a bound key inside its project."""
    if caller.project is not None and caller.project != project_id:
        raise OtherProject


def _in_utc(moment: datetime) -> datetime:
    """A time without a zone is taken for UTC."""
    try:
        return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except OverflowError as error:
        raise ValueError("it lies too far away") from error


# ISO-8601, or seconds or milliseconds since 1970.
When = Annotated[datetime, AfterValidator(_in_utc)]


def read_client_name(raw: str | None) -> str | None:
    """A client's name as it was sent: headers carry bytes, and names come in every script. Blank is none."""
    if raw is None or not raw.strip():
        return None
    try:
        name = raw.encode("latin-1").decode().strip()
    except UnicodeError:
        name = raw.strip()
    if len(name) > LONGEST_ID or not name.isprintable():
        reason = f"it must be at most {LONGEST_ID} characters that can be shown"
        raise BadTask(field="X-Client-Id", reason=reason, reason_zh=f"最多 {LONGEST_ID} 个可显示的字符")
    return name


ProjectHere = Annotated[str, Depends(_open_project)]
ClientId = Annotated[str | None, Header(alias="X-Client-Id")]
LeaseToken = Annotated[str | None, Header(alias="X-Lease-Token", max_length=LONGEST_TOKEN)]


async def _holder(caller: CallerHere, client_id: ClientId = None, lease_token: LeaseToken = None) -> Holder:
    """Who pulls or pushes: the client's own name, else that of its key."""
    is_admin = caller.scope is Scope.ADMIN  # also of one project alone: whoever got here may open it
    name = read_client_name(client_id) or caller.name
    return Holder(name=name, actor=caller.actor, token=lease_token or None, is_admin=is_admin)


HolderHere = Annotated[Holder, Depends(_holder)]
