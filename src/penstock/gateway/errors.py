"""Errors of uploads, with the status codes of tus."""

from penstock.kernel.errors import Conflict, Gone, Invalid, NotFound, Refused, TooMany


class TusVersionUnsupported(Invalid):
    """The request is not for a supported version of tus."""

    code = "TUS_VERSION_UNSUPPORTED"
    message = "The tus version {version!r} is not supported."
    message_zh = "不支持 tus 版本 {version!r}。"
    hint = "Send the header Tus-Resumable: 1.0.0."
    hint_zh = "请发送请求头 Tus-Resumable: 1.0.0。"
    status = 412


class BadTusHeader(Invalid):
    """A header of the tus protocol is missing or malformed."""

    code = "BAD_TUS_HEADER"
    message = "Invalid {header}: {reason}."
    message_zh = "{header} 无效：{reason}。"
    hint = "See docs/reference/uploads.md for the headers of each request."
    hint_zh = "各请求所需的请求头见 docs/reference/uploads.md。"


class InvalidFileType(Invalid):
    """Files of this type are not accepted."""

    code = "INVALID_FILE_TYPE"
    message = "The file {filename!r} is not accepted: its type must be one of {allowed}."
    message_zh = "不接受文件 {filename!r}：类型须为 {allowed} 之一。"
    hint = "Send filename and filetype in Upload-Metadata; GW_ALLOWED_TYPES lists what is accepted."
    hint_zh = "请在 Upload-Metadata 中发送 filename 与 filetype；可接受的类型见 GW_ALLOWED_TYPES。"


class WrongContentType(Invalid):
    """The body of a PATCH has the wrong content type."""

    code = "WRONG_CONTENT_TYPE"
    message = "The content type must be application/offset+octet-stream."
    message_zh = "内容类型必须为 application/offset+octet-stream。"
    hint = "Send the bytes as application/offset+octet-stream."
    hint_zh = "请以 application/offset+octet-stream 发送字节。"
    status = 415


class TooManyUploads(TooMany):
    """The caller has too many unfinished uploads."""

    code = "TOO_MANY_UPLOADS"
    message = "You have {most} unfinished uploads; no more can be created."
    message_zh = "您有 {most} 个未完成的上传；不能再创建。"
    hint = "Finish or delete some of them first."
    hint_zh = "请先完成或删除其中一些。"


class UploadNotFound(NotFound):
    """There is no such upload."""

    code = "UPLOAD_NOT_FOUND"
    message = "There is no upload {upload_id}."
    message_zh = "没有上传 {upload_id}。"
    hint = "Check the id; it may have been deleted. Create a new upload."
    hint_zh = "请检查标识；它可能已被删除。请重新创建上传。"


class UploadExpired(Gone):
    """The upload expired, and its bytes are deleted."""

    code = "UPLOAD_EXPIRED"
    message = "The upload {upload_id} has expired."
    message_zh = "上传 {upload_id} 已过期。"
    hint = "Create a new upload; Upload-Expires says until when one is kept."
    hint_zh = "请重新创建上传；Upload-Expires 说明保留到何时。"


class OffsetMismatch(Conflict):
    """The PATCH does not begin where the stored bytes end."""

    code = "OFFSET_MISMATCH"
    message = "The upload {upload_id} has {stored} bytes, not {offset}."
    message_zh = "上传 {upload_id} 已有 {stored} 字节，而不是 {offset}。"
    hint = "Ask for the offset with HEAD, and send the bytes from there."
    hint_zh = "请用 HEAD 查询偏移量，并从该处继续发送。"


class UploadLocked(Conflict):
    """Another request is writing to the upload."""

    code = "UPLOAD_LOCKED"
    message = "Another request is writing to the upload {upload_id}."
    message_zh = "另一个请求正在写入上传 {upload_id}。"
    hint = "Wait for it, or retry in a few seconds: a writer that falls silent is replaced."
    hint_zh = "请等待其结束，或数秒后重试：停止发送的写入者会被替换。"
    status = 423
    retryable = True
    retry_seconds = 1


class UploadTakenOver(Conflict):
    """Another request has continued the upload, because this one fell silent."""

    code = "UPLOAD_TAKEN_OVER"
    message = "Another request has taken over the upload {upload_id}, or it was deleted."
    message_zh = "另一个请求已接管上传 {upload_id}，或它已被删除。"
    hint = "Ask for the offset with HEAD before you send more."
    hint_zh = "继续发送之前请先用 HEAD 查询偏移量。"


class UploadIncomplete(Conflict):
    """The upload is not whole yet."""

    code = "UPLOAD_INCOMPLETE"
    message = "The upload {upload_id} is not complete."
    message_zh = "上传 {upload_id} 尚未完成。"
    hint = "Send the missing bytes first; a final upload is assembled in the background."
    hint_zh = "请先发送缺少的字节；合并上传在后台完成。"
    retryable = True


class FinalUploadReadOnly(Refused):
    """Bytes cannot be sent to a final upload."""

    code = "FINAL_UPLOAD_READ_ONLY"
    message = "The upload {upload_id} is made of others; bytes cannot be sent to it."
    message_zh = "上传 {upload_id} 由其他上传合并而成；不能向其发送字节。"
    hint = "Send bytes to its partial uploads before you join them."
    hint_zh = "请在合并之前向其各部分上传发送字节。"


class ChecksumUnsupported(Invalid):
    """The checksum algorithm is not supported."""

    code = "CHECKSUM_UNSUPPORTED"
    message = "The checksum algorithm {algorithm!r} is not supported."
    message_zh = "不支持校验算法 {algorithm!r}。"
    hint = "Use one of Tus-Checksum-Algorithm: sha1, sha256."
    hint_zh = "请使用 Tus-Checksum-Algorithm 中的算法：sha1、sha256。"


class ChecksumFailed(Invalid):
    """The bytes do not have the given checksum; none of them was stored."""

    code = "CHECKSUM_FAILED"
    message = "The bytes do not have the checksum that Upload-Checksum gives; they were dropped."
    message_zh = "字节与 Upload-Checksum 给出的校验和不符，已丢弃。"
    hint = "Send them again from the same offset."
    hint_zh = "请从相同偏移量重新发送。"
    status = 460
    retryable = True


class UploadStalled(Invalid):
    """No byte arrived for too long; what was received is stored."""

    code = "UPLOAD_STALLED"
    message = "No byte arrived for {seconds:g} s; {stored} bytes are stored."
    message_zh = "已有 {seconds:g} 秒未收到字节；已存储 {stored} 字节。"
    hint = "Ask for the offset with HEAD, and go on from there."
    hint_zh = "请用 HEAD 查询偏移量，并从该处继续。"
    status = 408
    retryable = True
