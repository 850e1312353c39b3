"""Projects, what people note about them, and whether any has changed."""

from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import Query
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from penstock.access.domain import Scope
from penstock.access.door import CallerHere, open_to
from penstock.kernel.http.envelope import Paged, PageHere, Said, SayHere
from penstock.tasks import manage_projects, remove
from penstock.tasks.api.fields import LONGEST_TAG, MOST_TAGS, Name, NewId, Tags
from penstock.tasks.api.params import ProjectHere, Search, ToolsHere, When, new_router, refuse_other_project
from penstock.tasks.api.views import shown_check, shown_metadata_alone, shown_project
from penstock.tasks.manage_projects import MetadataChanges, ProjectChanges
from penstock.tasks.domain import Policy
from penstock.tasks.errors import BadTask
from penstock.tasks.store import projects

router = new_router()

LONGEST_TITLE = 200
LONGEST_NOTES = 5000
TAGS_SHOWN = 50
MOST_TAGS_SHOWN = 100


def _parts(given: Any) -> Any:
    """`a,b` as two words, also when the parameter comes several times."""
    if not isinstance(given, list):
        return given
    return list(dict.fromkeys(part.strip() for text in given for part in str(text).split(",") if part.strip()))


def _or_null(text: str | None) -> str | None:
    return text or None


_WantedTag = Annotated[str, StringConstraints(max_length=LONGEST_TAG)]
WantedTags = Annotated[Sequence[_WantedTag], Query(max_length=MOST_TAGS), BeforeValidator(_parts)]
_Title = Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST_TITLE)]
_Notes = Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST_NOTES)]


class ProjectAsked(BaseModel):
    """A project to be made."""

    project_id: NewId = Field(validation_alias=AliasChoices("project_id", "projectId", "id"))
    name: Name
    conflict_policy: Policy = Policy.OVERWRITE


class ProjectEdit(BaseModel):
    """What is to change about a project; what is absent stays."""

    name: Name = ""  # the defaults are never used: only what was sent counts
    conflict_policy: Policy = Policy.OVERWRITE

    def changes(self) -> ProjectChanges:
        """The same in our words."""
        if not self.model_fields_set:
            raise BadTask(
                field="name",
                reason="A name or a conflict_policy is needed.",
                reason_zh="需要 name 或 conflict_policy。",
            )
        return cast("ProjectChanges", self.model_dump(exclude_unset=True))


class Metadata(BaseModel):
    """What people note about a project; what is absent stays, what is null or blank is forgotten."""

    model_config = ConfigDict(populate_by_name=True)

    custom_title: Annotated[_Title | None, AfterValidator(_or_null)] = Field(default=None, alias="customTitle")
    notes: Annotated[_Notes | None, AfterValidator(_or_null)] = None
    tags: Tags = []

    def changes(self) -> MetadataChanges:
        """The same in our words."""
        sent = self.model_dump(exclude_unset=True)
        return cast("MetadataChanges", sent | ({"tags": tuple(self.tags)} if "tags" in sent else {}))


@router.get("/projects", summary="Projects, with the newest task first", **open_to(Scope.READ, bound=True))
async def list_projects(
    caller: CallerHere, tools: ToolsHere, say: SayHere, asked: PageHere, search: Search = "", tags: WantedTags = ()
) -> Said[Paged[dict[str, Any]]]:
    only = caller.project
    async with tools.db.read() as tx:
        found = await projects.list_projects(
            tx, search=search, tags=tags, only=only, offset=asked.offset, limit=asked.size
        )
        total = await projects.count_projects(tx, search=search, tags=tags, only=only)
    return say.page([shown_project(project) for project in found], asked, total=total)


@router.post("/projects", status_code=201, summary="Make a project", **open_to(Scope.ADMIN, bound=True))
async def create_project(
    body: ProjectAsked, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    refuse_other_project(caller, body.project_id)
    made = await arrange.create_project(tools, caller, **body.model_dump())
    return say(shown_project(made), "The project was made.", "项目已创建。")


@router.get("/projects/check", summary="Has any project changed?", **open_to(Scope.READ, bound=True))
async def check_projects(caller: CallerHere, tools: ToolsHere, say: SayHere, since: When) -> Said[dict[str, Any]]:
    async with tools.db.read() as tx:
        last = await projects.last_change(tx, only=caller.project)
    return say(shown_check(last, since=since, now=tx.now), "Checked.", "已检查。")


@router.get("/projects/tags", summary="Tags of projects, most used first", **open_to(Scope.READ, bound=True))
async def list_project_tags(
    caller: CallerHere,
    tools: ToolsHere,
    say: SayHere,
    limit: Annotated[int, Query(ge=1, le=MOST_TAGS_SHOWN)] = TAGS_SHOWN,
) -> Said[dict[str, Any]]:
    async with tools.db.read() as tx:
        tags = await projects.list_tags(tx, only=caller.project, limit=limit)
    return say({"tags": tags, "count": len(tags)}, f"{len(tags)} found.", f"共 {len(tags)} 条。")


@router.get("/projects/{project_id}", summary="One project", **open_to(Scope.READ, bound=True))
async def get_project(project_id: ProjectHere, tools: ToolsHere, say: SayHere) -> Said[dict[str, Any]]:
    async with tools.db.read() as tx:
        found = await projects.get_project(tx, project_id)
    return say(shown_project(found), "Found.", "已找到。")


@router.put("/projects/{project_id}", summary="Change a project", **open_to(Scope.ADMIN, bound=True))
async def change_project(
    project_id: ProjectHere, body: ProjectEdit, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    changed = await arrange.change_project(tools, caller, project_id, body.changes())
    return say(shown_project(changed), "The project was changed.", "项目已修改。")


@router.delete("/projects/{project_id}", summary="Delete a project with all in it", **open_to(Scope.ADMIN, bound=True))
async def delete_project(
    project_id: ProjectHere, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    await remove.delete_project(tools, caller, project_id)
    return say({"project_id": project_id, "deleted": True}, "The project was deleted.", "项目已删除。")


@router.get("/projects/{project_id}/metadata", summary="What is noted about it", **open_to(Scope.READ, bound=True))
async def get_metadata(project_id: ProjectHere, tools: ToolsHere, say: SayHere) -> Said[dict[str, Any]]:
    async with tools.db.read() as tx:
        found = await projects.get_project(tx, project_id)
    if found.metadata_created_at is None:
        return say(shown_metadata_alone(found), "Nothing is noted about this project.", "此项目没有元数据。")
    return say(shown_metadata_alone(found), "Found.", "已找到。")


@router.put("/projects/{project_id}/metadata", summary="Note something about it", **open_to(Scope.ADMIN, bound=True))
async def put_metadata(
    project_id: ProjectHere, body: Metadata, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    changed = await arrange.put_metadata(tools, caller, project_id, body.changes())
    return say(shown_metadata_alone(changed), "It was noted.", "元数据已保存。")


@router.delete("/projects/{project_id}/metadata", summary="Forget what was noted", **open_to(Scope.ADMIN, bound=True))
async def delete_metadata(
    project_id: ProjectHere, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    await arrange.delete_metadata(tools, caller, project_id)
    return say({"projectId": project_id, "deleted": True}, "Nothing is noted any more.", "元数据已删除。")
