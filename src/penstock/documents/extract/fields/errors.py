"""What can be wrong when fields are looked for. None of these gets better by trying again."""

from penstock.kernel.errors import Invalid, TooLarge


class FieldsSchemaUnusable(Invalid):
    """The schema of a rule cannot be filled from labels."""

    code = "FIELDS_SCHEMA_UNUSABLE"
    message = "The schema of the rule cannot be used to find fields: {reason}."
    message_zh = "规则中的 schema 无法用于查找字段：{reason}。"
    hint = "Use a JSON Schema of type object whose references stay inside it; see docs/howto/fields.md."
    hint_zh = "请使用 object 类型的 JSON Schema，且其引用只指向自身内部；参见 docs/howto/fields.md。"


class FieldsTooCostly(TooLarge):
    """Finding the fields asks for more time, memory or room than it may."""

    code = "FIELDS_TOO_COSTLY"
    message = "Finding the fields of {filename} takes too much: {reason}."
    message_zh = "查找 {filename} 的字段所需资源过多：{reason}。"
    hint = "Ask for fewer fields, use simpler patterns, or split the document."
    hint_zh = "请减少字段、简化 pattern，或拆分文档。"
