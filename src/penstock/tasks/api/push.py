"""The push: a client sends a queue as it is now. Fields that nobody knows are let be: older clients send more."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints

from penstock.access.domain import Scope
from penstock.access.door import CallerHere, open_to
from penstock.kernel.http.envelope import Said, SayHere
from penstock.kernel.http.fields import MOST_ERRORS, BadField
from penstock.kernel.http.problems import BadFields
from penstock.tasks import push
from penstock.tasks.api.fields import (
    Files,
    Meta,
    Name,
    NewId,
    NewProjectId,
    NewQueueId,
    Prompt,
    Rank,
    Result,
    StatusWord,
    Tags,
    Text,
)
from penstock.tasks.api.params import LONGEST_ID, HolderHere, ToolsHere, new_router, refuse_other_project
from penstock.tasks.api.telling import Content, Part, RoleWord, Token
from penstock.tasks.push import Push, Spoken, Told
from penstock.tasks.store.task_messages import KEPT

router = new_router()

MOST_TASKS = 20_000
GIVEN = frozenset({"name", "prompt", "spec_file", "tags", "priority", "report", "result"})


def _trimmed(longest: int) -> StringConstraints:
    return StringConstraints(strip_whitespace=True, max_length=longest)


Trimmed = Annotated[str, _trimmed(LONGEST_ID)]


class ClientInfo(BaseModel):
    """Who pushes, and from where."""

    username: Trimmed | None = None
    hostname: Trimmed | None = None
    project_path: Annotated[str, _trimmed(1000)] | None = None


class GitInfo(BaseModel):
    """Which repository the work is in."""

    repository: Annotated[str, _trimmed(500)] | None = None
    branch: Trimmed | None = None


class MessageTold(Part):
    """A message of a task."""

    role: RoleWord
    content: Content
    session_id: Annotated[str, Field(max_length=LONGEST_ID)] | None = None


class LogTold(Part):
    """A line of a task's log."""

    content: Content


class TaskTold(Part):
    """One task as a client tells it."""

    id: NewId
    name: Name
    prompt: Prompt
    status: StatusWord
    spec_file: Files = Field(default_factory=list)  # what is not given is not looked at
    tags: Tags = Field(default_factory=list)
    priority: Rank = 0
    report: Text = ""
    result: Result = None
    messages: Annotated[list[MessageTold], Field(max_length=KEPT)] | None = None
    logs: Annotated[list[LogTold], Field(max_length=KEPT)] | None = None
    lease_token: Token | None = None

    def told(self) -> Told:
        """The same in our words."""
        fields = {name: getattr(self, name) for name in self.model_fields_set & GIVEN}
        if "report" in fields:
            fields["report"] = (self.report.strip() and self.report) or None
        return Told(
            task_id=self.id,
            status=self.status,
            fields=fields,
            messages=None if self.messages is None else [Spoken(**vars(one)) for one in self.messages],
            logs=None if self.logs is None else [one.content for one in self.logs],
            lease_token=self.lease_token,
        )


class Submit(Part):
    """A queue as a client tells it."""

    project_id: NewProjectId
    project_name: Name
    queue_id: NewQueueId
    queue_name: Name
    client_info: ClientInfo = Field(default_factory=ClientInfo, alias="clientInfo")
    git_info: GitInfo = Field(default_factory=GitInfo, alias="gitInfo")
    meta: Meta | None = None
    tasks: Annotated[list[TaskTold], Field(max_length=MOST_TASKS)]

    def push(self) -> Push:
        """The same in our words."""
        about = {**self.client_info.model_dump(exclude_unset=True), **self.git_info.model_dump(exclude_unset=True)}
        return Push(
            project_id=self.project_id,
            project_name=self.project_name,
            queue_id=self.queue_id,
            queue_name=self.queue_name,
            about={name: value or None for name, value in about.items()},
            meta=self.meta,
            tasks=[task.told() for task in self.tasks],
        )


def _refuse_twins(body: Submit) -> None:
    """An id may stand in the list once."""
    seen: set[str] = set()
    twins = []
    for number, task in enumerate(body.tasks):
        if task.id in seen:
            twins.append(BadField(field=f"tasks[{number}].id", reason="It comes twice", reason_zh="编号重复"))
        seen.add(task.id)
    if twins:
        raise BadFields(errors=twins[:MOST_ERRORS])


@router.post("/submit", summary="Push a queue: its tasks as they are now", **open_to(Scope.WRITE, bound=True))
async def submit(
    body: Submit, caller: CallerHere, holder: HolderHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    refuse_other_project(caller, body.project_id)
    _refuse_twins(body)
    counted = await push.submit(tools, body.push(), holder)
    data = {
        "project_id": body.project_id,
        "queue_id": body.queue_id,
        "tasks_count": len(body.tasks),
        "created_tasks": counted.created,
        "updated_tasks": counted.updated,
    }
    return say(data, f"{len(body.tasks)} tasks were taken.", f"已接收 {len(body.tasks)} 个任务。")
