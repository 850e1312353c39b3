"""Errors of documents. Only the last two are retried."""

from penstock.kernel.errors import Invalid, TooLarge, Unavailable


class DocumentUnreadable(Invalid):
    """A document is damaged, truncated, or not what its name says."""

    code = "DOCUMENT_UNREADABLE"
    message = "{filename} cannot be read as {kind}: {reason}."
    message_zh = "无法将 {filename} 作为 {kind} 读取：{reason}。"
    hint = "Open the file in the program that made it, save it again, and resubmit it."
    hint_zh = "请用创建该文件的程序打开并重新保存，然后再次提交。"


class DocumentEmpty(Invalid):
    """A document has no bytes or no pages."""

    code = "DOCUMENT_EMPTY"
    message = "{filename} is empty."
    message_zh = "{filename} 是空的。"
    hint = "Check that the upload is complete."
    hint_zh = "请检查上传是否完整。"


class DocumentEncrypted(Invalid):
    """A document needs a password."""

    code = "DOCUMENT_ENCRYPTED"
    message = "{filename} is password-protected."
    message_zh = "{filename} 受密码保护。"
    hint = "Remove the password and submit the file again."
    hint_zh = "请移除密码后重新提交。"


class DocumentKindUnknown(Invalid):
    """A document has an unsupported format."""

    code = "DOCUMENT_KIND_UNKNOWN"
    message = "{filename} has an unsupported format ({seen})."
    message_zh = "不支持 {filename} 的格式（{seen}）。"
    hint = "Supported formats: pdf, png, jpg, tiff, webp, docx, pptx, xlsx, html, eml, csv, txt, md."
    hint_zh = "支持的格式：pdf、png、jpg、tiff、webp、docx、pptx、xlsx、html、eml、csv、txt、md。"


class DocumentTooLarge(TooLarge):
    """A document exceeds a limit on memory, CPU time or pages."""

    code = "DOCUMENT_TOO_LARGE"
    message = "{filename} is too large: {reason}."
    message_zh = "{filename} 过大：{reason}。"
    hint = "Split the document, or raise the limit (see docs/reference/settings.md)."
    hint_zh = "请拆分文档，或提高相应上限（见 docs/reference/settings.md）。"


class DocumentTookTooLong(Unavailable):
    """Reading a document timed out: the document is too complex, or the machine is overloaded."""

    code = "DOCUMENT_TOOK_TOO_LONG"
    message = "Reading {filename} took too long: {reason}."
    message_zh = "读取 {filename} 用时过长：{reason}。"
    hint = "Retry when the machine is less busy. If that does not help, split the document."
    hint_zh = "请在负载较低时重试；如仍无效，请拆分文档。"


class DocumentReaderKilled(Unavailable):
    """The process that read a document was killed, most likely by the out-of-memory killer."""

    code = "DOCUMENT_READER_KILLED"
    message = "The process that read {filename} was killed: {reason}."
    message_zh = "读取 {filename} 的进程被终止：{reason}。"
    hint = "Add memory or run fewer workers at once, then retry."
    hint_zh = "请增加内存或减少同时运行的工作进程，然后重试。"
