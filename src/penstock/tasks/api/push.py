"""Push route: a client sends a queue with its tasks. Every invalid field is named with its path, like `tasks[0].id`.

Unknown fields are ignored: older clients send more.
"""

import asyncio
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints

from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.db import Db
from penstock.kernel.http.envelope import Said, SayHere
from penstock.kernel.http.fields import MAX_ERRORS, BadField
from penstock.kernel.http.large_bodies import LargeBodyRoute
from penstock.kernel.http.problems import BadFields
from penstock.tasks import push
from penstock.tasks.api.fields import (
    Files,
    Meta,
    Name,
    NewId,
    NewProjectId,
    NewQueueId,
    NullAsAbsent,
    Prompt,
    PushedRank,
    PushedReport,
    PushedTags,
    PushedTime,
    RequiredContent,
    Result,
    RoleWord,
    StatusWord,
    Token,
)
from penstock.tasks.api.params import MAX_ID_LENGTH, DepsHere, HolderHere, When, new_router, refuse_other_project_push
from penstock.tasks.domain import UNSET_RANK
from penstock.tasks.errors import MAX_LISTED_IDS
from penstock.tasks.push import Push, PushCounts, PushedLine, PushedMessage, PushedTask
from penstock.tasks.store.task_messages import MAX_KEPT

MAX_TASKS = 20_000
LARGE = 500  # more tasks take so long that they are pushed on another event loop
GIVEN = frozenset({"name", "prompt", "spec_file", "tags", "report", "result"})


def _trimmed(longest: int) -> StringConstraints:
    return StringConstraints(strip_whitespace=True, max_length=longest)


Trimmed = Annotated[str, _trimmed(MAX_ID_LENGTH)]


class ClientInfo(BaseModel):
    """Client details: user, host and project path. They replace the stored ones: an absent field is cleared."""

    username: Trimmed = ""
    hostname: Trimmed = ""
    project_path: Annotated[str, _trimmed(1000)] = ""


class GitInfo(BaseModel):
    """Repository details of the project. Each field is updated separately; a blank one clears the field."""

    repository: Annotated[str, _trimmed(500)] = ""
    branch: Trimmed = ""


class MessageTold(NullAsAbsent):
    """A message of a task."""

    role: RoleWord
    content: RequiredContent
    session_id: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None
    created_at: When | None = Field(default=None, alias="createdAt")


class LogTold(NullAsAbsent):
    """A line of a task's log."""

    content: RequiredContent
    created_at: When | None = Field(default=None, alias="createdAt")


class TaskTold(BaseModel):
    """One task of a push. Tags, priority and expiry are not checked, as existing clients expect."""

    id: NewId
    name: Name
    prompt: Prompt
    status: StatusWord
    spec_file: Files = Field(default_factory=list)  # defaults are unused: only fields that were sent count
    tags: PushedTags = Field(default_factory=list)
    priority: PushedRank = UNSET_RANK
    expires_at: PushedTime = None
    report: PushedReport | None = None
    result: Result = None
    messages: Annotated[list[MessageTold], Field(max_length=MAX_KEPT)] = Field(default_factory=list)
    logs: Annotated[list[LogTold], Field(max_length=MAX_KEPT)] = Field(default_factory=list)
    lease_token: Token | None = None

    def pushed_task(self) -> PushedTask:
        """The request as the verb takes it."""
        fields = {name: getattr(self, name) for name in self.model_fields_set & GIVEN}
        if "report" in fields:
            fields["report"] = self.report if self.report and self.report.strip() else None
        if self.result is None:
            fields.pop("result", None)
        return PushedTask(
            task_id=self.id,
            status=self.status,
            fields=fields,
            priority=self.priority,
            expires_at=self.expires_at,
            messages=[PushedMessage(**vars(one)) for one in self.messages],
            logs=[PushedLine(**vars(one)) for one in self.logs],
            lease_token=self.lease_token,
        )


class Submit(BaseModel):
    """A queue with its tasks."""

    project_id: NewProjectId
    project_name: Name
    queue_id: NewQueueId
    queue_name: Name
    client_info: ClientInfo = Field(default_factory=ClientInfo, alias="clientInfo")
    git_info: GitInfo = Field(default_factory=GitInfo, alias="gitInfo")
    meta: Meta = None
    tasks: Annotated[list[TaskTold], Field(min_length=1, max_length=MAX_TASKS)]

    def push(self) -> Push:
        """The request as the verb takes it."""
        about = self.git_info.model_dump(exclude_unset=True)
        if "client_info" in self.model_fields_set:
            about |= self.client_info.model_dump()
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


def _checked_push(body: Submit) -> Push:
    _refuse_duplicates(body)
    return body.push()


class SubmitRoute(LargeBodyRoute):
    """The route of a push."""

    model = Submit


router = new_router(SubmitRoute)


@router.post("/submit", summary="Push a queue with its tasks", **requires(Scope.WRITE, bound=True))
async def submit(
    body: Submit, caller: CurrentCaller, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    is_large = len(body.tasks) > LARGE
    pushed = await asyncio.to_thread(_checked_push, body) if is_large else _checked_push(body)
    if caller.project is not None:
        await refuse_other_project_push(deps, caller, body.project_id)
    pushed = replace(pushed, caller=caller)

    async def apply(db: Db) -> PushCounts:
        async with db.tx(actor=holder.name) as tx:
            return await push.submit(tx, deps, pushed, holder)

    counts = await (deps.side_loop.run(apply) if is_large else apply(deps.db))
    data = {
        "project_id": body.project_id,
        "queue_id": body.queue_id,
        "tasks_count": len(body.tasks),
        "created_tasks": counts.created,
        "updated_tasks": counts.updated,
        "overwritten_tasks": list(counts.overwritten[:MAX_LISTED_IDS]),
    }
    return say(data, f"{len(body.tasks)} tasks accepted.", f"已接收 {len(body.tasks)} 个任务。")
