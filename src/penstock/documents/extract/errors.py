"""Errors of extraction: unusable rule, document beyond the limits, invalid result. A retry does not help."""

from penstock.kernel.errors import Invalid, TooLarge


class FieldsSchemaUnusable(Invalid):
    """The schema of a rule cannot be filled from labels."""

    code = "FIELDS_SCHEMA_UNUSABLE"
    message = "The schema of the rule cannot be used to find fields: {reason}."
    message_zh = "规则中的 schema 无法用于查找字段：{reason}。"
    hint = "Use a JSON Schema of type object whose references stay inside it; see docs/howto/fields.md."
    hint_zh = "请使用 object 类型的 JSON Schema，且其引用只指向自身内部；参见 docs/howto/fields.md。"


class FieldsTooCostly(TooLarge):
    """Finding the fields exceeds the limits on time, memory or size."""

    code = "FIELDS_TOO_COSTLY"
    message = "Finding the fields of {filename} exceeds a limit: {reason}."
    message_zh = "查找 {filename} 的字段超出限制：{reason}。"
    hint = "Request fewer fields, use simpler patterns, or split the document."
    hint_zh = "请减少字段、简化 pattern，或拆分文档。"


class DocumentHasTooManyChunks(TooLarge):
    """A document is too long for a model."""

    code = "DOCUMENT_HAS_TOO_MANY_CHUNKS"
    message = "{filename} is longer than the limit of {most} chunks of {size} characters."
    message_zh = "{filename} 超过上限：最多 {most} 个分块，每个 {size} 字符。"
    hint = (
        "Raise ETL_POSTPROCESS_MAX_CHUNKS or ETL_POSTPROCESS_CHUNK_SIZE_CHARS (or the rule's chunk_size_chars),"
        " or split the document."
    )
    hint_zh = (
        "请提高 ETL_POSTPROCESS_MAX_CHUNKS 或 ETL_POSTPROCESS_CHUNK_SIZE_CHARS"
        "（或规则的 chunk_size_chars），或拆分文档。"
    )


class DocumentHasNoText(Invalid):
    """A document has no text, and a model without text makes values up."""

    code = "DOCUMENT_HAS_NO_TEXT"
    message = "{filename} has no text to send to a model."
    message_zh = "{filename} 中没有可交给模型的文字。"
    hint = "Check the document: it may be blank, or an image that cannot be read."
    hint_zh = "请检查文档：它可能是空白的，或者是无法识别的图片。"


class ResultNotValid(Invalid):
    """The response of a model does not satisfy the rule's schema, even after the repair rounds."""

    code = "RESULT_NOT_VALID"
    message = "The model's response does not satisfy the schema after {repairs} repairs: {problems}"
    message_zh = "经过 {repairs} 次修正，模型的回答仍不符合 schema：{problems}"
    hint = (
        "Allow null where documents may have no value, simplify json_schema, or use another model; then submit the"
        " document again. A retry uses the rule version of the first attempt."
    )
    hint_zh = (
        "请在文档可能没有取值之处允许 null、简化 json_schema，或换用其他模型，然后重新提交文档；"
        "重试会沿用首次尝试的规则版本。"
    )


class ModelRuleUnusable(Invalid):
    """A rule cannot be used with a model."""

    code = "MODEL_RULE_UNUSABLE"
    message = "The rule cannot be used with a model: {reason}."
    message_zh = "该规则无法用于模型：{reason}。"
    hint = "Correct the rule's json_schema or options."
    hint_zh = "请修正规则的 json_schema 或 options。"


class ResultNotGrounded(TooLarge):
    """A rule removes values that are not in the document, and there are too many values to search."""

    code = "RESULT_NOT_GROUNDED"
    message = "The values of the result cannot be searched in {filename}: {reason}."
    message_zh = "无法在 {filename} 中查找结果的各个值：{reason}。"
    hint = "Ask for fewer values, split the document, or remove null_ungrounded from the rule's options."
    hint_zh = "请减少字段、拆分文档，或从规则的 options 中去掉 null_ungrounded。"
