"""Errors of the etl module."""

from penstock.kernel.errors import Conflict, Invalid, NotFound, Refused, TooMany, Unavailable


class EtlTaskNotFound(NotFound):
    """The etl task does not exist, or belongs to another user."""

    code = "ETL_TASK_NOT_FOUND"
    message = "Task not found"
    message_zh = "任务不存在"
    hint = "List your tasks with GET /api/v1/etl/tasks."
    hint_zh = "请通过 GET /api/v1/etl/tasks 查看您的任务。"
    terminal_hint = "`penstock etl submit` prints the ids of tasks."


class RuleNotFound(NotFound):
    """The rule does not exist, or belongs to another user."""

    code = "RULE_NOT_FOUND"
    message = "Rule {rule_id} not found."
    message_zh = "规则 {rule_id} 不存在。"
    hint = "List the rules you can use with GET /api/v1/etl/rules."
    hint_zh = "请通过 GET /api/v1/etl/rules 查看可用的规则。"
    terminal_hint = "`penstock etl rules` lists the rules."


class SourceNotFound(NotFound):
    """The document that a task refers to is not in the blob store."""

    code = "SOURCE_NOT_FOUND"
    message = "No document is stored under {key}."
    message_zh = "{key} 下没有文档。"
    hint = "Upload it first, or send it with POST /api/v1/etl/upload_and_submit."
    hint_zh = "请先上传，或使用 POST /api/v1/etl/upload_and_submit 一并发送。"
    terminal_hint = "Submit the document with `penstock etl submit FILE`."


class SourceNotOwned(Refused):
    """The document that a task refers to is outside the caller's own folder."""

    code = "FOREIGN_SOURCE"
    message = "{key} is not under {own}."
    message_zh = "{key} 不在 {own} 之下。"
    hint = "Use a key below your own folder."
    hint_zh = "请使用您自己目录下的对象。"


class ReservedSource(Refused):
    """The document that a task refers to is an artifact of another task, which is deleted with that task."""

    code = "RESERVED_SOURCE"
    message = "{key} is an artifact of a task and cannot be submitted."
    message_zh = "{key} 是任务产物，不能作为文档提交。"
    hint = "Copy it to another key first; etl_artifacts/ and processed/ belong to tasks."
    hint_zh = "请先复制到其他位置；etl_artifacts/ 与 processed/ 属于任务。"


class DefaultRuleMissing(Conflict):
    """ETL_GLOBAL_RULE_ID names a rule that does not exist."""

    code = "DEFAULT_RULE_MISSING"
    message = "The default rule {rule_id} does not exist."
    message_zh = "默认规则 {rule_id} 不存在。"
    hint = "Send a rule_id, or set ETL_GLOBAL_RULE_ID to one of GET /api/v1/etl/rules."
    hint_zh = "请指定 rule_id，或将 ETL_GLOBAL_RULE_ID 设为 GET /api/v1/etl/rules 中的规则。"
    terminal_hint = "Give a rule with --rule, or set ETL_GLOBAL_RULE_ID to one that `penstock etl rules` lists."


class RuleRequired(Invalid):
    """A task has no rule_id, and there is no default rule."""

    code = "RULE_REQUIRED"
    message = "rule_id is required: no default rule is configured."
    message_zh = "必须提供 rule_id：未配置默认规则。"
    hint = "Send one of GET /api/v1/etl/rules, or set ETL_GLOBAL_RULE_ENABLED."
    hint_zh = "请指定 GET /api/v1/etl/rules 中的规则，或设置 ETL_GLOBAL_RULE_ENABLED。"
    terminal_hint = "Give a rule with --rule: `penstock etl rules` lists them. Or set ETL_GLOBAL_RULE_ENABLED."


class BadRule(Invalid):
    """A rule is inconsistent, or its json_schema is invalid."""

    code = "BAD_RULE"
    message = "Invalid rule: {reason}."
    message_zh = "规则无效：{reason}。"
    hint = "json_schema must be a JSON Schema of type object; it is required unless postprocess_mode is skip."
    hint_zh = "json_schema 须为 object 类型的 JSON Schema；除非 postprocess_mode 为 skip，否则必填。"


class SystemRule(Refused):
    """System rules have no owner, and cannot be changed or deleted."""

    code = "SYSTEM_RULE"
    message = "Rule {rule_id} is a system rule and cannot be changed."
    message_zh = "规则 {rule_id} 是系统规则，不可更改。"
    hint = "Create a rule of your own."
    hint_zh = "请创建您自己的规则。"


class RulesFull(Conflict):
    """The maximum number of rules of a user, or of versions of a rule, is reached."""

    code = "RULES_FULL"
    message = "Limit reached: {most} {what}."
    message_zh = "{what_zh}已达上限 {most}。"
    hint = "Delete rules you no longer need, or create a new rule."
    hint_zh = "请删除不再需要的规则，或另建新规则。"


class DryRunTimedOut(Unavailable):
    """A dry run of a rule took too long."""

    code = "TRY_TIMEOUT"
    message = "The rule did not finish on the sample within {seconds:g} s."
    message_zh = "规则未能在 {seconds:g} 秒内处理完样本。"
    hint = "Use a shorter sample, or submit the document as a task."
    hint_zh = "请换用更短的样本，或将文档作为任务提交。"


class EtlTaskRunning(Conflict):
    """The task is active, so it cannot be changed like this."""

    code = "ETL_TASK_RUNNING"
    message = "Task {task_id} is active ({status})."
    message_zh = "任务 {task_id} 正在进行（{status}）。"
    hint = "Cancel a running task with ?force=true. A task that has ended can be retried or deleted."
    hint_zh = "可用 ?force=true 取消运行中的任务。已结束的任务可以重试或删除。"
    terminal_hint = (
        "Cancel a running task with `penstock etl cancel TASK --force`. A task that has ended can be retried."
    )


