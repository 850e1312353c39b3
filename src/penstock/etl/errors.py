"""What can be wrong in the etl room."""

from penstock.kernel.errors import Conflict, Invalid, NotFound, Refused, TooMany, Unavailable


class EtlTaskNotFound(NotFound):
    """There is no such etl task, or it is somebody else's."""

    code = "ETL_TASK_NOT_FOUND"
    message = "Task not found"
    message_zh = "任务不存在"
    hint = "Look at GET /api/v1/etl/tasks for those of yours."
    hint_zh = "请通过 GET /api/v1/etl/tasks 查看您的任务。"


class RuleNotFound(NotFound):
    """There is no such rule, or it is somebody else's."""

    code = "RULE_NOT_FOUND"
    message = "There is no rule {rule_id}."
    message_zh = "没有规则 {rule_id}。"
    hint = "Look at GET /api/v1/etl/rules for those you may use."
    hint_zh = "请通过 GET /api/v1/etl/rules 查看可用的规则。"


class SourceNotFound(NotFound):
    """The document that a task names is not in the store."""

    code = "SOURCE_NOT_FOUND"
    message = "No document is stored under {key}."
    message_zh = "{key} 下没有文档。"
    hint = "Upload it first, or send it with POST /api/v1/etl/upload_and_submit."
    hint_zh = "请先上传，或使用 POST /api/v1/etl/upload_and_submit 一并发送。"


class ForeignSource(Refused):
    """The document that a task names lies outside the caller's own folder."""

    code = "FOREIGN_SOURCE"
    message = "{key} does not lie under {own}."
    message_zh = "{key} 不在 {own} 之下。"
    hint = "Name an object of your own."
    hint_zh = "请使用您自己的对象。"


class ReservedSource(Refused):
    """The document that a task names is a paper of another task, which goes when that task goes."""

    code = "RESERVED_SOURCE"
    message = "{key} was made by a task, and is no document of its own."
    message_zh = "{key} 是任务产物，不能作为文档提交。"
    hint = "Copy it to another place first; etl_artifacts/ and processed/ belong to tasks."
    hint_zh = "请先复制到其他位置；etl_artifacts/ 与 processed/ 属于任务。"


class DefaultRuleMissing(Conflict):
    """The settings name a default rule that does not exist."""

    code = "DEFAULT_RULE_MISSING"
    message = "The default rule {rule_id} does not exist."
    message_zh = "默认规则 {rule_id} 不存在。"
    hint = "Name a rule_id, or let ETL_GLOBAL_RULE_ID be one of GET /api/v1/etl/rules."
    hint_zh = "请指定 rule_id，或将 ETL_GLOBAL_RULE_ID 设为 GET /api/v1/etl/rules 中的规则。"


class RuleRequired(Invalid):
    """A task came without a rule, and there is no default."""

    code = "RULE_REQUIRED"
    message = "A rule_id is needed: there is no default rule here."
    message_zh = "需要 rule_id：此处没有默认规则。"
    hint = "Name one of GET /api/v1/etl/rules, or set ETL_GLOBAL_RULE_ENABLED."
    hint_zh = "请指定 GET /api/v1/etl/rules 中的规则，或设置 ETL_GLOBAL_RULE_ENABLED。"


class BadRule(Invalid):
    """A rule contradicts itself, or its schema is none."""

    code = "BAD_RULE"
    message = "The rule cannot be used: {reason}."
    message_zh = "规则不可用：{reason}。"
    hint = "A json_schema is a JSON Schema of type object; it is needed unless postprocess_mode is skip."
    hint_zh = "json_schema 须为 object 类型的 JSON Schema；除非 postprocess_mode 为 skip，否则必填。"


class SystemRule(Refused):
    """A rule of the system cannot be changed or deleted."""

    code = "SYSTEM_RULE"
    message = "The rule {rule_id} belongs to the system and stays as it is."
    message_zh = "规则 {rule_id} 属于系统，不可更改。"
    hint = "Make a rule of your own."
    hint_zh = "请创建您自己的规则。"


class RulesFull(Conflict):
    """A user has as many rules, or a rule as many versions, as may be."""

    code = "RULES_FULL"
    message = "There are {most} {what} already, which is the most."
    message_zh = "{what_zh}已达上限 {most}。"
    hint = "Delete rules that are not needed any more, or begin a new one."
    hint_zh = "请删除不再需要的规则，或另建新规则。"


class TryTimedOut(Unavailable):
    """A rule took too long on a sample."""

    code = "TRY_TIMEOUT"
    message = "The rule was not done with the sample within {seconds:g} s."
    message_zh = "规则未能在 {seconds:g} 秒内处理完样本。"
    hint = "Try it on a shorter sample, or submit the document as a task."
    hint_zh = "请换用更短的样本，或将文档作为任务提交。"


class EtlTaskRunning(Conflict):
    """The task is being worked on."""

    code = "ETL_TASK_RUNNING"
    message = "Task {task_id} is under way ({status})."
    message_zh = "任务 {task_id} 正在进行（{status}）。"
    hint = "Cancel a running task with ?force=true. One that is over can be tried again or deleted."
    hint_zh = "可用 ?force=true 取消运行中的任务。已结束的任务可以重试或删除。"


