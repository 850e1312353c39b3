"""Fields that do not fit: what the framework found, as a name and a reason that a person understands.

What was sent is not repeated: it may be a secret. Reasons are Pydantic's sentences; common ones come in Chinese too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.kernel.logs import clean

MOST_ERRORS = 50
MOST_CHARACTERS = 200  # of a name or a reason
PLACES = frozenset(("body", "query", "path", "header", "cookie"))
NO_OBJECT = frozenset(("model_attributes_type", "model_type", "dict_type", "list_type", "dataclass_type"))

# By Pydantic's type of error; the names in braces are what it knows of the limit.
IN_CHINESE = {
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
    """One field and what is wrong with it."""

    field: str
    reason: str
    reason_zh: str

    def shown(self, language: str) -> dict[str, str]:
        """As an answer has it."""
        return {"field": self.field, "reason": self.reason if language == "en" else self.reason_zh}


def bad_fields(found: Sequence[Mapping[str, Any]]) -> list[BadField]:
    """What the framework found, field by field."""
    return [_bad_field(error) for error in found[:MOST_ERRORS]]


def is_no_json(found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a body as a whole is the trouble: it came as bytes, since nobody said that it is JSON."""
    return any(_is_bytes(error) or error["type"] == "json_invalid" for error in found)


def _is_bytes(error: Mapping[str, Any]) -> bool:
    return tuple(error["loc"]) == ("body",) and error["type"] in NO_OBJECT and isinstance(error.get("input"), bytes)


def _bad_field(error: Mapping[str, Any]) -> BadField:
    reason = clean(str(error["msg"]), MOST_CHARACTERS)
    return BadField(field=_name(error["loc"]), reason=reason, reason_zh=_chinese(error) or reason)


def _name(place: Sequence[str | int]) -> str:
    """`("body", "items", 0, "name")` as `items.0.name`; a body that is wrong as a whole is `body`."""
    inner = place[1:] if len(place) > 1 and place[0] in PLACES else place
    return clean(".".join(map(str, inner)), MOST_CHARACTERS)


def _chinese(error: Mapping[str, Any]) -> str:
    template = IN_CHINESE.get(error["type"], "")
    try:
        return template.format_map(error.get("ctx") or {})
    except KeyError:
        return ""
