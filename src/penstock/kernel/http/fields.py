"""Invalid fields: Pydantic's validation errors as field names and readable reasons.

The value that was sent is never echoed: it may be a secret. Reasons are Pydantic's; common ones have a Chinese text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.kernel.logs import clean

MAX_ERRORS = 50
MAX_CHARACTERS = 200  # of a name or a reason
LOCATIONS = frozenset(("body", "query", "path", "header", "cookie"))
NOT_AN_OBJECT = frozenset(("model_attributes_type", "model_type", "dict_type", "list_type", "dataclass_type"))

# By Pydantic's error type; names in braces are from the error's context.
CHINESE_REASONS = {
    "bool_parsing": "应为布尔值",
    "bool_type": "应为布尔值",
    "date_from_datetime_parsing": "应为日期",
    "date_parsing": "应为日期",
    "datetime_from_date_parsing": "应为日期时间",
    "datetime_parsing": "应为日期时间",
    "datetime_type": "应为日期时间",
    "dict_type": "应为对象",
    "enum": "应为 {expected} 之一",
    "extra_forbidden": "不认识此字段",
    "float_parsing": "应为数字",
    "float_type": "应为数字",
    "greater_than": "应大于 {gt}",
    "greater_than_equal": "应不小于 {ge}",
    "int_from_float": "应为整数",
    "int_parsing": "应为整数",
    "int_type": "应为整数",
    "less_than": "应小于 {lt}",
    "less_than_equal": "应不大于 {le}",
    "list_type": "应为数组",
    "literal_error": "应为 {expected} 之一",
    "missing": "缺少此字段",
    "model_attributes_type": "应为对象",
    "string_pattern_mismatch": "格式不符",
    "string_too_long": "最多 {max_length} 个字符",
    "string_too_short": "至少 {min_length} 个字符",
    "string_type": "应为字符串",
    "too_long": "最多 {max_length} 项",
    "too_short": "至少 {min_length} 项",
    "url_parsing": "应为网址",
}


@dataclass(frozen=True, kw_only=True)
class BadField:
    """An invalid field and the reason."""

    field: str
    reason: str
    reason_zh: str

    def shown(self, language: str) -> dict[str, str]:
        """The field as a response shows it."""
        return {"field": self.field, "reason": self.reason if language == "en" else self.reason_zh}


def bad_fields(found: Sequence[Mapping[str, Any]]) -> list[BadField]:
    """Pydantic's errors, field by field."""
    return [_bad_field(error) for error in found[:MAX_ERRORS]]


def is_not_json(found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the body as a whole is invalid: not JSON, or bytes because its content type is not JSON."""
    return any(_is_bytes(error) or error["type"] == "json_invalid" for error in found)


def _is_bytes(error: Mapping[str, Any]) -> bool:
    return tuple(error["loc"]) == ("body",) and error["type"] in NOT_AN_OBJECT and isinstance(error.get("input"), bytes)


def _bad_field(error: Mapping[str, Any]) -> BadField:
    reason = clean(str(error["msg"]), MAX_CHARACTERS)
    return BadField(field=_name(error["loc"]), reason=reason, reason_zh=_chinese(error) or reason)


def _name(location: Sequence[str | int]) -> str:
    """`("body", "items", 0, "name")` as `items.0.name`; a body that is invalid as a whole is `body`."""
    inner = location[1:] if len(location) > 1 and location[0] in LOCATIONS else location
    return clean(".".join(map(str, inner)), MAX_CHARACTERS)


def _chinese(error: Mapping[str, Any]) -> str:
    template = CHINESE_REASONS.get(error["type"], "")
    try:
        return template.format_map(error.get("ctx") or {})
    except KeyError:
        return ""