class EtlTaskOver(Conflict):
    """The task is over already."""

    code = "ETL_TASK_OVER"
    message = "Task {task_id} is {status} already."
    message_zh = "任务 {task_id} 已是 {status}。"
    hint = "A failed or cancelled task can be tried again; a completed one with force."
    hint_zh = "失败或已取消的任务可以重试；已完成的任务需加 force。"


class NoReading(Conflict):
    """There is nothing that a post-processor could begin with."""

    code = "NO_OCR_ARTIFACT"
    message = "Task {task_id} has no OCR result to begin with."
    message_zh = "任务 {task_id} 没有可用的 OCR 结果。"
    hint = "Try it again from the stage mineru."
    hint_zh = "请从 mineru 阶段重试。"


class NotThereYet(Conflict):
    """What was asked for has not been made yet, or never will be."""

    code = "NOT_THERE_YET"
    message = "Task {task_id} is {status}; its {what} is not there."
    message_zh = "任务 {task_id} 处于 {status}；尚无 {what}。"
    hint = "Ask again when the task is completed; one that failed or was cancelled can be tried again."
    hint_zh = "请在任务完成后再试；失败或已取消的任务可以重试。"


class NotWanted(Conflict):
    """A worker learns that its task was cancelled, tried again or taken over: what it has is dropped."""

    code = "ETL_TASK_NOT_WANTED"
    message = "Run {run} of task {task_id} is not wanted any more."
    message_zh = "任务 {task_id} 的第 {run} 轮已不再需要。"
    hint = "Someone cancelled the task, or another worker took it over. Nothing has to be done."
    hint_zh = "任务已被取消，或已由其他工作进程接手，无需处理。"


class RunTakenOver(Unavailable):
    """Run state refuses the worker that holds a run: somebody else stands there, though the row knows of no end."""

    code = "ETL_RUN_TAKEN_OVER"
    message = "Run {run} of task {task_id} is under way, but its run state is somebody else's."
    message_zh = "任务 {task_id} 的第 {run} 轮仍在进行，但其运行状态由他人占用。"
    hint = "It is tried again by itself. If it stays: does another installation use the same ETL_REDIS_PREFIX?"
    hint_zh = "将自动重试。若持续出现，请检查是否有其他部署使用相同的 ETL_REDIS_PREFIX。"
    internal_outage = True


class NamesakeUnderWay(Unavailable):
    """Of a removed task the result by name cannot go yet: another task of that name is about to put its own."""

    code = "NAMESAKE_UNDER_WAY"
    message = "{key} stays until no task of that name is under way."
    message_zh = "在同名任务结束之前，{key} 将保留。"
    hint = "It is tried again by itself."
    hint_zh = "将自动重试。"
    internal_outage = True  # it costs no attempt: however long the other takes, the object must go in the end


class WorkerStillThere(Unavailable):
    """What a removed task has left cannot go yet: its worker has not stopped, and may still put something there."""

    code = "ETL_WORKER_STILL_THERE"
    message = "The objects of task {task_id} stay until its worker has stopped."
    message_zh = "在工作进程停止之前，任务 {task_id} 的对象将保留。"
    hint = "It is tried again by itself."
    hint_zh = "将自动重试。"
    internal_outage = True  # it costs no attempt, as above


class QueueFull(TooMany):
    """As many tasks are under way as may be."""

    code = "QUEUE_FULL"
    message = "{most} tasks are under way already, which is the most."
    message_zh = "已有 {most} 个任务在进行中，达到上限。"
    hint = "Try again later, or raise ETL_QUEUE_SIZE."
    hint_zh = "请稍后重试，或提高 ETL_QUEUE_SIZE。"


class StageTimedOut(Unavailable):
    """A stage made no progress for too long."""

    code = "TASK_TIMEOUT"
    message = "Task timeout"
    message_zh = "任务超时"
    hint = "Nothing moved for ETL_TASK_TIMEOUT seconds. Look at the provider, then try the task again."
    hint_zh = "在 ETL_TASK_TIMEOUT 秒内没有进展。请检查服务方后重试。"


class StageLost(Unavailable):
    """A task's workers fell silent, each time."""

    code = "TASK_STALE"
    message = "The task's worker fell silent and was not heard of again."
    message_zh = "执行任务的工作进程失去响应，且未再出现。"
    hint = "Look at the workers' logs; then try the task again."
    hint_zh = "请查看工作进程日志，然后重试任务。"
    retryable = False


class ModeUnknown(Invalid):
    """Nobody here can do what the rule asks for."""

    code = "MODE_UNKNOWN"
    message = "Nobody here does postprocess_mode {mode}."
    message_zh = "此处不支持 postprocess_mode {mode}。"
    hint = "Use a rule whose postprocess_mode is fields or skip."
    hint_zh = "请使用 postprocess_mode 为 fields 或 skip 的规则。"
