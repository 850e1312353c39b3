"""What can go wrong with MinerU. What is wrong with a document is told by documents/errors.py, as everywhere."""

from penstock.kernel.errors import Invalid, TooMany, Unavailable


class MineruKeyMissing(Unavailable):
    """The cloud is asked without a token, which cannot help by being tried again."""

    code = "MINERU_KEY_MISSING"
    message = "MinerU's cloud cannot be asked: MINERU_API_KEY is not set."
    message_zh = "无法调用 MinerU 云服务：未设置 MINERU_API_KEY。"
    hint = "Set MINERU_API_KEY, or use a server of your own (MINERU_API_ENDPOINT), or ETL_OCR_PROVIDER=local."
    hint_zh = "请设置 MINERU_API_KEY，或使用自建服务（MINERU_API_ENDPOINT），或设置 ETL_OCR_PROVIDER=local。"
    retryable = False


class MineruKeyRefused(Unavailable):
    """MinerU does not know the token, or it has expired."""

    code = "MINERU_KEY_REFUSED"
    message = "MinerU refused the token of MINERU_API_KEY: {reason}."
    message_zh = "MinerU 拒绝了 MINERU_API_KEY 中的令牌：{reason}。"
    hint = "Make a new token in MinerU's console and set MINERU_API_KEY to it; then retry the task."
    hint_zh = "请在 MinerU 控制台新建令牌并更新 MINERU_API_KEY，然后重试任务。"
    retryable = False


class MineruRefused(Invalid):
    """MinerU will not take this call or this document, now or later."""

    code = "MINERU_REFUSED"
    message = "MinerU refused to read {filename}: {reason}."
    message_zh = "MinerU 拒绝读取 {filename}：{reason}。"
    hint = "Read what MinerU says; another document, or other settings MINERU_*, may be taken."
    hint_zh = "请查看 MinerU 给出的原因；可更换文件或调整 MINERU_* 设置。"


class MineruAway(Unavailable):
    """MinerU does not answer, or not as it should."""

    code = "MINERU_AWAY"
    message = "MinerU does not answer as it should: {reason}."
    message_zh = "MinerU 没有正常响应：{reason}。"
    hint = "Check MINERU_API_ENDPOINT and that the server is up; the task is tried again by itself."
    hint_zh = "请检查 MINERU_API_ENDPOINT 以及服务是否正常；任务会自动重试。"


class MineruBusy(TooMany):
    """MinerU takes nothing for the moment: too many calls, or a full queue."""

    code = "MINERU_BUSY"
    message = "MinerU is busy ({reason}); try again in {whole_seconds} s."
    message_zh = "MinerU 正忙（{reason}），请在 {whole_seconds} 秒后重试。"
    hint = "The task is tried again by itself."
    hint_zh = "任务会自动重试。"


class MineruUsedUp(TooMany):
    """The account has used what it may use in a day."""

    code = "MINERU_USED_UP"
    message = "The MinerU account has used up its day ({reason}); the next begins in {whole_seconds} s."
    message_zh = "MinerU 账户当日额度已用完（{reason}），{whole_seconds} 秒后开始新的一天。"
    hint = "Wait for the next day, or ask MinerU for more."
    hint_zh = "请等到次日，或向 MinerU 申请更多额度。"


class MineruFailed(Unavailable):
    """A job ended without a result, and another one may end better."""

    code = "MINERU_FAILED"
    message = "MinerU could not read {filename}: {reason}."
    message_zh = "MinerU 未能读取 {filename}：{reason}。"
    hint = "The task is tried again by itself; if that does not help, read it with ETL_OCR_PROVIDER=local."
    hint_zh = "任务会自动重试；如仍失败，可使用 ETL_OCR_PROVIDER=local 读取。"


class MineruStalled(Unavailable):
    """A job has made no progress for too long. It is not given up: the next attempt goes on looking at it."""

    code = "MINERU_STALLED"
    message = "MinerU's job {job} has made no progress for {seconds:g} s ({reason})."
    message_zh = "MinerU 任务 {job} 已有 {seconds:g} 秒没有进展（{reason}）。"
    hint = "Look at the server, or raise MINERU_TIMEOUT."
    hint_zh = "请检查服务端，或调大 MINERU_TIMEOUT。"


class MineruLost(Unavailable):
    """MinerU does not know a job any more that it was given: it was restarted, or has tidied up."""

    code = "MINERU_JOB_LOST"
    message = "MinerU does not know its job {job} any more."
    message_zh = "MinerU 已不认识任务 {job}。"
    hint = "The document is sent again by itself."
    hint_zh = "文档会自动重新提交。"


class MineruUrlUnread(Unavailable):
    """MinerU could not fetch a document from the address that it was given."""

    code = "MINERU_URL_UNREAD"
    message = "MinerU could not fetch {filename} from the object store: {reason}."
    message_zh = "MinerU 无法从对象存储获取 {filename}：{reason}。"
    hint = "Set MINERU_SOURCE=upload when the store cannot be reached from outside."
    hint_zh = "如果外部无法访问对象存储，请设置 MINERU_SOURCE=upload。"


class MineruResultBroken(Unavailable):
    """A result is cut short or no zip at all."""

    code = "MINERU_RESULT_BROKEN"
    message = "MinerU's result for {filename} cannot be read: {reason}."
    message_zh = "无法读取 MinerU 对 {filename} 的结果：{reason}。"
    hint = "It is fetched again by itself."
    hint_zh = "结果会自动重新获取。"


class MineruResultRefused(Unavailable):
    """A result is dangerous to unpack, or too large. The same one would come again, so it is final."""

    code = "MINERU_RESULT_REFUSED"
    message = "MinerU's result for {filename} is not unpacked: {reason}."
    message_zh = "拒绝解压 MinerU 对 {filename} 的结果：{reason}。"
    hint = "Check who answers at MINERU_API_ENDPOINT; an honest result looks different."
    hint_zh = "请检查 MINERU_API_ENDPOINT 背后的服务；正常的结果不会如此。"
    retryable = False