class EtlTaskAlreadyEnded(Conflict):
    """The task has already ended."""

    code = "ETL_TASK_OVER"
    message = "Task {task_id} is already {status}."
    message_zh = "任务 {task_id} 已是 {status}。"
    hint = "A failed or cancelled task can be retried; a completed one with force."
    hint_zh = "失败或已取消的任务可以重试；已完成的任务需加 force。"
    terminal_hint = "A failed or cancelled task can be retried; a completed one with --force."


class OcrResultMissing(Conflict):
    """The task has no OCR artifacts that post-processing could start from."""

    code = "NO_OCR_ARTIFACT"
    message = "Task {task_id} has no OCR result to start from."
    message_zh = "任务 {task_id} 没有可用的 OCR 结果。"
    hint = "Retry from the stage mineru."
    hint_zh = "请从 mineru 阶段重试。"


class ArtifactNotReady(Conflict):
    """The requested artifact does not exist yet, or never will."""

    code = "NOT_THERE_YET"
    message = "Task {task_id} is {status}; its {what} does not exist."
    message_zh = "任务 {task_id} 处于 {status}；尚无 {what}。"
    hint = "Request it again when the task is completed; retry the task if it failed or was cancelled."
    hint_zh = "请在任务完成后再次请求；失败或已取消的任务可以重试。"


class RunCancelled(Conflict):
    """The worker's run was cancelled, retried or taken over; the worker stops and drops its work."""

    code = "ETL_TASK_NOT_WANTED"
    message = "Run {run} of task {task_id} is no longer current."
    message_zh = "任务 {task_id} 的第 {run} 轮已不再有效。"
    hint = "The task was cancelled, or another worker took it over. No action needed."
    hint_zh = "任务已被取消，或已由其他工作进程接手，无需处理。"


class RunTakenOver(Unavailable):
    """Another process writes the run state of this run, although the task's row is still active."""

    code = "ETL_RUN_TAKEN_OVER"
    message = "Run {run} of task {task_id} is active, but another process writes its run state."
    message_zh = "任务 {task_id} 的第 {run} 轮仍在进行，但其运行状态被其他进程写入。"
    hint = "Retried automatically. If it persists, check whether another installation uses the same ETL_REDIS_PREFIX."
    hint_zh = "将自动重试。若持续出现，请检查是否有其他部署使用相同的 ETL_REDIS_PREFIX。"
    internal_outage = True


class SameNameRunning(Unavailable):
    """The published result of a removed task cannot be deleted yet: a task of the same filename is active."""

    code = "NAMESAKE_UNDER_WAY"
    message = "{key} is kept until no task of that name is active."
    message_zh = "在同名任务结束之前，{key} 将保留。"
    hint = "Retried automatically."
    hint_zh = "将自动重试。"
    internal_outage = True  # costs no attempt: the object must be deleted however long the other task takes


class WorkerStillRunning(Unavailable):
    """The artifacts of a removed task cannot be deleted yet: its worker may still write some."""

    code = "ETL_WORKER_STILL_THERE"
    message = "The artifacts of task {task_id} are kept until its worker has stopped."
    message_zh = "在工作进程停止之前，任务 {task_id} 的产物将保留。"
    hint = "Retried automatically."
    hint_zh = "将自动重试。"
    internal_outage = True  # costs no attempt, for the same reason


class QueueFull(TooMany):
    """The maximum number of active tasks is reached."""

    code = "QUEUE_FULL"
    message = "The queue is full: {most} tasks are active."
    message_zh = "队列已满：{most} 个任务正在进行。"
    hint = "Retry later, or raise ETL_QUEUE_SIZE."
    hint_zh = "请稍后重试，或提高 ETL_QUEUE_SIZE。"


class QueueShareFull(TooMany):
    """The maximum number of active tasks of one user is reached."""

    code = "QUEUE_SHARE_FULL"
    message = "Your share of the queue is full: {most} of your tasks are active."
    message_zh = "您在队列中的份额已满：您有 {most} 个任务正在进行。"
    hint = "Retry later, or raise ETL_QUEUE_SHARE."
    hint_zh = "请稍后重试，或提高 ETL_QUEUE_SHARE。"


class StageTimedOut(Unavailable):
    """A stage reported no progress for ETL_TASK_TIMEOUT."""

    code = "TASK_TIMEOUT"
    message = "Task timeout"
    message_zh = "任务超时"
    hint = "No progress for ETL_TASK_TIMEOUT seconds. Check the OCR or model provider, then retry the task."
    hint_zh = "在 ETL_TASK_TIMEOUT 秒内没有进展。请检查 OCR 或模型服务，然后重试任务。"


class StageStale(Unavailable):
    """The workers of a task stopped responding, on every attempt."""

    code = "TASK_STALE"
    message = "The task's worker stopped responding."
    message_zh = "执行任务的工作进程失去响应。"
    hint = "Check the worker logs, then retry the task."
    hint_zh = "请查看工作进程日志，然后重试任务。"
    retryable = False


class UnsupportedMode(Invalid):
    """No post-processor is configured for the rule's postprocess_mode."""

    code = "MODE_UNKNOWN"
    message = "postprocess_mode {mode} is not available here."
    message_zh = "此处不支持 postprocess_mode {mode}。"
    hint = "Use a rule with postprocess_mode fields or skip."
    hint_zh = "请使用 postprocess_mode 为 fields 或 skip 的规则。"
