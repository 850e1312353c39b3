"""Push route: a client sends a queue with its tasks. Every invalid field is named with its path, like `tasks[0].id`.

Unknown fields are ignored: older clients send more.
"""

from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints

from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.http.envelope import Said, SayHere
from penstock.kernel.http.fields import MAX_ERRORS, BadField
from penstock.kernel.http.problems import BadFields
from penstock.tasks import push
from penstock.tasks.api.fields import (
    Content,
    Files,
    Meta,
    Name,
    NewId,
    NewProjectId,
    NewQueueId,
    NullAsAbsent,
    Prompt,
    Rank,
    Result,
    RoleWord,
    StatusWord,
    Tags,
    Text,
    Token,
)
from penstock.tasks.api.params import MAX_ID_LENGTH, DepsHere, HolderHere, new_router, refuse_other_project
from penstock.tasks.push import Push, PushedMessage, PushedTask
from penstock.tasks.store.task_messages import MAX_KEPT

router = new_router()

MAX_TASKS = 20_000
GIVEN = frozenset({"name", "prompt", "spec_file", "tags", "priority", "report", "result"})


def _trimmed(longest: int) -> StringConstraints:
    return StringConstraints(strip_whitespace=True, max_length=longest)


Trimmed = Annotated[str, _trimmed(MAX_ID_LENGTH)]


class ClientInfo(BaseModel):
    """Client details: user, host and project path. Each field is updated separately; a blank one clears the field."""

    username: Trimmed | None = None
    hostname: Trimmed | None = None
    project_path: Annotated[str, _trimmed(1000)] | None = None


class GitInfo(BaseModel):
    """Repository details of the project. Each field is updated separately; a blank one clears the field."""

    repository: Annotated[str, _trimmed(500)] | None = None
    branch: Trimmed | None = None


class MessageTold(NullAsAbsent):
    """A message of a task."""

    role: RoleWord
    content: Content
    session_id: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None


class LogTold(NullAsAbsent):
    """A line of a task's log."""

    content: Content


class TaskTold(NullAsAbsent):
    """One task of a push."""

    id: NewId
    name: Name
    prompt: Prompt
    status: StatusWord
    spec_file: Files = Field(default_factory=list)  # defaults are unused: only fields that were sent count
    tags: Tags = Field(default_factory=list)
    priority: Rank = 0
    report: Text = ""
    result: Result = None
    messages: Annotated[list[MessageTold], Field(max_length=MAX_KEPT)] | None = None
    logs: Annotated[list[LogTold], Field(max_length=MAX_KEPT)] | None = None
    lease_token: Token | None = None

    def pushed_task(self) -> PushedTask:
        """The request as the verb takes it."""
        fields = {name: getattr(self, name) for name in self.model_fields_set & GIVEN}
        if "report" in fields:
            fields["report"] = (self.report.strip() and self.report) or None
        return PushedTask(
            task_id=self.id,
            status=self.status,
            fields=fields,
            messages=None if self.messages is None else [PushedMessage(**vars(one)) for one in self.messages],
            logs=None if self.logs is None else [one.content for one in self.logs],
            lease_token=self.lease_token,
        )


class Submit(NullAsAbsent):
    """A queue with its tasks."""

    project_id: NewProjectId
    project_name: Name
    queue_id: NewQueueId
    queue_name: Name
    client_info: ClientInfo = Field(default_factory=ClientInfo, alias="clientInfo")
    git_info: GitInfo = Field(default_factory=GitInfo, alias="gitInfo")
    meta: Meta | None = None
    tasks: Annotated[list[TaskTold], Field(max_length=MAX_TASKS)]

    def push(self) -> Push:
        """The request as the verb takes it."""
        about = {**self.client_info.model_dump(exclude_unset=True), **self.git_info.model_dump(exclude_unset=True)}
        return Push(
            project_id=self.project_id,
            project_name=self.project_name,
            queue_id=self.queue_id,
            queue_name=self.queue_name,
            about={name: value or None for name, value in about.items()},
            meta=self.meta,
            tasks=[task.pushed_task() for task in self.tasks],
        )


def _refuse_duplicates(body: Submit) -> None:
    """Refuse task ids that are listed more than once."""
    seen: set[str] = set()
    duplicates = []
    for number, task in enumerate(body.tasks):
        if task.id in seen:
            duplicates.append(BadField(field=f"tasks[{number}].id", reason="Duplicate id", reason_zh="编号重复"))
        seen.add(task.id)
    if duplicates:
        raise BadFields(errors=duplicates[:MAX_ERRORS])


@router.post("/submit", summary="Push a queue with its tasks", **requires(Scope.WRITE, bound=True))
async def submit(
    body: Submit, caller: CurrentCaller, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    refuse_other_project(caller, body.project_id)
    _refuse_duplicates(body)
    counts = await push.submit(deps, body.push(), holder)
    data = {
        "project_id": body.project_id,
        "queue_id": body.queue_id,
        "tasks_count": len(body.tasks),
        "created_tasks": counts.created,
        "updated_tasks": counts.updated,
    }
    return say(data, f"{len(body.tasks)} tasks accepted.", f"已接收 {len(body.tasks)} 个任务。")
