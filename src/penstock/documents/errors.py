"""What can be wrong with a document. Only the last two may get better by trying again."""

from penstock.kernel.errors import Invalid, TooLarge, Unavailable


class DocumentUnreadable(Invalid):
    """A document is damaged, cut short, or not what its name says."""

    code = "DOCUMENT_UNREADABLE"
    message = "{filename} cannot be read as {kind}: {reason}."
    message_zh = "无法将 {filename} 作为 {kind} 读取：{reason}。"
    hint = "Open the file in its own program and save it anew, then submit it again."
    hint_zh = "请用相应程序打开并重新保存该文件，然后再次提交。"


class DocumentEmpty(Invalid):
    """A document has no bytes, or no page."""

    code = "DOCUMENT_EMPTY"
    message = "{filename} is empty."
    message_zh = "{filename} 是空的。"
    hint = "Check that the upload was complete."
    hint_zh = "请检查上传是否完整。"


class DocumentEncrypted(Invalid):
    """A document opens only with a password."""

    code = "DOCUMENT_ENCRYPTED"
    message = "{filename} is protected by a password."
    message_zh = "{filename} 受密码保护。"
    hint = "Remove the password and submit the file again."
    hint_zh = "请移除密码后重新提交。"


class DocumentKindUnknown(Invalid):
    """A document is of a kind that nobody here can read."""

    code = "DOCUMENT_KIND_UNKNOWN"
    message = "{filename} is of a kind that cannot be read here ({seen})."
    message_zh = "{filename} 的类型（{seen}）在此无法读取。"
    hint = "PDF, png, jpg, tiff, webp, docx, pptx, xlsx, html, eml, csv, txt and md can be read."
    hint_zh = "可读取 PDF、png、jpg、tiff、webp、docx、pptx、xlsx、html、eml、csv、txt 和 md。"


class DocumentTooLarge(TooLarge):
    """A document asks for more memory, processor time or pages than one may have."""

    code = "DOCUMENT_TOO_LARGE"
    message = "{filename} is too large: {reason}."
    message_zh = "{filename} 过大：{reason}。"
    hint = "Split it, or raise the limit that is named in docs/reference/settings.md."
    hint_zh = "请拆分文件，或提高 docs/reference/settings.md 中相应的上限。"


class DocumentTookTooLong(Unavailable):
    """A document was not read in time: it is too much, or the machine had too much to do."""

    code = "DOCUMENT_TOOK_TOO_LONG"
    message = "Reading {filename} took too long: {reason}."
    message_zh = "读取 {filename} 用时过长：{reason}。"
    hint = "Try again when less is going on; if that does not help, split the document."
    hint_zh = "请在负载较低时重试；如仍无效，请拆分文档。"


class DocumentReaderKilled(Unavailable):
    """Whoever read a document was killed by the machine, most likely for want of memory."""

    code = "DOCUMENT_READER_KILLED"
    message = "Reading {filename} was stopped by the machine: {reason}."
    message_zh = "读取 {filename} 的进程被系统终止：{reason}。"
    hint = "Give the machine more memory, or let fewer workers run at once, and try again."
    hint_zh = "请增加内存或减少同时运行的工作进程，然后重试。"
