"""Errors of MinerU. Errors about a document are in documents/errors.py."""

from penstock.kernel.errors import Invalid, TooMany, Unavailable


class MineruKeyMissing(Unavailable):
    """The MinerU cloud has no API key. Final: a retry does not help."""

    code = "MINERU_KEY_MISSING"
    message = "MinerU's cloud cannot be used: MINERU_API_KEY is not set."
    message_zh = "无法调用 MinerU 云服务：未设置 MINERU_API_KEY。"
    hint = "Set MINERU_API_KEY, or use a self-hosted server (MINERU_API_ENDPOINT), or ETL_OCR_PROVIDER=local."
    hint_zh = "请设置 MINERU_API_KEY，或使用自建服务（MINERU_API_ENDPOINT），或设置 ETL_OCR_PROVIDER=local。"
    retryable = False


class MineruKeyRefused(Unavailable):
    """The API key is unknown to MinerU or has expired."""

    code = "MINERU_KEY_REFUSED"
    message = "MinerU rejected MINERU_API_KEY: {reason}."
    message_zh = "MinerU 拒绝了 MINERU_API_KEY：{reason}。"
    hint = "Create a new token in MinerU's console, set MINERU_API_KEY to it and retry the task."
    hint_zh = "请在 MinerU 控制台新建令牌并更新 MINERU_API_KEY，然后重试任务。"
    retryable = False


class MineruRefused(Invalid):
    """MinerU does not accept this call or this document, now or later."""

    code = "MINERU_REFUSED"
    message = "MinerU refused to read {filename}: {reason}."
    message_zh = "MinerU 拒绝读取 {filename}：{reason}。"
    hint = "See MinerU's reason; change the document or the MINERU_* settings."
    hint_zh = "请查看 MinerU 给出的原因；可更换文件或调整 MINERU_* 设置。"


class MineruUnavailable(Unavailable):
    """MinerU does not answer, or not properly."""

    code = "MINERU_AWAY"
    message = "MinerU is unavailable: {reason}."
    message_zh = "MinerU 不可用：{reason}。"
    hint = "Check MINERU_API_ENDPOINT and that the server is up. The task is retried automatically."
    hint_zh = "请检查 MINERU_API_ENDPOINT 以及服务是否正常；任务会自动重试。"


class MineruBusy(TooMany):
    """MinerU accepts nothing for the moment: too many calls, or a full queue."""

    code = "MINERU_BUSY"
    message = "MinerU is busy ({reason}); try again in {whole_seconds} s."
    message_zh = "MinerU 正忙（{reason}），请在 {whole_seconds} 秒后重试。"
    hint = "The task is retried automatically."
    hint_zh = "任务会自动重试。"


class MineruQuotaExhausted(TooMany):
    """The daily quota of the MinerU account is used up."""

    code = "MINERU_USED_UP"
    message = "The daily MinerU quota is used up ({reason}); it resets in {whole_seconds} s."
    message_zh = "MinerU 账户当日额度已用完（{reason}），{whole_seconds} 秒后重置。"
    hint = "Wait until the next day, or ask MinerU for a higher quota."
    hint_zh = "请等到次日，或向 MinerU 申请更多额度。"


class MineruFailed(Unavailable):
    """A MinerU job ended without a result; another one may succeed."""

    code = "MINERU_FAILED"
    message = "MinerU could not read {filename}: {reason}."
    message_zh = "MinerU 未能读取 {filename}：{reason}。"
    hint = "The task is retried automatically; if that fails, read it with ETL_OCR_PROVIDER=local."
    hint_zh = "任务会自动重试；如仍失败，可使用 ETL_OCR_PROVIDER=local 读取。"


class MineruStalled(Unavailable):
    """A MinerU job has made no progress for too long; the next attempt continues to poll it."""

    code = "MINERU_STALLED"
    message = "MinerU job {job} has made no progress for {seconds:g} s ({reason})."
    message_zh = "MinerU 任务 {job} 已有 {seconds:g} 秒没有进展（{reason}）。"
    hint = "Check the server, or raise MINERU_TIMEOUT."
    hint_zh = "请检查服务端，或调大 MINERU_TIMEOUT。"


class MineruJobLost(Unavailable):
    """MinerU no longer knows a job: it was restarted, or has cleaned up."""

    code = "MINERU_JOB_LOST"
    message = "MinerU no longer knows job {job}."
    message_zh = "MinerU 中已没有任务 {job}。"
    hint = "The document is submitted again automatically."
    hint_zh = "文档会自动重新提交。"


class MineruUrlUnreachable(Unavailable):
    """MinerU could not fetch a document from its URL."""

    code = "MINERU_URL_UNREAD"
    message = "MinerU could not fetch {filename} from the object store: {reason}."
    message_zh = "MinerU 无法从对象存储获取 {filename}：{reason}。"
    hint = "Set MINERU_SOURCE=upload if the store cannot be reached from outside."
    hint_zh = "如果外部无法访问对象存储，请设置 MINERU_SOURCE=upload。"


class MineruResultBroken(Unavailable):
    """A MinerU result is truncated or not a zip."""

    code = "MINERU_RESULT_BROKEN"
    message = "MinerU's result for {filename} cannot be read: {reason}."
    message_zh = "无法读取 MinerU 对 {filename} 的结果：{reason}。"
    hint = "It is fetched again automatically."
    hint_zh = "结果会自动重新获取。"


class MineruResultRefused(Unavailable):
    """A MinerU result is unsafe to unpack, or too large; a retry would get the same one."""

    code = "MINERU_RESULT_REFUSED"
    message = "MinerU's result for {filename} was not unpacked: {reason}."
    message_zh = "拒绝解压 MinerU 对 {filename} 的结果：{reason}。"
    hint = "Check which server answers at MINERU_API_ENDPOINT; a genuine result looks different."
    hint_zh = "请检查 MINERU_API_ENDPOINT 背后的服务；正常的结果不会如此。"
    retryable = False
