"""What can go wrong between a document, a rule and the words of a model. None of it gets better by asking again."""

from penstock.kernel.errors import Invalid, TooLarge


class DocumentHasTooManyChunks(TooLarge):
    """A document is longer than a model may be asked about."""

    code = "DOCUMENT_HAS_TOO_MANY_CHUNKS"
    message = "{filename} is more than {most} chunks of {size} characters, which is all that a model is asked about."
    message_zh = "{filename} 超过 {most} 个、每个 {size} 字符的分块，超出了可交给模型的上限。"
    hint = (
        "Raise ETL_POSTPROCESS_MAX_CHUNKS or ETL_POSTPROCESS_CHUNK_SIZE_CHARS (or the rule's chunk_size_chars),"
        " or split the document."
    )
    hint_zh = (
        "请提高 ETL_POSTPROCESS_MAX_CHUNKS 或 ETL_POSTPROCESS_CHUNK_SIZE_CHARS"
        "（或规则的 chunk_size_chars），或拆分文档。"
    )


class DocumentHasNoText(Invalid):
    """A document has no words, and a model that is asked about nothing makes things up."""

    code = "DOCUMENT_HAS_NO_TEXT"
    message = "No text was read in {filename}, so there is nothing to ask a model about."
    message_zh = "{filename} 中没有读到文字，没有内容可交给模型。"
    hint = "Look at the document: it may be blank, or a picture that cannot be read."
    hint_zh = "请检查文档：它可能是空白的，或者是无法识别的图片。"


class ResultNotValid(Invalid):
    """What a model answers does not satisfy the rule's schema, not even after it was told why."""

    code = "RESULT_NOT_VALID"
    message = "The model's answer does not satisfy the schema after {repairs} repairs: {problems}"
    message_zh = "经过 {repairs} 次修正，模型的回答仍不符合 schema：{problems}"
    hint = (
        "Allow null where documents may not say, simplify json_schema, or use another model; then submit the document"
        " again. A retry keeps the rule as it was."
    )
    hint_zh = (
        "请在文档可能未提及之处允许 null、简化 json_schema，或换用其他模型，然后重新提交文档；"
        "重试会沿用原来的规则版本。"
    )


class ModelRuleUnusable(Invalid):
    """A rule cannot be put to a model."""

    code = "MODEL_RULE_UNUSABLE"
    message = "A model cannot be asked by this rule: {reason}."
    message_zh = "无法按此规则向模型提问：{reason}。"
    hint = "Correct the rule's json_schema or options."
    hint_zh = "请修正规则的 json_schema 或 options。"


class ResultNotGrounded(TooLarge):
    """A rule wants no value that does not stand in the document, and there is too much to look for."""

    code = "RESULT_NOT_GROUNDED"
    message = "The values of the result cannot be looked for in {filename}: {reason}."
    message_zh = "无法在 {filename} 中查找结果的各个值：{reason}。"
    hint = "Ask for fewer values, split the document, or leave null_ungrounded out of the rule's options."
    hint_zh = "请减少字段、拆分文档，或从规则的 options 中去掉 null_ungrounded。"
