"""Project routes: list, search, create, rename and delete projects, their metadata and tags, poll for changes."""

from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import Query
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from penstock.access.domain import MAX_ID, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.http.envelope import MAX_PAGE, LongPageHere, Paged, Said, SayHere
from penstock.tasks import manage_projects, remove
from penstock.tasks.api.fields import MAX_TAG_LENGTH, MAX_TAGS, Name, NewId, ProjectTags, without_defaults
from penstock.tasks.api.params import (
    MAX_ID_LENGTH,
    DepsHere,
    ProjectHere,
    Search,
    When,
    new_router,
    refuse_other_project,
)
from penstock.tasks.api.views import check_view, metadata_response, project_view
from penstock.tasks.domain import Policy
from penstock.tasks.errors import BadTask
from penstock.tasks.manage_projects import MetadataChanges, ProjectChanges
from penstock.tasks.store import projects

router = new_router()

MAX_TITLE_LENGTH = 200
MAX_NOTES_LENGTH = 5000
DEFAULT_LISTED_TAGS = 50
MAX_LISTED_TAGS = 100


def _parts(given: Any) -> Any:
    """Split `a,b`, also if the parameter is given several times, and lower the case: tags are stored so."""
    if not isinstance(given, list):
        return given
    return list(dict.fromkeys(part.strip().lower() for text in given for part in str(text).split(",") if part.strip()))


def _or_null(text: str | None) -> str | None:
    return text or None


MerchantId = Annotated[int, Field(ge=1, le=MAX_ID, description="The merchant whose tokens may use the project.")]
_TagFilter = Annotated[str, StringConstraints(max_length=MAX_TAG_LENGTH)]
TagFilters = Annotated[Sequence[_TagFilter], Query(max_length=MAX_TAGS), BeforeValidator(_parts)]
_Title = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_TITLE_LENGTH)]
_Notes = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_NOTES_LENGTH)]


class ProjectAsked(BaseModel):
    """A project to create."""

    project_id: NewId = Field(validation_alias=AliasChoices("project_id", "projectId", "id"))
    name: Name
    conflict_policy: Policy = Policy.OVERWRITE
    merchant_id: MerchantId | None = None


class ProjectEdit(BaseModel):
    """Fields of a project to change."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    name: Annotated[Name, Field(max_length=MAX_ID_LENGTH)] = ""  # defaults are unused: only fields that were sent count
    conflict_policy: Policy = Policy.OVERWRITE
    merchant_id: MerchantId | None = None

    def changes(self) -> ProjectChanges:
        """The request as the verb takes it."""
        if not self.model_fields_set:
            raise BadTask(
                field="name",
                reason="name or conflict_policy is required",
                reason_zh="需要 name 或 conflict_policy。",
            )
        return cast("ProjectChanges", self.model_dump(exclude_unset=True))


class Metadata(BaseModel):
    """Metadata of a project. Absent fields keep their value; null or blank clears it."""

    model_config = ConfigDict(populate_by_name=True)

    custom_title: Annotated[_Title | None, AfterValidator(_or_null)] = Field(default=None, alias="customTitle")
    notes: Annotated[_Notes | None, AfterValidator(_or_null)] = None
    tags: ProjectTags = []

    def changes(self) -> MetadataChanges:
        """The request as the verb takes it."""
        sent = self.model_dump(exclude_unset=True)
        return cast("MetadataChanges", sent | ({"tags": tuple(self.tags)} if "tags" in sent else {}))


@router.get("/projects", summary="Projects, most recently active first", **requires(Scope.READ, bound=True))
async def list_projects(
    caller: CurrentCaller, deps: DepsHere, say: SayHere, page: LongPageHere, search: Search = "", tags: TagFilters = ()
) -> Said[Paged[dict[str, Any]]]:
    only = caller.project_access
    async with deps.db.read() as tx:
        found = await projects.list_projects(
            tx, search=search, tags=tags, only=only, offset=page.offset, limit=page.size
        )
        total = await projects.count_projects(tx, search=search, tags=tags, only=only)
    return say.page([project_view(project) for project in found], page, total=total)


@router.post("/projects", status_code=201, summary="Create a project", **requires(Scope.ADMIN, bound=True))
async def create_project(
    body: ProjectAsked, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    await refuse_other_project(deps, caller, body.project_id)
    async with deps.db.tx(actor=caller.name) as tx:
        created = await manage_projects.create_project(tx, caller, **body.model_dump())
    return say(project_view(created), "Project created.", "项目已创建。")


@router.get("/projects/check", summary="Has any project changed?", **requires(Scope.READ, bound=True))
async def check_projects(
    caller: CurrentCaller, deps: DepsHere, say: SayHere, since: When | None = None
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        last = await projects.find_last_change(tx, only=caller.project_access)
        count = await projects.count_projects(tx, only=caller.project_access)
    return say(check_view(last, count=count, since=since, now=tx.now), "Checked.", "已检查。")


@router.get("/projects/tags", summary="Tags of projects, most used first", **requires(Scope.READ, bound=True))
async def list_project_tags(
    caller: CurrentCaller,
    deps: DepsHere,
    say: SayHere,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_LISTED_TAGS,
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        tags = await projects.list_tags(tx, only=caller.project_access, limit=min(limit, MAX_LISTED_TAGS))
    return say({"tags": tags, "count": len(tags)}, f"{len(tags)} found.", f"共 {len(tags)} 条。")


@router.get("/projects/{project_id}", summary="One project", **requires(Scope.READ, bound=True))
async def get_project(project_id: ProjectHere, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        found = await projects.get_project(tx, project_id)
    return say(project_view(found), "Found.", "已找到。")


@router.put("/projects/{project_id}", summary="Change a project", **requires(Scope.ADMIN, bound=True))
async def change_project(
    project_id: ProjectHere, body: ProjectEdit, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    changes = body.changes()
    async with deps.db.tx(actor=caller.name) as tx:
        changed = await manage_projects.change_project(tx, caller, project_id, changes)
    return say(project_view(changed), "Project updated.", "项目已修改。")


@router.delete(
    "/projects/{project_id}", summary="Delete a project with all its tasks", **requires(Scope.ADMIN, bound=True)
)
async def delete_project(
    project_id: ProjectHere, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        await remove.delete_project(tx, deps, caller, project_id)
    return say({"project_id": project_id, "deleted": True}, "Project deleted.", "项目已删除。")


@router.get("/projects/{project_id}/metadata", summary="Metadata of a project", **requires(Scope.READ, bound=True))
async def get_metadata(project_id: ProjectHere, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        found = await projects.get_project(tx, project_id)
    if found.metadata_created_at is None:
        return say(metadata_response(found), "This project has no metadata.", "此项目没有元数据。")
    return say(metadata_response(found), "Found.", "已找到。")


@router.put("/projects/{project_id}/metadata", summary="Set metadata of a project", **requires(Scope.ADMIN, bound=True))
async def put_metadata(
    project_id: ProjectHere, body: Metadata, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        changed = await manage_projects.put_metadata(tx, caller, project_id, body.changes())
    return say(metadata_response(changed), "Metadata saved.", "元数据已保存。")


@router.delete(
    "/projects/{project_id}/metadata", summary="Delete metadata of a project", **requires(Scope.ADMIN, bound=True)
)
async def delete_metadata(project_id: ProjectHere, caller: CurrentCaller, deps: DepsHere, say: SayHere) -> Said[None]:
    async with deps.db.tx(actor=caller.name) as tx:
        await manage_projects.delete_metadata(tx, caller, project_id)
    return say(None, "Metadata deleted.", "元数据已删除。")
